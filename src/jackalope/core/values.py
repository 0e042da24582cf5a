"""Free values: what a peer may put where anything may stand, such as headers and arguments.

Owns the one check of them. A value that passes can be encoded, decoded again and shown as JSON by
every door; a value that does not would be noticed later, in a journal that can no longer be read.
So doors apply `shape_problem` to what they decode before they walk through it themselves, and the
core applies `value_problem` to all that it stores.

Both are pure, never raise, and walk level by level: no input is deep enough to exhaust the stack.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from jackalope.core.commands import DeclarePool, DeclareQueue
from jackalope.core.commands.amqp import Bind, OpenExchange, OpenQueue, SetRule, Unbind
from jackalope.core.commands.base import Command
from jackalope.core.commands.contracts import DeclareContracts
from jackalope.core.commands.limits import DeclareLimits
from jackalope.core.commands.namespaces import DeclareNamespace
from jackalope.core.commands.schedules import DeclareSchedule, DeclareSchedules
from jackalope.core.limits import ARGUMENTS_BYTES_MAX, DEPTH_MAX, INLINE_BYTES_MAX
from jackalope.core.refusals import Code, Refusal

#: What MessagePack makes of a time: a value like others. The core itself reads no clock.
_MOMENT = type(msgspec.msgpack.decode(b"\xd6\xff\0\0\0\0"))

_PLAIN = (str, int, float, bytes, type(None), _MOMENT)
_PLAIN_EXACTLY = frozenset({*_PLAIN, bool})
_TEXT_EXACTLY = frozenset({str})

#: What may name something in a map: what JSON can write as text.
NAMES = (str, int, float, bytes)
TEXTS = (str,)
_LISTS = frozenset({list, tuple})

_encode = msgspec.msgpack.Encoder().encode


def shape_problem(value: object, names: tuple[type, ...] = NAMES) -> str:
    """Return what is wrong with the structure of a value; empty if nothing is.

    Lists and maps nest at most `DEPTH_MAX` deep, keys in maps are of the types `names`, and
    everything else is a plain value.
    """
    if (
        type(value) is dict
        and _PLAIN_EXACTLY.issuperset(map(type, value.values()))
        and _TEXT_EXACTLY.issuperset(map(type, value))
    ):
        return ""  # Nearly always: some texts and numbers by name.
    return _walk(value, names)


def _walk(value: object, names: tuple[type, ...]) -> str:
    level: list[Any] = [value]
    for depth in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if kind in _PLAIN_EXACTLY:
                continue
            is_list = kind in _LISTS
            if depth == DEPTH_MAX and (is_list or kind is dict):
                return f"nested more than {DEPTH_MAX} deep"
            if is_list:
                inner += each
            elif kind is dict:
                if any(type(name) is bool or not isinstance(name, names) for name in each):
                    return "a key in a map is not a string"
                inner += each.values()
            elif not isinstance(each, _PLAIN):
                return f"a value of type {kind.__name__}, which cannot be stored"
        if not inner:
            break
        level = inner
    return ""


def value_problem(value: object, bytes_max: int, names: tuple[type, ...] = NAMES) -> str:
    problem = shape_problem(value, names)
    if problem:
        return problem
    try:
        size = len(_encode(value))
    except (OverflowError, UnicodeEncodeError) as error:
        return f"cannot be encoded: {error}"
    return f"{size} bytes encoded; at most {bytes_max}" if size > bytes_max else ""


def unfit(command: Command) -> Refusal | None:
    """Refuse a declaration with values that cannot be stored; headers are checked per task."""
    path = FREE.get(type(command))
    if path is None:
        return None
    # Declarations are compared, and stored in history, as JSON.
    bytes_max = _BYTES_MAX.get(type(command), ARGUMENTS_BYTES_MAX)
    problem = value_problem(attrgetter(path)(command), bytes_max, TEXTS)
    return Refusal(Code.INVALID, f"{path.rpartition('.')[2]}: {problem}") if problem else None


#: Where the free values of each command are that has any. A test compares this with the types.
FREE: dict[type, str] = {
    DeclareQueue: "changes",
    DeclarePool: "changes",
    DeclareNamespace: "changes",
    DeclareSchedule: "changes",
    DeclareSchedules: "schedules",
    DeclareContracts: "contracts",
    DeclareLimits: "limits",
    OpenQueue: "arguments",
    OpenExchange: "exchange.arguments",
    Bind: "binding.arguments",
    Unbind: "binding.arguments",
    SetRule: "rule.definition",
}

#: Those that have payloads or schemas may be larger; each is checked by itself.
_BYTES_MAX: dict[type, int] = {
    DeclareSchedule: 4 * INLINE_BYTES_MAX,
    DeclareSchedules: 256 * INLINE_BYTES_MAX,
    DeclareContracts: 256 * INLINE_BYTES_MAX,
    DeclareLimits: 16 * INLINE_BYTES_MAX,
}
