"""Policies: their defaults, their presets, and every problem told at once."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from jackalope.core.commands import SubmitTasks
from jackalope.core.durations import DAY, HOUR, MINUTE, NEVER, SECOND
from jackalope.core.effects import Accepted, Declared
from jackalope.core.policy import (
    DEFAULT_POLICY,
    PRESETS,
    Done,
    OnLost,
    OnRestart,
    Policy,
    change_policy,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import keys_of
from jackalope.core.shapes.request import Same
from tests.core import shapes
from tests.core.driving import Driver, refusal_in, spec
from tests.profiles import examples

DEFAULTS: dict[str, Any] = {
    "on_lost": OnLost.REQUEUE,
    "on_restart": OnRestart.KEEP,
    "restart_grace_us": 30 * SECOND,
    "retries": 3,
    "retry_base_us": 5 * SECOND,
    "retry_factor": 2.0,
    "retry_cap_us": HOUR,
    "crash_limit": 5,
    "interruption_limit": 0,
    "prefer_other_worker": True,
    "priority_drop": 0,
    "ageing_us": 0,
    "time_to_live_us": 0,
    "timeout_us": 0,
    "depth_limit": 100_000,
    "batch_size": 100,
    "retention_us": 7 * DAY,
    "result_becomes": "",
    "held": False,
    "done": Done.PROCESSED,
    "stuck_after_us": 0,
    "same": Same.RUN,
    "cache_us": HOUR,
    "cache_entries": 10_000,
    "cache_bytes": 2**28,
    "retry_jitter": 0.2,
    "callbacks": (),
    "triggers": (),
    "fair_by": "",
    "fair_weights": {},
    "weight": 0,
    "on_misfit": "refuse",
    "needs": {},
}

#: What the published designs ask for, in their words, where we have the field.
PUBLISHED: dict[str, dict[str, Any]] = {
    "aiida": {
        "held": True,  # initial_state: held
        "on_lost": OnLost.PAUSE,  # on_worker_lost.running: pause
        "on_restart": OnRestart.KEEP,  # on_broker_restart: keep_lease
        "restart_grace_us": 20 * SECOND,  # lease.ttl: 20s
        "retries": 0,  # retry.by: none
        "retention_us": 0,  # result.retention: 0
    },
    "gridlike": {
        "held": False,
        "on_lost": OnLost.REQUEUE,  # on_worker_lost.running: requeue
        # on_broker_restart says requeue, but keep_lease for workers that resume: ours do.
        "on_restart": OnRestart.KEEP,
        "retries": 4,  # retry.max_attempts: 5
        "retry_base_us": 0,  # retry.backoff: none
        "prefer_other_worker": True,  # retry.exclude_last_worker: true
        "priority_drop": 1,  # retry.priority_penalty: 1
        "crash_limit": 20,  # max_deliveries: 20
        "interruption_limit": 20,
        "retention_us": NEVER,  # result.retention: forever
        "stuck_after_us": HOUR,  # stuck_after: 1h
        "batch_size": 100,  # batch_size: 100
        "result_becomes": "",  # result_becomes: null
    },
    "rpc": {
        "held": False,
        "on_lost": OnLost.REQUEUE,  # delivery: at_least_once
        "done": Done.PROCESSED,  # ack: on_result
        "retries": 0,  # retry.by: none
        "crash_limit": 3,  # max_deliveries: 3
        "time_to_live_us": 180 * SECOND,  # pending_ttl: 180s
        "retention_us": 0,  # result.retention: 0
    },
    "jobqueue": {
        "held": False,
        "on_lost": OnLost.REQUEUE,  # on_worker_lost.running: requeue
        "on_restart": OnRestart.KEEP,  # on_broker_restart: keep_lease
        "restart_grace_us": 30 * SECOND,  # lease.ttl: 30s
        "retries": 0,  # retry.by: resubmit
        "crash_limit": 20,  # max_deliveries: 20
        "time_to_live_us": 3600 * SECOND,  # pending_ttl: 3600s
        "retention_us": 3600 * SECOND,  # result.retention: 3600s
        "same": Same.CACHED,  # dedupe.content_hash, dedupe.join: true
        "cache_us": 3600 * SECOND,  # dedupe.ttl: 3600s
    },
    "taskqueue": {
        "held": False,
        "on_lost": OnLost.REQUEUE,  # on_worker_lost.running: requeue
        "on_restart": OnRestart.REQUEUE,  # on_broker_restart: requeue
        "retries": 3,  # max_retries: 3
        "retry_base_us": 5 * SECOND,  # retry.backoff.base: 5s
        "retry_factor": 2.0,  # retry.backoff.factor: 2
        "retry_cap_us": 3600 * SECOND,  # retry.backoff.cap: 3600s
        "crash_limit": 20,  # max_deliveries, by default: 20
        "timeout_us": 5 * MINUTE,  # exec_timeout.default: 300s
        "retention_us": 7 * DAY,  # result.retention: 7d
        "depth_limit": 100_000,  # limits.max_pending: 100000
    },
    "pool": {
        "on_lost": OnLost.REQUEUE,
        "on_restart": OnRestart.KEEP,  # the workers outlive the broker
        "done": Done.PROCESSED,
        "retries": 0,
        "crash_limit": 3,
        "time_to_live_us": 180 * SECOND,
        "retention_us": 10 * MINUTE,
    },
}

NOT_NEGATIVE = [
    "restart_grace_us",
    "retries",
    "retry_base_us",
    "retry_cap_us",
    "crash_limit",
    "interruption_limit",
    "priority_drop",
    "ageing_us",
    "time_to_live_us",
    "timeout_us",
    "depth_limit",
    "retention_us",
    "stuck_after_us",
    "cache_us",
    "cache_entries",
    "cache_bytes",
    "weight",
]


# What is promised.


def test_defaults_are_what_the_documentation_says() -> None:
    assert msgspec.structs.asdict(DEFAULT_POLICY) == DEFAULTS


def test_there_is_a_preset_for_each_published_design() -> None:
    # AMQP is a protocol, and no design of a task queue.
    assert set(PRESETS) - {"amqp"} == set(PUBLISHED)


@pytest.mark.parametrize(
    ("preset", "field"), [(preset, field) for preset in PUBLISHED for field in PUBLISHED[preset]]
)
def test_preset_is_what_the_design_asks_for(preset: str, field: str) -> None:
    assert getattr(PRESETS[preset], field) == PUBLISHED[preset][field]


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, *PRESETS.values()])
def test_defaults_and_presets_are_sound(policy: Policy) -> None:
    assert change_policy(DEFAULT_POLICY, msgspec.to_builtins(policy)) == policy
    assert change_policy(policy, {}) == policy


# Changing.


def changed(**changes: object) -> Policy | Refusal:
    return change_policy(DEFAULT_POLICY, changes)


def problems_of(**changes: object) -> str:
    refusal = changed(**changes)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID
    return refusal.message


def test_only_what_is_named_changes() -> None:
    expected = msgspec.structs.replace(DEFAULT_POLICY, retries=9, on_lost=OnLost.DEAD, held=True)
    assert changed(retries=9, on_lost="dead", held=True) == expected


@settings(max_examples=examples(100))
@given(shapes.of(Policy))
def test_a_policy_is_taken_whole_or_its_problems_are_told(policy: Policy) -> None:
    fields = msgspec.to_builtins(policy)
    alone = {name: change_policy(DEFAULT_POLICY, {name: fields[name]}) for name in fields}
    refused = [name for name, answer in alone.items() if isinstance(answer, Refusal)]
    answer = change_policy(DEFAULT_POLICY, fields)
    if refused:
        assert isinstance(answer, Refusal)
        assert all(f"{name}: must" in answer.message for name in refused)
    else:
        assert answer == policy


@pytest.mark.parametrize("field", NOT_NEGATIVE)
def test_what_must_not_be_negative(field: str) -> None:
    least = "0s" if field.endswith("_us") else "0"
    assert f"{field}: must be {least} to " in problems_of(**{field: -1})
    assert isinstance(changed(**{field: 0}), Policy)


def test_every_number_has_a_lower_bound() -> None:
    fields = keys_of(Policy).values()
    kinds = {each.name: getattr(each.hint, "__origin__", each.hint) for each in fields}
    numbers = {name for name, kind in kinds.items() if kind in (int, float)}
    assert numbers == {*NOT_NEGATIVE, "batch_size", "retry_factor", "retry_jitter"}
    assert not any(each.hint in (int, float) for each in fields)


@pytest.mark.parametrize("jitter", [-0.001, 1.001, float("inf"), float("nan")])
def test_jitter_out_of_range(jitter: float) -> None:
    assert "retry_jitter: must be 0 to 1, got" in problems_of(retry_jitter=jitter)


def test_a_queue_does_not_refresh() -> None:
    assert "same: must be run or unique or cached, got 'refresh'" in problems_of(same="refresh")


@pytest.mark.parametrize("factor", [0.0, 0.999, 100.001, -1.0, float("inf"), float("nan")])
def test_factor_out_of_range(factor: float) -> None:
    assert "retry_factor: must be 1 to 100, got" in problems_of(retry_factor=factor)


@pytest.mark.parametrize("factor", [1.0, 1, 2.5, 100.0])
def test_factor_in_range(factor: float) -> None:
    assert isinstance(changed(retry_factor=factor), Policy)


def test_batch_size_is_at_least_one() -> None:
    assert "batch_size: must be 1 to 1000000000, got 0" in problems_of(batch_size=0)
    assert isinstance(changed(batch_size=1), Policy)


def test_every_problem_is_told_at_once() -> None:
    message = problems_of(
        retries=-1,
        crash_limit=-2,
        retry_factor=0.5,
        batch_size=0,
        on_lost="explode",
        timeout_us="soon",
        held="maybe",
        unheard_of=1,
        also_unheard_of=2,
    )
    for field in (
        "retries",
        "crash_limit",
        "retry_factor",
        "batch_size",
        "on_lost",
        "timeout_us",
        "held",
        "unheard_of",
        "also_unheard_of",
    ):
        assert f"{field}: " in message


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    message = problems_of(retrys=1)
    assert all(name in message for name in Policy.__struct_fields__)


# Declaring.


def test_a_refused_policy_changes_nothing() -> None:
    driver = Driver()
    driver.declare(retries=7)
    before = driver.snapshot()
    refusal = refusal_in(driver.declare(retries=8, batch_size=0))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert driver.records == []
    assert driver.snapshot() == before


def test_a_preset_replaces_the_whole_policy_and_changes_come_on_top() -> None:
    driver = Driver()
    driver.declare(retries=7, ageing_us=5)
    answer = driver.declare(preset="rpc", crash_limit=4)
    expected = msgspec.structs.replace(PRESETS["rpc"], crash_limit=4)
    assert answer == Declared(expected)


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    refusal = refusal_in(Driver().declare(preset="unheard of"))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    assert all(name in refusal.message for name in PRESETS)


def test_declaring_the_same_again_writes_nothing() -> None:
    driver = Driver()
    driver.declare(retries=7)
    assert isinstance(driver.declare(retries=7), Declared)
    assert driver.records == []


@pytest.mark.parametrize("chain", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_results_may_not_go_in_a_circle(chain: list[str]) -> None:
    driver = Driver()
    for queue, target in itertools.pairwise(chain):
        assert isinstance(driver.declare(queue, result_becomes=target), Declared)
    refusal = refusal_in(driver.declare(chain[-1], result_becomes=chain[0]))
    assert refusal is not None
    assert refusal.code is Code.POLICY_CYCLE
    assert all(queue in refusal.message for queue in chain)
    assert driver.records == []


# Depth.


@pytest.mark.parametrize("limit", [1, 3])
def test_a_queue_takes_as_many_waiting_tasks_as_its_depth_limit(limit: int) -> None:
    driver = Driver()
    driver.declare(depth_limit=limit)
    for number in range(limit):
        assert driver.submit(number, held=bool(number % 2)) == Accepted(1)
    refusal = refusal_in(driver.submit(limit))
    assert refusal is not None
    assert refusal.code is Code.QUEUE_FULL
    assert str(limit) in refusal.message
    assert refusal.retry_after_us > 0
    assert driver.records == []


def test_what_runs_does_not_count_as_waiting() -> None:
    driver = Driver()
    driver.declare(depth_limit=1)
    driver.join("w", 1, slots=2)
    assert driver.send(SubmitTasks(ref=0, tasks=[spec(number) for number in range(3)])) == Accepted(
        3
    )
    assert refusal_in(driver.submit(3)) is not None
    driver.finish(0)
    assert driver.submit(4) == Accepted(1)


def test_a_depth_limit_of_zero_is_none() -> None:
    driver = Driver()
    driver.declare(depth_limit=0)
    assert driver.send(SubmitTasks(ref=0, tasks=[spec(n) for n in range(50)])) == Accepted(50)


def test_batches_are_filled_one_after_the_other() -> None:
    driver = Driver()
    driver.declare(batch_size=2)
    for number in range(5):
        driver.submit(number)
    assert [driver.task(number).batch for number in range(5)] == [1, 1, 2, 2, 3]


def test_queues_that_are_named_get_the_default_policy() -> None:
    driver = Driver()
    driver.core.default_policy = msgspec.structs.replace(PRESETS["taskqueue"], depth_limit=1)
    driver.submit(1, "named")
    driver.join("w", 5, queues=("served",))
    driver.declare("declared", retries=9)
    queues = driver.core.book.namespaces["default"].queues
    assert queues["named"].policy == queues["served"].policy == driver.core.default_policy
    assert queues["declared"].policy == msgspec.structs.replace(
        driver.core.default_policy, retries=9
    )
    refused = refusal_in(driver.submit(2, "named"))
    assert refused is not None
    assert refused.code is Code.QUEUE_FULL
