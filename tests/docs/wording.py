"""How values and types of the code are told in a page."""

from __future__ import annotations

from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, NEVER, SECOND
from jackalope.core.ids import TaskId
from jackalope.core.settings import Bounds

_UNITS = {"d": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": MILLISECOND, "µs": 1}
_PLAIN: dict[Any, str] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "text",
    bytes: "bytes",
    TaskId: "task id",
    Any: "anything",
}


def code(text: object) -> str:
    return f"`{text}`"


def duration(us: int) -> str:
    """Tell a time in the largest unit in which it is whole."""
    if us == 0:
        return "0"
    if us >= NEVER:
        return "for ever"
    unit, size = next((unit, size) for unit, size in _UNITS.items() if us % size == 0)
    return f"{us // size:,} {unit}"


def size(count: int) -> str:
    """Tell a number of bytes."""
    return f"{count // 1024:,} KiB" if count % 1024 == 0 else f"{count:,} bytes"


def setting(name: str, value: object) -> str:
    """Tell the value of a field of a policy."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return code(value.value)
    if isinstance(value, int):
        return duration(value) if name.endswith("_us") else f"{value:,}"
    return str(value) if value and value is not msgspec.NODEFAULT else "none"


def setting_kind(name: str, kind: Any) -> str:
    """Tell what values a field of a policy takes."""
    if get_origin(kind) is Annotated:
        words = next(each.words for each in kind.__metadata__ if isinstance(each, Bounds))
        return ", ".join(map(code, words)) if words else setting_kind(name, kind.__origin__)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(code(member.value) for member in kind)
    if kind is bool:
        return "yes or no"
    if kind is int:
        return "duration" if name.endswith("_us") else "whole number"
    return {float: "number", str: "name"}.get(kind) or kind_of(kind)


def kind_of(kind: Any) -> str:
    """Tell the type of a field as it is encoded."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return kind_of(args[0])
    if origin in (Union, UnionType):
        others = [kind_of(arg) for arg in args if arg is not NoneType]
        return " or ".join(others + ["nil"] * (NoneType in args))
    if origin in (tuple, list):
        return f"list of {kind_of(args[0])}"
    if origin is dict:
        return "map"
    return code(kind.__name__)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Tell the default of a field, or that it must be there."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "nil"
    if isinstance(value, Enum):
        return code(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else "empty"
