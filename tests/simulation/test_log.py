"""Several writers over one log that loses, delays and doubles: nothing acknowledged is lost.

The journal of the cluster is the real one. What a node waits for is virtual: while it pauses before
it puts a message again, the others go on.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from jackalope.core.durations import MILLISECOND, MINUTE, SECOND
from jackalope.storage import Fenced, OutOfReach
from jackalope.storage.entry import Kind
from jackalope.storage.shared import journal
from jackalope.storage.shared.journal import Astray, Claim, SharedJournal
from jackalope.storage.shared.log import Put
from jackalope.storage.shared.mirror import Mirror
from tests.simulation.checker import Violation
from tests.simulation.log import NO_FAULTS, SimEngine, SimLog
from tests.simulation.network import Network
from tests.simulation.world import BEGIN_US, World

NAMES = ("a", "b", "c")
SEEDS = range(12)
_FAULTY_US = 60 * SECOND
_PATIENCE_US = 10 * MINUTE

Patch = pytest.MonkeyPatch


class Writer:
    """A node that follows, claims now and then, and appends while it leads."""

    def __init__(self, cluster: Cluster, name: str, folder: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.journal = SharedJournal(SimEngine(cluster.log, name), Mirror(folder), "c", name)
        self.leads = self.is_busy = False
        self.written = 0

    def step(self) -> None:
        world = self.cluster.world
        world.after(world.rng.randrange(MILLISECOND, 200 * MILLISECOND), self.step)
        if self.is_busy:
            return  # It is called while it waits for the log.
        self.is_busy = True
        try:
            self._act()
        except OutOfReach:
            pass
        finally:
            self.is_busy = False

    def _act(self) -> None:
        if self.leads:
            self._append()
        elif self.cluster.world.chance(0.1):
            self.journal.catch_up()
            self.leads = self._tries(lambda: self.journal.claim_here(0))
        else:
            self.journal.catch_up()

    def _append(self) -> None:
        self.written += 1
        body = f"{self.name}{self.written}".encode()
        self.leads = self._tries(lambda: self.journal.append(body))
        (self.cluster.acknowledged if self.leads else self.cluster.refused).append(body)

    def _tries(self, write: object) -> bool:
        assert callable(write)
        try:
            write()
        except Fenced:
            return False
        return True


class Cluster:
    """Writers, their log, and what they were told."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.world = World(seed)
        self.network = Network(*NAMES)
        self.log = SimLog(self.world, self.network)
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.writers = [Writer(self, name, folder / name) for name in NAMES]

    def run(self) -> None:
        """Let faults happen for a while, and then none until all have settled."""
        for writer in self.writers:
            self.world.after(0, writer.step)
        self.world.after(0, self._suffer)
        self.world.after(_FAULTY_US, self._recover)
        self.world.run(BEGIN_US + _FAULTY_US + 15 * SECOND, stop=lambda: False)

    def _recover(self) -> None:
        # As an event: a writer may wait for the log just now, and the world goes on inside that.
        self.log.faults, self.log.stalled_until_us = NO_FAULTS, 0
        self.network.heal()

    def _suffer(self) -> None:
        rng = self.world.rng
        self.world.after(rng.randrange(SECOND, 8 * SECOND), self._suffer)
        self.network.heal()
        if self.log.faults is not NO_FAULTS and rng.random() < 0.6:
            hears, is_heard = rng.choice(((False, False), (True, False), (False, True)))
            self.network.isolate(rng.choice(NAMES), hears=hears, is_heard=is_heard)

    def check(self, folder: Path) -> None:
        """Read the log from its beginning, and compare it with what the writers were told.

        Raises:
            Violation: they do not agree.
        """
        reader = SharedJournal(SimEngine(self.log, NAMES[0]), Mirror(folder / "reader"), "c", "r")
        reader.find_place()
        heard = []
        while entries := reader.follow(0):
            heard += entries
        stored = [each.body for each in heard if each.kind == Kind.BATCH]
        doubled = [body for body, count in Counter(stored).items() if count > 1]
        lost = [body for body in self.acknowledged if body not in stored]
        kept = [body for body in self.refused if body in stored]
        if doubled or lost or kept:
            raise Violation(f"doubled: {doubled}; lost: {lost}; refused and kept: {kept}")
        claims = [each for each in heard if each.kind == Kind.CLAIM]
        leaders = {each.epoch: msgspec.msgpack.decode(each.body, type=Claim) for each in claims}
        if len(leaders) != len(claims):
            raise Violation("an epoch has one writer")
        for each in heard:
            writer = leaders[each.epoch].writer
            if each.kind == Kind.BATCH and not each.body.startswith(writer.encode()):
                raise Violation(f"only the writer of an epoch writes: {each.body!r} by {writer}")
        reader.close()


def simulate(seed: int, folder: Path, monkeypatch: Patch) -> Cluster:
    cluster = Cluster(seed, folder)
    world = cluster.world

    def pause(seconds: float) -> None:
        world.run(world.now_us + int(seconds * SECOND), stop=lambda: False)
        world.now_us += MILLISECOND  # Time passes for who waits even if nothing happens.
        if world.now_us > BEGIN_US + _PATIENCE_US:
            raise Violation("an append comes to an end once the log answers")

    monkeypatch.setattr(journal, "sleep", pause)
    cluster.run()
    cluster.check(folder)
    for writer in cluster.writers:
        writer.journal.close()
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_doubled(
    seed: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    cluster = simulate(seed, tmp_path, monkeypatch)
    assert len(cluster.acknowledged) > 50
    assert cluster.refused, "nobody was ever deposed in the middle of an append"


def _caught(tmp_path: Path, monkeypatch: Patch) -> str:
    for seed in SEEDS:
        try:
            simulate(seed, tmp_path / str(seed), monkeypatch)
        except (Violation, Astray) as error:
            return str(error)
    return ""


def test_planted_unknown_is_taken_for_stored(tmp_path: Path, monkeypatch: Patch) -> None:
    """No answer is taken for a good one."""
    put = SimEngine.put
    hopeful = lambda self, *args: (  # noqa: E731
        Put.STORED if (outcome := put(self, *args)) is Put.UNKNOWN else outcome
    )
    monkeypatch.setattr(SimEngine, "put", hopeful)
    caught = _caught(tmp_path, monkeypatch)
    assert any(what in caught for what in ("lost: [b", "comes to an end", "does not continue"))


def test_planted_taken_is_read_as_deposed(tmp_path: Path, monkeypatch: Patch) -> None:
    """A position that is taken is taken by another, although it may be by oneself."""

    monkeypatch.setattr(SimEngine, "get", lambda self, position: b"of another")
    assert "refused and kept: [b" in _caught(tmp_path, monkeypatch)
