"""Listening: what one connection wants to hear of what happens.

Owns its subscription. A peer that reads too slowly misses events, and hears how many.
"""

from __future__ import annotations

from collections.abc import Callable

from jackalope.broker.access import Principal
from jackalope.broker.events import Events as Happenings
from jackalope.broker.events import Subscription
from jackalope.wire.messages import Events, Happened, Message, Subscribe


class Listening:
    """The subscription of one connection, if it has one."""

    def __init__(self, write: Callable[[Message], None], is_stuck: Callable[[], bool]) -> None:
        self._write = write
        self._is_stuck = is_stuck
        self._subscription: Subscription | None = None
        self._missed = 0

    def begin(
        self, events: Happenings, principal: Principal, namespace: str, message: Subscribe
    ) -> None:
        """Hear what the message asks for, in place of what was asked for before."""
        self.end(events)
        self._subscription = Subscription(
            self._take, namespace, message.queue, message.task, queues=principal.queues
        )
        events.subscribe(self._subscription)

    def end(self, events: Happenings) -> None:
        """Hear nothing any more."""
        if self._subscription is not None:
            events.unsubscribe(self._subscription)

    def _take(self, events: list[Happened]) -> None:
        if self._is_stuck():
            self._missed += len(events)
            return
        self._write(Events(events, self._missed))
        self._missed = 0
