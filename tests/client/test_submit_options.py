"""What a user can choose for a task, and what becomes of it on the wire."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jackalope import ConfigError, Jackalope
from jackalope.client.submit_options import make_plan
from jackalope.core.durations import DAY, HOUR, MINUTE, SECOND
from jackalope.core.task import NO_OPTIONS, OnDependency, Options, Retry, TaskSpec
from jackalope.task_ids import new_task_id

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
MOMENT_US = int(MOMENT.timestamp()) * SECOND


def options(**choices: Any) -> Options:
    return make_plan(choices).options_now() or NO_OPTIONS  # type: ignore[arg-type]


def test_plain_task_has_no_options() -> None:
    task_id = new_task_id()
    spec = make_plan({}, name="app.f").spec(task_id, b"p")
    assert spec == TaskSpec(task_id, "default", "app.f", "", 150, b"p", None)


def test_common_fields_need_no_options() -> None:
    task_id = new_task_id()
    spec = make_plan({"queue": "q", "key": "k", "priority": 7}).spec(task_id, b"")
    assert spec == TaskSpec(task_id, "q", "", "k", 7, b"", None)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"alias": "a"}, Options(alias="a")),
        ({"tags": ["x", "y"]}, Options(tags=("x", "y"))),
        ({"headers": {"h": 1}}, Options(headers={"h": 1})),
        ({"run_at": MOMENT}, Options(run_at_us=MOMENT_US)),
        ({"expires": MOMENT}, Options(expires_at_us=MOMENT_US)),
        ({"timeout": 1.5}, Options(timeout_us=1_500_000)),
        ({"timeout": timedelta(minutes=1)}, Options(timeout_us=MINUTE)),
        ({"held": True}, Options(held=True)),
        ({"on_dependency": "run"}, Options(on_dependency=OnDependency.RUN)),
        ({"retries": 7}, Options(retry=Retry(7, 5 * SECOND, 2.0, HOUR))),
        ({"retry_delay": 1}, Options(retry=Retry(3, SECOND, 2.0, HOUR))),
        (
            {"retries": 0, "retry_delay": 0, "retry_factor": 3, "retry_delay_max": 9},
            Options(retry=Retry(0, 0, 3, 9 * SECOND)),
        ),
    ],
)
def test_choice_becomes_an_option(choices: dict[str, Any], expected: Options) -> None:
    assert options(**choices) == expected


def test_tasks_are_named_by_handles_and_ids() -> None:
    app = Jackalope()
    parent, other = new_task_id(), new_task_id()
    made = options(parent=app.handle(parent), depends_on=[other.hex(), app.handle(other)])
    assert made == Options(parent=parent, depends_on=(other, other))


def test_running_parent_proves_its_lease() -> None:
    class Context:
        id = new_task_id()
        fence = 42

    assert make_plan({"parent": Context()}).fence == 42
    assert make_plan({"parent": Context.id}).fence == 0


def test_times_from_now_count_from_the_submit() -> None:
    plan = make_plan({"delay": timedelta(days=1), "expires": 2 * DAY / SECOND, "alias": "a"})
    before_us = time.time_ns() // 1_000
    made = plan.options_now()
    after_us = time.time_ns() // 1_000
    assert made is not None
    assert before_us <= made.run_at_us - DAY <= after_us
    assert before_us <= made.expires_at_us - 2 * DAY <= after_us
    assert made.alias == "a"


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"colour": "red"}, "colour: unknown; there are alias, avoid, callback, delay"),
        ({"delay": 1, "run_at": MOMENT}, "choose one of them"),
        ({"run_at": datetime(2030, 1, 1)}, "does not say its time zone"),  # noqa: DTZ001
        ({"expires": datetime(2030, 1, 1)}, "does not say its time zone"),  # noqa: DTZ001
        ({"run_at": 5}, "for a time from now use delay"),
        ({"delay": -1}, "delay: must not be negative"),
        ({"timeout": timedelta(seconds=-1)}, "timeout: must not be negative"),
        ({"priority": 256}, "priority: 0 to 255, got 256"),
        ({"priority": -1}, "priority: 0 to 255, got -1"),
        ({"tags": "one"}, "tags: several strings, not one"),
        ({"on_dependency": "wait"}, "on_dependency: dead or run"),
        ({"depends_on": ["nonsense"]}, "is not a task id"),
        ({"parent": "nonsense"}, "is not a task id"),
    ],
)
def test_choice_that_cannot_be_is_refused(choices: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_plan(choices)


def test_every_problem_is_listed() -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan({"delay": -1, "priority": 999})
    assert "delay" in str(raised.value)
    assert "priority" in str(raised.value)
