"""Dependencies: arguments of a task that its worker makes, such as the session of a database.

Owns `Depends`, which parameters are made rather than sent, and how they are made, shared within an
attempt and taken down after it. The code around a task (`jackalope.tasks.middleware`) is run by the
same means.

Theory of operation: hooks and dependencies are functions, coroutine functions or generators of
either kind, and so is the task. One coroutine runs them all. For a coroutine function it runs on
the loop of the task. For a plain function it never waits: what has to be awaited runs to its end on
a loop of its own, and the function itself is called with no loop around it, as without any of this.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextvars import Context, ContextVar, copy_context
from inspect import Parameter
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from jackalope.errors import ConfigError
from jackalope.transport.connection import new_event_loop

#: How deep dependencies may need each other.
DEPENDENCY_DEPTH_MAX = 32

_END = object()


class Dependency:
    """What `Depends` returns: which function makes an argument."""

    __slots__ = ("function", "is_shared")

    def __init__(self, function: Callable[..., Any], *, is_shared: bool) -> None:
        self.function = function
        self.is_shared = is_shared

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__qualname__', self.function)!s})"


def Depends(function: Callable[..., Any], *, cache: bool = True) -> Any:  # noqa: N802  as it is known
    """Let the worker make an argument of a task, by calling a function.

        @app.task
        async def report(order: int, db: Annotated[Session, Depends(session)] = INJECTED) -> None:
            ...

    The argument is no part of what is submitted. The function may be plain or a coroutine function,
    or yield its value once, plainly or as an async generator: what follows the `yield` runs when
    the attempt has ended, and an exception of the task is raised there. It may depend on others
    in the same way.

    Args:
        function: what makes the argument.
        cache: call it once an attempt, however many need it; False calls it for each.

    Raises:
        ConfigError: it cannot be called.
    """
    if not callable(function):
        raise ConfigError(f"Depends: takes a function, not {type(function).__name__}")
    return Dependency(function, is_shared=cache)


class _Injected:
    """The default of a parameter that `Depends` makes: it may be left out of a submit."""

    def __repr__(self) -> str:
        return "INJECTED"


#: The default of a parameter that the worker makes: it lets a type checker accept a submit without.
INJECTED: Final[Any] = _Injected()

#: What replaces a function that `Depends` names, by that function; for tests.
Overrides = Mapping[Callable[..., Any], Callable[..., Any]]


def dependencies_of(
    parameters: Mapping[str, Parameter], hints: Mapping[str, Any]
) -> dict[str, Dependency]:
    """Return which parameters are made by dependencies.

    Raises:
        ConfigError: a parameter says so, and not by which.
    """
    found: dict[str, Dependency] = {}
    for name, parameter in parameters.items():
        kind, default = hints.get(name), parameter.default
        marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
        mark = next((each for each in (default, *marks) if isinstance(each, Dependency)), None)
        if mark is not None and parameter.kind is Parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"{name}: a dependency is passed by name, so it cannot stand before /"
            )
        if mark is not None:
            found[name] = mark
        elif default is INJECTED:
            raise ConfigError(
                f"{name}: nothing makes it; annotate it with Annotated[..., Depends(function)], "
                "with names that exist when the task runs"
            )
    return found


class Section:
    """Runs plain and async functions in their turn, where the task itself is plain or async."""

    def __init__(self, *, is_async: bool) -> None:
        self._is_async = is_async
        self._runner: asyncio.Runner | None = None

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, and return what it returns once that is there."""
        return await self.finish(function(*args, **kwargs))

    async def finish(self, value: Any) -> Any:
        """Wait for a value if it has to be awaited."""
        if not inspect.isawaitable(value):
            return value
        if self._is_async:
            return await value
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=new_event_loop)
        context = copy_context()
        try:
            return self._runner.run(_awaited(value), context=context)
        finally:
            _adopt(context)

    def close(self) -> None:
        """End the loop of its own, if there was one."""
        if self._runner is not None:
            self._runner.close()


def run_section(work: Coroutine[Any, Any, Any], *, is_async: bool) -> Any:
    """Return a coroutine as it is for an async task; for a plain one run it: it never waits."""
    if is_async:
        return work
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        work.close()
    raise RuntimeError("a hook of a plain task waits outside of its loop")


class Wraps:
    """Generators that were run to their `yield`, to be run to their end in the reverse order."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._open: list[Generator[Any, Any, Any] | AsyncGenerator[Any, Any]] = []

    async def enter(self, value: Any) -> Any:
        """Take what a function returned: a generator's first value, or the value itself."""
        if inspect.isgenerator(value):
            first = next(value, _END)
        elif inspect.isasyncgen(value):
            first = await self._section.finish(anext(value, _END))
        else:
            return await self._section.finish(value)
        if first is _END:
            raise RuntimeError(f"{value.__qualname__} does not yield")
        self._open.append(value)
        return first

    async def exit(self, error: BaseException | None) -> BaseException | None:
        """Run all to their end, each with what was raised before; return what is to be raised.

        None of them can make a failure disappear.
        """
        while self._open:
            generator = self._open.pop()
            try:
                _check_end(generator, await self._step(generator, error))
            except BaseException as raised:  # noqa: BLE001  the others must run all the same
                error = raised
        return error

    async def _step(
        self,
        generator: Generator[Any, Any, Any] | AsyncGenerator[Any, Any],
        error: BaseException | None,
    ) -> Any:
        if inspect.isasyncgen(generator):
            if error is None:
                return await self._section.finish(anext(generator, _END))
            return await self._section.finish(_thrown(generator, error))
        must_be_plain: Any = generator
        if error is None:
            return next(must_be_plain, _END)
        try:
            return must_be_plain.throw(error)
        except StopIteration:
            return _END


def _check_end(generator: Any, value: Any) -> None:
    if value is not _END:
        raise RuntimeError(f"{generator.__qualname__} yields more than once")


async def _thrown(generator: AsyncGenerator[Any, Any], error: BaseException) -> Any:
    try:
        return await generator.athrow(error)
    except StopAsyncIteration:
        return _END


class Injection:
    """The dependencies of one attempt, as they are made."""

    def __init__(self, section: Section, wraps: Wraps, overrides: Overrides) -> None:
        self._section = section
        self._wraps = wraps
        self._overrides = overrides
        self._made: dict[Callable[..., Any], Any] = {}

    async def make(self, wanted: Mapping[str, Dependency], depth: int = 0) -> dict[str, Any]:
        """Make arguments, and what they depend on.

        Raises:
            ConfigError: they need each other, or a function needs what nothing makes.
        """
        if depth > DEPENDENCY_DEPTH_MAX:
            raise ConfigError(f"dependencies need each other, or are over {depth - 1} deep")
        return {name: await self._one(each, depth) for name, each in wanted.items()}

    async def _one(self, wanted: Dependency, depth: int) -> Any:
        function = self._overrides.get(wanted.function, wanted.function)
        if wanted.is_shared and function in self._made:
            return self._made[function]
        given = await self.make(_needs(function), depth + 1)
        value = await self._wraps.enter(function(**given))
        if wanted.is_shared:
            self._made[function] = value
        return value


def _needs(function: Callable[..., Any]) -> dict[str, Dependency]:
    """Return what the function of a dependency depends on."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # It has no signature, as some of those in C.
        return {}
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        hints = {}
    found = dependencies_of(parameters, hints)
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    lacking = [
        name
        for name, each in parameters.items()
        if name not in found and each.default is Parameter.empty and each.kind not in variable
    ]
    if lacking:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(f"{name} needs {', '.join(lacking)}, which nothing makes; use Depends")
    return found


async def call_injected(
    function: Callable[..., Any],
    wanted: Mapping[str, Dependency],
    overrides: Overrides,
    *,
    is_async: bool,
) -> Any:
    """Call a function with its dependencies, and take them down when it has returned."""
    section = Section(is_async=is_async)
    try:
        return await with_dependencies(section, function, wanted, overrides, is_async=is_async)
    finally:
        section.close()


async def with_dependencies(
    section: Section,
    function: Callable[..., Any],
    wanted: Mapping[str, Dependency],
    overrides: Overrides,
    *,
    is_async: bool,
) -> Any:
    """Do the same within a section."""
    wraps, value, error = Wraps(section), None, None
    try:
        given = await Injection(section, wraps, overrides).make(wanted)
        value = function(**given)
        if is_async:
            value = await value
    except BaseException as raised:  # noqa: BLE001  raised again when all is taken down
        error = raised
    error = await wraps.exit(error)
    if error is not None:
        raise error
    return value


async def _awaited(value: Any) -> Any:
    return await value


def _adopt(context: Context) -> None:
    """Let the context variables that a coroutine has set be seen by the plain code after it."""
    here = copy_context()
    missing: Any = object()
    variable: ContextVar[Any]
    for variable, value in context.items():
        if here.get(variable, missing) is not value:
            variable.set(value)
