"""Inputs: what the predecessors of a task of a flow left, and how it becomes arguments.

Owns the way from results of other tasks to the arguments that refer to them, and what a task sees
of a predecessor that failed. Which predecessors there are is decided by the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jackalope.core.lifecycle import State
from jackalope.core.task import Body
from jackalope.tasks.references import EXTENSION, Reference, read_extension, read_plain
from jackalope.tasks.serialization import (
    CONTENTS,
    Content,
    DecodeFailed,
    Stream,
    decode_value,
    from_plain,
)

if TYPE_CHECKING:
    from jackalope.core.shapes.flow import Input


class NodeError(msgspec.Struct, frozen=True):
    """What a task that collects gets in the place of the result of a node that failed."""

    node: str  # the name of the node
    state: State  # `dead` or `killed`
    type: str = ""  # the type of what its last attempt raised; empty if none did
    message: str = ""  # its message
    trace: str = ""  # its traceback, as text

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.node} is {self.state}" + (f": {self.type}: {self.message}" * bool(self.type))


class Inputs:
    """What the predecessors of one task left."""

    def __init__(self, inputs: Sequence[Input], content: Content) -> None:
        """Take the inputs of an assignment, and how the task's own values are encoded."""
        self._inputs = inputs
        self._content = content
        self._by_node = {each.node: each for each in inputs}

    def all(self) -> dict[str, Any]:
        """Return what each left, by the name of its node."""
        return {each.node: self._value(each, self._content) for each in self._inputs}

    def first(self) -> Any:
        """Return what the first left, as bytes or a stream; no bytes if there is none."""
        if not self._inputs:
            return b""
        first = self._inputs[0]
        return _stream(first.result) if first.state is State.SUCCEEDED else b""

    def find(self, reference: Reference) -> Any:
        """Return what a reference stands for. What has not come, and was not needed, is None.

        Raises:
            DecodeFailed: a result cannot be read.
        """
        content = self._content_of(reference)
        if reference.node:
            found = self._by_node.get(reference.node)
            return None if found is None else self._value(found, content)
        if reference.group:
            several = [each for each in self._inputs if each.group == reference.group]
        else:
            named = (self._by_node.get(name) for name in reference.nodes)
            several = [each for each in named if each is not None]
        return [self._value(each, content) for each in several]

    def _content_of(self, reference: Reference) -> Content:
        content = reference.content or self._content
        if content not in CONTENTS:
            raise DecodeFailed(f"content {content!r} is not known here")
        return content

    def _value(self, given: Input, content: Content) -> Any:
        if given.state is not State.SUCCEEDED:
            error = given.error
            if error is None:
                return NodeError(given.node, given.state)
            return NodeError(given.node, given.state, error.type, error.message, error.trace)
        data = given.result if isinstance(given.result, bytes) else _stream(given.result).read()
        try:
            return decode_value(content, data)
        except DecodeFailed as error:
            raise DecodeFailed(f"the result of {given.node}: {error}") from None


def _stream(body: Body) -> Stream:
    # A body that is not here was fetched into a file before.
    return Stream(body if isinstance(body, bytes) else Path(body.blob))


# Reading: arguments with their references replaced.

#: Marks arguments in which nothing was replaced, so that they are read as all others.
UNTOUCHED = object()


class Reader:
    """Decodes single arguments, and puts results in the place of references."""

    def __init__(self, inputs: Inputs, content: Literal["msgpack", "json"]) -> None:
        self._inputs = inputs
        self._has_found = False
        self._read: Callable[[msgspec.Raw], Any]
        if content == "msgpack":
            self._read = msgspec.msgpack.Decoder(Any, ext_hook=self._extension).decode
        else:
            plain = msgspec.json.Decoder(Any).decode
            self._read = lambda raw: self._replace(plain(raw))
        self._has_text_keys = content == "json"

    def read(self, raw: msgspec.Raw, kind: Any) -> Any:
        """Return an argument with what its references stand for; UNTOUCHED if it has none.

        Raises:
            DecodeFailed: a result cannot be read.
            msgspec.ValidationError: it is not of the type.
        """
        self._has_found = False
        value = self._read(raw)
        if not self._has_found:
            return UNTOUCHED
        if kind is Any:
            return value
        try:
            return msgspec.convert(value, kind, dec_hook=from_plain, str_keys=self._has_text_keys)
        except msgspec.ValidationError:
            raise
        except (TypeError, ValueError):
            return value  # An annotation beyond msgspec is for the reader, not for the check.

    def _extension(self, code: int, data: memoryview) -> Any:
        if code != EXTENSION:
            return msgspec.msgpack.Ext(code, bytes(data))
        self._has_found = True
        return self._inputs.find(read_extension(data))

    def _replace(self, value: Any) -> Any:
        """Replace the references in a value of JSON."""
        if isinstance(value, list):
            return [self._replace(each) for each in value]
        if not isinstance(value, dict):
            return value
        reference = read_plain(value)
        if reference is None:
            return {key: self._replace(each) for key, each in value.items()}
        self._has_found = True
        return self._inputs.find(reference)
