"""Forgetting: the record decides, and rows and blobs go after it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from jackalope.broker.engine import FORGET_EVERY_US, Engine
from jackalope.core.commands import (
    AnyCommand,
    DeclareQueue,
    Finish,
    FinishAttempts,
    JoinWorker,
    Recover,
    SubmitTasks,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Effect, Reply
from jackalope.core.ids import successor_id
from jackalope.core.records import Forgotten, decode_batch
from jackalope.core.state.changes import Counters
from jackalope.core.task import BlobRef
from jackalope.storage import Storage
from tests.core.driving import NOW_US, spec, task_id

TASK = task_id(1)
OVER_US = NOW_US + SECOND + FORGET_EVERY_US


def turn(engine: Engine, now_us: int, *commands: AnyCommand) -> list[Effect]:
    decided = engine.decide(now_us, list(commands))
    engine.store(decided)
    return engine.settle(decided)


def flush(engine: Engine, now_us: int) -> None:
    begun = engine.begin_flush(now_us)
    assert begun is not None
    engine.write_flush(begun)
    engine.end_flush(begun)


def engine_of(storage: Storage) -> Engine:
    return Engine(storage.journal, storage.history, storage.blobs)


def end_a_task(storage: Storage) -> tuple[Engine, BlobRef]:
    """Let a task end whose result is a blob and is kept for a second."""
    engine, result = engine_of(storage), storage.blobs.write([b"result"])
    join = JoinWorker(ref=0, session=1, worker="w", queues=("q",))
    declare = DeclareQueue(queue="q", changes={"retention_us": SECOND})
    turn(engine, NOW_US, Recover(), declare, join, SubmitTasks(ref=0, tasks=[spec(1)]))
    finish = FinishAttempts(session=1, attempts=[Finish(TASK, 1, result)])
    turn(engine, NOW_US, finish)
    flush(engine, NOW_US)
    assert engine.forgetting() is None
    return engine, result


def test_row_and_blob_go_after_the_record(tmp_path: Path) -> None:
    with closing(Storage.open(tmp_path)) as storage:
        engine, result = end_a_task(storage)
        flush(engine, OVER_US)
        # Its time is over, but nothing goes before that is recorded.
        assert list(storage.blobs.names()) == [result.blob]
        command = engine.forgetting()
        assert command is not None
        assert command.through_us == NOW_US + SECOND
        turn(engine, OVER_US, command)
        *_, (_, body) = storage.journal.read(0)
        assert decode_batch(body) == [Forgotten(OVER_US, NOW_US + SECOND)]
        assert engine.find("default", TASK) is None
        assert list(storage.blobs.names()) == [result.blob]
        flush(engine, OVER_US)
        assert storage.history.find([TASK]) == []
        assert list(storage.blobs.names()) == []


def test_a_restart_between_the_record_and_the_removal(tmp_path: Path) -> None:
    with closing(Storage.open(tmp_path)) as storage:
        engine, result = end_a_task(storage)
        flush(engine, OVER_US)
        command = engine.forgetting()
        assert command is not None
        turn(engine, OVER_US, command)
    with closing(Storage.open(tmp_path)) as storage:
        engine = engine_of(storage)
        turn(engine, OVER_US, Recover())
        assert [row.id for row in storage.history.find([TASK])] == [TASK]
        assert engine.find("default", TASK) is None
        again = SubmitTasks(ref=7, tasks=[spec(1, payload=b"other")])
        assert Reply(0, 7, Accepted(1)) in turn(engine, OVER_US, again)
        flush(engine, OVER_US)
        (row,) = storage.history.find([TASK])
        assert (row.payload, row.outcome) == (b"other", None)
        assert result.blob not in storage.blobs.names()


def test_a_successor_that_ended_comes_to_be_once(tmp_path: Path) -> None:
    """Its parent is forgotten, submitted again, and ends again; it has the same successor."""
    successor = successor_id(TASK, "next")
    with closing(Storage.open(tmp_path)) as storage:
        engine = engine_of(storage)
        changes = {"retention_us": SECOND, "result_becomes": "next"}
        join = JoinWorker(ref=0, session=1, worker="w", queues=("q", "next"), slots=2)
        declare = DeclareQueue(queue="q", changes=changes)
        submit = SubmitTasks(ref=0, tasks=[spec(1)])
        turn(engine, NOW_US, Recover(), declare, join, submit)
        finish = FinishAttempts(session=1, attempts=[Finish(TASK, 1, b"first")])
        turn(engine, NOW_US, finish)
        finish = FinishAttempts(session=1, attempts=[Finish(successor, 2, b"second")])
        turn(engine, NOW_US, finish)
        flush(engine, NOW_US)
        flush(engine, OVER_US)
        command = engine.forgetting()
        assert command is not None
        turn(engine, OVER_US, command)
        flush(engine, OVER_US)
        assert successor not in engine.core.book.tasks
        turn(engine, OVER_US, SubmitTasks(ref=0, tasks=[spec(1)]))
        turn(engine, OVER_US, FinishAttempts(session=1, attempts=[Finish(TASK, 3, b"again")]))
        found = engine.find("default", successor)
        assert found is not None
        assert found.outcome is not None
        assert found.outcome.result == b"second"


def test_counters_of_an_earlier_version_are_read() -> None:
    """Its `tasks.db` has three of them."""
    old = msgspec.json.encode((7, 8, task_id(9)))
    read = msgspec.json.decode(old, type=Counters)
    assert read == Counters(7, 8, task_id(9), reserved=0, horizon_us=0, latest_us=0)
