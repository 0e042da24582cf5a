"""The last words of a splice over AMQP: `connection.close`, where a frame may stand.

Owns where the leader's stream of frames is. Clients treat 320 as a broker that is restarted, and
connect again.
"""

from __future__ import annotations

from struct import Struct

from jackalope.wire import amqp

_HEADER = Struct(">BHI")
_METHOD = Struct(">HH")
_METHOD_FRAME = 1
_END_BYTES = 1

_OPEN_OK, _CLOSE, _CLOSE_OK = (10, 41), (10, 50), (10, 51)


class LastWords:
    """Follows frames as they pass."""

    def __init__(self) -> None:
        self._head = b""  # of the frame that has begun
        self._left = 0  # bytes of it that are still to come, once its head is known
        self._is_open = False

    def note(self, data: bytes) -> None:
        at, size = 0, len(data)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                continue
            known = len(self._head)
            wanted = _HEADER.size
            if known >= wanted or (known and self._head[0] == _METHOD_FRAME):
                wanted += _METHOD.size
            step = min(wanted - known, size - at)
            self._head += data[at : at + step]
            at += step
            self._look()

    def _look(self) -> None:
        head = self._head
        if len(head) < _HEADER.size:
            return
        kind, channel, payload = _HEADER.unpack_from(head)
        begun = len(head) - _HEADER.size
        if kind == _METHOD_FRAME and payload >= _METHOD.size:
            if begun < _METHOD.size:
                return
            if channel == 0:
                method = _METHOD.unpack_from(head, _HEADER.size)
                self._is_open = (self._is_open or method == _OPEN_OK) and method not in (
                    _CLOSE,
                    _CLOSE_OK,
                )
        self._head, self._left = b"", max(0, payload + _END_BYTES - begun)

    def words(self) -> bytes:
        if not self._is_open or self._head or self._left:
            return b""
        return amqp.encode_method(
            0,
            "connection.close",
            reply_code=320,
            reply_text="the node that leads was lost; connect again",
            class_id=0,
            method_id=0,
        )
