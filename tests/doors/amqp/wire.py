"""An AMQP client that hides nothing: it sends what it is told, and notes whatever comes back.

The clients from PyPI put a face of their own on what a broker says. Here one sees the methods, in
their order, with every field and the exact type of every header.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pamqp import base, body, commands, frame, header, heartbeat

#: What is still missing after this long does not come any more.
PATIENCE_S = 15.0

CAPABILITIES: dict[str, Any] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}

_PROPERTIES: dict[str, Any] = {"capabilities": CAPABILITIES, "product": "transcript"}
_FRAME_HEADER = struct.Struct(">BHI")
_FRAME_END = 0xCE
_METHOD, _HEADER, _BODY = 1, 2, 3


@dataclass
class Content:
    """The properties of a message as they were encoded, and its body."""

    raw_properties: bytes
    size: int
    body: bytes = b""


@dataclass
class Heard:
    """A method that came, with its content if it carries one."""

    channel: int
    method: base.Frame
    content: Content | None = None

    @property
    def name(self) -> str:
        """Return the method's name, as `basic.deliver`."""
        return self.method.name.lower().replace("ok", "-ok").replace("empty", "-empty")


class Closed(Exception):
    """The broker has closed the socket."""


@dataclass
class Wire:
    """One connection."""

    port: int
    server_properties: dict[str, Any] = field(default_factory=dict)
    tune: commands.Connection.Tune | None = None
    _buffer: bytearray = field(default_factory=bytearray)
    _heard: dict[int, deque[Heard]] = field(default_factory=dict)
    _partial: dict[int, Heard] = field(default_factory=dict)
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def open(
        self,
        *,
        user: str = "guest",
        password: str = "guest",  # noqa: S107
        vhost: str = "/",
        mechanism: str = "PLAIN",
        frame_max: int | None = None,
    ) -> Heard:
        """Go through the handshake, and return its last word."""
        self.send_bytes(b"AMQP\x00\x00\x09\x01")
        start = self.hear(0)
        assert isinstance(start.method, commands.Connection.Start)
        self.server_properties = start.method.server_properties
        self.send(
            0,
            commands.Connection.StartOk(
                client_properties=_PROPERTIES,
                mechanism=mechanism,
                response=f"\0{user}\0{password}",
                locale="en_US",
            ),
        )
        tune = self.hear(0)
        if not isinstance(tune.method, commands.Connection.Tune):
            return tune
        self.tune = tune.method
        frame_max = tune.method.frame_max if frame_max is None else frame_max
        self.send(0, commands.Connection.TuneOk(tune.method.channel_max, frame_max, 0))
        self.send(0, commands.Connection.Open(virtual_host=vhost))
        return self.hear(0)

    def send(self, channel: int, method: base.Frame) -> None:
        self.send_bytes(frame.marshal(method, channel))

    def publish(
        self,
        channel: int,
        method: commands.Basic.Publish,
        properties: commands.Basic.Properties,
        text: bytes,
    ) -> None:
        """Send a message, its body in one frame."""
        head = header.ContentHeader(body_size=len(text), properties=properties)
        data = frame.marshal(method, channel) + frame.marshal(head, channel)
        if text:
            data += frame.marshal(body.ContentBody(text), channel)
        self.send_bytes(data)

    def publish_large(
        self,
        channel: int,
        method: commands.Basic.Publish,
        properties: commands.Basic.Properties,
        text: bytes,
    ) -> None:
        """Send a message in one write, its body in frames of 64 KiB."""
        head = header.ContentHeader(body_size=len(text), properties=properties)
        parts = [text[at : at + (1 << 16)] for at in range(0, len(text), 1 << 16)]
        data = frame.marshal(method, channel) + frame.marshal(head, channel)
        data += b"".join(frame.marshal(body.ContentBody(part), channel) for part in parts)
        self.send_bytes(data)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self, channel: int) -> Heard:
        """Return the next method of a channel, or of the connection if that one ends first.

        Raises:
            Closed: The socket was closed.
            TimeoutError: Nothing came.
        """
        while True:
            for number in (channel, 0):
                if self._heard.get(number):
                    return self._heard[number].popleft()
            self._read()

    def already_heard(self, channel: int) -> list[Heard]:
        """Return what came on a channel and was not asked for yet."""
        return list(self._heard.pop(channel, ()))

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise Closed
        self._buffer += data
        while len(self._buffer) >= _FRAME_HEADER.size:
            kind, channel, size = _FRAME_HEADER.unpack_from(self._buffer)
            end = _FRAME_HEADER.size + size
            if len(self._buffer) <= end:
                return
            assert self._buffer[end] == _FRAME_END
            whole = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._take(kind, channel, whole)

    def _take(self, kind: int, channel: int, whole: bytes) -> None:
        payload = whole[_FRAME_HEADER.size : -1]
        if kind == _METHOD:
            method = frame.unmarshal(whole)[2]
            assert isinstance(method, base.Frame)
            heard = Heard(channel, method)
            if isinstance(
                method, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return
            ):
                self._partial[channel] = heard
            else:
                self._heard.setdefault(channel, deque()).append(heard)
        elif kind == _HEADER:
            size = struct.unpack_from(">Q", payload, 4)[0]
            self._partial[channel].content = Content(payload[12:], size)
            self._finish(channel)
        elif kind == _BODY:
            content = self._partial[channel].content
            assert content is not None
            content.body += payload
            self._finish(channel)
        else:
            assert isinstance(frame.unmarshal(whole)[2], heartbeat.Heartbeat)

    def _finish(self, channel: int) -> None:
        heard = self._partial[channel]
        if heard.content is not None and len(heard.content.body) == heard.content.size:
            self._heard.setdefault(channel, deque()).append(self._partial.pop(channel))
