"""The control loops: reconcile what runs with what should run.

Owns the rounds. One session follows the core: it receives orders, and wakes the launcher that there
are orders for. Each launcher has a loop of its own: list what runs, report it to the core, carry
out what it answers, all at once. Nothing is tried again within a round, and a launcher that hangs
or fails holds up no other. What should run is decided in the core alone.

A launcher that can report changes has a watch next to its rounds. It only triggers a round; while
it holds, rounds without a trigger are rare.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TypeVar

import structlog

from jackalope.broker.access import THE_BROKER
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import FollowPools, ReportLaunches
from jackalope.core.durations import SECOND
from jackalope.core.effects import Message, Orders, OrdersDue, StartOrder, StopOrder
from jackalope.core.limits import STARTS_PER_REPORT_MAX
from jackalope.pools.launcher import (
    Launcher,
    LaunchFailed,
    Reach,
    Scope,
    WatchingLauncher,
    environment_of,
)

log = structlog.get_logger(component="pools")

T = TypeVar("T")

#: How long to wait for the broker to take a session again, and for a launcher that cannot list.
_RETRY_S = 1.0
_TROUBLE_S_MAX = 30.0

#: How often to list while a watch holds: it might have broken without notice.
WATCHED_EVERY_S = 10.0
#: How long changes are gathered: what happens together is seen in one look.
_GATHER_S = 0.1
#: How long to wait for the next watch after one that was good.
_WATCH_AGAIN_S = 0.5


class PoolService(LocalSession):
    """Starts and stops workers for the pools of a broker; the session over which it has orders."""

    def __init__(
        self,
        broker: Broker,
        launchers: Mapping[str, Launcher],
        every_s: float = 0.5,
        watched_every_s: float = WATCHED_EVERY_S,
    ) -> None:
        super().__init__(broker, THE_BROKER)
        self._rounds = {
            name: Rounds(name, each, every_s, max(every_s, watched_every_s))
            for name, each in launchers.items()
        }
        self._following: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Register the launchers with the core: pools that name one can be declared then."""
        with suppress(Refused):  # The rounds are refused as well, and it is tried again then.
            await self._register()

    def begin(self, reach: Reach) -> None:
        """Carry out orders from now on; workers reach the broker so."""
        for rounds in self._rounds.values():
            rounds.reach = reach
        self._following = asyncio.create_task(self._follow(), name="jackalope-pools")

    async def stop(self) -> None:
        """Carry out no more orders, and let go of the launchers. What runs goes on running."""
        await self.rest()
        for rounds in self._rounds.values():
            await rounds.launcher.close()

    async def rest(self) -> None:
        """Carry out no more orders."""
        self._is_stopping = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        self.close()

    async def _register(self) -> None:
        self.open()
        launchers = {name: each.launcher for name, each in self._rounds.items()}
        scaling = [name for name, each in launchers.items() if each.scope is Scope.GROUP]
        await self.ask(FollowPools(launchers=tuple(launchers), scaling=tuple(scaling)))

    async def _follow(self) -> None:
        """Run the rounds of every launcher; start again when the broker has lost its state.

        A group of tasks that ends by itself at the moment when it is cancelled swallows that: so
        whether this is to stop is looked at as well.
        """
        while not self._is_stopping:
            try:
                async with asyncio.TaskGroup() as group:
                    for rounds in self._rounds.values():
                        group.create_task(rounds.run(self))
                        group.create_task(rounds.watch.run())
            except* Refused as refused:
                log.warning("pools cannot be followed", why=str(refused.exceptions[0]))
            while not self._is_stopping:
                await asyncio.sleep(_RETRY_S)
                try:
                    await self._register()
                    break
                except Refused:
                    continue

    # The broker's side.

    def on_message(self, message: Message) -> None:
        if isinstance(message, OrdersDue):
            self._rounds[message.launcher].called.set()

    def end(self, why: str) -> None:
        super().end(why)
        for rounds in self._rounds.values():
            rounds.called.set()


class Rounds:
    """The rounds of one launcher."""

    def __init__(
        self, name: str, launcher: Launcher, every_s: float, watched_every_s: float
    ) -> None:
        self.name = name
        self.launcher = launcher
        self.called = asyncio.Event()  # set when there are orders, or something to see
        self.watch = Watch(name, launcher, self.called)  # triggers a round when something changed
        self.reach = Reach("")  # how workers reach the broker
        self._every_s = every_s
        self._watched_every_s = watched_every_s
        self._wait_s = every_s
        self._is_settled = False
        self._failed: dict[str, str] = {}
        self._trouble = ""

    async def run(self, session: LocalSession) -> None:
        """Go round until the session refuses a report."""
        while True:
            self.called.clear()
            await self._go_round(session)
            if self._failed:
                continue  # It is reported to the core at once, which decides when to try again.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self.called.wait()

    def _pause_s(self) -> float:
        """Return how long to wait at most; after orders, it is seen soon what became of them."""
        if not self.watch.is_held or not self._is_settled:
            return self._wait_s
        # The watch may drop while this is waited for: it calls then.
        return self._watched_every_s

    async def _go_round(self, session: LocalSession) -> None:
        self._is_settled = False
        try:
            seen = await _careful(self.launcher.list())
        except LaunchFailed as error:
            self._wait_s = min(2 * self._wait_s, max(_TROUBLE_S_MAX, self._every_s))
            if str(error) != self._trouble:
                log.warning("cannot list workers", launcher=self.name, why=str(error))
            self._trouble = str(error)
            await session.ask(ReportLaunches(launcher=self.name, trouble=self._trouble))
            return
        self._wait_s, self._trouble = self._every_s, ""
        failed, self._failed = self._failed, {}
        ids = tuple(f"w-{secrets.token_hex(8)}" for _ in range(STARTS_PER_REPORT_MAX))
        report = ReportLaunches(launcher=self.name, seen=seen, failed=failed, ids=ids)
        orders = await session.ask(report)
        self._is_settled = orders == Orders()
        if isinstance(orders, Orders):
            starts = [self._start(order) for order in orders.start]
            await asyncio.gather(*starts, *[self._stop(order) for order in orders.stop])

    async def _start(self, order: StartOrder) -> None:
        env = environment_of(order, self.reach, self.launcher.scope)
        about = {"queue": order.queue, "key": order.key, "worker_id": order.launch}
        try:
            await _careful(self.launcher.start(order, env))
        except LaunchFailed as error:
            log.warning("cannot start a worker", **about, why=str(error))
            self._failed[order.launch] = str(error)
        else:
            log.info("worker launched", **about, launcher=self.name)

    async def _stop(self, order: StopOrder) -> None:
        try:
            await _careful(self.launcher.stop(order.launch, order.grace_us / SECOND))
        except LaunchFailed as error:
            # It is ordered again with the next report.
            log.warning("cannot stop a worker", worker_id=order.launch, why=str(error))


class Watch:
    """The watch on the backend of one launcher, for as long and as often as it can be had."""

    def __init__(self, name: str, launcher: Launcher, called: asyncio.Event) -> None:
        self.is_held = False  # whether changes are reported
        self._name = name
        self._launcher = launcher
        self._called = called
        self._held_at_s = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Watch; when the watch drops, try again, later each time until one has lasted."""
        if not isinstance(self._launcher, WatchingLauncher):
            return
        loop = asyncio.get_running_loop()
        wait_s = _WATCH_AGAIN_S
        while True:
            try:
                await _careful(self._launcher.watch(self._changed))
            except LaunchFailed as error:
                if str(error) != self._trouble:
                    log.warning("cannot watch workers", launcher=self._name, why=str(error))
                self._trouble = str(error)
            finally:
                has_held = self._drop()
            if has_held and loop.time() - self._held_at_s >= WATCHED_EVERY_S:
                wait_s = _WATCH_AGAIN_S
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _TROUBLE_S_MAX)

    def _changed(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.is_held:
            self.is_held, self._held_at_s, self._trouble = True, loop.time(), ""
        if self._gathering is None:
            self._gathering = loop.call_later(_GATHER_S, self._call)

    def _call(self) -> None:
        self._gathering = None
        self._called.set()

    def _drop(self) -> bool:
        """Return to timed rounds, and begin with one; return whether the watch held."""
        has_held, self.is_held = self.is_held, False
        if self._gathering is not None:
            self._gathering.cancel()
        if has_held:
            self._call()
        return has_held


async def _careful(doing: Awaitable[T]) -> T:
    """Take whatever goes wrong in a launcher for a failed launch, so that no loop ends by it."""
    try:
        return await doing
    except LaunchFailed:
        raise
    except Exception as error:
        log.exception("unexpected error in a launcher")
        raise LaunchFailed(f"{type(error).__name__}: {error}") from error
