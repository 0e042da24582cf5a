"""Errors inside the broker: what one command brings about, and what is never written."""

import pytest

from jackalope.broker.engine import Engine
from jackalope.core import core
from jackalope.core.commands import AnyCommand, SubmitTasks
from jackalope.core.commands.amqp import OpenQueue
from jackalope.core.effects import Accepted, Reply
from jackalope.core.refusals import Code, Refusal
from jackalope.storage.memory import Log, MemoryBlobs, MemoryJournal
from jackalope.storage.sqlite.history import History
from tests.core.driving import NOW_US, spec, task_id


def engine_on(log: Log) -> Engine:
    return Engine(MemoryJournal(log), History(None), MemoryBlobs())


def submit(number: int) -> SubmitTasks:
    return SubmitTasks(session=1, ref=number, tasks=[spec(number)])


def replies(engine: Engine, commands: list[AnyCommand]) -> dict[int, object]:
    turn = engine.decide(NOW_US, commands)
    engine.store(turn)
    return {e.ref: e.body for e in engine.settle(turn) if isinstance(e, Reply)}


def test_an_error_before_anything_changed_is_that_commands_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others of its turn are decided and stored; the error is logged with where it was."""

    def check(command: AnyCommand) -> Refusal | None:
        if isinstance(command, OpenQueue):
            raise RecursionError("too deep")
        return None

    monkeypatch.setattr(core, "unfit", check)
    log = Log()
    engine = engine_on(log)
    answers = replies(engine, [submit(1), OpenQueue(session=2, ref=2, queue="x"), submit(3)])
    assert (answers[1], answers[3]) == (Accepted(1), Accepted(1))
    refusal = answers[2]
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INTERNAL
    said = capfd.readouterr().out
    assert "OpenQueue" in said
    assert "RecursionError: too deep" in said
    again = engine_on(log)
    assert set(again.core.book.tasks) == {task_id(1), task_id(3)}
    assert not again.core.book.queue("default", "x")


def test_an_error_amid_a_change_stops_the_broker_with_nothing_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory may be half changed, so that none of the turn may be stored or told."""
    log = Log()
    engine = engine_on(log)
    replies(engine, [submit(1)])
    before = list(log.bodies)
    monkeypatch.setattr("jackalope.core.tasks.serve", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.decide(NOW_US, [submit(2), submit(3)])
    assert log.bodies == before
    assert set(engine_on(log).core.book.tasks) == {task_id(1)}
