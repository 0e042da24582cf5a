"""The world: virtual time, chance, and the links over which everybody talks."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from jackalope.core.commands import CloseSession, Command
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Effect
from jackalope.core.ids import TaskId
from tests.simulation.faults import Faults

if TYPE_CHECKING:
    from tests.simulation.node import Node

#: Virtual time begins here, so that no time is zero.
BEGIN_US = 1_800_000_000 * SECOND


class World:
    """Time that passes from event to event, and one source of chance."""

    half_open_us = 60 * SECOND  # within which a side notices that notices late
    frozen_us = 40 * SECOND  # for how long a worker is frozen at most

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now_us = BEGIN_US
        self.faults = Faults()
        self.clock_offset_us = 0
        self.ids = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._trace = trace

    def chance(self, probability: float) -> bool:
        """Tell whether something with this probability happens now."""
        return probability > 0 and self.rng.random() < probability

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something later."""
        self._serial += 1
        heapq.heappush(self._events, (self.now_us + max(delay_us, 0), self._serial, action))

    def run(self, until_us: int, stop: Callable[[], bool]) -> None:
        """Let time pass until a moment, or until `stop` says so."""
        while self._events and self._events[0][0] <= until_us and not stop():
            self.now_us, _, action = heapq.heappop(self._events)
            action()

    def new_id(self) -> TaskId:
        """Make an id of version 7, or now and then one without time."""
        self.ids += 1
        version = 0x4 if self.rng.random() < 0.1 else 0x7
        millis = self.now_us // MILLISECOND
        number = millis << 80 | version << 76 | self.ids << 64 | 0b10 << 62
        return TaskId((number | self.rng.getrandbits(60)).to_bytes(16, "big"))

    def say(self, who: str, what: object) -> None:
        """Tell what happens, when a trace is wanted."""
        if self._trace:
            print(f"{(self.now_us - BEGIN_US) / SECOND:12.6f} {who:>10}  {what}")


class Peer(Protocol):
    """Whoever talks to the broker."""

    name: str

    def hear(self, link: Link, effect: Effect) -> None:
        """Take an effect that came over a link."""

    def cut_off(self, link: Link) -> None:
        """Notice that a link is dead."""


class Link:
    """One connection between a peer and the broker: a session."""

    def __init__(self, world: World, node: Node, peer: Peer, session: int) -> None:
        self.world = world
        self.node = node
        self.peer = peer
        self.session = session
        self.is_doomed = False
        self.peer_knows = False
        self.node_knows = False
        self._latest_us = {True: 0, False: 0}

    def up(self, command: Command) -> None:
        """Send a command to the broker."""
        command.session = self.session
        self._send(is_up=True, deliver=lambda: self._arrive_up(command))

    def down(self, effect: Effect) -> None:
        """Send an effect to the peer."""
        self._send(is_up=False, deliver=lambda: self._arrive_down(effect))

    def cut(self) -> None:
        """Break the link; each side notices in its own time."""
        if self.is_doomed:
            return
        self.is_doomed = True
        world = self.world
        for notice in (self._peer_notices, self._node_notices):
            is_slow = world.chance(world.faults.half_open)
            within_us = world.half_open_us if is_slow else SECOND
            world.after(world.rng.randrange(within_us), notice)

    def _send(self, *, is_up: bool, deliver: Callable[[], None]) -> None:
        world = self.world
        if self.is_doomed:
            return
        if world.chance(world.faults.message_lost):
            world.say("network", f"loses a message of session {self.session}")
            self.cut()
            return
        at_us = world.now_us + world.rng.randrange(100, 5 * MILLISECOND)
        if not world.chance(world.faults.message_overtaken):
            at_us = max(at_us, self._latest_us[is_up] + 1)
            self._latest_us[is_up] = at_us
        world.after(at_us - world.now_us, deliver)
        if world.chance(world.faults.message_doubled):
            world.after(at_us - world.now_us + world.rng.randrange(SECOND), deliver)

    def _arrive_up(self, command: Command) -> None:
        if not self.node_knows:
            self.node.receive(self, command)

    def _arrive_down(self, effect: Effect) -> None:
        if not self.peer_knows:
            self.peer.hear(self, effect)

    def _peer_notices(self) -> None:
        if not self.peer_knows:
            self.peer_knows = True
            self.peer.cut_off(self)

    def _node_notices(self) -> None:
        if not self.node_knows:
            self.node.receive(self, CloseSession(session=self.session))
            self.node_knows = True
