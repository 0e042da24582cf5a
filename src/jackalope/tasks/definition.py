"""The definition of a task: a function, its name, and what its caller and its worker must agree on.

Owns the way from a call to a payload and back to a call, and from a result to bytes and back. The
client uses the one half, the worker the other; both hold the same definition because both import
the same module.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from inspect import Parameter
from itertools import chain, dropwhile, repeat
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Optional, Protocol, get_args, get_type_hints

import msgspec

from jackalope.core.limits import NAME_CHARS_MAX, NAMES_PER_WORKER_MAX
from jackalope.errors import ConfigError
from jackalope.tasks.dependencies import (
    Dependency,
    Overrides,
    call_injected,
    dependencies_of,
    run_section,
)
from jackalope.tasks.serialization import (
    CONTENTS,
    DEFAULT_CONTENT,
    Content,
    Decode,
    DecodeFailed,
    EncodeFailed,
    RawCall,
    Stream,
    decode_value,
    decoder,
    encode_value,
)
from jackalope.transport.address import Address

if TYPE_CHECKING:
    from jackalope.core.shapes.flow import Input
    from jackalope.tasks.inputs import Inputs
    from jackalope.tasks.middleware import Middleware
    from jackalope.tasks.tracing import Traces

#: Where a worker runs the function: on its loop, in a thread, or in a process that can be killed.
Isolation = Literal["async", "thread", "process"]
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)


class TaskDefinition:
    """A function that can be run as a task."""

    traces: Traces | None = None  # makes spans of its attempts, if that is wanted
    middleware: Sequence[Middleware] = ()  # the code around its attempts
    overrides: Overrides = MappingProxyType({})  # what replaces its dependencies, in tests

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
        retry_on: tuple[type[Exception], ...] = (),
        never_retry: tuple[type[Exception], ...] = (),
    ) -> None:
        self.function = function  # the function itself
        self.name = name or default_name(function)  # what tasks are called that run it
        self.queue = queue  # where they go unless told otherwise
        self.content = content  # how arguments and result are encoded
        self.is_async = inspect.iscoroutinefunction(function)  # it is a coroutine function
        # where a worker runs it
        self.isolation: Isolation = isolation or ("async" if self.is_async else "thread")
        self.timeout_us = timeout_us  # how long an attempt may run; 0 for the queue's policy
        # after how long the worker asks it to stop; 0 for never
        self.soft_timeout_us = soft_timeout_us
        # how much memory its process may take; 0 for no limit
        self.memory_bytes_max = memory_bytes_max
        self.retry_on = retry_on  # only these failures are tried again; none for all
        self.never_retry = never_retry  # these never are
        problems = list(_problems(self))
        if problems:
            raise ConfigError(f"{self.name} cannot be a task: {'; '.join(problems)}")

    def __repr__(self) -> str:
        return f"<TaskDefinition {self.name} in {self.queue!r}>"

    # The caller's half.

    def payload(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], content: Content | None = None
    ) -> bytes:
        """Encode a call."""
        self.shape.check(args, kwargs)
        content = content or self.content
        if content == "bytes":
            if len(args) != 1 or kwargs:
                raise EncodeFailed(f"content is bytes, so {self.name} takes one argument by place")
            return encode_value(content, args[0])
        return encode_value(content, (args, kwargs))

    def canonical_payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call so that equal calls have equal bytes. A worker reads it like any other."""
        if self.content == "bytes":
            return self.payload(args, kwargs)
        return encode_value(self.content, self.shape.place(args, kwargs), is_canonical=True)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this version of the function from others; empty if it has no source."""
        return fingerprint_of(self.function)

    def result(self, data: bytes, content: Content | None = None) -> Any:
        """Decode a result into what the function says it returns, where that is possible."""
        content = content or self.content
        try:
            return decode_value(content, data, self.shape.returns)
        except DecodeFailed:
            # It returned something other than it says. A plain call would hand that over as well.
            return decode_value(content, data)

    # The worker's half.

    def arguments(
        self,
        payload: bytes | Stream,
        content: Content | Literal[""] = "",
        inputs: Sequence[Input] | None = None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call, and check them against the annotations.

        `DecodeFailed` names the first that does not fit.

        Args:
            payload: the call.
            content: how it is encoded, if not as the definition says.
            inputs: of a task of a flow, what its predecessors left.
        """
        content = content or self.content
        if content not in CONTENTS:
            raise DecodeFailed(f"{self.name}: content {content!r} is not known here")
        if inputs is not None:
            from jackalope.tasks.inputs import Inputs  # noqa: PLC0415  few tasks are of a flow

            given = Inputs(inputs, content)
            if content != "bytes":
                return self._arguments_of_node(payload, content, given)
            if inputs and not (payload.size if isinstance(payload, Stream) else payload):
                first = given.first()
                payload = first if self.shape.takes(Stream) else first.read()
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

    def _arguments_of_node(
        self, payload: bytes | Stream, content: Literal["msgpack", "json"], inputs: Inputs
    ) -> tuple[list[Any], dict[str, Any]]:
        data = payload.read() if isinstance(payload, Stream) else payload
        try:
            return self.shape.read_with(data, content, inputs)
        except DecodeFailed as error:
            raise DecodeFailed(f"{self.name}: {error}") from None

    def call(
        self,
        payload: bytes | Stream,
        content: Content | Literal[""] = "",
        inputs: Sequence[Input] | None = None,
        /,
        **made: Any,
    ) -> Any:
        """Call the function with what a payload says; a coroutine if the function is async.

        `inputs` are what the predecessors of a node of a flow left, `made` the arguments that the
        worker makes.
        """
        args, kwargs = self.arguments(payload, content, inputs)
        if made:
            args, kwargs = self.shape.complete(args, kwargs, made)
        return self.function(*args, **kwargs)

    def call_here(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with these arguments; those that a worker would make are made."""
        wanted = self.shape.dependencies
        wanted = {name: each for name, each in wanted.items() if name not in kwargs}
        if not wanted or len(args) > len(self.shape.positional):
            return self.function(*args, **kwargs)

        def call(**made: Any) -> Any:
            placed, named = self.shape.complete(list(args), kwargs, made)
            return self.function(*placed, **named)

        work = call_injected(call, wanted, self.overrides, is_async=self.is_async)
        return run_section(work, is_async=self.is_async)

    @property
    def dependencies(self) -> Mapping[str, Dependency]:
        """The arguments that a worker makes."""
        return self.shape.dependencies

    def may_retry(self, error: BaseException) -> bool:
        """Return whether a failure with this exception may be tried again."""
        if isinstance(error, self.never_retry):
            return False
        return not self.retry_on or isinstance(error, self.retry_on)

    def encode_result(self, value: Any, content: Content | Literal[""] = "") -> bytes:
        """Encode what the function returned."""
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

    address: Address  # where its broker is


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
    """Return `module.function`, the same whether the module is imported or run as a program."""
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


# Fingerprints: telling one version of a function from another by its source.

FINGERPRINT_CHARS = 16


def fingerprint_of(function: Callable[..., Any]) -> str:
    """Return the fingerprint of a function; empty if its source cannot be had."""
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    lines = (line.rstrip() for line in source.split("\n"))
    body = dropwhile(lambda line: not line.startswith(("def ", "async def ")), lines)
    text = "\n".join(body).strip("\n")
    return sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS] if text else ""


# The shape of a function: what it takes and what it returns, as its annotations say.

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

_PlainCall = tuple[list[Any], dict[str, Any]]


class Shape:
    """What a function takes and returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        whole = inspect.signature(function)
        hints = self._hints = _hints(function)
        # the arguments that a worker makes; no part of a call
        self.dependencies: dict[str, Dependency] = dependencies_of(whole.parameters, hints)
        sent = [each for each in whole.parameters.values() if each.name not in self.dependencies]
        self._signature = _signature_of(sent, whole)
        self.returns = hints.get("return", Any)  # the type of the result
        parameters = self.parameters = list(self._signature.parameters.values())
        # the type of each parameter, of each further argument for those that take several
        self.kinds = {parameter.name: _kind(parameter, hints) for parameter in parameters}
        # the arguments by place
        self.positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        self._named = [p.name for p in parameters if p.kind in _NAMED]
        self._rest = next((p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL), "")
        self._rest_named = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), "")
        needed = [p for p in parameters if p.default is Parameter.empty]
        self._args_max = sys.maxsize if self._rest else len(self.positional)
        self._args_min = sum(p.kind in _POSITIONAL for p in needed)
        if any(p.kind is Parameter.KEYWORD_ONLY for p in needed):
            self._args_min = sys.maxsize  # No call without keywords will do.
        self._readers: dict[str, _Reader] = {}

    def takes(self, kind: type) -> bool:
        """Tell whether the first argument is declared to be of a type."""
        return bool(self.positional) and self._hints.get(self.positional[0]) is kind

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse a call that the function does not take."""
        if kwargs or not self._args_min <= len(args) <= self._args_max:
            self._signature.bind(*args, **kwargs)

    def place(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the arguments of a call in their places, so that equal calls look alike."""
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def complete(
        self, args: list[Any], kwargs: Mapping[str, Any], made: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the arguments that a worker made, by name, wherever they stand."""
        if self._rest:
            return args, {**kwargs, **made}
        placed = dict(zip(self.positional, args, strict=False))
        return [], {**placed, **kwargs, **made}

    def read(self, payload: bytes, content: Content) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call into the declared types.

        `DecodeFailed` names the first that does not fit.
        """
        reader = self._readers.get(content)
        if reader is None:
            reader = self._readers[content] = self._make_reader(content)
        args, kwargs = reader.read(payload)
        try:
            self.check(args, kwargs)
        except TypeError as error:
            raise DecodeFailed(str(error)) from None
        return args, kwargs

    def read_with(
        self, payload: bytes, content: Literal["msgpack", "json"], inputs: Inputs
    ) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call of a flow, with results in the place of references.

        `DecodeFailed` names the first that does not fit.
        """
        from jackalope.tasks.inputs import UNTOUCHED, Reader  # noqa: PLC0415  the same

        if not payload:
            return self.read(payload, content)
        reader = self._readers.get(content)
        if reader is None:
            reader = self._readers[content] = self._make_reader(content)
        find = Reader(inputs, content)

        def read(name: str, raw: msgspec.Raw, decode: Decode) -> Any:
            try:
                value = find.read(raw, self.kinds.get(name, Any))
                return decode(raw) if value is UNTOUCHED else value
            except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
                raise DecodeFailed(f"argument {name!r}: {error}") from None

        try:
            args, kwargs = decoder(content, RawCall)(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DecodeFailed(f"the payload is not a call: {error}") from None
        places = chain(reader.positional, repeat(reader.rest))
        args = [read(name, raw, decode) for (name, decode), raw in zip(places, args, strict=False)]
        kwargs = {
            name: read(name, raw, reader.named.get(name, reader.rest_named))
            for name, raw in kwargs.items()
        }
        try:
            self.check(args, kwargs)
        except TypeError as error:
            raise DecodeFailed(str(error)) from None
        return args, kwargs

    @property
    def first_open(self) -> str:
        """The name of the first parameter that an argument by place fills; empty if none is."""
        open_ones = (name for name in self.positional if name not in self.dependencies)
        return next(open_ones, self._rest)

    def kind_of_first(self) -> Any:
        """Return the type of the first argument."""
        name = self.positional[0] if self.positional else self._rest
        if not name:
            raise ConfigError("it takes no argument by place, so it cannot be called with an item")
        return self.kinds[name]

    def read_named(self, data: bytes) -> dict[str, Any]:
        """Decode arguments by name, all but the first, into the declared types.

        `DecodeFailed` names the first that does not fit.
        """
        try:
            raw = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, ValueError) as error:
            raise DecodeFailed(f"the fixed arguments are none: {error}") from None
        reader = self._readers.get(DEFAULT_CONTENT)
        if reader is None:
            reader = self._readers[DEFAULT_CONTENT] = self._make_reader(DEFAULT_CONTENT)
        named: dict[str, Any] = {}
        for name, value in raw.items():
            try:
                named[name] = reader.named.get(name, reader.rest_named)(value)
            except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
                raise DecodeFailed(f"argument {name!r}: {error}") from None
        try:
            self.check((None,), named)
        except TypeError as error:
            raise DecodeFailed(str(error)) from None
        return named

    def _make_reader(self, content: Content) -> _Reader:
        def read(name: str) -> tuple[str, Decode]:
            return name, decoder(content, self.kinds.get(name, Any))

        is_plain = all(kind is Any for kind in self.kinds.values())
        return _Reader(
            decoder(content, _PlainCall if is_plain else RawCall),
            is_plain,
            [read(name) for name in self.positional],
            read(self._rest),
            dict(map(read, self._named)),
            read(self._rest_named)[1],
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Decodes calls of one function from one content."""

    read_call: Decode
    is_plain: bool
    positional: list[tuple[str, Decode]]
    rest: tuple[str, Decode]
    named: dict[str, Decode]
    rest_named: Decode

    def read(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Decode one call."""
        if not payload:
            return [], {}
        try:
            args, kwargs = self.read_call(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DecodeFailed(f"the payload is not a call: {error}") from None
        if self.is_plain:
            return args, kwargs
        name = ""
        try:
            places = chain(self.positional, repeat(self.rest))
            for at, (place, raw) in enumerate(zip(places, args, strict=False)):
                name, read = place
                args[at] = read(raw)
            for name, raw in kwargs.items():
                kwargs[name] = self.named.get(name, self.rest_named)(raw)
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise DecodeFailed(f"argument {name!r}: {error}") from None
        return args, kwargs


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations; none if they name what does not exist at run time."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def _signature_of(parameters: list[Parameter], whole: inspect.Signature) -> inspect.Signature:
    """Return the signature of what is sent: without what a worker makes."""
    if len(parameters) == len(whole.parameters):
        return whole
    kinds = {each.kind for each in whole.parameters.values()}
    made = [each for each in whole.parameters.values() if each not in parameters]
    by_place = [each.name for each in made if each.kind is not Parameter.KEYWORD_ONLY]
    if by_place and kinds & {Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY}:
        raise ConfigError(
            f"{', '.join(by_place)}: with / or *args, dependencies stand after the last *"
        )
    return whole.replace(parameters=parameters)


def _kind(parameter: Parameter, hints: Mapping[str, Any]) -> Any:
    kind = hints.get(parameter.name, Any)
    if parameter.default is None and kind is not Any:
        return Optional[kind]  # noqa: UP045  `width: int = None` is written often, and meant so
    return kind
