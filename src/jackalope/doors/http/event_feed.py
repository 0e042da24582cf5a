"""Feeds: events on their way to one reader.

Owns the buffer of events while their reader is busy. A reader that is too slow loses the latest
and is sent their number; it never makes the broker wait, nor its memory grow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from jackalope.broker import queries
from jackalope.broker.events import Subscription
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.ids import TaskId
from jackalope.core.refusals import Code, Refusal
from jackalope.wire.messages import Happened

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
        """Begin to listen to something."""
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
