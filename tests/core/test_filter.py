"""Filters: every condition alone, all of them together, and none."""

from typing import Any

import msgspec
import pytest

from jackalope.core.commands import Action
from jackalope.core.effects import Acted
from jackalope.core.filter import Filter, matches
from jackalope.core.lifecycle import State
from jackalope.core.shapes.flow import FlowSettings
from jackalope.core.task import Error, Outcome, Task
from tests.core.driving import NOW_US, Driver, task_id


@pytest.fixture
def task() -> Task:
    driver = Driver()
    driver.submit(7)
    driver.submit(
        8,
        name="Resize",
        key="Zürich",
        alias="The cat",
        tags=("red", "blue"),
        parent=task_id(7),
        payload=b"cat.PNG",
    )
    found = driver.task(8)
    found.outcome = Outcome(error=Error("ValueError", "no card"))
    found.options = msgspec.structs.replace(found.options, flow=FlowSettings())
    return found


MATCHING: list[dict[str, Any]] = [
    {},
    {"states": (State.READY,)},
    {"states": (State.HELD, State.READY)},
    {"queue": "q"},
    {"queues": ("r", "q")},
    {"name": "Resize"},
    {"key": "Zürich"},
    {"tag": "red"},
    {"tag": "blue"},
    {"parent": task_id(7)},
    {"batch": 1},
    {"older_than_us": NOW_US + 1},
    {"newer_than_us": NOW_US},
    {"contains": "cat.PNG"},
    {"contains": "no card"},
    {"contains": "valueERROR: No"},
    {"is_flow": True},
    {"text": "size"},
    {"text": "RESIZE"},
    {"text": "zür"},
    {"text": "ZüR"},
    {"text": "the CAT"},
    {"text": task_id(8).hex()},
    {"text": task_id(8).hex()[:13].upper()},
]

OTHERS: list[dict[str, Any]] = [
    {"states": (State.HELD, State.PAUSED)},
    {"queue": "Q"},
    {"queue": "r"},
    {"queues": ("r", "Q")},
    {"name": "resize"},
    {"name": "Res"},
    {"key": "Zür"},
    {"tag": "re"},
    {"tag": "green"},
    {"parent": task_id(8)},
    {"batch": 2},
    {"older_than_us": NOW_US},
    {"newer_than_us": NOW_US + 1},
    {"contains": "cat.png"},  # The payload is bytes, which have no case.
    {"contains": "Resize"},
    {"text": "dog"},
    {"text": "ZÜR"},  # Only ASCII letters have a case, as in SQL.
    {"text": task_id(8).hex()[1:]},
    {"text": task_id(7).hex()},
]


@pytest.mark.parametrize("wanted", MATCHING, ids=str)
def test_matches(task: Task, wanted: dict[str, Any]) -> None:
    assert matches(Filter(**wanted), task)


@pytest.mark.parametrize("wanted", OTHERS, ids=str)
def test_does_not_match(task: Task, wanted: dict[str, Any]) -> None:
    assert not matches(Filter(**wanted), task)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_every_condition_must_hold(task: Task, other: dict[str, Any]) -> None:
    everything = {name: value for wanted in MATCHING for name, value in wanted.items()}
    assert matches(Filter(**everything), task)
    assert not matches(Filter(**{**everything, **other}), task)


def test_every_field_is_tested_both_ways() -> None:
    for samples in (MATCHING, [*OTHERS, {"is_flow": True}]):
        tested = {name for wanted in samples for name in wanted}
        assert tested == set(Filter.__struct_fields__)


def test_a_task_that_is_no_flow(task: Task) -> None:
    task.options = msgspec.structs.replace(task.options, flow=None)
    assert not matches(Filter(is_flow=True), task)


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"color": "red"}, Filter)


# In actions.


def test_an_action_by_filter_means_the_tasks_that_match_and_can_change() -> None:
    driver = Driver()
    for number in range(1, 4):
        driver.submit(number, name="wanted")
    driver.submit(4, name="other")
    driver.act(Action.HOLD, 2)
    assert driver.act(Action.HOLD, filter=Filter(name="wanted")) == Acted(changed=2)
    assert [driver.state(number) for number in range(1, 5)] == [State.HELD] * 3 + [State.READY]


@pytest.mark.parametrize("action", [Action.KILL, Action.PAUSE])
def test_an_action_by_filter_asks_the_workers_of_what_runs(action: Action) -> None:
    driver = Driver()
    driver.join("w", 1, slots=2)
    for number in range(1, 4):
        driver.submit(number)
    driver.start(1)
    wanted = Filter(queue="q")
    assert driver.act(action, filter=wanted, dry_run=True) == Acted(changed=1, requested=2)
    assert driver.act(action, filter=wanted) == Acted(changed=1, requested=2)
    for number in (1, 2):
        attempt = driver.task(number).attempt
        assert attempt is not None
        assert attempt.request is not None
        assert attempt.request.signal == action.value


def test_an_action_by_filter_stays_in_its_namespace() -> None:
    driver = Driver()
    driver.submit(1)
    assert driver.act(Action.KILL, filter=Filter(), namespace="elsewhere") == Acted()
    assert driver.state(1) is State.READY
