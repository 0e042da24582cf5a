"""Which callbacks and triggers follow from which ends, and what they tell."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pytest

from jackalope.core import Core
from jackalope.core.commands import Action, DeclareQueue, DeleteQueue, SubmitTasks
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Declared, Joined
from jackalope.core.ids import id_text
from jackalope.core.policy import CALLBACKS_POLICY
from jackalope.core.records import TaskSubmitted, decode_batch
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import (
    BATCH_EVENT,
    CALLBACKS_QUEUE,
    Callback,
    CallbackOn,
    End,
    Trigger,
    TriggerPayload,
    callback_id,
)
from jackalope.core.task import BlobRef, TaskSpec
from tests.core.callbacks.notices import SESSION, URL, die, finish, notices
from tests.core.driving import Driver, refusal_in, task_id

ENDS = [CallbackOn.SUCCEEDED, CallbackOn.DEAD, CallbackOn.KILLED]
SOME: list[tuple[CallbackOn, ...]] = [on for count in range(4) for on in combinations(ENDS, count)]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def end(driver: Driver, number: int, how: CallbackOn) -> None:
    """Let a task that a worker has end so."""
    if how is CallbackOn.SUCCEEDED:
        finish(driver, number, result=b"\x2a")
    elif how is CallbackOn.DEAD:
        die(driver, number)
    else:
        driver.act(Action.KILL, number)


def declare(driver: Driver, **changes: object) -> object:
    given = {name: msgspec.to_builtins(value) for name, value in changes.items()}
    return driver.send(DeclareQueue(queue="q", changes=given))


def begin(driver: Driver, how: CallbackOn, **fields: Any) -> None:
    if how is not CallbackOn.KILLED:
        driver.join("w", SESSION)
    driver.submit(1, **fields)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("on", SOME, ids="-".join)
def test_every_end_with_every_wish(
    driver: Driver, on: tuple[CallbackOn, ...], how: CallbackOn
) -> None:
    begin(driver, how, callbacks=(Callback(URL, on),))
    end(driver, 1, how)
    told = notices(driver)
    assert [notice.type for notice in told] == (
        [f"jackalope.task.{how}"] if how in on or not on else []
    )
    if told:
        assert told[0].task == id_text(task_id(1))
        assert told[0].url == URL
        assert told[0].state == how
        assert told[0].result == (b"\x2a" if how is CallbackOn.SUCCEEDED else None)
        assert told[0].error_message == ("no" if how is CallbackOn.DEAD else "")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("on", SOME[1:], ids="-".join)
def test_every_end_with_every_trigger(
    driver: Driver, on: tuple[CallbackOn, ...], how: CallbackOn
) -> None:
    declare(driver, triggers=(Trigger("next", tuple(End(each) for each in on), "n"),))
    begin(driver, how)
    end(driver, 1, how)
    made = [record.spec for record in driver.records if isinstance(record, TaskSubmitted)]
    assert [(spec.queue, spec.name) for spec in made] == ([("next", "n")] if how in on else [])


def successor(driver: Driver) -> TaskSpec:
    (made,) = [record.spec for record in driver.records if isinstance(record, TaskSubmitted)]
    return made


def test_what_a_triggered_task_has_of_its_source(driver: Driver) -> None:
    declare(driver, triggers=(Trigger("next"),))
    driver.join("w", SESSION)
    driver.submit(
        1, name="n", key="k", priority=201, payload=b"in", tags=("t",), headers={"content": "json"}
    )
    finish(driver, 1, result=b"out")
    made = successor(driver)
    assert (made.name, made.key, made.priority, made.payload) == ("n", "k", 201, b"out")
    assert made.options is not None
    assert made.options.tags == ("t",)
    assert made.options.parent == task_id(1)
    source = id_text(task_id(1))
    assert made.options.headers == {"content": "json", "jackalope.source": source}


def test_what_a_trigger_says_itself(driver: Driver) -> None:
    own = Trigger("next", name="m", key="l", priority=0, payload=TriggerPayload.PAYLOAD)
    declare(driver, triggers=(own,))
    driver.join("w", SESSION)
    driver.submit(1, name="n", key="k", payload=b"in")
    finish(driver, 1, result=b"out")
    made = successor(driver)
    assert (made.name, made.key, made.priority, made.payload) == ("m", "l", 0, b"in")


def test_an_event_is_a_call_with_one_argument(driver: Driver) -> None:
    on = (End.SUCCEEDED, End.DEAD)
    declare(driver, triggers=(Trigger("next", on, payload=TriggerPayload.EVENT),))
    driver.join("w", SESSION)
    driver.submit(1, name="n", headers={"content": "msgpack"})
    finish(driver, 1, result=msgspec.msgpack.encode({"a": 1}))
    made = successor(driver)
    assert isinstance(made.payload, bytes)
    (event,), named = msgspec.msgpack.decode(made.payload)
    assert named == {}
    assert event["type"] == "jackalope.task.succeeded"
    assert event["task"] == id_text(task_id(1))
    assert event["result"] == {"a": 1}
    assert made.options is not None
    assert "content" not in made.options.headers
    driver.submit(2)
    die(driver, 2)
    payload = successor(driver).payload
    assert isinstance(payload, bytes)
    (event,), _ = msgspec.msgpack.decode(payload)
    assert (event["state"], event["error_message"]) == ("dead", "no")


def test_a_large_result_stays_a_blob(driver: Driver) -> None:
    declare(driver, triggers=(Trigger("next"),), callbacks=(Callback(URL),))
    driver.join("w", SESSION)
    driver.submit(1)
    blob = BlobRef("b", 10**6, "d")
    finish(driver, 1, result=blob)
    made = {r.spec.queue: r.spec for r in driver.records if isinstance(r, TaskSubmitted)}
    assert made["next"].payload == blob
    (told,) = notices(driver)
    assert (told.result, told.result_size) == (None, 10**6)


def test_one_url_of_a_task_and_its_queue_is_called_once(driver: Driver) -> None:
    declare(driver, callbacks=(Callback(URL), Callback(URL + "other")))
    driver.submit(1, callbacks=(Callback(URL),))
    driver.act(Action.KILL, 1)
    assert sorted(notice.url for notice in notices(driver)) == [URL, URL + "other"]


def test_the_id_follows_from_the_end(driver: Driver) -> None:
    driver.submit(1, callbacks=(Callback(URL),))
    driver.act(Action.KILL, 1)
    made = [r.spec.id for r in driver.records if isinstance(r, TaskSubmitted)]
    assert made == [callback_id(task_id(1), driver.now_us, URL)]


def test_the_end_and_its_callback_are_in_one_batch(driver: Driver) -> None:
    driver.submit(1, callbacks=(Callback(URL),))
    driver.act(Action.KILL, 1)
    kinds = [type(record).__name__ for record in decode_batch(driver.journal[-1])]
    assert kinds == ["TaskMoved", "TaskSubmitted"]


def test_the_queue_of_callbacks_is_declared_again_if_it_is_deleted(driver: Driver) -> None:
    driver.submit(1, callbacks=(Callback(URL),))
    assert driver.send(DeleteQueue(queue=CALLBACKS_QUEUE)) == Accepted()
    driver.act(Action.KILL, 1)
    assert len(notices(driver)) == 1
    assert driver.core.book.namespaces["default"].queues[CALLBACKS_QUEUE].policy == CALLBACKS_POLICY


def test_only_the_broker_serves_callbacks(driver: Driver) -> None:
    assert refusal_in(driver.join("w", SESSION, (CALLBACKS_QUEUE,))) is not None
    assert isinstance(driver.send(ServeCallbacks(session=9, slots=3)), Joined)
    driver.submit(1, callbacks=(Callback(URL),))
    driver.act(Action.KILL, 1)
    tasks = driver.core.book.namespaces["default"].leases["jackalope.callbacks"]
    assert len(tasks) == 1


def test_an_older_log_has_no_callbacks(driver: Driver) -> None:
    driver.core.level = 3
    for answer in (
        driver.submit(1, callbacks=(Callback(URL),)),
        declare(driver, callbacks=(Callback(URL),)),
        declare(driver, triggers=(Trigger("next"),)),
    ):
        refusal = answer if isinstance(answer, Refusal) else refusal_in(answer)  # type: ignore[arg-type]
        assert refusal is not None
        assert "jackalope cluster upgrade" in refusal.message
        assert driver.records == []
    assert isinstance(declare(driver, retries=1), Declared)


# Batches.


def batch_callbacks(driver: Driver) -> list[int]:
    return [notice.batch for notice in notices(driver) if notice.type == BATCH_EVENT]


def test_a_batch_ends_when_it_is_full_and_all_have_ended(driver: Driver) -> None:
    declare(driver, batch_size=2, callbacks=(Callback(URL, (CallbackOn.BATCH,)),))
    for number in (1, 2, 3):
        driver.submit(number)
    driver.act(Action.KILL, 2)
    assert batch_callbacks(driver) == []
    driver.act(Action.KILL, 3)
    assert batch_callbacks(driver) == []  # It is not full.
    driver.act(Action.KILL, 1)
    assert batch_callbacks(driver) == [1]
    driver.submit(4)
    driver.act(Action.KILL, 4)
    assert batch_callbacks(driver) == [2]


def test_batches_that_end_together_are_each_told_of_once(driver: Driver) -> None:
    declare(driver, batch_size=2, callbacks=(Callback(URL, (CallbackOn.BATCH,)),))
    driver.join("w", SESSION, slots=4)
    for number in range(1, 5):
        driver.submit(number)
    finish(driver, 1, 2, 3, 4)
    assert sorted(batch_callbacks(driver)) == [1, 2]


def test_a_policy_that_comes_later_counts_what_is_there(driver: Driver) -> None:
    declare(driver, batch_size=2)
    for number in (1, 2):
        driver.submit(number)
    declare(driver, callbacks=(Callback(URL, (CallbackOn.BATCH,)),))
    driver.act(Action.KILL, 1)
    assert batch_callbacks(driver) == []
    driver.act(Action.KILL, 2)
    assert batch_callbacks(driver) == [1]
    declare(driver, callbacks=())
    assert driver.core.book.namespaces["default"].queues["q"].batches is None


def test_batches_are_counted_again_after_a_restart(driver: Driver) -> None:
    declare(driver, batch_size=2, callbacks=(Callback(URL, (CallbackOn.BATCH,)),))
    for number in (1, 2, 3):
        driver.submit(number)
    driver.act(Action.KILL, 1)
    snapshot, core = driver.core.book.snapshot(), Core()
    core.book.restore(snapshot.counters, snapshot.entities, snapshot.tasks, snapshot.answers)
    assert core.book.namespaces["default"].queues["q"].batches == {1: 1, 2: 1}


def test_a_batch_that_ends_again_is_told_of_again(driver: Driver) -> None:
    declare(driver, batch_size=1, callbacks=(Callback(URL, (CallbackOn.BATCH,)),))
    driver.submit(1)
    driver.act(Action.KILL, 1)
    assert batch_callbacks(driver) == [1]
    driver.now_us += SECOND
    driver.act(Action.RETRY, 1)
    driver.act(Action.KILL, 1)
    assert batch_callbacks(driver) == [1]


def test_a_submit_to_the_queue_of_callbacks_changes_nothing(driver: Driver) -> None:
    answer = driver.send(SubmitTasks(ref=0, tasks=[TaskSpec(task_id(1), CALLBACKS_QUEUE)]))
    refusal = refusal_in(answer)
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert driver.records == []
