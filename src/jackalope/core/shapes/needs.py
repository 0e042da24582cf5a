"""Needs: what a task asks of the worker that runs it.

Owns the shape of needs, how amounts and labels are written, and what is wrong with them. Who has
what, and which worker a task goes to, is the matter of `core.placement`.

An amount of a resource is a whole number of thousandths, so that half a processor is exact. It is
written as a number, or as a text with a unit: `500m` is 500 thousandths, `64GiB` is 64 times 2**30
and `2G` 2 times 10**9. Units are `m`, `k`, `M`, `G`, `T`, `P`, and `Ki` to `Pi`, with or without a
`B` behind those that are not `m`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from jackalope.core.limits import (
    AMOUNT_MAX,
    NAME_CHARS_MAX,
    NEEDS_PER_TASK_MAX,
    RESOURCES_PER_WORKER_MAX,
    TAG_CHARS_MAX,
)

#: How many thousandths there are in one.
ONE = 1_000

#: Names with amounts, and labels each with the values that will do. In the order of their names, so
#: that equal needs are equal however they were written.
Amounts = tuple[tuple[str, int], ...]
Labels = tuple[tuple[str, tuple[str, ...]], ...]

#: What a user may write for one need.
Need = int | float | str | list[str] | tuple[str, ...]


class Needs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a task needs of its worker."""

    resources: Amounts = ()  # how much of what it takes while it runs, in thousandths
    labels: Labels = ()  # labels that its worker has; any one of the values will do
    prefer: Labels = ()  # labels of workers that it goes to first
    avoid: Labels = ()  # labels of workers that it goes to only if no other can ever take it
    # the next task of the same value and queue goes to the worker of this one, if that has room
    sticky: str = ""

    def told(self) -> str:
        """Return what is required, as a person writes it."""
        amounts = [f"{name}={format_amount(amount)}" for name, amount in self.resources]
        return ", ".join(amounts + [f"{name}={'|'.join(any_of)}" for name, any_of in self.labels])


#: Needs of a task that asks for nothing but to be sticky.
NO_NEEDS = Needs()


def alike(needs: Needs) -> Needs:
    """Return what tasks have in common that any worker treats alike."""
    return msgspec.structs.replace(needs, sticky="") if needs.sticky else needs


def matches(labels: Mapping[str, str], wanted: Labels) -> int:
    """Count the wanted labels that are there."""
    return sum(labels.get(name) in any_of for name, any_of in wanted)


# Amounts.

_UNITS = {"": ONE, "m": 1} | {
    unit + end: ONE * base**power
    for base, letters in (
        (1_000, ("k", "M", "G", "T", "P")),
        (1_024, ("Ki", "Mi", "Gi", "Ti", "Pi")),
    )
    for power, unit in enumerate(letters, 1)
    for end in ("", "B")
}
_AMOUNT = re.compile(r"(\d{1,20})(?:\.(\d{1,9}))?([A-Za-z]*)")
_NO_AMOUNT = "must be a number that is not negative, or a text such as 64GiB, got {!r}"
_KNOWN = "m, k, M, G, T, P, Ki, Mi, Gi, Ti, Pi, with B or without"


def parse_amount(value: object) -> int:
    """Return an amount in thousandths; raises `ValueError` that says what would be right."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_NO_AMOUNT.format(value))  # noqa: TRY004  a user's mistake, as the others
    if isinstance(value, int):
        return _checked(value * ONE, value)
    if isinstance(value, float):
        if not 0 <= value <= AMOUNT_MAX:
            raise ValueError(f"must be 0 to {AMOUNT_MAX // ONE}, got {value}")
        amount = int(value) * ONE if value.is_integer() else round(value * ONE)
        return _checked(amount, value)
    found = _AMOUNT.fullmatch(value.strip())
    if found is None:
        raise ValueError(_NO_AMOUNT.format(value))
    whole, fraction, unit = found[1], found[2] or "", found[3]
    if unit not in _UNITS:
        raise ValueError(f"has the unknown unit {unit!r}; use {_KNOWN}")
    amount, rest = divmod(int(whole + fraction) * _UNITS[unit], 10 ** len(fraction))
    if rest:
        raise ValueError(f"is finer than a thousandth: {value!r}")
    return _checked(amount, value)


def _checked(amount: int, value: object) -> int:
    if not 0 <= amount <= AMOUNT_MAX:
        raise ValueError(f"must be 0 to {AMOUNT_MAX // ONE}, got {value}")
    return amount


def is_size(text: str) -> bool:
    """Return whether a text is an amount with a unit, and so no label."""
    found = _AMOUNT.fullmatch(text.strip())
    return found is not None and bool(found[3]) and found[3] in _UNITS


def amount_of(thousandths: int) -> int | float:
    """Return an amount as a number."""
    return thousandths // ONE if thousandths % ONE == 0 else thousandths / ONE


def format_amount(thousandths: int) -> str:
    """Return an amount as a person writes it."""
    if thousandths % ONE:
        return f"{thousandths}m"
    whole = thousandths // ONE
    for power, unit in reversed(list(enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1))):
        if whole and whole % 1_024**power == 0:
            return f"{whole // 1_024**power}{unit}B"
    return str(whole)


def amounts_shown(amounts: Mapping[str, int] | Amounts) -> dict[str, int | float]:
    pairs = amounts.items() if isinstance(amounts, Mapping) else amounts
    return {name: amount_of(amount) for name, amount in pairs}


def needs_shown(needs: Needs) -> dict[str, int | float | tuple[str, ...]]:
    """Return what is required by name: amounts as numbers, and labels with their values."""
    return {**amounts_shown(needs.resources), **dict(needs.labels)}


# Reading what users write.


def read_amounts(given: Mapping[str, object], problems: list[str], where: str) -> dict[str, int]:
    """Return amounts by name, and add all that is wrong to the problems."""
    amounts = {}
    for name, value in given.items():
        try:
            amounts[name] = parse_amount(value)
        except ValueError as error:
            problems.append(f"{where}: {name}: {error}")
    return amounts


def read_labels(given: Mapping[str, object], problems: list[str], where: str) -> Labels:
    """Return labels with their values, and add all that is wrong to the problems."""
    labels = []
    for name, value in sorted(given.items()):
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list | tuple | set) and all(isinstance(it, str) for it in values):
            labels.append((name, tuple(sorted(set(values)))))
        else:
            kind = type(value).__name__  # The value itself may have no end.
            problems.append(f"{where}: {name}: must be a text or a list of texts, got {kind}")
    return tuple(labels)


def read_pairs(given: Iterable[str], problems: list[str], where: str) -> dict[str, list[str]]:
    """Return the values of each name in texts of the form `NAME=VALUE`."""
    values: dict[str, list[str]] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name and value:
            values.setdefault(name, []).append(value)
        else:
            problems.append(f"{where}: {text!r} is not of the form NAME=VALUE")
    return values


def read_values(pairs: Mapping[str, list[str]]) -> dict[str, int | float | str | tuple[str, ...]]:
    """Return needs that were written as texts: one that is a number is an amount."""
    return {
        name: _number(values[0]) if len(values) == 1 else tuple(values)
        for name, values in pairs.items()
    }


def _number(text: str) -> int | float | str:
    if not text.lstrip("+-.")[:1].isdigit():
        return text  # Python takes `nan` and `inf` for numbers.
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_needs(given: Mapping[str, object], problems: list[str]) -> Needs:
    """Return what a mapping asks for: numbers and sizes are resources, other texts are labels."""
    is_amount = {
        name: isinstance(value, int | float) or (isinstance(value, str) and is_size(value))
        for name, value in given.items()
    }
    amounts = {name: value for name, value in given.items() if is_amount[name]}
    labels = {name: value for name, value in given.items() if not is_amount[name]}
    resources = read_amounts(amounts, problems, "needs")
    return Needs(tuple(sorted(resources.items())), read_labels(labels, problems, "needs"))


def needs_of_policy(given: Mapping[str, Any]) -> Needs:
    """Return the needs that the policy of a queue gives to tasks that have none."""
    return _read_once(tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in given.items()))


@lru_cache(maxsize=1_000)
def _read_once(given: tuple[tuple[str, Any], ...]) -> Needs:
    return read_needs(dict(given), [])


# Checking.


def policy_needs_problems(given: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the needs in a policy."""
    problems: list[str] = []
    needs = read_needs(given, problems)
    return problems + needs_problems(needs)


def needs_problems(needs: Needs) -> list[str]:
    """List what is wrong with the needs of a task."""
    parts = {"needs": needs.labels, "prefer": needs.prefer, "avoid": needs.avoid}
    count = len(needs.resources) + sum(len(labels) for labels in parts.values())
    problems = []
    if count > NEEDS_PER_TASK_MAX:
        problems.append(f"needs: more than {NEEDS_PER_TASK_MAX}, got {count}")
    problems += _name_problems("needs", [name for name, _ in (*needs.resources, *needs.labels)])
    for where in ("prefer", "avoid"):
        problems += _name_problems(where, [name for name, _ in parts[where]])
    problems += [
        f"needs: {name}: must be more than 0 and at most {AMOUNT_MAX // ONE}, "
        f"got {amount_of(amount)}"
        for name, amount in needs.resources
        if not 0 < amount <= AMOUNT_MAX
    ]
    for where, labels in parts.items():
        for name, any_of in labels:
            if not 0 < len(any_of) <= NEEDS_PER_TASK_MAX:
                most = NEEDS_PER_TASK_MAX
                problems.append(f"{where}: {name}: must have 1 to {most} values")
            if any(len(value) > NAME_CHARS_MAX for value in any_of):
                problems.append(f"{where}: {name}: a value is longer than {NAME_CHARS_MAX}")
    if len(needs.sticky) > NAME_CHARS_MAX:
        problems.append(f"sticky: longer than {NAME_CHARS_MAX} characters")
    return problems


def resource_problems(resources: Mapping[str, int]) -> list[str]:
    """List what is wrong with the resources of a worker."""
    problems = []
    if len(resources) > RESOURCES_PER_WORKER_MAX:
        problems.append(f"resources: more than {RESOURCES_PER_WORKER_MAX}, got {len(resources)}")
    problems += _name_problems("resources", resources)
    problems += [
        f"resources: {name}: must be 0 to {AMOUNT_MAX // ONE}, got {amount_of(amount)}"
        for name, amount in resources.items()
        if not 0 <= amount <= AMOUNT_MAX
    ]
    return problems


def _name_problems(where: str, names: Iterable[str]) -> list[str]:
    counts = Counter(list(names))
    problems = [f"{where}: {name}: given twice" for name, count in counts.items() if count > 1]
    if any(not 0 < len(name) <= TAG_CHARS_MAX or "\0" in name for name in counts):
        limit = f"1 to {TAG_CHARS_MAX} characters, none of them NUL"
        problems.append(f"{where}: a name must have {limit}")
    return problems
