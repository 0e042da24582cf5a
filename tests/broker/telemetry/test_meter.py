"""What the meter counts is what happened."""

import pytest

from jackalope.broker.telemetry.meter import OTHER, QUEUES_MAX, TYPES_MAX
from jackalope.core.commands import Action, DeleteQueue, SubmitTasks, Verdict
from jackalope.core.commands.namespaces import DeclareNamespace
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code, QuotaRefusal
from jackalope.core.task import BlobRef
from tests.broker.telemetry.metered import Metered
from tests.core.driving import refusal_in, spec


def buckets(numbers: list[int]) -> dict[int, int]:
    return {bucket: number for bucket, number in enumerate(numbers) if number}


def test_the_stages_of_a_task() -> None:
    driver = Metered()
    driver.submit(1)
    driver.tick(3 * SECOND)
    driver.join("w1", 1)
    driver.tick(100)
    driver.start(1)
    driver.tick(7 * SECOND)
    driver.finish(1)
    reading = driver.reading()
    assert (reading.submitted, reading.succeeded) == (1, 1)
    assert reading.queued.total == 3 * SECOND
    assert reading.assigned.total == 100
    assert reading.started.total == 7 * SECOND
    assert reading.finished.total == 10 * SECOND + 100
    assert buckets(reading.assigned.buckets) == {7: 1}
    assert buckets(reading.started.buckets) == {(7 * SECOND).bit_length(): 1}


def test_stages_are_told_when_a_whole_life_is_one_turn() -> None:
    driver = Metered()
    driver.is_gathering = True
    driver.join("w1", 1)
    for number in range(1, 4):
        driver.submit(number)
        driver.start(number)
        driver.now_us += 50
        driver.finish(number)
    driver.settle()
    reading = driver.reading()
    assert (reading.submitted, reading.succeeded) == (3, 3)
    assert reading.started.total == 150
    spreads = (reading.queued, reading.assigned, reading.started, reading.finished)
    assert [spread.number() for spread in spreads] == [3, 3, 3, 3]


def test_finish_without_a_start_has_no_running_time() -> None:
    driver = Metered()
    driver.join("w1", 1)
    driver.submit(1)
    driver.finish(1)
    reading = driver.reading()
    assert (reading.succeeded, reading.queued.number(), reading.finished.number()) == (1, 1, 1)
    assert (reading.assigned.number(), reading.started.number()) == (0, 0)


def test_failure_retry_and_death() -> None:
    driver = Metered()
    driver.declare(retries=1, retry_base_us=5 * SECOND)
    driver.join("w1", 1)
    driver.submit(1)
    driver.start(1)
    driver.tick(SECOND)
    driver.fail(1)
    assert driver.reading().retries == 1
    driver.tick(9 * SECOND)
    driver.start(1)
    driver.fail(1)
    reading = driver.reading()
    assert (reading.failures, reading.retries, reading.dead) == (2, 1, 1)
    assert reading.reasons == {"failed": 1}
    assert reading.started.total == SECOND
    # The second wait began when the retry was due, not when the task was submitted.
    assert reading.queued.number() == 2
    assert reading.queued.total == 0


def test_attempt_that_is_given_on_in_the_same_turn() -> None:
    driver = Metered()
    driver.join("w1", 1)
    driver.submit(1)
    driver.start(1)
    driver.tick(2 * SECOND)
    driver.join("w2", 2)
    driver.is_gathering = True
    driver.release(1)
    driver.settle()
    reading = driver.reading()
    assert driver.worker(1) in ("w1", "w2")
    assert (reading.interruptions, reading.started.total) == (1, 2 * SECOND)


@pytest.mark.parametrize(("has_begun", "expected"), [(True, (1, 0)), (False, (0, 1))])
def test_worker_that_goes_away(has_begun: bool, expected: tuple[int, int]) -> None:
    driver = Metered()
    driver.join("w1", 1, grace_us=SECOND)
    driver.submit(1)
    if has_begun:
        driver.start(1)
    driver.close(1)
    driver.tick(2 * SECOND)
    reading = driver.reading()
    assert (reading.crashes, reading.interruptions) == expected
    assert reading.retries == 1


def test_kill_and_expiry() -> None:
    driver = Metered()
    driver.submit(1)
    driver.submit(2, expires_at_us=driver.now_us + SECOND)
    driver.act(Action.KILL, 1)
    driver.tick(2 * SECOND)
    reading = driver.reading()
    assert (reading.killed, reading.dead, reading.reasons) == (1, 1, {"expired": 1})


def test_blobs() -> None:
    driver = Metered()
    driver.submit(1, payload=BlobRef("b1", 100_000))
    driver.submit(2, payload=b"small")
    assert (driver.reading().blobs, driver.reading().blob_bytes) == (1, 100_000)


def test_purge_in_the_same_turn_does_no_harm() -> None:
    driver = Metered()
    driver.join("w1", 1)
    driver.submit(1)
    driver.is_gathering = True
    driver.finish(1)
    driver.act(Action.PURGE, 1)
    driver.settle()
    assert driver.reading().submitted == 1


def test_small_turns_are_gathered_and_counted_before_anyone_reads() -> None:
    driver = Metered()
    driver.join("w1", 1)
    meter = driver.meter
    for number in range(1, 4):
        driver.submit(number)
        driver.start(number)
        driver.finish(number)
    assert len(meter._gathered) > 5
    reading = driver.reading()
    assert (reading.submitted, reading.succeeded, reading.started.number()) == (3, 3, 3)
    assert meter._gathered == []
    assert meter.machine.turns == 10
    for number in range(100, 200):
        driver.submit(number)
    assert len(meter._gathered) < 100


def test_what_removes_tasks_finds_them_counted() -> None:
    driver = Metered()
    driver.join("w1", 1)
    driver.submit(1)
    driver.finish(1)
    driver.act(Action.PURGE, 1)
    reading = driver.reading()
    assert (reading.submitted, reading.succeeded) == (1, 1)
    driver.submit(2)
    assert not driver.meter.must_settle([SubmitTasks(ref=1, tasks=[spec(3)])], driver.core)
    driver.core.book.has_volatile = True  # Then any command may remove one.
    assert driver.meter.must_settle([SubmitTasks(ref=1, tasks=[spec(3)])], driver.core)


def test_refusals_by_command() -> None:
    driver = Metered()
    driver.declare(depth_limit=1)
    driver.submit(1)
    driver.submit(2)
    driver.submit(3)
    driver.act(Action.PLAY, 9)
    driver.fail(1, Verdict.RETRY)
    refused = driver.meter.machine.refused
    assert refused["SubmitTasks", Code.QUEUE_FULL] == 2
    assert refused["FailAttempts", Code.UNKNOWN_SESSION] == 1


def test_refusals_by_a_quota_are_counted_too() -> None:
    driver = Metered()
    driver.send(DeclareNamespace(ref=1, name="default", changes={"workers": 1}, by="ada"))
    driver.join("w1", 1)
    refusal = refusal_in(driver.join("w2", 2))
    assert isinstance(refusal, QuotaRefusal)
    assert driver.meter.machine.refused["JoinWorker", refusal.code] == 1


def test_turns_and_batches() -> None:
    driver = Metered()
    driver.declare()
    driver.submit(1)
    driver.tick()
    machine = driver.meter.machine
    assert (machine.turns, machine.append.number(), machine.append.total) == (3, 2, 2_000)
    assert (machine.batch.number(), machine.records, machine.bytes) == (2, 2, 2)


# Bounds.


def test_queues_beyond_the_limit_are_counted_together() -> None:
    driver = Metered()
    for number in range(QUEUES_MAX + 3):
        driver.submit(number + 1, f"q{number}")
    totals = driver.meter.totals()
    assert len(totals) == QUEUES_MAX + 1
    assert totals["default", f"q{QUEUES_MAX - 1}"].submitted == 1
    assert totals["default", OTHER].submitted == 3


def test_namespaces_beyond_the_limit_are_counted_together() -> None:
    driver = Metered()
    driver.is_checked = False
    for number in range(2 * QUEUES_MAX + 5):
        driver.send(SubmitTasks(ref=0, tasks=[spec(number + 1)], namespace=f"n{number}"))
    totals = driver.meter.totals()
    assert len(totals) == 2 * QUEUES_MAX + 1
    assert totals["n100", OTHER].submitted == 1
    assert totals["", OTHER].submitted == 5


@pytest.mark.feature("D37")
def test_names_of_tasks_are_counted_in_all_queues() -> None:
    driver = Metered()
    driver.send(
        SubmitTasks(ref=0, tasks=[spec(1, name="resize"), spec(2, queue="b", name="resize")])
    )
    driver.send(
        SubmitTasks(ref=0, tasks=[spec(3, name="mail"), spec(4, queue="b"), spec(5, queue="b")])
    )
    driver.meter.close()
    driver.send(SubmitTasks(ref=0, tasks=[spec(6, name="mail")]))
    types = {name: reading.submitted for name, reading in driver.meter.types().items()}
    assert types == {"resize": 2, "mail": 2, "b": 2}
    totals = {name: reading.submitted for name, reading in driver.meter.totals().items()}
    assert totals == {("default", "q"): 3, ("default", "b"): 3}


def test_names_of_tasks_beyond_the_limit_are_counted_together() -> None:
    driver = Metered()
    driver.is_checked = False
    for number in range(TYPES_MAX + 3):
        driver.send(SubmitTasks(ref=0, tasks=[spec(number + 1, name=f"n{number}")]))
    types = driver.meter.types()
    assert len(types) == TYPES_MAX + 1
    assert (types[f"n{TYPES_MAX - 1}"].submitted, types[OTHER].submitted) == (1, 3)
    assert driver.reading().submitted == TYPES_MAX + 3


def test_deleted_queue_makes_room() -> None:
    driver = Metered()
    driver.declare("gone")
    driver.submit(1, "gone")
    driver.act(Action.KILL, 1)
    driver.send(DeleteQueue(queue="gone"))
    assert driver.meter.totals() == {}


# Intervals.


def test_closing_begins_anew_and_totals_go_on() -> None:
    driver = Metered()
    driver.submit(1)
    first = driver.meter.close()
    driver.submit(2)
    driver.submit(3)
    second = driver.meter.close()
    assert (first["default", "q"].submitted, second["default", "q"].submitted) == (1, 2)
    assert driver.meter.close() == {}
    assert driver.reading().submitted == 3


def test_rebuilt_core_is_counted_under_the_same_names() -> None:
    driver = Metered()
    driver.submit(1)
    driver.core = driver.replayed()
    driver.submit(2)
    assert driver.reading().submitted == 2
    assert len(driver.meter._readings) == 1
