"""Plain data: what the broker shows, as values that JSON and YAML can hold.

Every field is there, so that scripts need not ask. Task ids become UUIDs; payloads and results are
decoded as their header `content` specifies. Without it, those of a named task are what the Python
library sends, MessagePack; anything else is shown as text or base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

import msgspec

from jackalope.cli.formatting import id_text
from jackalope.core.values import shape_problem

_IDS = frozenset({"id", "parent", "task", "waiting_for", "depends_on"})
_BODIES = frozenset({"payload", "result"})

CONTENT = "content"


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "msgpack": msgspec.msgpack.decode,
    "json": msgspec.json.decode,
}


def to_plain(value: Any, content: str = "") -> Any:
    """Turn a view, or a list of views, into plain data.

    Args:
        value: what the broker showed.
        content: the encoding of its bodies, if it does not say so itself.
    """
    if isinstance(value, msgspec.Struct):
        shown = msgspec.structs.asdict(value)
        content = content_of(shown.get("headers"), shown.get("name")) or content
        return {
            name: _field(name, field, content)
            for name, field in shown.items()
            if name not in _BODIES or field is not None
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return decode_body(value, "") if isinstance(value, bytes) else value


def _field(name: str, value: Any, content: str) -> Any:
    if name in _IDS and not isinstance(value, str):
        if isinstance(value, list | tuple):
            return [id_text(each) for each in value]
        return id_text(value)
    if name in _BODIES:
        return decode_body(value, content)
    if name == "identity":
        return value.hex()
    return to_plain(value)


def content_of(headers: Mapping[str, Any] | None, name: str | None) -> str:
    """Return how the payload and the result of a task are encoded; empty if unknown."""
    return str((headers or {}).get(CONTENT) or ("msgpack" if name else ""))


def decode_body(body: bytes, content: str) -> Any:
    """Read a payload or a result; what cannot be shown stays text, or base64 behind its name."""
    decode = _DECODERS.get(content)
    if decode is not None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = decode(body)
            if not shape_problem(value):
                return to_plain(value)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
