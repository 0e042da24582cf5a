"""What the log says about the broker's work, on a real engine without a clock."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from jackalope.broker.config.schema import LogConfig
from jackalope.broker.engine import Engine
from jackalope.broker.telemetry.event_log import LINES_PER_SECOND_MAX, EventLog
from jackalope.core.commands import (
    AnyCommand,
    CloseSession,
    DeclareQueue,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    JoinWorker,
    LeaveWorker,
    StartAttempts,
    SubmitTasks,
    Verdict,
)
from jackalope.core.commands.amqp import Consume, OpenQueue, Publication, PublishMessages
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId, volatile_id
from jackalope.core.shapes.task_log import LogLevel
from jackalope.core.task import Error, TaskSpec
from jackalope.storage import Level, Storage
from jackalope.wire.amqp_properties import NOTHING

NOW_US = 1_000 * SECOND


class House:
    """An engine and a event_log, driven by hand."""

    def __init__(self, level: LogLevel = LogLevel.INFO, slow_task_us: int = 0) -> None:
        storage = Storage.open(None, Level.MEMORY)
        self.engine = Engine(storage.journal, storage.history, storage.blobs)
        self.event_log = EventLog(LogConfig(level=level, slow_task_us=slow_task_us))
        self.now_us = NOW_US

    def do(self, *commands: AnyCommand) -> list[Any]:
        turn = self.engine.decide(self.now_us, list(commands))
        self.engine.store(turn)
        effects = self.engine.settle(turn)
        self.event_log.take(turn, self.engine.core)
        return effects

    def submit(self, *numbers: int, queue: str = "images") -> None:
        self.do(SubmitTasks(ref=0, tasks=[TaskSpec(task_id(n), queue, "resize") for n in numbers]))

    def join(self) -> None:
        self.do(JoinWorker(ref=0, session=1, worker="w1", queues=("images",), slots=1_000))


def task_id(number: int) -> TaskId:
    return TaskId(number.to_bytes(16, "big"))


def said(logs: list[Any], *levels: str) -> list[str]:
    return [line["event"] for line in logs if not levels or line["log_level"] in levels]


@pytest.mark.feature("D38")
def test_trace_tells_of_every_command_and_answer() -> None:
    house = House(LogLevel.TRACE)
    with capture_logs() as lines:
        house.join()
        house.do(
            SubmitTasks(
                session=7,
                ref=3,
                tasks=[TaskSpec(task_id(1), "images", "resize", payload=b"secret")],
            )
        )
    told = [(line["event"], line["kind"], line["session"]) for line in lines if "kind" in line]
    assert told == [
        ("command", "JoinWorker", 1),
        ("command", "SubmitTasks", 7),
        ("answer", "Accepted", 7),
        ("message", "Assignment", 1),
    ]
    assert "secret" not in str(lines)
    assert any(line["event"] == "task assigned" for line in lines)


def test_life_of_a_task_is_told_with_its_ids() -> None:
    house = House()
    house.join()
    with capture_logs() as logs:
        house.submit(1)
        house.do(StartAttempts(ref=0, session=1, attempts=[Held(task_id(1), 1)]))
        house.now_us += 2 * SECOND
        house.do(FinishAttempts(session=1, attempts=[Finish(task_id(1), 1)]))
    assert said(logs) == ["task submitted", "task started", "task succeeded"]
    last = logs[-1]
    assert last["task_id"] == "00000000-0000-0000-0000-000000000001"
    assert (last["worker_id"], last["queue"], last["namespace"]) == ("w1", "images", "default")
    assert last["seconds"] == 2.0


def test_retry_and_death_are_warnings() -> None:
    house = House(LogLevel.WARN)
    house.do(DeclareQueue(queue="images", changes={"retries": 1, "retry_base_us": 0}))
    house.join()
    with capture_logs() as logs:
        house.submit(1)
        for fence in (1, 2):
            error = Error("ValueError", "bad")
            house.do(FailAttempts(session=1, attempts=[Fail(task_id(1), fence, error)]))
    assert said(logs) == ["attempt failed", "task dead"]
    assert {line["log_level"] for line in logs} == {"warning"}
    assert logs[0]["error"] == "ValueError: bad"
    assert logs[1]["reason"] == "failed"


@pytest.mark.parametrize(
    ("level", "events"),
    [
        (LogLevel.ERROR, []),
        (LogLevel.WARN, []),
        (LogLevel.INFO, ["task submitted"]),
        (LogLevel.DEBUG, ["task submitted", "task assigned"]),
    ],
)
def test_level_decides(level: LogLevel, events: list[str]) -> None:
    house = House(level)
    house.join()
    with capture_logs() as logs:
        house.submit(1)
    assert said(logs) == events


def test_slow_task_is_a_warning() -> None:
    house = House(LogLevel.WARN, slow_task_us=SECOND)
    house.join()
    with capture_logs() as logs:
        house.submit(1, 2)
        house.do(
            StartAttempts(ref=0, session=1, attempts=[Held(task_id(1), 1), Held(task_id(2), 2)])
        )
        house.now_us += SECOND
        house.do(FinishAttempts(session=1, attempts=[Finish(task_id(1), 1)]))
        house.now_us += 1
        house.do(FinishAttempts(session=1, attempts=[Finish(task_id(2), 2)]))
    assert said(logs) == ["slow task"]
    assert logs[0]["task_id"].endswith("2")


def test_lines_beyond_the_limit_are_counted() -> None:
    house = House()
    with capture_logs() as logs:
        house.submit(*range(1, LINES_PER_SECOND_MAX + 50))
        house.event_log.settle(house.now_us + SECOND)
    assert len(said(logs)) == LINES_PER_SECOND_MAX + 1
    # The queue came into being first.
    assert (logs[-1]["event"], logs[-1]["task_submitted"]) == ("lines left out", 50)


def test_debug_leaves_nothing_out() -> None:
    house = House(LogLevel.DEBUG)
    with capture_logs() as logs:
        house.submit(*range(1, 2 * LINES_PER_SECOND_MAX))
    assert len(said(logs)) == 2 * LINES_PER_SECOND_MAX


def test_next_second_has_its_own_lines() -> None:
    house = House()
    house.submit(*range(1, 200))
    house.now_us += SECOND
    with capture_logs() as logs:
        house.submit(500)
    assert said(logs) == ["lines left out", "task submitted"]


def test_workers_come_and_go() -> None:
    house = House()
    with capture_logs() as logs:
        house.event_log.look(house.engine)
        house.join()
        house.event_log.look(house.engine)
        house.event_log.look(house.engine)
        house.do(CloseSession(session=1))
        house.event_log.look(house.engine)
        house.join()
        house.do(LeaveWorker(session=1))
        house.event_log.look(house.engine)
        house.event_log.look(house.engine)
    assert said(logs) == ["queue declared", "worker joined", "worker away", "worker gone"]
    assert all(line["worker_id"] == "w1" for line in logs[1:])


def test_queue_that_fills_up_is_a_warning_once() -> None:
    house = House(LogLevel.WARN)
    house.do(DeclareQueue(queue="images", changes={"depth_limit": 10}))
    with capture_logs() as logs:
        house.submit(*range(1, 8))
        house.event_log.look(house.engine)
        house.submit(8)
        house.event_log.look(house.engine)
        house.event_log.look(house.engine)
    assert said(logs) == ["queue fills up"]
    assert (logs[0]["depth"], logs[0]["depth_limit"]) == (8, 10)


def test_flood_of_lives_hides_no_warning() -> None:
    house = House()
    house.do(DeclareQueue(queue="images", changes={"retries": 0}))
    house.join()
    house.submit(*range(1, 2 * LINES_PER_SECOND_MAX))
    with capture_logs() as logs:
        house.do(FailAttempts(session=1, attempts=[Fail(task_id(1), 1, Error("ValueError"))]))
    assert said(logs) == ["task dead"]


def test_volatile_tasks_that_go_well_are_for_debug() -> None:
    told = {}
    for level in (LogLevel.INFO, LogLevel.DEBUG):
        house = House(level)
        with capture_logs() as logs:
            house.do(OpenQueue(queue="calls", exclusive=True, owner=1))
            message = Publication(task_id(1), "", "calls", NOTHING, b"x")
            house.do(PublishMessages(messages=[message]))
            consumer = Consume(session=2, queue="calls", consumer="c", slots=1, owner=1)
            house.do(consumer)
            volatile = volatile_id(task_id(1))
            fail = Fail(volatile, 1, Error("Rejected", "no"), Verdict.REJECT)
            house.do(FailAttempts(session=2, attempts=[fail]))
        told[level] = said(logs)
    assert told[LogLevel.INFO] == ["queue declared", "task dead"]
    first = ["queue declared", "task submitted", "fences reserved", "task assigned"]
    assert told[LogLevel.DEBUG][:4] == first
