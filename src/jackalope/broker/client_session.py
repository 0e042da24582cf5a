"""The session of all clients of a door that keeps none of its own for each, and feeds of events.

Owns the requests that wait for the end of a task, and the events that wait for their reader. Knows
no protocol and decides nothing. When the broker ends the session (it was rebuilt after a full
disk), all waiting requests fail, and the next one opens another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Self, TypeVar

from msgspec.structs import replace

from jackalope.broker import queries
from jackalope.broker.access import Principal, present
from jackalope.broker.events import Subscription
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import AnyCommand, CreateApiKey, RevokeApiKey, WatchTasks
from jackalope.core.effects import Accepted, Answered, Message, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.limits import LOG_LINES_READ_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import LogPage
from jackalope.wire.messages import Happened

A = TypeVar("A", bound=Answered)

#: How often one who follows a log is told that nothing is new.
_QUIET_S = 15.0


def of_kind(answered: Answered, kind: type[A]) -> A:
    """Return an answer that is of the kind that its command always has."""
    if not isinstance(answered, kind):
        raise BrokenInvariant(f"the answer must be {kind.__name__}, got {answered}")
    return answered


class ClientSession(LocalSession):
    """One session for all clients of a door."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._waiting: dict[TaskId, set[asyncio.Future[TaskEnded]]] = {}

    async def ask(
        self, command: AnyCommand, items: int = 1, who: Principal | None = None
    ) -> Answered:
        self.open()
        stay = present.get()
        if stay is not None and isinstance(command, CreateApiKey | RevokeApiKey):
            stay.may_finish = True  # Even if what it asks for sends it away itself.
        return await super().ask(command, items, who)

    async def ended(
        self, namespace: str, task: TaskId, wait_s: float | None, who: Principal | None = None
    ) -> TaskEnded | None:
        """Wait for a task to end; None if it has not by then. It may wait without a limit."""
        told: asyncio.Future[TaskEnded] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task, set()).add(told)
        try:
            async with asyncio.timeout(wait_s):
                body = await self.ask(
                    WatchTasks(ref=0, tasks=(task,), namespace=namespace), who=who
                )
                if isinstance(body, Accepted) and body.refused:
                    raise Refused(body.refused[0][1])
                return await told
        except TimeoutError:
            return None
        finally:
            told.cancel()
            waiting = self._waiting.get(task)
            if waiting is not None:
                waiting.discard(told)
                if not waiting:
                    del self._waiting[task]

    def close(self, why: str = "the broker is shutting down; try again later") -> None:
        super().close(why)

    # The broker's side.

    def on_message(self, message: Message) -> None:
        if isinstance(message, TaskEnded):
            for told in self._waiting.pop(message.task, ()):
                if not told.done():
                    told.set_result(message)

    def refuse(self, refusal: Refusal) -> None:
        super().refuse(refusal)
        waiting, self._waiting = self._waiting, {}
        for told in [told for each in waiting.values() for told in each]:
            if not told.done():
                told.set_exception(Refused(refusal))


# Feeds: events on their way to one reader, and the buffer of them while it is busy. A reader that
# is too slow loses the latest and is sent their number; it never makes the broker wait, nor its
# memory grow.

#: How many events wait for one reader, and how many things it may listen to.
EVENTS_WAITING_MAX = 1_000
TOPICS_MAX = 100

#: A queue, a task, or all of the namespace if both are empty.
Wanted = tuple[str, TaskId]


class Feed:
    """What one reader listens to. Use it as a context: it ends with the block."""

    def __init__(self, broker: Broker, feeds: set[Feed], namespace: str) -> None:
        queries.task.admit(namespace)
        self._broker = broker
        self._feeds = feeds
        self._namespace = namespace
        self._subscriptions: dict[Wanted, Subscription] = {}
        self._waiting: deque[Happened] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self.is_over = False

    def __enter__(self) -> Self:
        self._feeds.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._feeds.discard(self)
        for wanted in list(self._subscriptions):
            self.drop(wanted)

    def listen(self, wanted: Wanted) -> None:
        if wanted in self._subscriptions:
            return
        if len(self._subscriptions) >= TOPICS_MAX:
            message = f"a connection has at most {TOPICS_MAX} subscriptions; subscribe to a queue"
            raise Refused(Refusal(Code.TOO_MANY, message))
        queue, task = wanted
        subscription = Subscription(self._take, self._namespace, queue, task)
        self._subscriptions[wanted] = subscription
        self._broker.events.subscribe(subscription)

    def drop(self, wanted: Wanted) -> None:
        """Listen to something no more."""
        subscription = self._subscriptions.pop(wanted, None)
        if subscription is not None:
            self._broker.events.unsubscribe(subscription)

    async def next(self, wait_s: float) -> tuple[list[Happened], int]:
        """Return what happened, and how many events after that were missed; nothing after a while.

        One that is over returns at once.
        """
        if not (self._waiting or self._missed or self.is_over):
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        events, missed = list(self._waiting), self._missed
        self._waiting.clear()
        self._missed = 0
        return events, missed

    def close(self) -> None:
        """Let the reader go: the door closes."""
        self.is_over = True
        self._wake.set()

    def _take(self, events: list[Happened]) -> None:
        # What comes after a gap would be sent before it: once something is missed, all is, until
        # the reader was notified.
        room = 0 if self._missed else EVENTS_WAITING_MAX - len(self._waiting)
        self._waiting.extend(events[:room])
        self._missed += max(0, len(events) - room)
        self._wake.set()


# The log of a task, as it grows.


async def follow_logs(
    broker: Broker, feeds: set[Feed], namespace: str, about: queries.About
) -> AsyncIterator[LogPage]:
    """Yield the lines of a task that are there, and then new ones, until it ends.

    A page without lines means that nothing came for a while. Raises `Refused`.
    """
    with Feed(broker, feeds, namespace) as feed:
        page = await queries.logs(broker, namespace, about)
        feed.listen(("", page.task))
        while not feed.is_over:
            yield page
            is_whole = about.is_tail or not page.has_more
            if page.ended and is_whole:
                return
            after = page.lines[-1].id if page.lines else about.after_line
            about = replace(about, after_line=after, is_tail=False, limit=LOG_LINES_READ_MAX)
            if is_whole:
                waits = [
                    asyncio.ensure_future(broker.logs.changed(page.task, _QUIET_S)),
                    asyncio.ensure_future(feed.next(_QUIET_S)),
                ]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
            page = await queries.logs(broker, namespace, about)
