"""The journal over a shared log: settled appends, an unbroken chain, and the mirror."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.storage import DiskFull, Fenced, OutOfReach, SyncFailed
from jackalope.storage.entry import Kind, encode
from jackalope.storage.shared.journal import (
    Astray,
    Behind,
    Claim,
    HandOver,
    NotMirrored,
    SharedJournal,
)
from jackalope.storage.shared.log import LogEngine, Put
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.shared.mirror import Mirror, open_mirror
from tests.storage.shared.conftest import OpenEngine

OpenNode = Callable[[str], SharedJournal]


@pytest.fixture
def open_node(open_engine: OpenEngine, tmp_path: Path) -> OpenNode:
    """Return what opens a node by its name: its own mirror, and the log that all share."""

    def open_one(name: str) -> SharedJournal:
        return SharedJournal(open_engine(), Mirror(tmp_path / name), "c", name)

    return open_one


def heard(node: SharedJournal) -> list[tuple[int, int, int]]:
    """Follow to the end, and return kind, sequence and epoch of what was heard."""
    found: list[tuple[int, int, int]] = []
    while entries := node.follow(0):
        found += [(each.kind, each.sequence, each.epoch) for each in entries]
    return found


def test_a_follower_hears_what_the_leader_stores(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    assert a.claim() == 1
    assert [a.append(b"x"), a.append(b"y")] == [1, 2]
    a.beat(7)
    b.find_place()
    assert heard(b) == [
        (Kind.CLAIM, 0, 1),
        (Kind.BATCH, 1, 1),
        (Kind.BATCH, 2, 1),
        (Kind.BEAT, 2, 1),
    ]
    assert list(b.read(0)) == list(a.read(0)) == [(1, b"x"), (2, b"y")]
    assert b.mark == a.mark
    assert b.mirror.digest == a.mirror.digest


def test_a_claim_tells_who_leads(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    b.find_place()
    (entry,) = b.follow(0)
    claim = msgspec.msgpack.decode(entry.body, type=Claim)
    assert (claim.cluster, claim.writer) == ("c", "a")
    a.hand_over("b")
    (entry,) = b.follow(0)
    assert msgspec.msgpack.decode(entry.body, type=HandOver).to == "b"


def test_a_restored_node_knows_the_epoch_of_the_batch_that_it_begins_behind(
    open_node: OpenNode,
) -> None:
    """Nothing may follow that batch: a claim of an epoch that was before would lead all astray."""
    a, b = open_node("a"), open_node("b")
    for _ in range(3):
        a.claim()
    a.append(b"x")
    b.mirror.restart(1, a.mark.digest)
    b.adopt(b.mirror)
    b.catch_up()
    assert b.claim_here(0) == 4
    a.catch_up()
    assert a.mark == b.mark


def test_an_older_writer_is_fenced_and_follows(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    a.append(b"x")
    assert b.claim() == 2
    for _ in range(2):
        with pytest.raises(Fenced, match="another node"):
            a.append(b"lost") if a._leads else a.beat(0)
    assert b.append(b"y") == 2
    assert heard(a) == [(Kind.CLAIM, 1, 2), (Kind.BATCH, 2, 2)]
    assert list(a.read(0)) == [(1, b"x"), (2, b"y")]
    assert a.claim() == 3
    assert a.append(b"z") == 3


def test_append_before_claim_is_a_bug(open_node: OpenNode) -> None:
    with pytest.raises(BrokenInvariant, match="claim"):
        open_node("a").append(b"x")


def test_a_claim_that_is_late_stands_nowhere(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    b.find_place()
    a.claim()
    with pytest.raises(Fenced):
        b.claim_here(0)
    assert heard(b) == [(Kind.CLAIM, 0, 1)]


def test_a_node_that_starts_again_goes_on_behind_its_mirror(
    open_node: OpenNode, tmp_path: Path
) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    for number in range(5):
        a.append(b"%d" % number)
    b.catch_up()
    b.mirror.close()
    for number in range(5, 8):
        a.append(b"%d" % number)
        a.beat(0)
    again = open_node("b")
    again.find_place()
    assert [entry for entry in heard(again) if entry[0] == Kind.BATCH] == [
        (Kind.BATCH, number, 1) for number in (6, 7, 8)
    ]
    assert again.mark == a.mark


def test_a_mirror_that_ends_with_a_claim(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    a.append(b"x")
    a.claim()
    b.catch_up()
    b.mirror.close()
    again = open_node("b")
    again.find_place()
    assert heard(again) == []
    assert again.mark == a.mark


def test_a_node_behind_a_cut_needs_a_copy(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    for number in range(10):
        a.append(b"%d" % number)
    a.cut(6)
    b.find_place()
    with pytest.raises(Behind, match="begins at message"):
        b.follow(0)


def test_a_node_behind_a_cut_before_a_large_batch_needs_a_copy(tmp_path: Path) -> None:
    """The log begins with a batch of several messages: nothing is missing before its last one."""
    log = MemoryLog()

    def node(name: str) -> SharedJournal:
        return SharedJournal(MemoryEngine(log, 600), Mirror(tmp_path / name), "c", name)

    a, behind, empty = node("a"), node("behind"), node("empty")
    a.claim()
    a.append(b"0")
    behind.catch_up()
    for number in range(1, 7):
        a.append(b"%d" % number * 2_000)
    a.cut(5)
    for each in (behind, empty):
        each.find_place()
        with pytest.raises(Behind, match="begins at message"):
            each.follow(0)


def test_a_cut_leaves_what_comes_later(open_node: OpenNode) -> None:
    a, b = open_node("a"), open_node("b")
    a.claim()
    for number in range(6):
        a.append(b"%d" % number)
    b.catch_up()
    b.mirror.close()
    a.append(b"6")
    a.cut(6)
    again = open_node("b")
    again.find_place()
    assert heard(again) == [(Kind.BATCH, 7, 1)]
    a.cut(7)  # The last message always stays.
    assert a.log.start() == a.log.end()


def test_a_lost_mirror_is_built_again_behind_what_history_has(
    open_node: OpenNode, open_engine: OpenEngine, tmp_path: Path
) -> None:
    a = open_node("a")
    a.claim()
    for number in range(6):
        a.append(b"%d" % number)
    mirror, problem = open_mirror(tmp_path / "c", applied=4)
    assert "ends at batch 0, but history contains 4" in problem
    c = SharedJournal(open_engine(), mirror, "c", "c")
    c.find_place()
    assert heard(c) == [(Kind.BATCH, 5, 1), (Kind.BATCH, 6, 1)]
    assert c.mark.digest == a.mark.digest
    assert c.claim() == 2


def test_a_batch_larger_than_a_message(tmp_path: Path) -> None:
    log = MemoryLog()
    a, b = (
        SharedJournal(MemoryEngine(log, 1_000), Mirror(tmp_path / name), "c", name) for name in "ab"
    )
    a.claim()
    bodies = [bytes([size % 251]) * size for size in (0, 900, 999, 5_000, 100_000)]
    for body in bodies:
        a.append(body)
    assert log.end > 100
    b.catch_up()
    assert [body for _, body in b.read(0)] == bodies
    c = SharedJournal(MemoryEngine(log, 1_000), Mirror(tmp_path / "c"), "c", "c")
    c.claim()
    assert c.append(b"end") == 6


class Faulty(MemoryEngine):
    """An engine that follows a plan: what it answers, and whether it stores."""

    def __init__(self, log: MemoryLog, plan: list[tuple[Put, bool]]) -> None:
        super().__init__(log)
        self.plan = plan

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        if not self.plan:
            return super().put(position, message, timeout_s)
        outcome, is_stored = self.plan.pop(0)
        if is_stored:
            super().put(position, message, timeout_s)
        return outcome


def faulty(tmp_path: Path, plan: list[tuple[Put, bool]]) -> tuple[SharedJournal, MemoryLog]:
    log = MemoryLog()
    engine = Faulty(log, [])
    node = SharedJournal(engine, Mirror(tmp_path / "a"), "c", "a")
    node.claim()
    engine.plan = plan
    return node, log


@pytest.mark.parametrize(
    "plan",
    [
        [(Put.UNKNOWN, False)],
        [(Put.UNKNOWN, True)],
        [(Put.UNKNOWN, False), (Put.UNKNOWN, True), (Put.UNKNOWN, False)],
        [(Put.TAKEN, False), (Put.TAKEN, False)],  # counted, and never stored
        [(Put.FULL, True)],
    ],
)
def test_an_append_in_doubt_is_stored_once(tmp_path: Path, plan: list[tuple[Put, bool]]) -> None:
    node, log = faulty(tmp_path, plan)
    assert node.append(b"x") == 1
    assert node.append(b"y") == 2
    assert log.end == 3
    assert list(node.read(0)) == [(1, b"x"), (2, b"y")]


def test_a_full_log_refuses(tmp_path: Path) -> None:
    node, log = faulty(tmp_path, [(Put.FULL, False)])
    with pytest.raises(DiskFull):
        node.append(b"x")
    assert log.end == 1
    assert node.append(b"y") == 1


def test_closing_ends_an_append_in_doubt(tmp_path: Path) -> None:
    node, _ = faulty(tmp_path, [(Put.UNKNOWN, False)] * 1_000)
    node._closed.set()
    with pytest.raises(SyncFailed, match="before the broker stopped"):
        node.append(b"x")


def test_a_leader_whose_mirror_fails_can_only_hand_over(tmp_path: Path) -> None:
    """Its state is built from the mirror, and would lack what it has acknowledged."""
    node, log = faulty(tmp_path, [])
    take = node.mirror.take

    def refuse(*_: object) -> None:
        raise DiskFull("no room")

    node.mirror.take = refuse  # type: ignore[method-assign, assignment]
    for _ in range(2):
        with pytest.raises(NotMirrored, match="no room"):
            node.append(b"x")
    assert log.end == 2
    node.hand_over("")
    node.mirror.take = take  # type: ignore[method-assign]
    first = node.follow(0)[0]
    assert (first.kind, first.body) == (Kind.BATCH, b"x")
    assert node.mirror.last() == 1


def damaged(log: MemoryLog, tmp_path: Path, name: str = "b") -> SharedJournal:
    node = SharedJournal(MemoryEngine(log), Mirror(tmp_path / name), "c", name)
    node.find_place()
    return node


def test_a_damaged_message_is_found(tmp_path: Path) -> None:
    node, log = faulty(tmp_path, [])
    node.append(b"x" * 100)
    raw = bytearray(log.messages[2])
    raw[-1] ^= 1
    log.messages[2] = bytes(raw)
    with pytest.raises(Astray, match="message 2 of the log is damaged"):
        heard(damaged(log, tmp_path))


def test_a_hole_in_the_log_is_found(tmp_path: Path) -> None:
    """What a replica of JetStream with a damaged file did: the rest, as if nothing were missing."""
    node, log = faulty(tmp_path, [])
    for _ in range(4):
        node.append(b"x")
    moved = [message for at, message in sorted(log.messages.items()) if at not in (3, 4)]
    log.messages, log.end = dict(enumerate(moved, 1)), len(moved)
    with pytest.raises(Astray, match="does not continue"):
        heard(damaged(log, tmp_path))


def test_a_log_that_lost_its_end_is_found(tmp_path: Path) -> None:
    node, log = faulty(tmp_path, [])
    follower = damaged(log, tmp_path)
    node.append(b"x")
    node.append(b"y")
    assert len(follower.follow(0)) == 3
    follower.mirror.close()
    del log.messages[3]
    log.end = 2
    with pytest.raises(Astray, match="ends before batch 2"):
        heard(damaged(log, tmp_path))


def test_the_log_of_another_history_is_found(tmp_path: Path) -> None:
    node, log = faulty(tmp_path, [])
    node.append(b"x")
    follower = damaged(log, tmp_path)
    follower.follow(0)
    follower.mirror.close()
    raw, _ = encode(Kind.BATCH, 1, 1, 0, b"8 bytes!", b"another")
    log.messages[2] = raw
    with pytest.raises(Astray):
        heard(damaged(log, tmp_path))


def test_a_torn_mirror_is_read_again_from_the_log(tmp_path: Path) -> None:
    node, log = faulty(tmp_path, [])
    follower = damaged(log, tmp_path)
    for _ in range(5):
        node.append(b"x" * 200)
    assert len(follower.follow(0)) == 6
    follower.mirror.close()
    segment = max((tmp_path / "b").glob("*.log"))
    raw = bytearray(segment.read_bytes())
    at = raw.rfind(b"x" * 200)
    raw[at] ^= 1
    segment.write_bytes(bytes(raw))
    again = damaged(log, tmp_path)
    assert [each.sequence for each in again.follow(0)] == [5]
    assert again.mark == node.mark


class Unreachable(MemoryEngine):
    """An engine that cannot be asked what stands in the log."""

    is_away = True

    def get(self, position: int) -> bytes | None:
        if self.is_away:
            self.is_away = False
            raise OutOfReach("away")
        return super().get(position)


def test_what_cannot_be_asked_is_asked_again(tmp_path: Path) -> None:
    log = MemoryLog()
    engine: LogEngine = Unreachable(log)
    node = SharedJournal(engine, Mirror(tmp_path / "a"), "c", "a")
    node.mark = node.mark._replace(position=0)
    other = SharedJournal(MemoryEngine(log), Mirror(tmp_path / "b"), "c", "b")
    other.claim()
    with pytest.raises(Fenced):
        node.claim_here(0)
