"""Property lists and field tables, read with the type of every value."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_PROPERTIES = [
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "F"),
    ("delivery_mode", "o"),
    ("priority", "o"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "T"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
]

_NUMBERS = {
    "b": (">b", "byte"),
    "B": (">B", "ubyte"),
    "s": (">h", "short"),
    "u": (">H", "ushort"),
    "I": (">i", "int"),
    "i": (">I", "uint"),
    "l": (">q", "long"),
    "L": (">Q", "ulong"),
    "f": (">f", "float"),
    "d": (">d", "double"),
}


def properties(raw: bytes) -> dict[str, str]:
    """Return the properties that are set, each as text that names its type."""
    (flags,) = struct.unpack_from(">H", raw)
    reader = _Reader(raw, 2)
    found = {}
    for bit, (name, kind) in enumerate(_PROPERTIES):
        if flags & (1 << (15 - bit)):
            found[name] = reader.plain(kind)
    assert reader.at == len(raw), raw
    return found


def table(raw: bytes) -> str:
    """Return a whole table, its length first, as text."""
    return _Reader(raw, 0).table()


class _Reader:
    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self.at = at
        self._values: dict[str, Callable[[], str]] = {
            "t": lambda: str(bool(self._number(">B"))).lower(),
            "S": self._long_string,
            "x": lambda: f"bytes:{self._bytes('>I').hex()}",
            "T": lambda: f"time:{self._time()}",
            "F": self.table,
            "A": self._array,
            "V": lambda: "void",
            "D": lambda: f"decimal:{self._number('>B')}:{self._number('>i')}",
        }

    def plain(self, kind: str) -> str:
        """Read a property."""
        if kind == "F":
            return self.table()
        if kind == "o":
            return str(self._number(">B"))
        if kind == "T":
            return self._time()
        return repr(self._bytes(">B").decode())

    def table(self) -> str:
        end = self._number(">I") + self.at
        found = {}
        while self.at < end:
            name = self._bytes(">B").decode()
            found[name] = self._value()
        return "{" + ", ".join(f"{name}: {found[name]}" for name in sorted(found)) + "}"

    def _array(self) -> str:
        end = self._number(">I") + self.at
        found = []
        while self.at < end:
            found.append(self._value())
        return "[" + ", ".join(found) + "]"

    def _value(self) -> str:
        kind = chr(self._number(">B"))
        if kind in _NUMBERS:
            layout, name = _NUMBERS[kind]
            return f"{name}:{self._number(layout)}"
        return self._values[kind]()

    def _time(self) -> str:
        seconds = self._number(">Q")
        # Whatever the broker's clock says is not for the transcript.
        return "now" if seconds > 1_700_000_000 else str(seconds)

    def _long_string(self) -> str:
        return repr(self._bytes(">I").decode())

    def _bytes(self, length: str) -> bytes:
        size = self._number(length)
        self.at += size
        return self._raw[self.at - size : self.at]

    def _number(self, layout: str) -> Any:
        (number,) = struct.unpack_from(layout, self._raw, self.at)
        self.at += struct.calcsize(layout)
        return number
