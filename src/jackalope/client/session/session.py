"""The session of a client with the broker, over as many connections as it takes.

Owns when to be connected and what survives a lost connection. It connects when something is
asked for and stays connected; when the connection is lost, it reconnects by itself, with backoff,
while a request, a watch or a listener is open, or always if `stays_connected` is set. Which address
it tries when is the matter of `transport.connector`.

What is repeated over a new connection, and why that is safe:

- submits: the broker knows tasks by their id and accepts each once (`outbox`);
- watches: asking twice is asking once (`watches`);
- queries, and idempotent requests that set a state, such as pausing a queue;
- other requests only if they were never sent. Else `ConnectionLost` is raised: it is not known
  whether they took effect.

A session belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from jackalope.client.deadlines import Deadlines, Within
from jackalope.client.session.messages import Messages
from jackalope.client.session.outbox import (
    PARCEL_BYTES_MAX,
    PARCEL_TASKS_MAX,
    Outbox,
    Uploaded,
    copy_of,
    is_large,
    is_lost,
    size_of,
    time_for,
)
from jackalope.client.session.watches import Ends, Follower, Watches
from jackalope.client.submit_options import UNSET
from jackalope.core.assertions import must
from jackalope.core.commands import Command
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.effects import Served, TaskEnded, TaskProgressed
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code
from jackalope.core.task import TaskSpec
from jackalope.errors import (
    ConnectionLost,
    JackalopeError,
    Misread,
    ProtocolError,
    Rejected,
    Timeout,
)
from jackalope.transport.address import Address
from jackalope.transport.connection import CLOSE_TIMEOUT_S, Connection, fetch_parts, send_parts
from jackalope.transport.connector import Connector, Dial
from jackalope.wire.messages import AnyMessage, Ended, Hello, Request, name_of

if TYPE_CHECKING:  # It needs an extra.
    from jackalope.tasks.tracing import Traces

log = logging.getLogger("jackalope.client")

#: How many parcels of a bulk submit are encoded ahead of the broker's answers.
_BULK_PARCELS = 16


class SessionOwner(ABC):
    """What has a session on each event loop that uses it: the client, as its parts see it."""

    timeout_s: float | None  # how long an answer may take by default

    @abstractmethod
    def session(self) -> Session:
        """Return the session of the event loop that runs."""

    @abstractmethod
    def new_session(self) -> Session:
        """Return a session of one's own, on the event loop that runs."""

    def timeout_of(self, timeout_s: float | None) -> float | None:
        """Return the time that a call may take, if it does not say so itself."""
        return self.timeout_s if timeout_s == UNSET else timeout_s


class Session:
    """One client's standing with the broker."""

    def __init__(self, address: Address, hello: Hello, dial: Dial = Connection.open) -> None:
        self.address = address  # where the broker is
        self._connector = Connector(
            address, hello, heard=self._heard, lost=self._lost, troubled=self._troubled, dial=dial
        )
        self._loop = asyncio.get_running_loop()
        self._watches = Watches()
        self._outbox = Outbox(self._watches.ask)
        self.messages = Messages(self)  # what is said beside tasks
        # called when a connection was lost
        self.on_lost: Callable[[ConnectionLost], None] = lambda _: None
        # called when there will be no other connection until something is asked for
        self.on_failed: Callable[[JackalopeError], None] = lambda _: None
        self.stays_connected = False  # reconnect after a loss even while nothing is asked for
        self._deadlines = Deadlines(self._late)
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._callers: list[asyncio.Future[Connection]] = []
        self._trouble: JackalopeError | None = None
        self._is_closed = False
        self._is_patient = True  # try again while the broker cannot be reached

    # What the client asks for.

    async def open(self, timeout_s: float | None, *, wait: bool = True) -> None:
        """Connect.

        Raises:
            Rejected: the broker does not want us.
            Timeout: it could not be reached in time.
            ConnectionLost: it could not be reached at once, and `wait` is not set.
        """
        self._is_patient = wait
        try:
            async with Within(timeout_s, lambda: self._no_answer("hello")):
                await self.connected()
        finally:
            self._is_patient = True

    async def request(
        self, message: Request | Command, *, timeout_s: float | None, can_repeat: bool = True
    ) -> Any:
        """Ask the broker something, and return the body of its answer.

        Args:
            message: the request.
            timeout_s: how long the answer may take, reconnecting included.
            can_repeat: asking twice does what asking once does.

        Raises:
            Rejected: the broker said no, or cannot read it.
            ConnectionLost: the connection was lost and the request must not be repeated.
            Timeout: no answer came in time.
        """
        what, is_suspect = name_of(message), False
        async with Within(timeout_s, lambda: self._no_answer(what)):
            while True:
                connection = await self.connected()
                if not connection.is_open:
                    continue  # Lost again before anything was sent.
                try:
                    return await connection.request(message)
                except ConnectionLost as error:
                    if isinstance(error, Misread):
                        if is_suspect:
                            text = f"the broker cannot read {what.lower()}: {error}"
                            raise Rejected(Code.INVALID, text) from None
                        is_suspect = True  # Or something else that was under way.
                    if not can_repeat:
                        raise ConnectionLost(
                            f"{error}; it is not known whether {what.lower()} took effect, "
                            "so it was not repeated: look, and ask again"
                        ) from None

    async def submit(
        self,
        spec: TaskSpec,
        fence: int = 0,
        *,
        wait_for_room: bool = False,
        timeout_s: float | None,
    ) -> Served | None:
        """Submit a task; durable with the broker when this returns.

        Returns:
            How it is served, if it is a request: perhaps by another task.

        Raises:
            Rejected: the broker did not accept it.
            Timeout: no answer came in time. It may have been accepted: submit it again under the
                same id to be sure.
        """
        if not wait_for_room and not is_large(spec):
            self._wake()
            return await self._deadlines.add(self._outbox.put(spec, fence), timeout_s, spec.id)
        within_s = time_for(spec, timeout_s)
        async with Within(within_s, lambda: self._no_answer(f"submit of {spec.id.hex()}")):
            while True:
                self._wake()
                whole = await self._with_body(spec) if is_large(spec) else spec
                try:
                    return await self._outbox.put(whole, fence)
                except Rejected as error:
                    if not is_lost(error, spec):
                        await wait_for(error, wait_for_room)

    async def submit_flow(
        self,
        command: SubmitFlow | AddNodes,
        *,
        wait_for_room: bool = False,
        timeout_s: float | None,
    ) -> None:
        """Submit a flow, or nodes for its open groups; durable with the broker when this returns.

        Ids of nodes follow from that of the flow, so that it can be repeated.

        Raises:
            Rejected: the broker did not accept it.
            Timeout: no answer came in time.
        """
        large = [node.spec for node in command.nodes if is_large(node.spec)]
        within_s = None if timeout_s is None or large else timeout_s
        async with Within(within_s, lambda: self._no_answer("submit of a flow")):
            while True:
                whole = await self._with_bodies(command) if large else command
                try:
                    await self.request(whole, timeout_s=timeout_s)
                except Rejected as error:
                    if not any(is_lost(error, spec) for spec in large):
                        await wait_for(error, wait_for_room)
                else:
                    return

    async def _with_bodies(self, command: SubmitFlow | AddNodes) -> SubmitFlow | AddNodes:
        """Upload the large payloads of nodes, and return the command that names them."""
        nodes = [
            msgspec.structs.replace(node, spec=await self._with_body(node.spec))
            if is_large(node.spec)
            else node
            for node in command.nodes
        ]
        return msgspec.structs.replace(command, nodes=nodes)

    async def serve(
        self,
        spec: TaskSpec,
        fence: int = 0,
        *,
        wait_for_room: bool = False,
        timeout_s: float | None,
        result_timeout_s: float | None = None,
    ) -> tuple[Served | None, TaskEnded]:
        """Submit a task and wait for the end of the one that serves it, mostly itself.

        The end is asked for together with the submit.
        """
        task_id, source = spec.id, spec
        served: Served | None = None
        end = self._watches.add(task_id, is_asked=True)
        within_s = time_for(spec, timeout_s)
        try:
            async with Within(within_s, lambda: self._no_answer(f"submit of {task_id.hex()}")):
                while True:
                    self._wake()
                    spec = await self._with_body(source) if is_large(source) else spec
                    try:
                        served = await self._outbox.put(spec, fence, watched=True)
                        break
                    except Rejected as error:
                        if not is_lost(error, source):
                            await wait_for(error, wait_for_room)
                    # The watch was refused together with the task.
                    self.unwatch(spec.id, end)
                    end = self._watches.add(spec.id, is_asked=True)
            if served is not None and served.task != task_id:
                self.unwatch(task_id, end)
                task_id = served.task
                end = self.watch(task_id)
            async with Within(result_timeout_s, f"task {task_id.hex()} did not end"):
                return served, await end
        finally:
            self.unwatch(task_id, end)

    async def _with_body(self, spec: TaskSpec) -> TaskSpec:
        """Upload the payload of a task, and return the task that names it."""
        body = cast("bytes | Uploaded", spec.payload)
        uploaded = Uploaded(body) if isinstance(body, bytes) else body
        connection = await self.connected()
        if isinstance(body, bytes) and connection.welcome.part_bytes_max <= 0:
            return spec  # An earlier broker: it fits into a frame, or is refused.
        await self.upload(uploaded)
        return msgspec.structs.replace(spec, payload=uploaded.take())

    async def upload(self, uploaded: Uploaded, timeout_s: float | None = None) -> None:
        """Upload something, over as many connections as it takes, unless that was done.

        Args:
            uploaded: what.
            timeout_s: how long each connection may take to come about.
        """
        while True:
            async with Within(timeout_s, lambda: self._no_answer("upload")):
                connection = await self.connected()
            if uploaded.is_there(connection):
                return
            chunks = uploaded.chunks()
            try:
                uploaded.put(connection, await send_parts(connection, chunks))
            except ConnectionLost:
                continue

    async def parts_of(
        self, task_id: TaskId, *, payload: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body of a task in parts."""
        parts = fetch_parts(await self.connected(), task_id, payload=payload)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def begin(
        self, spec: TaskSpec, follower: Follower, *, timeout_s: float | None
    ) -> asyncio.Future[TaskEnded]:
        """Submit a task whose way to its end is followed.

        Returns:
            The future of its end, once it is accepted; give it back to `unwatch`.
        """
        if is_large(spec):
            await self.submit(spec, timeout_s=timeout_s)
            return self.watch(spec.id, follower)
        self._wake()
        self._watches.follow(spec.id, follower)
        end = self._watches.add(spec.id, is_asked=True)
        try:
            await self._deadlines.add(self._outbox.put(spec, watched=True), timeout_s, spec.id)
        except BaseException:
            self.unwatch(spec.id, end, follower)
            raise
        return end

    async def submit_many(
        self,
        specs: Iterable[TaskSpec],
        fence: int = 0,
        *,
        wait_for_room: bool = False,
        timeout_s: float | None,
        served: dict[int, Served] | None = None,
    ) -> dict[int, Rejected]:
        """Submit any number of tasks, a parcel at a time, and return which were refused.

        Args:
            specs: the tasks. They are taken as the broker keeps up.
            fence: proves the right of a running parent.
            wait_for_room: submit those again for which there is no room at the moment.
            timeout_s: how long the broker may take over each parcel, waiting for room included.
            served: is told how those are served that are requests, by index.

        Raises:
            Timeout: no answer came in time.
        """
        refused: dict[int, Rejected] = {}
        told = {} if served is None else served
        under_way: deque[asyncio.Task[None]] = deque()
        begin = 0
        try:
            for parcel in _parcels(specs):
                work = self._submit_parcel(
                    parcel,
                    begin,
                    refused,
                    told,
                    fence=fence,
                    wait_for_room=wait_for_room,
                    timeout_s=timeout_s,
                )
                under_way.append(self._loop.create_task(work))
                begin += len(parcel)
                await (under_way.popleft() if len(under_way) > _BULK_PARCELS else asyncio.sleep(0))
            while under_way:
                await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return refused

    async def end_of(self, task_id: TaskId, timeout_s: float | None) -> TaskEnded:
        """Wait for the end of a task."""
        end = self.watch(task_id)
        try:
            async with Within(timeout_s, f"task {task_id.hex()} did not end"):
                return await end
        finally:
            self.unwatch(task_id, end)

    def watch(self, task_id: TaskId, follower: Follower | None = None) -> asyncio.Future[TaskEnded]:
        """Return the future of a task's end; give it back to `unwatch`.

        Args:
            task_id: the task.
            follower: called with its progress until then.
        """
        self._wake()
        if follower is not None:
            self._watches.follow(task_id, follower)
        return self._watches.add(task_id)

    def unwatch(
        self, task_id: TaskId, end: asyncio.Future[TaskEnded], follower: Follower | None = None
    ) -> None:
        """Stop waiting for the end of a task, and following it."""
        if follower is not None:
            self._watches.unfollow(task_id, follower)
        self._watches.discard(task_id, end)

    def watch_many(self, task_ids: Iterable[TaskId], ends: Ends) -> None:
        """Let the ends of tasks, each named once, come to one place."""
        self._wake()
        self._watches.add_many(task_ids, ends)

    def unwatch_many(self, task_ids: Iterable[TaskId], ends: Ends) -> None:
        """Stop waiting for the ends of tasks."""
        for task_id in task_ids:
            self._watches.discard(task_id, ends)

    # The connection.

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and self._connection.is_open

    @property
    def is_idle(self) -> bool:
        """Whether no request, watch or listener needs a connection."""
        is_quiet = self._outbox.is_empty and self._watches.is_empty and self.messages.is_empty
        return is_quiet and not self._callers

    async def connected(self) -> Connection:
        """Return the connection as soon as there is one."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        caller: asyncio.Future[Connection] = self._loop.create_future()
        self._callers.append(caller)
        self._wake()
        return await caller

    async def close(self) -> None:
        """Close the connection. What is not answered yet fails with `ConnectionLost`."""
        self._is_closed = True
        await self.messages.leave(CLOSE_TIMEOUT_S)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        connection, self._connection = self._connection, None
        self._fail(ConnectionLost("the client was closed"))
        if connection is not None:
            await connection.close()

    def _wake(self) -> None:
        """See to it that there is, or will be, a connection."""
        if self._is_closed:
            raise ConnectionLost("the client is closed; make a new one")
        must(asyncio.get_running_loop() is self._loop, "a session belongs to one loop")
        if self._keeper is None or self._keeper.done():
            self._keeper = self._loop.create_task(self._keep(), name="jackalope-session")

    async def _keep(self) -> None:
        """Keep a connection up; after a loss, reconnect only if one is needed."""
        self._connector.begin_again()
        try:
            while True:
                connection = await self._connector.connect()
                self._connected(connection)
                await connection.ended()
                if self.is_idle and not self.stays_connected:
                    return
        except (ConnectionLost, Rejected, ProtocolError) as error:
            self._fail(error)
        except asyncio.CancelledError:
            # The loop ends without `close`: leave no socket behind.
            if self._connection is not None and not self._is_closed:
                self._connection.abort("the event loop ends")
            raise

    def _troubled(self, error: JackalopeError) -> None:
        """Note that the broker cannot be reached; end the tries where that is of no use."""
        if not self._is_patient or isinstance(error, ProtocolError):
            raise error
        if self._trouble is None:
            log.warning("%s; trying again", error)
        self._trouble = error

    def _connected(self, connection: Connection) -> None:
        if self._trouble is not None:
            log.info("connected to %s again", connection.address)
        self._trouble = None
        self._connection = connection
        self._watches.connected(connection, but=self._outbox.connected(connection))
        self.messages.connected(connection)
        callers, self._callers = self._callers, []
        for caller in callers:
            if not caller.done():
                caller.set_result(connection)

    def _heard(self, message: AnyMessage) -> None:
        if type(message) is Ended:
            self._watches.ended(message)
        elif type(message) is TaskProgressed:
            self._watches.progressed(message)
        else:
            self.messages.take(message)

    def _lost(self, error: ConnectionLost) -> None:
        self._connection = None
        self._outbox.lost()
        self._watches.lost()
        self.messages.lost(error)
        self._trouble = error
        if self.stays_connected or not self.is_idle:
            log.warning("%s; connecting again", error)
        self.on_lost(error)

    def _fail(self, error: JackalopeError) -> None:
        callers, self._callers = self._callers, []
        for caller in callers:
            if not caller.done():
                caller.set_exception(copy_of(error))
        self._outbox.fail(error)
        self._watches.fail(error)
        self.messages.lost(error)
        self.on_failed(error)

    def _late(self, task_id: TaskId, timeout_s: float) -> Timeout:
        what = self._no_answer(f"submit of {task_id.hex()}")
        return Timeout(f"{what} within {timeout_s:g} s")

    def _no_answer(self, what: str) -> str:
        trouble = f" (last trouble: {self._trouble})" if self._trouble is not None else ""
        return f"no answer from {self.address} to {what}{trouble}"

    # Bulk.

    async def _submit_parcel(
        self,
        specs: list[TaskSpec],
        begin: int,
        refused: dict[int, Rejected],
        served: dict[int, Served],
        *,
        fence: int,
        wait_for_room: bool,
        timeout_s: float | None,
    ) -> None:
        """Submit a parcel; report refusals under their index in the whole."""
        left = list(enumerate(specs, begin))
        within_s = time_for(specs[0], timeout_s)
        async with Within(within_s, lambda: self._no_answer(f"submit of {len(left)} tasks")):
            while left:
                self._wake()
                if is_large(left[0][1]):  # Then it is alone.
                    left = [(left[0][0], await self._with_body(specs[0]))]
                answer = await self._outbox.put_many([spec for _, spec in left], fence)
                waiting = []
                for position, how in answer.served.items():
                    served[left[position][0]] = how
                for position, error in answer.refused.items():
                    if is_lost(error, specs[0]):
                        waiting.append((left[position][0], specs[0]))
                    elif wait_for_room and error.code in ROOM_CODES:
                        index = left[position][0]
                        waiting.append((index, specs[index - begin]))
                    else:
                        refused[left[position][0]] = error
                if waiting and not is_large(specs[0]):
                    wait_s = max(map(room_wait_s, answer.refused.values()))
                    await asyncio.sleep(wait_s)
                left = waiting


class TracedSession(Session):
    """A session that makes a span of every submit."""

    def __init__(self, address: Address, hello: Hello, traces: Traces, dial: Dial) -> None:
        super().__init__(address, hello, dial=dial)
        self._traces = traces

    async def submit(self, spec: TaskSpec, fence: int = 0, **more: Any) -> Served | None:
        """Submit a task; the span ends when it is durable."""
        with self._traces.submitting(spec):
            return await super().submit(spec, fence, **more)

    async def submit_flow(self, command: SubmitFlow | AddNodes, **more: Any) -> None:
        """Submit a flow or some nodes, each with a span of its own."""
        nodes = [
            msgspec.structs.replace(node, spec=self._traces.submitted(node.spec))
            for node in command.nodes
        ]
        await super().submit_flow(msgspec.structs.replace(command, nodes=nodes), **more)

    async def serve(
        self, spec: TaskSpec, fence: int = 0, **more: Any
    ) -> tuple[Served | None, TaskEnded]:
        """Submit a task and wait for its end; the span ends with it."""
        with self._traces.submitting(spec):
            return await super().serve(spec, fence, **more)

    async def submit_many(
        self, specs: Iterable[TaskSpec], fence: int = 0, **more: Any
    ) -> dict[int, Rejected]:
        """Submit any number of tasks, each with a span of its own."""
        return await super().submit_many(map(self._traces.submitted, specs), fence, **more)


def _parcels(specs: Iterable[TaskSpec]) -> Iterator[list[TaskSpec]]:
    """Cut a stream of tasks into parcels, none too many and none too large."""
    parcel: list[TaskSpec] = []
    parcel_bytes = 0
    for spec in specs:
        size = size_of(spec)
        if parcel and (len(parcel) >= PARCEL_TASKS_MAX or parcel_bytes + size > PARCEL_BYTES_MAX):
            yield parcel
            parcel, parcel_bytes = [], 0
        parcel.append(spec)
        parcel_bytes += size
    if parcel:
        yield parcel


# Room: waiting until the broker takes what it has refused for the moment.

#: Refusals that say "not now": the broker is worth asking again.
ROOM_CODES = frozenset({Code.QUEUE_FULL, Code.OVERLOADED, Code.STORAGE_FAILED, Code.RATE_LIMITED})

_ROOM_WAIT_MIN_S = 0.05
_ROOM_WAIT_MAX_S = 30.0
_STORAGE_WAIT_S = 1.0


async def wait_for(error: Rejected, is_wanted: bool) -> None:
    """Wait as long as a refusal says; raise it again if waiting is not wanted or does not help."""
    if not is_wanted or error.code not in ROOM_CODES:
        raise error
    await asyncio.sleep(room_wait_s(error))


def room_wait_s(error: Rejected) -> float:
    """Return how long to wait for room; a little more by chance, so that not all come at once."""
    asked_s = error.retry_after_s
    if not asked_s and error.code == Code.STORAGE_FAILED:
        asked_s = _STORAGE_WAIT_S
    wait_s = min(max(asked_s, _ROOM_WAIT_MIN_S), _ROOM_WAIT_MAX_S)
    return wait_s * (1 + random.random() / 4)  # noqa: S311  spreads load, guards nothing
