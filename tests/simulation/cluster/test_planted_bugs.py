"""Each planted bug of a cluster is caught: the checkers can fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from jackalope.broker.blobs import BlobKeeper
from jackalope.broker.cluster import trimming
from jackalope.broker.cluster.leadership import Role, Timing
from jackalope.broker.cluster.node import Node
from jackalope.broker.engine import Engine, Flush, Turn
from jackalope.broker.service import Broker
from jackalope.broker.writers import JournalWriter
from jackalope.core import core as broker
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import Recover
from jackalope.core.durations import SECOND
from jackalope.core.effects import Answered
from jackalope.core.records import TaskSubmitted
from jackalope.core.state import apply
from jackalope.core.state.book import Book
from jackalope.core.state.changes import Counters
from jackalope.core.task import Task
from jackalope.core.tasks import assign
from jackalope.storage import DiskFull
from jackalope.storage.entry import Entry, Kind, head_of
from jackalope.storage.shared.journal import PUT_TIMEOUT_S, SharedJournal
from jackalope.storage.shared.log import Put
from jackalope.storage.sqlite.history import History
from tests.simulation.checker import Violation
from tests.simulation.client import SimClient
from tests.simulation.cluster.checker import ClusterChecker
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.process import ClusterWorld, virtual
from tests.simulation.cluster.run import Cluster, simulate
from tests.simulation.log import SimEngine
from tests.simulation.world import BEGIN_US

_SEEDS = 40

QUARANTINED = Role.QUARANTINED

Patch = pytest.MonkeyPatch


# Writing.


def test_claim_without_a_position(monkeypatch: Patch) -> None:
    """A claim is stored wherever the log ends."""
    judge = SimEngine._judge

    def lenient(self: SimEngine, position: int, message: bytes) -> Put:
        is_claim = head_of(message).kind == Kind.CLAIM
        return judge(self, self.sim.end + 1 if is_claim else position, message)

    monkeypatch.setattr(SimEngine, "_judge", lenient)
    assert "the chain is unbroken" in _caught(sufferings=(Cluster.slow, Cluster.isolate))


def test_lagging_node_claims(monkeypatch: Patch) -> None:
    """A node claims at the end of the log, although it has not read so far."""
    claim_here = SharedJournal.claim_here

    def hasty(self: SharedJournal, *args: Any) -> int:
        self.mark = self.mark._replace(position=self.log.end())
        return claim_here(self, *args)

    monkeypatch.setattr(SharedJournal, "claim_here", hasty)
    assert "the chain is unbroken" in _caught(sufferings=(Cluster.slow, Cluster.isolate))


def test_taken_is_read_as_deposed(monkeypatch: Patch) -> None:
    """A position that is taken is taken by another, although it may be by oneself."""

    def settle(self: SharedJournal, position: int, message: bytes) -> None:
        while (outcome := self.log.put(position, message, PUT_TIMEOUT_S)) is not Put.STORED:
            if outcome is Put.TAKEN:
                self._leads, self.is_fenced = False, True
                raise self._fenced()

    monkeypatch.setattr(SharedJournal, "_settle", settle)
    assert "what is refused is not kept" in _caught()


@pytest.mark.parametrize("is_taken_for_stored", [False, True])
def test_unknown_is_taken_for_known(monkeypatch: Patch, is_taken_for_stored: bool) -> None:
    """No answer is taken for a refusal, or for a good one."""
    settle = SharedJournal._settle

    def careless(self: SharedJournal, position: int, message: bytes) -> None:
        put, outcomes = self.log.put, []

        def once(*args: Any) -> Put:
            outcomes.append(put(*args))
            if outcomes[-1] is Put.UNKNOWN and not is_taken_for_stored:
                raise DiskFull("no answer")
            return Put.STORED if outcomes[-1] is Put.UNKNOWN else outcomes[-1]

        self.log.put = once  # type: ignore[method-assign, assignment]
        try:
            settle(self, position, message)
        finally:
            self.log.put = put  # type: ignore[method-assign]

    monkeypatch.setattr(SharedJournal, "_settle", careless)
    caught = _caught()
    if is_taken_for_stored:  # Its own next entry may be what shows it, or what others have.
        shown = ("told only when stored", "the chain is unbroken", "quarantined")
        assert any(each in caught for each in shown)
    else:
        assert "what is refused is not kept" in caught


def test_effects_before_the_log(monkeypatch: Patch) -> None:
    """The world hears of a batch before it stands in the log."""

    async def hasty(self: JournalWriter, turn: Turn, *, is_idle: bool) -> int:
        del is_idle
        _ = asyncio.get_running_loop().run_in_executor(self._thread, self._engine.store, turn)
        turn.is_stored = True
        return 0

    monkeypatch.setattr(JournalWriter, "store", hasty)
    assert "told only when stored" in _caught()


def test_doubt_settled_too_late(monkeypatch: Patch) -> None:
    """What turns out to be stored is told, although another node has led for seconds."""
    monkeypatch.setattr(SharedJournal, "_goes_on", lambda self: False)
    caught = _caught(first=13, sufferings=(Cluster.isolate, Cluster.stall))
    assert "what is known late is left to who leads" in caught


# Leading.


def test_deposed_core_goes_on(monkeypatch: Patch) -> None:
    """A node that was deposed keeps what it had decided."""

    def keep(self: Engine, *_: object) -> list[Any]:
        self.is_turning, self.fault = False, None
        return []

    monkeypatch.setattr(Engine, "fail", keep)
    monkeypatch.setattr(Engine, "rebuild", keep)
    assert _caught()


def test_takeover_is_shorter_than_the_lease() -> None:
    """Another node leads while the last leader still answers from memory."""
    assert "reads are linearizable" in _caught(timing=Timing(read_lease_us=4 * SECOND))


def test_leader_does_not_look_whether_it_leads(monkeypatch: Patch) -> None:
    """What needs no entry is answered without a look at the log."""
    monkeypatch.setattr(Node, "may_read", lambda self: True)
    caught = _caught()
    assert "who is deposed decides nothing" in caught or "reads are linearizable" in caught


def test_time_begins_with_the_clock(monkeypatch: Patch) -> None:
    """A new leader begins with whatever its clock shows."""
    recover = broker.ROOMS.handlers[Recover]

    def careless(core: broker.Core, _: Recover) -> Answered | None:
        return recover(core, Recover(is_clock_set_back=True))

    monkeypatch.setitem(broker.ROOMS.handlers, Recover, careless)
    monkeypatch.setattr(Broker, "_recover", lambda self: Recover())
    assert "time does not go back" in _caught()


def test_fences_not_reserved(monkeypatch: Patch) -> None:
    """Fences of tasks without records are given out again by the next leader."""
    monkeypatch.setattr(assign, "_reserve", lambda core, through: None)
    caught = _caught(first=17)
    assert "fences" in caught or "told only when durable" in caught


def test_volatile_tasks_take_the_places_of_others(monkeypatch: Patch) -> None:
    """A leader counts places in line that no record has."""
    begun = apply._begun

    def greedy(book: Book, records: Sequence[TaskSubmitted]) -> list[Task]:
        tasks = begun(book, records)
        book.counters.rank = max(book.counters.rank, book.volatile_rank)
        return tasks

    monkeypatch.setattr(apply, "_begun", greedy)
    monkeypatch.setattr(broker.Core, "_pass_volatile", lambda self: None)
    assert "nodes are equal" in _caught(first=9)


def test_state_is_kept_after_leading(monkeypatch: Patch) -> None:
    """A node that stepped down keeps workers and tasks that are not durable."""
    rejoin = Node._rejoin

    async def careless(self: Node) -> Any:
        self._has_led = False
        return await rejoin(self)

    monkeypatch.setattr(Node, "_rejoin", careless)
    assert _caught(sufferings=(Cluster.step_down,))


# Following.


def test_followers_delete_blobs(monkeypatch: Patch) -> None:
    """A node deletes what its own history names no more, whoever leads."""
    monkeypatch.setattr(BlobKeeper, "is_ours", property(lambda _: True, lambda *_: None), False)
    assert "only who leads deletes blobs" in _caught()


def test_trim_by_its_own_history(monkeypatch: Patch) -> None:
    """A leader cuts from the log what its own history has, and another node still needs."""
    monkeypatch.setattr(trimming, "cut_through", lambda own, *_: own)
    assert "what a member needs is kept" in _caught()


def test_snapshot_without_counters(monkeypatch: Patch) -> None:
    """What a node takes over from another lacks how far fences, places and forgetting are."""
    copy_to = History.copy_to

    def lossy(self: History, path: Path, look: Any) -> Any:
        found = copy_to(self, path, look)
        with closing(sqlite3.connect(path)) as copy:
            nothing = msgspec.json.encode(Counters()).decode()
            copy.execute("UPDATE meta SET value = ? WHERE key = 'counters'", (nothing,))
            copy.commit()
        return found

    monkeypatch.setattr(History, "copy_to", lossy)
    assert "nodes are equal" in _caught()


def test_state_is_built_without_counters(monkeypatch: Patch) -> None:
    """What a node is built from lacks how far fences and forgetting are."""
    restore = Book.restore

    def lossy(self: Book, counters: Counters, *rest: Any) -> None:
        restore(self, Counters(), *rest)

    monkeypatch.setattr(Book, "restore", lossy)
    assert _caught()


def test_sweep_asks_history_alone(monkeypatch: Patch) -> None:
    """A new leader deletes what no row names, although a task in memory may, or soon will."""
    begin = Node._begin

    async def careless(self: Node) -> None:
        await begin(self)
        store, named = self._broker.storage.blobs, set(self._broker.engine.history.blobs())
        for name in set(store.names()) - named:
            store.delete(name)

    monkeypatch.setattr(Node, "_begin", careless)
    caught = _caught()
    assert "what is named stays" in caught or "what is named is there" in caught


def test_forgotten_without_a_record(monkeypatch: Patch) -> None:
    """What was kept for long enough goes by a node's own clock, and no record says so."""
    write_flush = Engine.write_flush

    def secretive(self: Engine, flush: Flush) -> None:
        flush.changes.counters.horizon_us = flush.now_us
        write_flush(self, flush)

    monkeypatch.setattr(Engine, "write_flush", secretive)
    monkeypatch.setattr(Engine, "forgetting", lambda self: None)
    assert _caught()


# An engine that loses what it acknowledged.


def test_lost_entries_end_in_quarantine() -> None:
    """No node goes on from a log that has lost what the node has applied, and each says so."""
    for seed in range(4):
        roles = _lose(seed)
        assert roles == {"n0": QUARANTINED, "n1": QUARANTINED, "n2": QUARANTINED}, seed
        roles = _lose(seed, lacking="n2")
        assert roles == {"n0": QUARANTINED, "n1": QUARANTINED, "n2": Role.LEADING}, seed


def test_chain_is_ignored(monkeypatch: Patch) -> None:
    """A node goes on with whatever the log has."""
    find_place = SharedJournal.find_place

    def trusting(self: SharedJournal, entry: Entry | None, _: int) -> Entry | None:
        if entry is None or entry.sequence < self._due(entry):
            return None
        self.mark = self.mark._replace(digest=entry.before)
        self.mirror._digest = entry.before
        return entry

    def placed(self: SharedJournal) -> None:
        find_place(self)
        self._is_placed = True

    monkeypatch.setattr(SharedJournal, "_check", trusting)
    monkeypatch.setattr(SharedJournal, "find_place", placed)
    with pytest.raises((Violation, BrokenInvariant)):
        _lose(0, lacking="n2")


def _lose(seed: int, lacking: str = "") -> dict[str, Role]:
    """Run a calm world whose log loses its end; return what the nodes are after a restart.

    A node that is cut off before that lacks what is lost, and cannot know it.
    """
    world = ClusterWorld(seed)
    with TemporaryDirectory(prefix="jackalope-sim-") as folder, virtual(world):
        cluster = Cluster(world, 3, Path(folder), Timing())
        machines = {machine.name: machine for machine in cluster.machines}
        node: Any = cluster
        cluster.calm()
        client = SimClient(world, node, "client", 200)
        try:
            world.run(BEGIN_US + 5 * SECOND, stop=lambda: False)
            if lacking:
                cluster.network.isolate(lacking)
            begin, others = cluster.checker.sequence, set(machines) - {lacking}

            def is_applied() -> bool:
                lives = [machines[name].life for name in others]
                applied = {life.broker.engine.sequence for life in lives if life is not None}
                return applied == {cluster.checker.sequence} and min(applied) > begin + 9

            world.run(BEGIN_US + 40 * SECOND, stop=is_applied)
            assert is_applied()
            client.link = None  # It does not hear of what is lost.
            _lose_end(cluster, machines[lacking] if lacking else None)
            for name in sorted(others):
                machines[name].crash("with the others")
            cluster.network.heal()
            world.run(world.now_us + 20 * SECOND, stop=lambda: False)
            return {name: each.life.node.view.role for name, each in machines.items() if each.life}
        finally:
            for machine in machines.values():
                machine.bury()


def _lose_end(cluster: Cluster, lacking: Machine | None) -> None:
    """Lose all that a node lacks, or one batch, and begin the shadow again with what is left."""
    log, count = cluster.log, 1
    while head_of(log.messages[log.end - count + 1]).kind != Kind.BATCH:
        count += 1
    if lacking is not None and lacking.life is not None:
        count = log.end - lacking.life.journal.mark.position
    log.lose(count)
    if lacking is not None:
        cluster.checker = ClusterChecker(cluster.world)
        log.on_stored = cluster.checker.on_stored
        for position, message in log.messages.items():
            cluster.checker.on_stored(position, message)


def _caught(first: int = 0, **options: Any) -> str:
    """Run worlds until one shows the bug, and return what was said.

    The first seed is one that shows it at the time of writing, so that the search is short.
    """
    for seed in range(first, first + _SEEDS):
        try:
            simulate(seed, **options)
        except Exception as error:  # noqa: BLE001  whatever it is, it shows
            return f"{type(error).__name__}: {error}"
    return ""
