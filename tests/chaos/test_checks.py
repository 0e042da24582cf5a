"""Each check finds what is planted for it, in evidence that is sound without that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.core.records import (
    AnyRecord,
    AttemptAssigned,
    AttemptFinished,
    AttemptStarted,
    QueueDeclared,
    TaskSubmitted,
    encode_batch,
)
from jackalope.core.task import TaskSpec
from jackalope.storage import Storage
from jackalope.storage.entry import encode
from jackalope.storage.memory import MemoryBlobs
from jackalope.storage.shared.journal import SharedJournal
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.chaos import checks
from tests.chaos.application import QUEUE
from tests.chaos.evidence import Evidence, read_node
from tests.chaos.history import Op
from tests.chaos.load import LETTERS, digest
from tests.chaos.machines import CLUSTER
from tests.chaos.run import longest_gap_s

TASK, LETTER = TaskId(bytes(15) + b"\1"), TaskId(bytes(15) + b"\2")
ID = TASK.hex()


def declared(queue: str) -> AnyRecord:
    return QueueDeclared(1, "default", queue, DEFAULT_POLICY)


def submitted(task: TaskId, queue: str) -> AnyRecord:
    return TaskSubmitted(2, "default", TaskSpec(task, queue, payload=b"x"), State.READY, "c", 0)


BATCHES: list[list[AnyRecord]] = [
    [declared(QUEUE), declared(LETTERS), submitted(TASK, QUEUE), submitted(LETTER, LETTERS)],
    [AttemptAssigned(3, TASK, 7, "w1")],
    [AttemptStarted(4, TASK)],
    [AttemptFinished(5, TASK, b"7:w1")],
]
OPS = [
    Op("c", "submit", ID, 10, 20, "ok", digest(b"x")),
    Op("publisher", "publish", "1", 10, 20, "ok", digest(b"x")),
    Op("w1", "start", ID, 0, 30, "ok", "7"),
    Op("w1", "finish", ID, 40, value="7"),
    Op("c", "read", ID, 25, 50, "succeeded", "7"),
]


def node(folder: Path, name: str, log: MemoryLog) -> tuple[Storage, SharedJournal]:
    storage = Storage.open_node(folder / name, MemoryEngine(log), CLUSTER, name, MemoryBlobs())
    assert isinstance(storage.journal, SharedJournal)
    return storage, storage.journal


@pytest.fixture
def sound(tmp_path: Path) -> Evidence:
    """Return what a run of two nodes leaves, the first of which led twice."""
    return evidence_of(tmp_path, BATCHES)


def evidence_of(folder: Path, batches: list[list[AnyRecord]]) -> Evidence:
    log = MemoryLog()
    storage, journal = node(folder, "a", log)
    for number, batch in enumerate(batches):
        if number in {0, 2}:
            journal.claim()
        journal.append(encode_batch(batch))
        journal.beat(batch[-1].at_us)
    other, follower = node(folder, "b", log)
    follower.catch_up()
    storage.close()
    other.close()
    nodes = [read_node(name, folder / name) for name in "ab"]
    messages = sorted(log.messages.items())
    return Evidence(messages, nodes, list(OPS), [(1, "a"), (2, "a")])


def found(evidence: Evidence, check: Callable[[Evidence], list[str]]) -> str:
    """Return what a check says; no other may be needed for it."""
    told = check(evidence)
    assert told, f"{check.__name__} finds nothing"
    assert any(each.startswith(f"{check.__name__}: ") for each in checks.problems(evidence))
    return told[0]


def test_sound_evidence_is_sound(sound: Evidence) -> None:
    assert checks.problems(sound) == []
    assert len(sound.messages) == 10
    assert checks.acknowledged(sound) == 3


def test_a_task_that_is_lost(sound: Evidence) -> None:
    sound.ops.append(Op("c", "submit", "ff", 60, 70, "ok", digest(b"x")))
    assert "not in the log" in found(sound, checks.lost)


def test_a_message_that_is_lost(sound: Evidence) -> None:
    sound.ops.append(Op("publisher", "publish", "2", 60, 70, "ok", digest(b"y")))
    assert "not in the log" in found(sound, checks.lost)


def test_a_payload_that_was_changed(sound: Evidence) -> None:
    sound.ops[0] = msgspec.structs.replace(OPS[0], value=digest(b"z"))
    assert "not in the log" in found(sound, checks.lost)


def test_a_task_that_one_node_does_not_have(sound: Evidence) -> None:
    del sound.nodes[1].rows[ID]
    assert found(sound, checks.lost).endswith("b does not have it")
    assert ID in found(sound, checks.equality)


def test_a_row_that_differs(sound: Evidence) -> None:
    sound.nodes[1].rows[ID]["state"] = "dead"
    assert "differs in ['state']" in found(sound, checks.equality)


def test_a_node_that_is_behind(sound: Evidence) -> None:
    sound.nodes[1].sequence -= 1
    assert "b is at 3, a at 4" in found(sound, checks.equality)


def test_a_node_with_another_state(sound: Evidence, tmp_path: Path) -> None:
    """It has applied as many batches, but not the same."""
    other = evidence_of(tmp_path / "other", [*BATCHES[:3], [declared("another")]])
    sound.nodes[1].core = other.nodes[1].core
    assert "replay equals memory" in found(sound, checks.replay)


def test_a_node_ahead_of_the_log(sound: Evidence) -> None:
    sound.nodes[1].sequence += 1
    assert "is not in the log" in found(sound, checks.replay)


def logged(records: list[list[AnyRecord]]) -> list[tuple[int, bytes]]:
    """Return a log of these batches, whatever they do to the state."""
    log = MemoryLog()
    engine, before = MemoryEngine(log), bytes(8)
    for sequence, batch in enumerate(records, 1):
        raw, before = encode(1, sequence, 0, 0, before, encode_batch(batch))
        engine.put(sequence, raw, 1)
    return sorted(log.messages.items())


def test_a_task_that_is_finished_twice(sound: Evidence) -> None:
    evidence = replace(sound, messages=logged([*BATCHES, [AttemptFinished(6, TASK, b"7:w1")]]))
    assert "only leased tasks finish" in found(evidence, checks.replay)
    assert found(evidence, checks.doubled).startswith(ID)


def test_a_message_that_is_stored_twice(sound: Evidence) -> None:
    again = submitted(TaskId(bytes(15) + b"\3"), LETTERS)
    evidence = replace(sound, messages=logged([BATCHES[0], [again]]))
    assert found(evidence, checks.doubled).startswith(digest(b"x"))


def test_two_holders(sound: Evidence) -> None:
    evidence = replace(sound, messages=logged([*BATCHES[:3], [AttemptAssigned(6, TASK, 8, "w2")]]))
    assert "one holder at a time" in found(evidence, checks.replay)


def test_a_lease_that_was_given_twice(sound: Evidence) -> None:
    sound.ops.append(Op("w2", "start", ID, 0, 35, "ok", "7"))
    assert found(sound, checks.doubled).startswith(ID)
    assert "no order explains" in found(sound, checks.linear)


def test_an_old_lease_that_finishes(sound: Evidence) -> None:
    sound.ops.append(Op("w2", "start", ID, 0, 35, "ok", "8"))
    assert "last begun by 8" in found(sound, checks.attempts)


def test_a_stale_read(sound: Evidence) -> None:
    sound.ops.append(Op("reader", "read", ID, 60, 70, "running"))
    assert "no order explains" in found(sound, checks.linear)


def test_a_gap_in_the_log(sound: Evidence) -> None:
    del sound.messages[4]
    assert found(sound, checks.chain) == "position 5 of the log is missing"


def test_a_damaged_entry(sound: Evidence) -> None:
    position, message = sound.messages[1]
    sound.messages[1] = position, message[:-1] + bytes([message[-1] ^ 1])
    assert found(sound, checks.chain) == "position 2 is damaged"


def test_a_chain_that_is_broken(sound: Evidence) -> None:
    """An entry was replaced by a sound one of another history."""
    raw, _ = encode(1, 2, 1, 0, b"another!", encode_batch(BATCHES[1]))
    sound.messages[3] = 4, raw
    assert "does not continue the chain" in found(sound, checks.chain)


def test_an_entry_of_a_deposed_writer(sound: Evidence) -> None:
    before = [entry for _, entry in sound.entries() if entry is not None][-2]
    raw, _ = encode(1, 5, 1, 0, before.digest, encode_batch([AttemptStarted(6, TASK)]))
    sound.messages.append((11, raw))
    assert found(sound, checks.epochs) == "position 11 is of epoch 1 after 2"


def test_two_leaders_of_an_epoch(sound: Evidence) -> None:
    sound.led.append((2, "b"))
    assert found(sound, checks.epochs).startswith("epoch 2 has writers")


def test_time_that_goes_back(sound: Evidence) -> None:
    evidence = replace(sound, messages=logged([*BATCHES[:2], [declared("later")]]))
    assert "time goes back by 2 us" in found(evidence, checks.epochs)


def test_the_longest_time_without_an_answer() -> None:
    times = [second * 10**9 for second in (1, 2, 3, 9, 10, 30)]
    assert longest_gap_s(times, times[1], times[4]) == 20.0  # It is not over with the fault.
    assert longest_gap_s(times[:-1], times[1], times[4]) == 6.0
    assert all(later > earlier for earlier, later in pairwise(times))
