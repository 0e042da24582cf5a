"""Copies of the log that lie: who is asked, what is believed, and who is named."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from jackalope.broker.cluster.doubt import Doubt
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.storage import OutOfReach
from jackalope.storage.entry import encode
from jackalope.storage.segments.segment import numbers_in, path_of, salvage_segment
from jackalope.storage.shared.copies import compare_copies
from jackalope.storage.shared.jetstream import JetStreamEngine
from jackalope.storage.shared.journal import Astray, SharedJournal
from jackalope.storage.shared.log import LogState
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.shared.mirror import Mirror
from jackalope.wire.peer import AskClear
from tests.broker.cluster.machines import in_loop, running, until
from tests.broker.cluster.test_node import check_equal, tasks
from tests.storage.shared.servers import Servers
from tests.storage.shared.servers import running as nats_servers

pytestmark = pytest.mark.timeout(120)

Damage = Callable[[dict[int, bytes]], None]


class Copies(MemoryEngine):
    """An engine with three copies, of which the one that decides may be damaged."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.damage: dict[str, Damage] = {}
        self.leader = "x"
        self.is_away = False

    def _of(self, name: str) -> MemoryEngine:
        copy = MemoryLog()
        copy.messages, copy.end = dict(self._log.messages), self._log.end
        if name in self.damage:
            self.damage[name](copy.messages)
        return MemoryEngine(copy)

    def get(self, position: int) -> bytes | None:
        return self._of(self.leader).get(position)

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        return self._of(self.leader).read(after, count_max)

    def state(self) -> LogState:
        return LogState("copies", self.start(), self.end(), 0, self.leader)

    def read_copy(
        self, but: Collection[str], after: int, count_max: int
    ) -> tuple[str, list[tuple[int, bytes]]] | None:
        if self.is_away:
            raise OutOfReach("no copy answers")
        others = [name for name in "xyz" if name not in but]
        return (others[0], self._of(others[0]).read(after, count_max)) if others else None

    def shun(self, copy: str) -> None:
        if self.leader == copy:
            self.leader = "y" if copy == "x" else "x"


def hole(messages: dict[int, bytes]) -> None:
    for position in range(4, 8):
        messages.pop(position, None)


def flip(messages: dict[int, bytes]) -> None:
    raw = bytearray(messages[5])
    raw[-1] ^= 1
    messages[5] = bytes(raw)


def shift(messages: dict[int, bytes]) -> None:
    """Serve other entries at the positions of those that are lost."""
    for position in range(4, max(messages) - 1):
        messages[position] = messages[position + 2]


@pytest.fixture
def log(tmp_path: Path) -> MemoryLog:
    """Return a log with a claim and eleven batches."""
    log = MemoryLog()
    writer = SharedJournal(MemoryEngine(log), Mirror(tmp_path / "writer"), "c", "a")
    writer.claim()
    for number in range(11):
        writer.append(b"%d" % number * 10)
    writer.mirror.close()
    return log


def follower(engine: MemoryEngine, tmp_path: Path) -> SharedJournal:
    return SharedJournal(engine, Mirror(tmp_path / "follower"), "c", "b")


def follow_to_end(journal: SharedJournal, doubt: Doubt) -> list[int]:
    """Follow the log as a node does, and return the batches that were heard."""
    batches: list[int] = []
    journal.find_place()
    while True:
        try:
            heard = journal.follow(0)
        except Astray as fault:
            heard = doubt.settle(fault)
        if not heard:
            return batches
        batches += [each.sequence for each in heard if each.body and each.sequence]


def mirror_of(tmp_path: Path, name: str = "writer") -> list[bytes]:
    """Return the entries of a mirror as its node would send them."""
    folder = tmp_path / name
    found = [e for n in numbers_in(folder) for e in salvage_segment(path_of(folder, n))]
    return [encode(e.kind, e.sequence, e.epoch, e.durable, e.before, e.body)[0] for e in found]


@pytest.mark.parametrize("damage", [hole, flip, shift])
def test_another_copy_continues_the_chain(log: MemoryLog, tmp_path: Path, damage: Damage) -> None:
    engine = Copies(log)
    engine.damage = {"x": damage}
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    assert follow_to_end(journal, doubt) == list(range(1, 12))
    assert doubt.wrong == {"x": 1}
    assert engine.leader == "y"  # Another copy decides from now on.


def test_the_last_sound_copy_is_found(log: MemoryLog, tmp_path: Path) -> None:
    engine = Copies(log)
    engine.damage = {"x": hole, "y": shift}
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    assert follow_to_end(journal, doubt) == list(range(1, 12))
    assert doubt.wrong == {"x": 1}
    assert journal.mirror.last() == 11


@pytest.mark.parametrize("damage", [hole, flip])
def test_a_mirror_has_what_every_copy_has_lost(
    log: MemoryLog, tmp_path: Path, damage: Damage
) -> None:
    engine = Copies(log)
    engine.damage = dict.fromkeys("xyz", damage)
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    entries = mirror_of(tmp_path)

    def mirrors(sequence: int, digest: bytes) -> Iterator[tuple[str, list[bytes]]]:
        after = next(n for n, raw in enumerate(entries) if raw[40:48] == digest)
        yield "a liar", [bytes(reversed(entries[after + 1]))]
        yield "behind", []
        yield "a", entries[after + 1 :]

    doubt.mirrors = mirrors
    assert follow_to_end(journal, doubt) == list(range(1, 12))
    assert journal.mirror.last() == 11
    assert journal.mark.position == log.end


def test_nothing_that_breaks_the_chain_is_believed(log: MemoryLog, tmp_path: Path) -> None:
    engine = Copies(log)
    engine.damage = dict.fromkeys("xyz", hole)
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    later = mirror_of(tmp_path)[-3:]  # sound entries, of a later place
    doubt.mirrors = lambda _sequence, _digest: [("a", later)]
    with pytest.raises(Astray, match="lacks messages"):
        follow_to_end(journal, doubt)
    assert journal.mirror.last() == 2
    assert not doubt.wrong


def test_copies_that_cannot_be_asked_are_no_proof(log: MemoryLog, tmp_path: Path) -> None:
    engine = Copies(log)
    engine.damage, engine.is_away = {"x": hole}, True
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    with pytest.raises(OutOfReach):
        follow_to_end(journal, doubt)
    engine.is_away = False
    assert follow_to_end(journal, doubt) == list(range(3, 12))


def test_a_damaged_part_of_a_large_entry_is_taken_from_another_copy(tmp_path: Path) -> None:
    log = MemoryLog()
    writer = SharedJournal(MemoryEngine(log, 1_000), Mirror(tmp_path / "writer"), "c", "a")
    writer.claim()
    writer.append(os.urandom(10_000))
    writer.append(b"end")
    engine = Copies(log)
    engine.damage = {"x": flip}
    journal = follower(engine, tmp_path)
    doubt = Doubt(journal)
    assert follow_to_end(journal, doubt) == [1, 2]
    assert list(journal.read(0)) == list(writer.read(0))
    assert doubt.wrong == {"x": 1}


# With real servers.


def damage_store(servers: Servers, folder: Path, name: str, stream: str) -> None:
    """Cut off half of what one copy has stored, while no server runs."""
    for server in servers.all:
        server.stop()
    blocks = list((folder / name / "store").glob(f"**/streams/{stream}/msgs/*.blk"))
    assert blocks
    for block in blocks:
        os.truncate(block, block.stat().st_size // 2)
    for server in servers.all:
        server.start()
    for server in servers.all:
        server.wait()


async def let_decide(engine: JetStreamEngine, name: str) -> None:
    """Make a server the one that decides."""

    def decides() -> bool:
        try:
            if engine.state().leader == name:
                return True
            preferred = {"placement": {"preferred": name}}
            engine.ask(f"STREAM.LEADER.STEPDOWN.{engine.stream}", preferred)
        except OutOfReach:
            pass
        return False

    async with asyncio.timeout(60):
        while not await asyncio.to_thread(decides):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@in_loop
async def test_a_server_that_has_lost_half_of_the_log_is_found_and_named(tmp_path: Path) -> None:
    """The damage that nats-server does not notice: it counts as current, and serves holes."""
    store = tmp_path / "nats"
    with nats_servers(store) as servers:
        async with running(tmp_path, lambda: servers.engine("holes")) as cluster:
            for task in tasks(1, 60):
                await cluster.submit(task)
            await check_equal(cluster)
        engine = servers.engine("holes")
        await asyncio.to_thread(damage_store, servers, store, "n1", engine.stream)
        await let_decide(engine, "n1")
        first, last = engine.start(), engine.end()
        lost = [at for at in range(first, last + 1) if engine.get(at) is None]
        problems = {each.name: each.problem for each in compare_copies(engine)}
        assert problems == dict.fromkeys(problems, "") | {
            "n1": f"it lacks {len(lost)} messages from {lost[0]} on"
        }
        assert len(problems) == 3
        engine.close()
        assert len(lost) > 10  # It serves them to nobody, and says that all is well.
        async with running(tmp_path, lambda: servers.engine("holes"), 5) as cluster:
            new = cluster.machines[3]  # It has to read all of the log.
            await until(lambda: new.node.view.role in (Role.FOLLOWING, Role.LEADING))
            for task in tasks(100, 5):
                await cluster.submit(task)
            await check_equal(cluster)
            assert len(new.submitted()) == 65
            named = {name for each in cluster.machines for name in each.node.status().wrong}
            assert named == {"n1"}
            finders = [each for each in cluster.machines if each.node.doubt.suspects]
            assert all(each.node.standing().wrong_copies["n1"] for each in finders)
            for each in finders:
                host = PeerHost(each.broker, "c", each.name, each.node)
                assert host.status().wrong == ("n1",)
                host.clear(AskClear(("n0", "n1", "n2"), state=True))
                assert host.status().wrong == ()
