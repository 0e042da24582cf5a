"""The computation: one function, with its fixed arguments, on batches of items.

Owns the way from an encoded list of items to an encoded list of results; the run, which is one
`map` of a fan-out with its function and its ledger; and the likeness, by which owner and helper
check that they have the same code. Knows neither where items come from nor where results go.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from types import GenericAlias
from typing import Any

import msgspec

from jackalope.core.task import Error
from jackalope.errors import ConfigError
from jackalope.tasks.definition import TaskDefinition, fingerprint_of
from jackalope.tasks.serialization import (
    DecodeFailed,
    EncodeFailed,
    decode_value,
    encode_value,
    error_of,
)
from jackalope.wire.fanout import DATA_BYTES_MAX, Begin, ItemFailed
from jackalope.worker.attempt import Reject
from jackalope.worker.fanout.ledger import Ledger

#: How many coroutines of a batch run at once.
COROUTINES_MAX = 100

#: Results are sent in parts of about this size, so that none needs a frame that is too large.
_PART_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Part:
    """The results of a batch from one place on, encoded."""

    begin: int
    count: int
    data: bytes
    failed: list[ItemFailed] = field(default_factory=list)


class Computation:
    """A function of one item."""

    def __init__(self, definition: TaskDefinition, fixed: bytes) -> None:
        """Prepare to call a function.

        `fixed` are the arguments that are the same for all items, by name, encoded.
        """
        self._definition = definition
        self._function: Callable[..., Any] = (
            definition.call_here if definition.shape.dependencies else definition.function
        )
        self.is_async = definition.is_async  # it is a coroutine function
        self._kind = definition.shape.kind_of_first()
        self._kinds = GenericAlias(list, (self._kind,))
        self._fixed = definition.shape.read_named(fixed) if fixed else {}

    def run(self, data: bytes) -> list[Part]:
        """Call the function on each item of a batch."""
        items, failed = self._items(data)
        function, fixed = self._function, self._fixed
        results: list[Any] = []
        for at, item in enumerate(items):
            if item is _BAD:
                results.append(None)
                continue
            try:
                results.append(function(item, **fixed) if fixed else function(item))
            except Exception as error:  # noqa: BLE001  whatever it is, it is this item's
                results.append(None)
                failed.append(_failure(at, error))
        return list(self._parts(results, failed))

    async def run_async(self, data: bytes) -> list[Part]:
        """Call the coroutine function on each item of a batch, on many at a time."""
        items, failed = self._items(data)
        results: list[Any] = [None] * len(items)
        left = iter(enumerate(items))

        async def work() -> None:
            for at, item in left:
                if item is _BAD:
                    continue
                try:
                    results[at] = await self._function(item, **self._fixed)
                except Exception as error:  # noqa: BLE001  whatever it is, it is this item's
                    failed.append(_failure(at, error))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(items), COROUTINES_MAX)):
                group.create_task(work())
        failed.sort(key=lambda failure: failure.at)
        return list(self._parts(results, failed))

    def _items(self, data: bytes) -> tuple[list[Any], list[ItemFailed]]:
        """Decode a batch; where that fails, item by item."""
        try:
            items: list[Any] = decode_value("msgpack", data, self._kinds)
        except DecodeFailed:
            items = []
        else:
            return items, []
        failed: list[ItemFailed] = []
        for at, raw in enumerate(msgspec.msgpack.decode(data, type=list[msgspec.Raw])):
            try:
                items.append(decode_value("msgpack", raw, self._kind))
            except DecodeFailed as error:
                items.append(_BAD)
                failed.append(ItemFailed(at, error_of(error), can_retry=False))
        return items, failed

    def _parts(self, results: list[Any], failed: list[ItemFailed]) -> Iterator[Part]:
        """Encode results, in as many parts as they need."""
        pending = [(0, len(results))]
        while pending:
            begin, end = pending.pop()
            problem: Error | None = None
            try:
                data = encode_value("msgpack", results[begin:end])
                limit = _PART_BYTES if end - begin > 1 else DATA_BYTES_MAX
                if len(data) > limit:
                    message = f"a result of {len(data)} bytes; at most {DATA_BYTES_MAX}"
                    problem = Error("TooLarge", message + ": return where it is")
            except EncodeFailed as error:
                data, problem = b"", error_of(error)
            if problem is None:
                here = [one for one in failed if begin <= one.at < end]
                yield Part(begin, end - begin, data, here)
            elif end - begin > 1:
                middle = (begin + end) // 2
                pending += [(middle, end), (begin, middle)]
            else:
                yield Part(begin, 1, b"\x91\xc0", [ItemFailed(begin, problem, can_retry=False)])


_BAD = object()


def _failure(at: int, error: Exception) -> ItemFailed:
    return ItemFailed(at, error_of(error), can_retry=not isinstance(error, Reject))


class Stopwatch:
    """Measures how long a batch takes."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def us(self) -> int:
        return int((time.perf_counter() - self._began) * 1e6)


# Runs.


class Run:
    """One `map` of a fan-out: the function, its fixed arguments and the ledger of its items."""

    def __init__(self, number: int, task: Any, fixed: dict[str, Any], ledger: Ledger) -> None:
        definition = getattr(task, "definition", None)
        if not isinstance(definition, TaskDefinition):
            raise ConfigError(
                f"{task!r} is not a task; helpers find functions by name, so decorate it with "
                "app.task"
            )
        self.number = number  # names it within the fan-out
        self.task = task  # the task that was given, as its application knows it
        self.definition = definition  # the function
        self.fixed = fixed  # the arguments that are the same for all items
        self.ledger = ledger  # the state of the items
        definition.shape.kind_of_first()
        definition.shape.check((None,), fixed)
        self._encoded = encode_value("msgpack", fixed) if fixed else b""
        self._returns = GenericAlias(list, (definition.shape.returns,))
        prints = likeness_of(definition)
        self.begin = Begin(number, definition.name, prints, self._encoded)  # what helpers are sent

    def computation(self) -> Computation:
        return Computation(self.definition, self._encoded)

    def values(self, data: bytes) -> list[Any]:
        """Decode results into the declared return type of the function, where that is possible."""
        try:
            values = decode_value("msgpack", data, self._returns)
        except DecodeFailed:
            values = decode_value("msgpack", data)
        if not isinstance(values, list):
            raise DecodeFailed("results are a list")
        return values


# The likeness of a task: whether two workers mean the same by the same name.


# Finding the source takes as long as some items; each `map` of a fan-out asks for it.
@lru_cache(maxsize=1_000)
def likeness_of(definition: TaskDefinition) -> bytes:
    """Return 16 bytes that differ where the code or its types do."""
    parts = (
        definition.name,
        str(inspect.signature(definition.function)),
        definition.isolation,
        fingerprint_of(definition.function),
    )
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()
