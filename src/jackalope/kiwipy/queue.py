"""Tasks of kiwipy: durable tasks of a queue, sent, given to subscribers or taken one by one.

Owns one queue's side in this process. Sending goes over the client's session. Taking makes this
process a worker of the queue: it holds the lease of a task until the whole chain of futures that a
subscriber returned has ended, be it for weeks, and over lost connections and a restarted broker.

What subscribers reject, cancel or do not touch goes back into the queue; others come first to take
it. Everything here belongs to the loop of the communicator.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kiwipy
import msgspec

from jackalope.client.deadlines import Within
from jackalope.client.session.session import Session
from jackalope.core.commands import Action, ActOnTasks, Verdict
from jackalope.core.durations import DAY, MILLISECOND, SECOND
from jackalope.core.effects import Assignment, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.limits import COUNT_MAX, SLOTS_PER_WORKER_MAX
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.refusals import Code
from jackalope.core.task import NO_OPTIONS, PRIORITY_DEFAULT, BlobRef, Error, Options, TaskSpec
from jackalope.errors import ConnectionLost, JackalopeError, Rejected
from jackalope.kiwipy.serialization import Coding, Envelope, Response
from jackalope.kiwipy.threads import Reply, at_home, levels_of
from jackalope.task_ids import new_task_id
from jackalope.tasks.definition import TaskDefinition
from jackalope.transport.address import Address
from jackalope.wire.messages import Manage, Query
from jackalope.wire.views import ProgressView
from jackalope.worker.attempt import Attempt, Cause, Failed, Finished, Stopped
from jackalope.worker.session import JoinTerms, Membership
from jackalope.worker.workload import RESTING_MAX, Executor, Workload

log = logging.getLogger("jackalope.aiida")

#: The policy of a queue that does not exist yet: the preset, but tasks run without being played, go
#: on with another worker when theirs is lost (AiiDA's checkpoints make that safe), and are handed
#: on however often they are rejected. A sender that was cut off may ask for the result for a day.
PRESET = "aiida"
CHANGES: dict[str, Any] = {
    "held": False,
    "on_lost": "requeue",
    "retries": COUNT_MAX,
    "crash_limit": 0,
    "depth_limit": 0,
    "restart_grace_us": 30 * SECOND,
    "retention_us": DAY,
}

#: A guarded worker ends when it has received nothing for so much of the shortest time after which
#: its tasks may be given to another. The rest is for clocks that differ, and for a slow machine.
_GUARDED_PART = 0.9

#: What plumpy raises for a process that was killed: an end that a user asked for, and no fault.
_KILLED = "KilledError"

#: How often a task is sent again because one with its alias ended meanwhile.
_SENDS_MAX = 5

#: When a task that no subscriber here took is tried again: after so long, then twice, three times
#: as long, and so on up to the most.
_AGAIN_US = 100 * MILLISECOND
_AGAIN_TIMES_MAX = 50


# What a sender knows about a task besides its body. kiwipy's tasks have none of this; a sender that
# knows the kind of its tasks, as AiiDA's plugin does, adds it, and the broker can name, order and
# limit its tasks.

#: What tasks are called of which nothing is known.
TASK_NAME = "kiwipy"

#: The header of a task that, once begun, waits for tasks that it sends itself.
PARENT_HEADER = "parent"


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """What is known about a task."""

    # a name of its own. While a task with it is unfinished, another one is not sent.
    alias: str = ""
    name: str = TASK_NAME  # what kind of task it is
    priority: int = PRIORITY_DEFAULT  # what is higher comes first
    tags: tuple[str, ...] = ()  # labels whose number in flight can be limited
    is_parent: bool = False  # it waits for tasks that it sends

    def options(self) -> Options | None:
        headers = {PARENT_HEADER: True} if self.is_parent else {}
        options = Options(alias=self.alias, headers=headers, tags=self.tags)
        return None if options == NO_OPTIONS else options


PLAIN = TaskTraits()


class Queue:
    """One queue: tasks in, and tasks out."""

    # An executor's promise: an attempt that is given to a subscriber runs soon.
    begins_at_once = True

    def __init__(
        self,
        session: Session,
        name: str,
        coding: Coding,
        *,
        prefetch: int,
        timeout_s: float,
        communicator: Any,
        lease_s: float = 0.0,
    ) -> None:
        self.name = name  # its name
        self._lease_s = lease_s
        self._restart_grace_s = lease_s
        self._session = session
        self._coding = coding
        self._prefetch = prefetch or SLOTS_PER_WORKER_MAX
        self._timeout_s = timeout_s
        self._communicator = communicator
        self._subscribers: dict[Any, Callable[..., Any]] = {}
        self._workload: QueueWorkload | None = None
        self._membership: Membership | None = None
        self._claimed: asyncio.Queue[Attempt] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()
        self._is_declared = False
        self._declaring = asyncio.Lock()
        self._has_endless_retries = False
        self._is_closing = False
        # called with the alias of a task that is no longer ours although it still runs
        self.on_dropped: Callable[[str], None] = _note_dropped
        # called with the alias of a task to be killed; returns whether the subscriber that has
        # it was asked to end
        self.on_kill: Callable[[str], bool] = lambda _: False

    @property
    def has_subscribers(self) -> bool:
        """Whether tasks are given to a subscriber of this process."""
        return bool(self._subscribers)

    # Sending.

    async def send(
        self, task: Any, *, no_reply: bool, traits: TaskTraits = PLAIN
    ) -> kiwipy.Future | None:
        """Send a task; it is durable when this returns.

        If an unfinished task has the same alias, that one stands for both.
        """
        if not self._is_declared:
            await self._declare()
        payload = msgspec.msgpack.encode(Envelope(no_reply, self._coding.encode(task)))
        for _ in range(_SENDS_MAX):
            spec = TaskSpec(
                new_task_id(),
                self.name,
                name=traits.name,
                priority=traits.priority,
                payload=payload,
                options=traits.options(),
            )
            try:
                if no_reply:
                    await self._session.submit(spec, timeout_s=self._timeout_s)
                    return None
                return await self._send_watched(spec)
            except Rejected as error:
                if error.code != Code.DUPLICATE_ALIAS:
                    raise kiwipy.TaskRejected(str(error)) from error
                if await self._is_unfinished(traits.alias):
                    log.warning("%s has an unfinished task: no other one is sent", traits.alias)
                    return None if no_reply else _answered()
        raise kiwipy.TaskRejected(f"other tasks with the alias {traits.alias!r} come and go")

    async def _is_unfinished(self, alias: str) -> bool:
        """Return whether the task with an alias goes on; one that has ended gives up its alias."""
        try:
            found = Query(0, "task", {"alias": alias})
            view = await self._session.request(found, timeout_s=self._timeout_s)
            if view["state"] not in ENDED:
                return True
            purge = ActOnTasks(0, Action.PURGE, (view["id"],))
            await self._session.request(purge, timeout_s=self._timeout_s)
        except Rejected as error:
            if error.code != Code.UNKNOWN_TASK:
                raise kiwipy.TaskRejected(str(error)) from error
        return False

    async def _send_watched(self, spec: TaskSpec) -> kiwipy.Future:
        reply = Reply()

        def follow(progress: ProgressView) -> None:
            if progress.note.isdecimal():
                reply.pending(int(progress.note))

        def ended(end: asyncio.Future[TaskEnded]) -> None:
            if not end.cancelled():
                self._on_ended(reply, end)

        end = await self._session.begin(spec, follow, timeout_s=self._timeout_s)
        end.add_done_callback(ended)
        return reply.first

    def _on_ended(self, reply: Reply, future: asyncio.Future[TaskEnded]) -> None:
        error = future.exception()
        if isinstance(error, ConnectionLost):
            reply.fail(kiwipy.CommunicatorClosed(str(error)))
        elif error is not None:
            reply.fail(kiwipy.DeliveryFailed(str(error)))
        else:
            end = future.result()
            if end.state is not State.SUCCEEDED:
                why = end.error.message if end.error is not None else end.reason or "by a client"
                reply.fail(kiwipy.RemoteException(f"the task is {end.state}: {why}"))
            elif isinstance(end.result, BlobRef):
                self._keep(self._fetch_response(reply, end.task))
            else:
                self._on_response(reply, end.result)

    async def _fetch_response(self, reply: Reply, task: TaskId) -> None:
        """Fetch a response that is too large to come with the end of its task."""
        try:
            parts = [part async for part in self._session.parts_of(task)]
        except asyncio.CancelledError:
            reply.fail(kiwipy.CommunicatorClosed("closed while a result was fetched"))
            raise
        except JackalopeError as error:
            reply.fail(kiwipy.DeliveryFailed(str(error)))
        else:
            self._on_response(reply, b"".join(parts))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that ends with the queue, if not before."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _on_response(self, reply: Reply, data: bytes) -> None:
        response = msgspec.msgpack.decode(data, type=Response)
        reply.pending(response.levels)
        if response.error is not None:
            reply.fail(kiwipy.RemoteException(response.error))
            return
        try:
            reply.finish(self._coding.decode(response.body))
        except Exception as error:  # noqa: BLE001  a foreign decoder may raise anything
            reply.fail(error)

    async def _declare(self) -> None:
        """Make the queue if there is none. One that is there keeps the policy that it was given."""
        async with self._declaring:
            if not self._is_declared:
                await self._declare_now(self._timeout_s)
                self._is_declared = True

    async def _declare_now(self, timeout_s: float) -> None:
        try:
            answer = await self._session.request(Query(0, "queues"), timeout_s=timeout_s)
            queues = {queue["queue"]: queue["policy"] for queue in answer}
            if self.name not in queues:
                about = {"queue": self.name, "preset": PRESET, "changes": CHANGES}
                message = Manage(0, "declare_queue", about)
                await self._session.request(message, timeout_s=timeout_s)
                queues[self.name] = CHANGES
            # What has its default is not sent.
            policy = msgspec.structs.asdict(DEFAULT_POLICY) | queues[self.name]
            self._has_endless_retries = policy["retries"] >= COUNT_MAX
            self._restart_grace_s = policy["restart_grace_us"] / SECOND
        except Rejected as error:
            if error.code != Code.FORBIDDEN:
                raise
            log.warning("queue %s is used as it is: %s", self.name, error)

    # Taking.

    async def add_subscriber(self, subscriber: Callable[..., Any], identifier: Any) -> Any:
        identifier = identifier or str(uuid.uuid4())
        if identifier in self._subscribers:
            raise kiwipy.DuplicateSubscriberIdentifier(f"Task identifier '{identifier}'")
        workload, membership = await self._join()
        self._subscribers[identifier] = at_home(subscriber)
        if not workload.slots_wanted:
            workload.slots_wanted = self._prefetch
            membership.join()
        return identifier

    async def remove_subscriber(self, identifier: Any) -> None:
        """Give no more tasks to a subscriber. What it was given goes on."""
        if self._subscribers.pop(identifier, None) is None:
            raise ValueError(f"Unknown task subscriber '{identifier}'")
        if not self._subscribers and self._workload is not None and self._membership is not None:
            self._workload.slots_wanted = 0
            self._membership.join()

    async def next_attempt(self) -> Attempt:
        _, membership = await self._join()
        try:
            await membership.claim()
        except Rejected as error:
            if error.code == "nothing_to_claim":
                raise kiwipy.QueueEmpty(f"queue '{self.name}' has no task to give") from None
            raise
        return await self._claimed.get()

    async def _join(self) -> tuple[QueueWorkload, Membership]:
        if self._workload is None or self._membership is None:
            await self._declare()
            address = self._session.address
            self._workload = QueueWorkload(Source(address), self)
            name = f"kiwipy-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            standing = self._guarded(JoinTerms(address, name, (self.name,)))
            self._membership = Membership(standing, self._workload)
            self._membership.on_unwanted = self._on_unwanted
            self._membership.start()
        async with Within(self._timeout_s, f"this process did not become a worker of {self.name}"):
            try:
                await self._membership.joined()
            except ConnectionLost as error:
                raise kiwipy.DeliveryFailed(str(error)) from error
        return self._workload, self._membership

    def _guarded(self, standing: JoinTerms) -> JoinTerms:
        """See to it that this process has ended before its tasks are given to another."""
        if not self._lease_s:
            return standing
        shortest_s = min(self._lease_s, self._restart_grace_s)
        return replace(
            standing,
            lease_s=self._lease_s,
            grace_s=self._lease_s,
            guard_s=shortest_s * _GUARDED_PART,
        )

    def _on_unwanted(self, why: str) -> None:
        log.error("no more tasks of queue %s come here: %s", self.name, why)

    async def close(self) -> None:
        """Hand back what is not done, and take no more."""
        self._is_closing = True
        for task in self._running:
            task.cancel()
        if self._membership is not None:
            await asyncio.sleep(0)  # What has ended just now is still to be reported.
            await self._membership.leave()
            await self._membership.disconnect()
            await self._membership.close()

    # As the executor of the workload.

    def run(self, attempts: list[Attempt]) -> None:
        """Pass attempts to the callers that claimed them, or to the subscribers."""
        for attempt in attempts:
            if self._workload is not None:
                self._workload.note_begun(attempt)
            if attempt.assignment.claim:
                self._claimed.put_nowait(attempt)
                continue
            self._keep(self._process(attempt))

    def note_waiting(self, alias: str, *, is_waiting: bool) -> None:
        """Take the word that the task with an alias waits for tasks that it sent, or goes on."""
        if self._workload is not None:
            self._workload.note_waiting(alias, is_waiting=is_waiting)

    def stop(self, attempt: Attempt, level: int) -> str:
        """Ask the subscriber to end an attempt, or return why it cannot be stopped from here."""
        alias = attempt.assignment.options.alias
        if attempt.cause is Cause.DROP:
            self.on_dropped(alias)
        elif attempt.cause is Cause.KILL and (level > 0 or self.on_kill(alias)):
            return ""  # However long that takes.
        return "the process that runs it handles kill and pause itself: send them by RPC"

    def time_out_softly(self, attempt: Attempt) -> None:
        """Do nothing: these tasks have no soft time-out."""

    def body_of(self, attempt: Attempt) -> tuple[Any, bool]:
        """Return the body of an attempt, and whether its result is not awaited."""
        payload = attempt.assignment.payload
        if isinstance(payload, BlobRef):  # The workload has fetched it into a file.
            payload = Path(payload.blob).read_bytes()
        return self.open(payload)

    def open(self, payload: bytes) -> tuple[Any, bool]:
        """Return the body in a payload, and whether the result is not awaited."""
        envelope = msgspec.msgpack.decode(payload, type=Envelope)
        return self._coding.decode(envelope.body), envelope.no_reply

    def finish(self, attempt: Attempt, value: Any, levels: int = 0) -> None:
        """Acknowledge a task, with its result."""
        try:
            body = self._coding.encode(value)
        except Exception as error:
            log.exception("a result cannot be encoded")
            self.fail(attempt, error, levels)
        else:
            self._end(attempt, Response(levels, None, body))

    def fail(self, attempt: Attempt, error: BaseException, levels: int = 0) -> None:
        """Acknowledge a task, with what was raised."""
        self._end(attempt, Response(levels, str(error)))

    def _end(self, attempt: Attempt, response: Response) -> None:
        if attempt.cause is Cause.KILL and response.error is not None:
            attempt.listener.ended(attempt, Stopped(response.error))
            return
        attempt.listener.ended(attempt, Finished(msgspec.msgpack.encode(response)))

    def hand_back(self, attempt: Attempt) -> None:
        """Put a task back into the queue as if nothing had happened."""
        attempt.listener.ended(attempt, Stopped())

    def pass_on(self, attempt: Attempt, why: str) -> None:
        """Put a task back into the queue in a while, for others first.

        Where the policy counts failures, a rejection must not be one.
        """
        wait_us = _AGAIN_US * min(attempt.assignment.attempt, _AGAIN_TIMES_MAX)
        if self._has_endless_retries:
            error = Error("kiwipy.TaskRejected", why)
            attempt.listener.ended(attempt, Failed(error, Verdict.RETRY, wait_us))
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(wait_us / SECOND, self.hand_back, attempt)

    async def settle(self, attempt: Attempt, act: Callable[..., None], *args: Any) -> None:
        """End an attempt in one of these ways, and return when the broker knows."""
        if self._workload is not None:
            settled = self._workload.settlement(attempt)
            act(attempt, *args)
            await settled

    async def _process(self, attempt: Attempt) -> None:
        levels = 0
        try:
            task, no_reply = self.body_of(attempt)
            for subscriber in list(self._subscribers.values()):
                try:
                    async with aclosing(levels_of(subscriber(self._communicator, task))) as steps:
                        async for step in steps:
                            if step is not None:
                                # With `no_reply`, do not spend time on encoding the result.
                                self.finish(attempt, None if no_reply else step[0], levels)
                                return
                            levels += 1
                            if not no_reply:
                                self._tell_level(attempt, levels)
                except kiwipy.TaskRejected:
                    continue
            self.pass_on(attempt, "no subscriber here wants it")
        except (CancelledError, asyncio.CancelledError):
            if not self._is_closing:
                self.pass_on(attempt, "its subscriber cancelled it")
        except Exception as error:
            if type(error).__name__ == _KILLED:
                log.info("task %s was killed: %s", attempt.assignment.options.alias, error)
            else:
                log.exception("a task subscriber raised an exception")
            self.fail(attempt, error, levels)

    def _tell_level(self, attempt: Attempt, level: int) -> None:
        if self._workload is not None:
            with suppress(JackalopeError):
                self._workload.reports.progress(attempt, None, str(level))


def _answered() -> kiwipy.Future:
    """Return what a sender gets whose task is there already: it is begun, and that is all."""
    reply = Reply()
    reply.pending(1)
    reply.finish(None)
    return reply.first


def _note_dropped(alias: str) -> None:
    log.error(
        "task %s still runs here but was assigned to another worker: the broker lost the "
        "connection to this one",
        alias,
    )


# The workload of a queue: the tasks that subscribers of this process hold.


@dataclass(slots=True)
class Source:
    """What a workload needs to know of an application."""

    address: Address
    functions: dict[str, TaskDefinition] = field(default_factory=dict)


class QueueWorkload(Workload):
    """Holds as many tasks as the prefetch allows, while there are subscribers.

    A parent that waits for tasks which it has sent rests: else parents could fill every worker, and
    what they wait for would never begin.
    """

    slots_wanted = 0  # how many tasks to be given without asking

    def __init__(self, source: Source, executor: Executor) -> None:
        super().__init__(source, {"async": executor}, concurrency=SLOTS_PER_WORKER_MAX)
        self._definition = TaskDefinition(_nothing, name=TASK_NAME)
        self._settling: dict[Attempt, asyncio.Future[None]] = {}
        self._parents: dict[str, Attempt] = {}

    @property
    def slots(self) -> int:
        """How many attempts the worker is to hold."""
        if not self.slots_wanted:
            return 0
        return min(self.slots_wanted + min(self._resting, RESTING_MAX), SLOTS_PER_WORKER_MAX)

    def definition_of(self, assignment: Assignment) -> TaskDefinition:  # noqa: ARG002  all alike
        """Return the same for all: a task's name matters to people alone, subscribers take any."""
        return self._definition

    def note_begun(self, attempt: Attempt) -> None:
        """Remember a parent by its alias."""
        options = attempt.assignment.options
        if options.alias and PARENT_HEADER in options.headers:
            self._parents[options.alias] = attempt

    def note_waiting(self, alias: str, *, is_waiting: bool) -> None:
        """Take the word that a parent waits, or goes on."""
        attempt = self._parents.get(alias)
        if attempt is not None and is_waiting != bool(attempt.rests):
            self._on_rested(attempt, is_waiting)

    def settlement(self, attempt: Attempt) -> asyncio.Future[None]:
        """Return what is done when the broker has taken the end of an attempt."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling[attempt] = future
        return future

    def settled(self, attempts: Iterable[Attempt]) -> None:
        """Forget attempts about which nothing more needs to be reported."""
        gone = list(attempts)
        super().settled(gone)
        for attempt in gone:
            if self._parents.get(attempt.assignment.options.alias) is attempt:
                del self._parents[attempt.assignment.options.alias]
            future = self._settling.pop(attempt, None)
            if future is not None and not future.done():
                future.set_result(None)


async def _nothing() -> None:
    """Stand for the subscribers, which the executor knows."""
