"""A run: one `map` of a fan-out, as seen by the processes that compute its items.

Owns what the function, its fixed arguments and its results are, on both sides of the encoding.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from hashlib import blake2b
from types import GenericAlias
from typing import Any

from jackalope.errors import ConfigError
from jackalope.tasks.definition import TaskDefinition, fingerprint_of
from jackalope.tasks.serialization import DecodeFailed, decode_value, encode_value
from jackalope.wire.fanout import Begin
from jackalope.worker.fanout.computation import Computation
from jackalope.worker.fanout.ledger import Ledger


class Run:
    """What is to be done with items."""

    def __init__(self, number: int, task: Any, fixed: dict[str, Any], ledger: Ledger) -> None:
        """Begin a run.

        Raises:
            ConfigError: the function is no task, or takes no item.
            TypeError: it does not take these arguments.
            EncodeFailed: one of them cannot be sent.
        """
        definition = getattr(task, "definition", None)
        if not isinstance(definition, TaskDefinition):
            raise ConfigError(
                f"{task!r} is no task; helpers find functions by name, so decorate it with app.task"
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
        """Return what computes items here."""
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
