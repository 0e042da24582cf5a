"""The inbox: commands that wait for a turn, and what waits for the end of one.

Owns how much one turn takes, how long a turn may wait for company, and whether new tasks are
admitted. Of commands it knows which one can wait and which have bodies, and not what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import structlog

from jackalope.core.commands import AnyCommand, FinishAttempts, StartAttempts, SubmitTasks
from jackalope.core.commands.amqp import PublishMessages
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.refusals import Code, Refusal

log = structlog.get_logger(component="broker")

#: How many tasks, results and other items one turn takes on; what is left makes the next turn.
ITEMS_PER_TURN_MAX = 2_000

#: How many bytes of payloads and results one turn takes on, so that a log takes its batch in one
#: piece. A command that has more makes a turn of its own.
TURN_BYTES_MAX = 8 * 1024 * 1024

#: Where the items of a command have their bodies. All other items are small.
_BODIES: dict[type, Callable[[Any], object]] = {
    SubmitTasks: attrgetter("payload"),
    FinishAttempts: attrgetter("result"),
    PublishMessages: attrgetter("body"),
    SubmitFlow: attrgetter("spec.payload"),
    AddNodes: attrgetter("spec.payload"),
}

#: How long the word that an attempt began may wait for company. The attempt goes on meanwhile, and
#: if it is short it ends within this time: then one write to the disk serves both.
_PATIENCE_S = 0.002


class Bell:
    """Wakes the one coroutine that waits for it."""

    __slots__ = ("_is_rung", "_waiter")

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Let the waiting coroutine go on, now or as soon as it waits."""
        self._is_rung = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def clear(self) -> None:
        """Forget that it rang."""
        self._is_rung = False

    async def wait(self) -> None:
        """Return when it rings, or at once if it rang since `clear`."""
        if not self._is_rung:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Inbox:
    """What waits for the next turn."""

    def __init__(self) -> None:
        self.items = 0  # tasks, results and others that wait
        self.wake = Bell()  # rings when there may be something to do
        self.is_urgent = False  # there must be a turn now
        self._commands: list[AnyCommand] = []
        self._actions: list[Callable[[], None]] = []
        self._patience: asyncio.TimerHandle | None = None

    def put(self, command: AnyCommand, items: int) -> None:
        """Add a command to the next turn."""
        self._commands.append(command)
        self.items += items
        if type(command) is not StartAttempts:
            self.is_urgent = True
            self.wake.ring()
        elif self._patience is None and not self.is_urgent:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_PATIENCE_S, self._hurry)

    def _hurry(self) -> None:
        self.is_urgent = True
        self.wake.ring()

    def take(self) -> list[AnyCommand]:
        items = size = 0
        for count, command in enumerate(self._commands if len(self._commands) > 1 else ()):
            size += bytes_of(command)
            if size > TURN_BYTES_MAX and count:
                return self._take(count, items)
            many = getattr(command, "tasks", None) or getattr(command, "messages", None)
            many = many or getattr(command, "nodes", None)
            items += len(many) if many else 1
            if items >= ITEMS_PER_TURN_MAX:
                return self._take(count + 1, items)
        taken, self._commands = self._commands, []
        self.items, self.is_urgent = 0, False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        return taken

    def _take(self, count: int, items: int) -> list[AnyCommand]:
        """Take some of the commands, and leave the others for the next turn."""
        taken, self._commands = self._commands[:count], self._commands[count:]
        self.items = max(0, self.items - items)
        return taken

    def clear(self) -> None:
        """Drop every command: the sessions that sent them have ended."""
        while self._commands:
            self.take()

    def after_turn(self, action: Callable[[], None]) -> None:
        """Do something once, after the present turn, or soon if there is none."""
        self._actions.append(action)
        self.wake.ring()

    def end_turn(self) -> None:
        """Do what was to be done after the turn."""
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    def has_commands(self) -> bool:
        return bool(self._commands)

    def has_actions(self) -> bool:
        """Return whether something waits for the end of a turn."""
        return bool(self._actions)


def bytes_of(command: AnyCommand) -> int:
    """Return how many bytes the payloads and results of a command have, without those in blobs."""
    body = _BODIES.get(type(command))
    if body is None:
        return 0
    bodies = map(body, getattr(command, command.counted or "nodes"))
    return sum([len(each) for each in bodies if type(each) is bytes])


# Admission: whether new tasks are taken in just now.


#: Beyond this many items in the inbox a submit is refused, with the time to try again.
INBOX_ITEMS_MAX = 200_000

#: Beyond this many tasks that history lacks a submit is refused too.
UNWRITTEN_TASKS_MAX = 1_000_000

_RETRY_US = 500 * MILLISECOND
_LOOK_EVERY_US = SECOND


class Admission:
    """Refuses tasks for which there is no room.

    Args:
        room_bytes: returns how much more the disk takes; None if there is no disk.
        free_bytes_min: how much of that must stay free.
    """

    def __init__(self, room_bytes: Callable[[], int | None], free_bytes_min: int) -> None:
        self._room_bytes = room_bytes
        self._free_bytes_min = free_bytes_min
        self._looked_us = 0
        self._lack = ""

    def lack(self, now_us: int) -> str:
        """Return what the disk lacks, as seen within the last second; nothing if all is well."""
        if self._free_bytes_min and now_us - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now_us
            room, least = self._room_bytes(), self._free_bytes_min
            is_low = room is not None and room < least
            if is_low and not self._lack:
                log.warning("disk space low; refusing new tasks", room=room, least=least)
            elif self._lack and not is_low:
                log.info("disk space available again; accepting new tasks", room=room)
            self._lack = f"free disk space is {room} bytes, less than {least}" if is_low else ""
        return self._lack

    def refuse(self, now_us: int, items: int, unwritten: int) -> Refusal | None:
        """Refuse tasks for which there is no room just now."""
        if lack := self.lack(now_us):
            message = f"{lack}: free some space, then submit again"
            return Refusal(Code.OVERLOADED, message, _RETRY_US)
        if items <= INBOX_ITEMS_MAX and unwritten <= UNWRITTEN_TASKS_MAX:
            return None
        return Refusal(
            Code.OVERLOADED,
            "the broker is overloaded: too many commands or tasks to write are queued; submit "
            "again later",
            _RETRY_US,
        )
