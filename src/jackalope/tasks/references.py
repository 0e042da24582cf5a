"""References: arguments of a task of a flow that stand for what other tasks of the flow return.

Owns how they travel in a payload: in MessagePack as an extension, in JSON as an object with one
reserved key. What they stand for is put in their place by the worker (`inputs`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import msgspec

#: The type of MessagePack's extension.
EXTENSION = 82

#: The keys of the object in JSON: what one node returned, and what several did.
RESULT_KEY = "$result"
RESULTS_KEY = "$results"
CONTENT_KEY = "content"


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """What a node of the flow returns, or a list of what several do."""

    node: str = ""  # one node
    group: str = ""  # all nodes of a group, in the order in which they were submitted
    nodes: tuple[str, ...] = ()  # these nodes
    content: str = ""  # how it is encoded; empty for as the task's own values

    def extension(self) -> msgspec.msgpack.Ext:
        """Return it as it stands in MessagePack."""
        return msgspec.msgpack.Ext(EXTENSION, _encode(self))

    def plain(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        if self.node:
            found: dict[str, Any] = {RESULT_KEY: self.node}
        else:
            found = {RESULTS_KEY: self.group or list(self.nodes)}
        return {**found, CONTENT_KEY: self.content} if self.content else found


class Pending(ABC):
    """A value that stands for a result while a call is encoded."""

    @abstractmethod
    def reference(self) -> Reference:
        """Return what is sent in its place."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reference).decode


def read_extension(data: memoryview) -> Reference:
    """Return the reference in an extension.

    Raises:
        msgspec.DecodeError: there is none.
    """
    return _decode(data)


def read_plain(value: object) -> Reference | None:
    """Return the reference that a value of JSON is; None if it is another value."""
    if not isinstance(value, dict) or not _is_form(value):
        return None
    content, one, many = (value.get(key) for key in (CONTENT_KEY, RESULT_KEY, RESULTS_KEY))
    if isinstance(one, str):
        return Reference(node=one, content=content or "")
    if isinstance(many, str):
        return Reference(group=many, content=content or "")
    return Reference(nodes=tuple(cast("list[str]", many)), content=content or "")


def _is_form(value: dict[Any, Any]) -> bool:
    """Return whether an object has the form of a reference, and nothing else."""
    given = set(value) - {CONTENT_KEY}
    if not isinstance(value.get(CONTENT_KEY, ""), str):
        return False
    if given == {RESULT_KEY}:
        return isinstance(value[RESULT_KEY], str) and bool(value[RESULT_KEY])
    if given != {RESULTS_KEY}:
        return False
    many = value[RESULTS_KEY]
    if isinstance(many, list):
        return all(isinstance(name, str) for name in many)
    return isinstance(many, str) and bool(many)
