"""The application: where a user's tasks, connections and questions come together.

Owns the tasks that were defined, one session for each event loop that the application is used on,
and everything that can be asked of a broker.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from jackalope import __version__
from jackalope.client import option_checks
from jackalope.client.contracts import Contracts
from jackalope.client.extending import Extending
from jackalope.client.flows.flow import FlowHandle
from jackalope.client.handle import Handle
from jackalope.client.limits import Limiting
from jackalope.client.option_checks import Seconds, one_of, wait_s
from jackalope.client.pool_calls import Calling
from jackalope.client.requests import Requests
from jackalope.client.schedules import Scheduled, Scheduling, WhenChoices
from jackalope.client.session.hooked import HookedSession
from jackalope.client.session.outbox import Uploaded
from jackalope.client.session.session import Session, SessionOwner, TracedSession
from jackalope.client.submit_options import Choices, SubmitChoices, make_plan
from jackalope.client.task import AsyncTask, PlainTask, Task, TaskChoices, TaskMaker
from jackalope.errors import ConfigError, JackalopeError, Timeout, kind_of
from jackalope.task_ids import new_task_id, to_task_id
from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.serialization import (
    DEFAULT_CONTENT,
    Content,
    Source,
    decode_value,
    encode_value,
)
from jackalope.transport.address import Address, parse_address
from jackalope.transport.connection import Connection, new_event_loop
from jackalope.transport.connector import Dial
from jackalope.wire.messages import Hello
from jackalope.wire.views import FlowPage, FlowView

if TYPE_CHECKING:
    from jackalope.embedded import EmbeddedBroker
    from jackalope.tasks.tracing import Traces

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])

#: Prepares a worker for the keys that it serves.
Startup = Callable[[tuple[str, ...]], Any]

DEFAULT_ADDRESS = "jackalope://localhost:7420"

#: The variable with the token, if none is given.
TOKEN_VARIABLE = "JACKALOPE_TOKEN"  # noqa: S105  its name is no secret
DEFAULT_TIMEOUT_S = 30.0

#: How many flows of a list are asked for at once.
PAGE_FLOWS = 500


class Jackalope(Requests, Calling, Scheduling, Limiting, Contracts, Extending):
    """A client of one broker, in one namespace.

    It connects when it is first used, and again by itself whenever the connection is lost. It can
    be used on several event loops, also one after the other: each has a connection of its own.

        app = Jackalope("jackalope://localhost:7420")

        @app.task(queue="images", retries=5, timeout=120)
        async def resize(path: str, width: int) -> str: ...

        async with app:
            handle = await resize.submit("cat.png", width=320)
            print(await handle.result(timeout=60))

    Code without an event loop says `app.sync(...)` in place of `await ...`.
    """

    def __init__(
        self,
        address: str | Address = DEFAULT_ADDRESS,
        *,
        namespace: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        verify: bool = True,
        name: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        telemetry: bool = False,
    ) -> None:
        """Make a client. Nothing is connected yet.

        Args:
            address: `jackalope://[token@]host[:port][/namespace]`, `jackalopes://…` for TLS;
                several hosts, with commas between, are members of one cluster.
            namespace: in place of the address's.
            token: in place of the address's. If neither has one, that of `JACKALOPE_TOKEN` counts.
            ca_file: over TLS, the authorities that may vouch for the broker; else the system's.
            verify: over TLS, whether the broker must prove who it is.
            name: who acts; host and process if not given.
            timeout: how many seconds an answer may take, reconnecting included; None for as long
                as it takes. Waiting for results has its own.
            telemetry: make OpenTelemetry spans of submits and, in workers, of attempts, joined to
                one trace. It needs `jackalope[telemetry]`.

        Raises:
            ConfigError: the address cannot be read, or `jackalope[telemetry]` is not installed.
        """
        where = parse_address(address) if isinstance(address, str) else address
        if not isinstance(where, Address):
            raise ConfigError(f"address: must be text, not {kind_of(address)}")
        token = where.token if token is None else one_of("token", option_checks.token, token)
        namespace = where.namespace if namespace is None else namespace
        # where the broker is, with token and namespace
        self.address = replace(
            where,
            namespace=one_of("namespace", option_checks.name, namespace),
            token=token or os.environ.get(TOKEN_VARIABLE, ""),
            ca_file=where.ca_file
            if ca_file is None
            else one_of("ca_file", option_checks.file, ca_file),
            verify=where.verify and one_of("verify", option_checks.flag, verify),
        )
        # who acts, for histories and lists
        self.name = one_of(
            "name", option_checks.text, name or f"{socket.gethostname()}:{os.getpid()}"
        )
        # how long an answer of the broker may take unless the call says otherwise
        self.timeout_s = option_checks.wait_s(timeout)
        # every task that was defined with `@app.task`, by name
        self.functions: dict[str, TaskDefinition] = {}
        self.startups: list[Startup] = []  # what workers call before their first task
        # every schedule that was defined with `@app.schedule`, as workers declare them
        self.planned: dict[str, dict[str, Any]] = {}
        self.limited: dict[str, dict[str, Any]] = {}  # every limit of `@app.task(limits=...)`
        Extending.__init__(self)
        # makes spans of submits and attempts, if that is wanted
        self.traces = _load_traces() if telemetry else None
        self._sessions: dict[tuple[asyncio.AbstractEventLoop, Line | None], Session] = {}
        self._embedded: EmbeddedBroker | None = None

    def __repr__(self) -> str:
        return f"<Jackalope {self.address}>"

    @classmethod
    def embedded(cls, folder: Path | str | None = None, *, telemetry: bool = False) -> Self:
        """Start a broker inside this process, and return a client of it.

        `app.work()` then runs the tasks of this application on threads of this process; `stop()`
        ends both.

        Args:
            folder: where the broker keeps its data; None for memory.
            telemetry: make OpenTelemetry spans of submits and attempts.

        Raises:
            StorageFault: the folder cannot be used.
            ConfigError: on Windows, where no broker runs.
        """
        if not hasattr(os, "fork"):
            raise ConfigError("a broker does not run on Windows; use WSL 2 or a container")
        from jackalope.embedded import EmbeddedBroker  # noqa: PLC0415  most clients have no broker

        broker = EmbeddedBroker(folder)
        app = cls(broker.address, telemetry=telemetry)
        app._embedded = broker
        return app

    def work(self, concurrency: int = 0) -> None:
        """Let a worker inside this process run the tasks that are defined by now.

        Raises:
            ConfigError: this is no embedded broker; start a worker with `jackalope worker`.
        """
        if self._embedded is None:
            raise ConfigError(
                "work: only with Jackalope.embedded(); run `jackalope worker` instead"
            )
        self._embedded.work(self, concurrency)

    def stop(self) -> None:
        """Stop the embedded workers and the embedded broker, if there are any; safe to repeat."""
        if self._embedded is not None:
            self._embedded.stop()

    async def __aenter__(self) -> Self:
        """Connect, so that a wrong address or token shows at once."""
        try:
            await self.connect()
        except BaseException:
            await self.close()  # No other code does: the block is never entered.
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self, *, wait: bool = True) -> None:
        """Connect now rather than at the first use.

        Args:
            wait: try again until the client's timeout while the broker cannot be reached. A
                connection that is lost later is made again in either case.

        Raises:
            Rejected: the broker does not want us.
            Timeout: it cannot be reached in time.
            ConnectionLost: with `wait=False`: it cannot be reached.
        """
        await self.session().open(self.timeout_s, wait=wait)

    async def close(self) -> None:
        """Close the connection of this event loop. What is not answered yet fails."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._sessions if key[0] is loop]:
            await self._sessions.pop(key).close()

    @cached_property
    def sync(self) -> Sync:
        """The same client for code without an event loop: `app.sync(resize.submit("cat.png"))`."""
        return Sync(self)

    # Tasks.

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...

    @overload
    def task(self, /, **choices: Unpack[TaskChoices]) -> TaskMaker: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, **choices: Unpack[TaskChoices]
    ) -> Any:
        """Make a task of a function: `@app.task` or `@app.task(queue="images", retries=5)`.

        Raises:
            ConfigError: the function or a choice cannot be used.
        """
        maker = TaskMaker(self, choices)
        return maker if function is None else maker(function)

    def schedule(
        self, cron: str = "", /, **choices: Unpack[WhenChoices]
    ) -> Callable[[AnyTask], AnyTask]:
        """Have the broker submit a task by itself, at the times of a cron expression.

            @app.schedule("0 3 * * *", tz="Europe/Berlin", overlap="skip")
            @app.task(queue="reports")
            async def report() -> None: ...

        Workers declare it when they start; the broker alone has the clock. `every=600` or
        `times=[...]` take the place of the expression. One task may have several schedules, each
        with a name of its own.

        Raises:
            ConfigError: the times cannot be, or the task cannot be scheduled.
        """
        scheduled = Scheduled(cron, choices)

        def add(task: AnyTask) -> AnyTask:
            if not isinstance(task, Task):
                raise ConfigError("schedule: stands above @app.task, which makes the task")
            name = scheduled.name or task.name
            settings = task.schedule_settings(scheduled)
            other = self.planned.get(name)
            if other is not None and other["task"] != settings["task"]:
                raise ConfigError(f"two schedules are called {name}; give one a name=")
            self.planned[name] = settings
            return task

        return add

    def on_start(self, function: Startup) -> Startup:
        """Have a worker call this function before it takes its first task.

        It gets the keys that the worker serves; what it takes long to load for them is loaded then.
        Meanwhile the broker knows that the worker is there and loads. If it raises, the worker
        ends. Tasks that are isolated in processes of their own do not see what it did.

            @app.on_start
            def load(keys: tuple[str, ...]) -> None: ...
        """
        self.startups.append(function)
        return function

    def register(self, definition: TaskDefinition) -> None:
        """Add a task to `functions`, where a worker finds it.

        Raises:
            ConfigError: another function has the name.
        """
        other = self.functions.get(definition.name)
        if other is not None and not _is_redefined(other, definition):
            raise ConfigError(f"two functions are called {definition.name}; give one a name=")
        definition.traces = self.traces
        definition.middleware, definition.overrides = self.middlewares, self.overrides
        self.functions[definition.name] = definition

    async def submit(
        self,
        queue: str,
        payload: bytes | Uploaded = b"",
        *,
        name: str = "",
        content: Content = "bytes",
        **choices: Unpack[SubmitChoices],
    ) -> Handle[Any]:
        """Submit a task with a payload of your own making.

        Args:
            queue: where it goes.
            payload: what the worker gets: bytes, or what `upload` returned.
            name: which function of the worker is meant.
            content: how the result will be encoded.
            choices: see `SubmitChoices`.

        Raises:
            ConfigError: a choice cannot be used; every problem is listed.
            EncodeFailed: the payload is not bytes.
            Rejected: the broker did not accept it.
            Timeout: no answer came in time.
        """
        one_of("content", option_checks.content, content)
        named = one_of("name", option_checks.text, name)
        plan = make_plan(cast("Choices", {**choices, "queue": queue}), name=named)
        if plan.paced is not None:
            raise ConfigError("pace: key: must be text here, where no arguments are known")
        body = payload if isinstance(payload, Uploaded) else encode_value("bytes", payload)
        spec = plan.spec(plan.id or new_task_id(), cast("bytes", body))
        served = await self.session().submit(
            spec,
            plan.fence,
            wait_for_room=plan.wait_for_room,
            timeout_s=self.timeout_of(plan.submit_timeout_s),
        )
        return self.handle(spec.id if served is None else served.task, content=content)

    async def upload(self, source: Source | AsyncIterable[bytes]) -> Uploaded:
        """Send the payload of a task before the task, in parts, however large it is.

            film = await app.upload(Path("film.mp4"))
            handle = await shrink.submit(film)  # of a task with content="bytes"

        It is the payload of one task. One that no task has named is removed with the connection,
        as is one that was under way; what comes from bytes, a path or a file that can be rewound is
        then sent again by itself.

        Args:
            source: a path, bytes, an open file, or an iterator of bytes, plain or async.

        Raises:
            Rejected: the broker does not take it; `unknown_blob` if it was lost with its
                connection and can be read only once.
            Timeout: the broker could not be reached in time.
            ConfigError: it stands for no bytes, or cannot be read.
        """
        uploaded = Uploaded(source)
        await self.session().upload(uploaded, self.timeout_s)
        return uploaded

    @overload
    def handle(
        self, task: object, *, returns: type[T], content: Content = DEFAULT_CONTENT
    ) -> Handle[T]: ...

    @overload
    def handle(
        self, task: object, *, content: Content = DEFAULT_CONTENT, returns: Any = Any
    ) -> Handle[Any]: ...

    def handle(
        self, task: object, *, content: Content = DEFAULT_CONTENT, returns: Any = Any
    ) -> Handle[Any]:
        """Return the handle of a task that was submitted before, here or elsewhere.

        Args:
            task: its id: bytes, hexadecimal text or a UUID.
            content: how its result is encoded.
            returns: the type that its result has.

        Raises:
            ConfigError: it names no task, or there is no such content.
        """
        one_of("content", option_checks.content, content)
        return Handle(self, to_task_id(task), partial(decode_value, content, kind=returns))

    def flow_handle(self, flow: object) -> FlowHandle[Any]:
        """Return the handle of a flow that was submitted before, here or elsewhere.

        Args:
            flow: its id: bytes, hexadecimal text or a UUID.

        Raises:
            ConfigError: it names no flow.
        """
        return FlowHandle(self, to_task_id(flow))

    async def flows(self, **conditions: Any) -> AsyncIterator[FlowView]:
        """Yield the flows of the namespace, newest first, without their nodes.

        Args:
            conditions: `states`, `queue`, `name`, `tag` and `text`, as `tasks` takes them.
        """
        cursor = ""
        while True:
            about = {**conditions, "cursor": cursor, "limit": PAGE_FLOWS}
            page = await self.query("flows", about, FlowPage)
            for view in page.flows:
                yield view
            cursor = page.cursor
            if not cursor:
                return

    # For this package.

    def session(self) -> Session:
        """Return the session of the event loop that runs; it is made at the first use."""
        key = asyncio.get_running_loop(), substitute()
        session = self._sessions.get(key)
        if session is None:
            for other in [other for other in self._sessions if other[0].is_closed()]:
                del self._sessions[other]
            session = self._sessions[key] = self.new_session()
        return session

    def new_session(self) -> Session:
        """Return a session of one's own, on the event loop that runs."""
        line = substitute()
        dial = Connection.open if line is None else line.dial_for(self)
        if self.middlewares:
            return HookedSession(self.address, self.hello(), dial, self.traces, self.middlewares)
        if self.traces is None:
            return Session(self.address, self.hello(), dial)
        return TracedSession(self.address, self.hello(), self.traces, dial)

    def hello(self) -> Hello:
        """Return how this client introduces itself."""
        return Hello(
            namespace=self.address.namespace,
            token=self.address.token,
            name=self.name,
            agent=f"jackalope-python {__version__}",
        )


def _load_traces() -> Traces:
    try:
        from jackalope.tasks.tracing import Traces  # noqa: PLC0415  needs an extra
    except ImportError as error:
        message = f"telemetry: {error.name} is not installed; pip install 'jackalope[telemetry]'"
        raise ConfigError(message) from None
    return Traces()


def _is_redefined(old: TaskDefinition, new: TaskDefinition) -> bool:
    """Return whether a definition replaces itself, as when a cell of a notebook is run again."""
    was, now = old.function, new.function
    return (was.__module__, was.__qualname__) == (now.__module__, now.__qualname__)


# The sync facade: the async client for code without an event loop.


class Sync:
    """Runs what the async client gives, and waits for it.

        handle = app.sync(resize.submit("cat.png", width=320))
        print(app.sync(handle.result(timeout=60)))
        for progress in app.sync.iterate(handle.progress()):
            print(progress.percent)

    May be called from any thread. `with app.sync as sync:` closes the connection at the end.
    """

    def __init__(self, app: Jackalope) -> None:
        self._app = app
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, work: Coroutine[Any, Any, T], timeout: Seconds | None = None) -> T:
        """Run a coroutine of the client, and return what it returns.

        Args:
            work: such as `resize.submit("cat.png")` or `handle.result()`.
            timeout: after how many seconds to give up and cancel it.

        Raises:
            Timeout: it took longer.
        """
        try:
            timeout_s = wait_s(timeout)
        except ConfigError:
            work.close()
            raise
        if threading.current_thread() is self._thread:
            work.close()
            raise JackalopeError("sync was called by what sync runs; use await there")
        return Call(work, self._running_loop()).result(timeout_s)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Return a plain iterator over an async one."""
        end = object()

        async def take() -> T | object:
            return await anext(items, end)

        try:
            while (item := self(take())) is not end:
                yield item  # type: ignore[misc]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self(close())

    def __enter__(self) -> Self:
        try:
            self(self._app.connect())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread. The next call opens a new one."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        Call(self._app.close(), loop).result(None)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            self._begin()  # What the parent has is still the parent's: it is left alone.
        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="jackalope-sync", daemon=True
                )
                self._thread.start()
            return self._loop


class Call(Generic[T]):
    """A coroutine on the loop of another thread, and the thread that waits for it.

    A lock that the loop's thread releases wakes the other one for less than a future of
    `concurrent.futures` does.
    """

    __slots__ = ("_is_given_up", "_is_over", "_loop", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        if not asyncio.iscoroutine(work):
            raise TypeError(f"sync runs coroutines, not {kind_of(work)}")
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._is_given_up = False
        self._is_over = threading.Lock()
        self._is_over.acquire()
        loop.call_soon_threadsafe(self._begin)  # With the context of this thread.

    def result(self, timeout_s: float | None) -> T:
        """Wait for the coroutine, and return what it returns; cancel it if the wait ends before.

        Raises:
            Timeout: it took longer.
            CancelledError: that of `concurrent.futures`: it was cancelled from elsewhere.
        """
        most_s = -1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)
        try:
            is_over = self._is_over.acquire(timeout=most_s)
        except BaseException:  # Such as Ctrl-C.
            self._give_up()
            raise
        if not is_over:
            self._give_up()
            raise Timeout(f"not done within {timeout_s:g} s")
        task = self._task
        if task is None or task.cancelled():
            raise CancelledError
        return task.result()

    def _give_up(self) -> None:
        self._is_given_up = True
        self._loop.call_soon_threadsafe(self._cancel)

    # On the loop.

    def _begin(self) -> None:
        if self._is_given_up:
            self._work.close()
            return
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if self._is_given_up and not task.cancelled():
            task.exception()  # No thread will ask for it; that is no oversight.
        self._is_over.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


# The line: where a test kit puts a broker of its own in front of every application of the process.


class Line(Protocol):
    """A broker in front of every application of the process."""

    def dial_for(self, app: SessionOwner) -> Dial:
        """Return what opens an application's connections to it."""


_lines: list[Line] = []


def substitute() -> Line | None:
    """Return the line that every application must use now; None for a broker of its own."""
    return _lines[-1] if _lines else None


@contextmanager
def taken_over(line: Line) -> Iterator[None]:
    """Let every application of this process use one line for a while. Can be nested."""
    _lines.append(line)
    try:
        yield
    finally:
        for index in reversed(range(len(_lines))):
            if _lines[index] is line:  # Others may have come meanwhile, in other threads.
                del _lines[index]
                break
