"""The definition of a task: a function, its name, and what its caller and its worker must agree on.

Owns the way from a call to a payload and back to a call, and from a result to bytes and back. The
client uses the one half, the worker the other; both hold the same definition because both import
the same module.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from jackalope.core.limits import NAME_CHARS_MAX, NAMES_PER_WORKER_MAX
from jackalope.link.address import Address
from jackalope.link.errors import ConfigError
from jackalope.tasks.fingerprint import fingerprint_of
from jackalope.tasks.shape import Shape
from jackalope.tasks.streams import Stream
from jackalope.tasks.values import (
    CONTENTS,
    DEFAULT_CONTENT,
    Content,
    DecodeFailed,
    EncodeFailed,
    decode_value,
    encode_value,
)

if TYPE_CHECKING:
    from jackalope.tasks.traces import Traces

#: Where a worker runs the function: on its loop, in a thread, or in a process that can be killed.
Isolation = Literal["async", "thread", "process"]
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)


class TaskDefinition:
    """A function that can be run as a task.

    Attributes:
        function: the function itself.
        name: what tasks are called that run it.
        queue: where they go unless told otherwise.
        content: how arguments and result are encoded.
        isolation: where a worker runs it.
        is_async: it is a coroutine function.
        timeout_us: how long an attempt may run; 0 for the queue's policy.
        soft_timeout_us: after how long the worker asks it to stop; 0 for never.
        memory_bytes_max: how much memory its process may take; 0 for no limit.
        traces: makes spans of its attempts, if that is wanted.
    """

    traces: Traces | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        queue: str = "default",
        content: Content = DEFAULT_CONTENT,
        isolation: Isolation | None = None,
        timeout_us: int = 0,
        soft_timeout_us: int = 0,
        memory_bytes_max: int = 0,
    ) -> None:
        self.function = function
        self.name = name or default_name(function)
        self.queue = queue
        self.content = content
        self.is_async = inspect.iscoroutinefunction(function)
        self.isolation: Isolation = isolation or ("async" if self.is_async else "thread")
        self.timeout_us = timeout_us
        self.soft_timeout_us = soft_timeout_us
        self.memory_bytes_max = memory_bytes_max
        problems = list(_problems(self))
        if problems:
            raise ConfigError(f"{self.name} cannot be a task: {'; '.join(problems)}")

    def __repr__(self) -> str:
        return f"<TaskDefinition {self.name} in {self.queue!r}>"

    # The caller's half.

    def payload(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], content: Content | None = None
    ) -> bytes:
        """Encode a call.

        Raises:
            TypeError: the function does not take these arguments.
            EncodeFailed: one of them has no encoding.
        """
        self.shape.check(args, kwargs)
        content = content or self.content
        if content == "bytes":
            if len(args) != 1 or kwargs:
                raise EncodeFailed(f"content is bytes, so {self.name} takes one argument by place")
            return encode_value(content, args[0])
        return encode_value(content, (args, kwargs))

    def canonical_payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call so that equal calls have equal bytes. A worker reads it like any other.

        Raises:
            TypeError: the function does not take these arguments.
            EncodeFailed: one of them has no encoding.
        """
        if self.content == "bytes":
            return self.payload(args, kwargs)
        return encode_value(self.content, self.shape.place(args, kwargs), is_canonical=True)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this version of the function from others; empty if it has no source."""
        return fingerprint_of(self.function)

    def result(self, data: bytes, content: Content | None = None) -> Any:
        """Decode a result into what the function says it returns, where that is possible.

        Raises:
            DecodeFailed: the bytes are not in the task's content.
        """
        content = content or self.content
        try:
            return decode_value(content, data, self.shape.returns)
        except DecodeFailed:
            # It returned something other than it says. A plain call would hand that over as well.
            return decode_value(content, data)

    # The worker's half.

    def arguments(
        self, payload: bytes | Stream, content: Content | Literal[""] = ""
    ) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call, and check them against the annotations.

        Raises:
            DecodeFailed: they do not fit; the message names the first that does not.
        """
        content = content or self.content
        if content not in CONTENTS:
            raise DecodeFailed(f"{self.name}: content {content!r} is not known here")
        if content == "bytes" and self.shape.takes(Stream):
            return [payload if isinstance(payload, Stream) else Stream(payload)], {}
        if isinstance(payload, Stream):
            payload = payload.read()
        if content == "bytes":
            return [payload], {}
        try:
            return self.shape.read(payload, content)
        except DecodeFailed as error:
            raise DecodeFailed(f"{self.name}: {error}") from None

    def call(self, payload: bytes | Stream, content: Content | Literal[""] = "") -> Any:
        """Call the function with what a payload says; a coroutine if the function is async.

        Raises:
            DecodeFailed: the payload does not fit the function.
        """
        args, kwargs = self.arguments(payload, content)
        return self.function(*args, **kwargs)

    def encode_result(self, value: Any, content: Content | Literal[""] = "") -> bytes:
        """Encode what the function returned.

        Raises:
            EncodeFailed: it has no encoding.
        """
        try:
            return encode_value(content or self.content, value)
        except EncodeFailed as error:
            raise EncodeFailed(f"the result of {self.name}: {error}") from error

    @cached_property
    def shape(self) -> Shape:
        """What the function takes and returns.

        Found out late, because annotations may name what is defined after the function.
        """
        return Shape(self.function)


class TaskSource(Protocol):
    """What a worker needs of the application whose tasks it runs."""

    @property
    def functions(self) -> Mapping[str, TaskDefinition]:
        """Every task of the application by its name."""

    @property
    def address(self) -> Address:
        """Where its broker is."""


def find_task(
    functions: Mapping[str, TaskDefinition], name: str, queue: str
) -> TaskDefinition | None:
    """Return the function that a task is for.

    A task that names none, as calls and messages may, is for the only one of its queue.
    """
    found = functions.get(name)
    if found is not None or name:
        return found
    of_queue = [each for each in functions.values() if each.queue == queue]
    return of_queue[0] if len(of_queue) == 1 else None


def known_names(
    functions: Mapping[str, TaskDefinition], queues: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the names of the tasks that a worker of these queues can run; None if they are many.

    The empty name is among them if it can run tasks without one.
    """
    names = sorted(functions)
    if any(find_task(functions, "", queue) for queue in queues):
        names.append("")
    return tuple(names) if len(names) <= NAMES_PER_WORKER_MAX else None


def default_name(function: Callable[..., Any]) -> str:
    """Return `module.function`, the same whether the module is imported or run as a program.

    Raises:
        ConfigError: the function has no name of its own.
    """
    name = getattr(function, "__qualname__", "")
    if not name:
        raise ConfigError(f"{function!r} has no name of its own; give it one with name=")
    module = function.__module__
    if module == "__main__":
        program = sys.modules["__main__"]
        spec, file = getattr(program, "__spec__", None), getattr(program, "__file__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif file:
            module = Path(file).stem
    return f"{module}.{name}"


def _problems(definition: TaskDefinition) -> list[str]:
    problems = []
    function = definition.function
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        problems.append("it is a generator; a task returns its result at once")
    if definition.content not in CONTENTS:
        problems.append(f"content: one of {', '.join(CONTENTS)}, not {definition.content!r}")
    if definition.isolation not in ISOLATIONS:
        problems.append(f"isolation: one of {', '.join(ISOLATIONS)}, not {definition.isolation!r}")
    elif definition.isolation == "async" and not definition.is_async:
        problems.append("isolation: a plain function would block the loop; use thread or process")
    if not 0 < len(definition.name) <= NAME_CHARS_MAX:
        problems.append(f"name: 1 to {NAME_CHARS_MAX} characters, not {len(definition.name)}")
    if not 0 < len(definition.queue) <= NAME_CHARS_MAX:
        problems.append(f"queue: 1 to {NAME_CHARS_MAX} characters, not {len(definition.queue)}")
    problems += [
        f"{field}: must not be negative"
        for field in ("timeout_us", "soft_timeout_us", "memory_bytes_max")
        if getattr(definition, field) < 0
    ]
    if definition.memory_bytes_max and definition.isolation != "process":
        problems.append('memory_limit: only a process can have one; choose isolation="process"')
    return problems
