"""Copies of a log that are read to their end: what one lacks or has damaged is named."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from jackalope.storage.faults import OutOfReach
from jackalope.storage.shared import copies
from jackalope.storage.shared.copies import compare_copies
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.log import LogState, Replica
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from jackalope.storage.shared.mirror import Mirror
from tests.broker.cluster.test_doubt import Copies, Damage, flip, hole


class Shown(Copies):
    """Copies that the engine names."""

    def state(self) -> LogState:
        replicas = tuple(Replica(name, is_current=True) for name in "xyz")
        return LogState("copies", self.start(), self.end(), 0, self.leader, replicas)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    monkeypatch.setattr(copies, "_LAG_S", 0)
    monkeypatch.setattr(copies, "_MESSAGES", 5)
    log = MemoryLog()
    writer = SharedJournal(MemoryEngine(log), Mirror(tmp_path / "writer"), "c", "a")
    writer.claim()
    for number in range(11):
        writer.append(b"%d" % number * 10)
    writer.mirror.close()
    return Shown(log)


def end(messages: dict[int, bytes]) -> None:
    for position in (11, 12):
        del messages[position]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (hole, "it lacks 4 messages from 4 on"),
        (flip, "1 messages from 5 on are damaged"),
        (end, "it lacks 2 messages from 11 on"),
    ],
)
@pytest.mark.parametrize("name", ["x", "z"])
def test_the_copy_that_is_wrong_is_named(
    engine: Shown, name: str, damage: Damage, problem: str
) -> None:
    engine.damage[name] = damage
    found = {each.name: each.problem for each in compare_copies(engine)}
    assert found == dict.fromkeys("xyz", "") | {name: problem}


def test_sound_copies_have_no_problem(engine: Shown) -> None:
    assert [tuple(each) for each in compare_copies(engine)] == [
        (name, 12, "", "") for name in "xyz"
    ]


def test_an_engine_without_copies_has_none(engine: Shown) -> None:
    assert compare_copies(MemoryEngine(engine._log)) == []


def test_what_is_cut_meanwhile_is_not_missed(engine: Shown) -> None:
    read: Callable[..., object] = engine.read_copy

    def read_and_cut(*args: object) -> object:
        found = read(*args)
        if engine.start() == 1:
            engine.cut(3)
        return found

    engine.read_copy = read_and_cut  # type: ignore[assignment,method-assign]
    assert {each.problem for each in compare_copies(engine)} == {""}


@pytest.mark.parametrize("failures", [1, 100])
def test_a_copy_that_does_not_answer_is_asked_again_and_is_not_called_damaged(
    engine: Shown, failures: int
) -> None:
    read, left = engine.read_copy, [failures]

    def answer_late(but: Collection[str], *rest: int) -> object:
        if "y" not in but and left[0]:
            left[0] -= 1
            raise OutOfReach("it starts")
        return read(but, *rest)

    engine.read_copy = answer_late  # type: ignore[assignment,method-assign]
    found = {each.name: each for each in compare_copies(engine)}
    assert {each.problem for each in found.values()} == {""}
    assert found["x"].messages == found["z"].messages == 12
    assert found["y"][1:] == ((12, "", "") if failures == 1 else (0, "", "it starts"))
