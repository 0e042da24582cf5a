"""Clients of a simulated world that repeat each command until it is answered."""

from __future__ import annotations

import random

from jackalope.core.commands import Command
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Effect, Reply
from jackalope.core.refusals import Code, Refusal
from tests.simulation.node import Node
from tests.simulation.world import Link, World


class Requester:
    """A client with chances of its own, so that what it does follows from the seed alone."""

    name = "requester"

    def __init__(self, world: World, node: Node, seed: int) -> None:
        self.world = world
        self.node = node
        self.link: Link | None = None
        self.outbox: dict[int, Command] = {}
        self.is_tidying = False
        self.rng = random.Random(seed)
        self._refs = 0
        world.after(SECOND, self._live)

    def tidy(self) -> None:
        """Submit nothing more, and let everything end."""
        self.is_tidying = True

    def act(self) -> None:
        """Do something, a few times in a second."""

    def ask(self, command: Command) -> None:
        """Send a command, now and until it is answered."""
        self._refs += 1
        command.ref = self._refs
        self.outbox[self._refs] = command

    def hear(self, link: Link, effect: Effect) -> None:
        """Take an answer."""
        if link is not self.link or not isinstance(effect, Reply):
            return
        if isinstance(effect.body, Refusal) and effect.body.code is Code.STORAGE_FAILED:
            return
        self.outbox.pop(effect.ref, None)

    def cut_off(self, link: Link) -> None:
        """Notice a dead connection."""
        if link is self.link:
            self.link = None

    def _live(self) -> None:
        self.world.after(self.rng.randrange(100 * MILLISECOND, SECOND), self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        self.act()
        for command in list(self.outbox.values()):
            if self.link is not None:
                self.link.up(command)
