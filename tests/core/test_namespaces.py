"""Namespaces as objects: settings, quotas at the limit and one past it, and deletion as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.core import Core
from jackalope.core.api_key import ROLES, ApiKey, Permission, Role, role_of
from jackalope.core.audit import Act, entity_of
from jackalope.core.commands import (
    CreateApiKey,
    DeclareQueue,
    JoinWorker,
    LimitTag,
    PauseQueue,
    RevokeApiKey,
    SubmitTasks,
    WatchTasks,
    amqp,
)
from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace, NoteAct
from jackalope.core.commands.schedules import DeclareSchedule
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.effects import (
    Accepted,
    DrainAsked,
    NamespaceGone,
    NamespaceSet,
    Published,
    SendToSession,
    TaskEnded,
)
from jackalope.core.limits import (
    ACTS_OF_BROKER_MAX,
    ACTS_PER_NAMESPACE_MAX,
    BYTES_MAX,
    DESCRIPTION_CHARS_MAX,
    NAMESPACES_MAX,
    TASKS_PER_NAMESPACE_KILLED_MAX,
    WEIGHT_MAX,
)
from jackalope.core.records import (
    FLOW_CONTROL_LEVEL,
    ActNoted,
    NamespaceDeclared,
    NamespaceDeleted,
    QueuePaused,
)
from jackalope.core.refusals import Code, QuotaRefusal, Refusal
from jackalope.core.shapes.exchange import Binding, Exchange, Kind
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.shapes.namespace import FULL, Bucket, NamespaceSettings, Quota
from tests.core.driving import Driver, refusal_in, spec, task_id

NS = "default"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def declare(driver: Driver, name: str = NS, **changes: Any) -> Any:
    return driver.send(DeclareNamespace(ref=1, name=name, changes=changes, by="ada"))


def delete(driver: Driver, name: str = NS, *, force: bool = False) -> Any:
    return driver.send(DeleteNamespace(ref=1, name=name, force=force, by="ada"))


def submit(driver: Driver, *numbers: int, **fields: Any) -> Any:
    return driver.send(SubmitTasks(ref=1, tasks=[spec(number, **fields) for number in numbers]))


def quota_in(answer: Any) -> tuple[Quota, int, int]:
    refusal = refusal_in(answer)
    assert isinstance(refusal, QuotaRefusal), answer
    assert refusal.code is Code.QUOTA_EXCEEDED
    return Quota(refusal.quota), refusal.limit, refusal.used


# Settings.


def test_a_namespace_is_created_changed_and_stays_over_a_restart(driver: Driver) -> None:
    answer = declare(driver, "acme", description="shop", weight=3)
    assert answer == NamespaceSet(NamespaceSettings(description="shop", weight=3))
    assert declare(driver, "acme", workers=2).settings.weight == 3
    assert declare(driver, "acme") == declare(driver, "acme", workers=2)
    declared = [each for each in driver.recorded() if isinstance(each, NamespaceDeclared)]
    assert len(declared) == 2  # What changes nothing is not recorded.
    again = driver.replayed().book.namespaces["acme"]
    assert again.settings == NamespaceSettings("shop", 3, workers=2)
    assert (again.by, again.is_declared) == ("ada", True)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": WEIGHT_MAX + 1}, "weight"),
        ({"tasks_queued": -1}, "tasks_queued"),
        ({"tasks_queued": 1.5}, "tasks_queued"),
        ({"bytes_stored": BYTES_MAX + 1}, "bytes_stored"),
        ({"description": "x" * (DESCRIPTION_CHARS_MAX + 1)}, "description"),
        ({"submits_burst": 5}, "submits_burst: goes with submits_per_second"),
        ({"task_queued": 5}, "tasks_queued"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    driver: Driver, changes: dict[str, Any], problem: str
) -> None:
    refusal = declare(driver, **changes)
    assert refusal.code is Code.INVALID
    assert problem in refusal.message
    assert not driver.recorded()


def test_all_problems_are_listed(driver: Driver) -> None:
    refusal = declare(driver, weight=0, workers=-1, colour="red")
    assert all(each in refusal.message for each in ("weight", "workers", "colour"))


def test_description_chars_max_and_others_at_their_bounds(driver: Driver) -> None:
    settings: dict[str, Any] = {
        "description": "x" * DESCRIPTION_CHARS_MAX,
        "weight": WEIGHT_MAX,
        "bytes_stored": BYTES_MAX,
    }
    assert isinstance(declare(driver, **settings), NamespaceSet)


test_description_chars_max = test_weight_max = test_bytes_max = (
    test_description_chars_max_and_others_at_their_bounds
)


def test_namespaces_max_counts_those_that_are_created(driver: Driver) -> None:
    driver.is_checked = False
    for number in range(NAMESPACES_MAX):
        assert isinstance(declare(driver, f"n{number}"), NamespaceSet)
    assert declare(driver, "one more").code is Code.TOO_MANY


def test_an_older_cluster_has_no_namespaces_with_settings(driver: Driver) -> None:
    driver.core.level = FLOW_CONTROL_LEVEL - 1
    assert "cluster upgrade" in declare(driver).message
    driver.submit(1)
    assert "cluster upgrade" in delete(driver).message


def test_a_tenant_does_not_change_its_own_bounds(driver: Driver) -> None:
    declare(driver, "acme", workers=2)

    def by_tenant(**changes: Any) -> Any:
        return driver.send(DeclareNamespace(ref=1, name="acme", changes=changes, within="acme"))

    refusal = by_tenant(workers=3, weight=2, description="mine")
    assert refusal.code is Code.FORBIDDEN
    assert "weight, workers" in refusal.message
    assert by_tenant(workers=2, description="mine").settings.description == "mine"


# Quotas.


def test_tasks_queued_are_those_that_wait(driver: Driver) -> None:
    declare(driver, tasks_queued=2)
    answer = submit(driver, 1, 2, 3)
    assert isinstance(answer, Accepted)
    assert quota_in(answer) == (Quota.TASKS_QUEUED, 2, 2)
    refusal = answer.refused[0][1]
    assert refusal.retry_after_us
    driver.join("w1", 1)
    assert submit(driver, 3) == Accepted(1)
    assert quota_in(submit(driver, 4)) == (Quota.TASKS_QUEUED, 2, 2)
    declare(driver, tasks_queued=0)
    assert submit(driver, 4) == Accepted(1)


def test_tasks_of_all_queues_count_and_those_of_other_namespaces_do_not(driver: Driver) -> None:
    declare(driver, tasks_queued=2)
    submit(driver, 1, queue="a")
    submit(driver, 2, queue="b", run_at_us=driver.now_us + HOUR)
    assert quota_in(submit(driver, 3, queue="c"))[0] is Quota.TASKS_QUEUED
    command = SubmitTasks(ref=1, tasks=[spec(4)], namespace="other")
    assert driver.send(command) == Accepted(1)


def test_a_task_that_can_begin_at_once_does_not_wait(driver: Driver) -> None:
    declare(driver, tasks_queued=1)
    driver.join("w1", 1, slots=3)
    assert submit(driver, 1, 2, 3) == Accepted(3)
    assert submit(driver, 4) == Accepted(1)
    assert quota_in(submit(driver, 5))[0] is Quota.TASKS_QUEUED


def test_a_retry_comes_back_whatever_the_quota_is(driver: Driver) -> None:
    declare(driver, tasks_queued=1)
    driver.join("w1", 1)
    submit(driver, 1)
    submit(driver, 2)
    driver.release(1)
    assert driver.core.book.namespaces[NS].depth + driver.core.book.namespaces[NS].leased == 2


def test_bytes_stored_are_the_payloads_of_unfinished_tasks(driver: Driver) -> None:
    driver.submit(1, payload=b"1234")
    declare(driver, bytes_stored=10)  # What is there counts.
    assert submit(driver, 2, payload=b"123456") == Accepted(1)
    assert quota_in(submit(driver, 3, payload=b"1")) == (Quota.BYTES_STORED, 10, 10)
    assert submit(driver, 4, payload=b"") == Accepted(1)
    driver.join("w1", 1)
    driver.finish(1, b"a result that is not counted")
    assert submit(driver, 3, payload=b"1234") == Accepted(1)
    assert driver.replayed().book.namespaces[NS].bytes_stored == 10


def test_a_payload_larger_than_the_quota_is_never_worth_waiting_for(driver: Driver) -> None:
    declare(driver, bytes_stored=10)
    refusal = refusal_in(submit(driver, 1, payload=b"x" * 11))
    assert refusal is not None
    assert not refusal.retry_after_us


def test_submits_per_second_are_exact(driver: Driver) -> None:
    declare(driver, submits_per_second=2, submits_burst=3)
    answer = submit(driver, 1, 2, 3, 4)
    assert quota_in(answer) == (Quota.SUBMITS_PER_SECOND, 2, 3)
    refusal = refusal_in(answer)
    assert refusal is not None
    assert refusal.retry_after_us == SECOND // 2
    driver.tick(SECOND // 2 - 1)
    assert quota_in(submit(driver, 4))[0] is Quota.SUBMITS_PER_SECOND
    driver.tick(1)
    assert submit(driver, 4) == Accepted(1)
    assert quota_in(submit(driver, 5))[0] is Quota.SUBMITS_PER_SECOND
    assert driver.replayed().book.namespaces[NS].bucket == driver.core.book.namespaces[NS].bucket


def test_a_repeated_submit_costs_nothing(driver: Driver) -> None:
    declare(driver, submits_per_second=1, tasks_queued=1, bytes_stored=10)
    assert submit(driver, 1) == Accepted(1)
    assert submit(driver, 1) == Accepted(1)


def test_a_flow_is_accepted_as_a_whole_or_refused(driver: Driver) -> None:
    declare(driver, tasks_queued=2)

    def flow(first: int, count: int) -> Any:
        nodes = [
            FlowNode(spec(first + number), NodeSettings(f"n{number}"))
            for number in range(1, count + 1)
        ]
        return driver.send(SubmitFlow(1, spec(first), FlowSettings(), nodes))

    assert quota_in(flow(10, 2))[0] is Quota.TASKS_QUEUED
    assert flow(20, 1) == Accepted(1)
    declare(driver, tasks_queued=0, submits_per_second=2)
    refusal = refusal_in(flow(30, 2))
    assert isinstance(refusal, QuotaRefusal)
    assert not refusal.retry_after_us  # It is more than is ever accepted at once.
    assert flow(40, 1) == Accepted(1)
    assert quota_in(flow(50, 1))[0] is Quota.SUBMITS_PER_SECOND


def test_messages_are_refused_and_so_are_volatile_ones(driver: Driver) -> None:
    declare(driver, submits_per_second=2)
    driver.send(amqp.OpenQueue(queue="mail", durable=True))

    def publish(number: int, *, persistent: bool) -> Any:
        message = amqp.Publication(
            task_id(number), "", "mail", b"\0\0", b"x", persistent=persistent
        )
        return driver.send(amqp.PublishMessages(ref=1, messages=[message]))

    assert publish(1, persistent=True) == Published(1)
    assert publish(2, persistent=False) == Published(1)
    for number, persistent in ((3, False), (4, True)):
        answer = publish(number, persistent=persistent)
        assert answer == Published(1, refused=(0,), over=answer.over)
        assert [each.quota for each in answer.over] == [Quota.SUBMITS_PER_SECOND]


def test_workers_are_refused_but_for_those_that_come_back(driver: Driver) -> None:
    declare(driver, workers=1)
    driver.join("w1", 1)
    join = JoinWorker(ref=1, session=2, worker="w2", queues=("q",))
    assert quota_in(driver.send(join)) == (Quota.WORKERS, 1, 1)
    driver.close(1)
    driver.join("w1", 3)
    assert driver.core.roster.sessions[3].id == "w1"


def key(key_id: str, namespace: str, *permissions: Permission) -> ApiKey:
    return ApiKey(key_id, "0" * 64, key_id, permissions or (Permission.ADMIN,), (), namespace)


def test_api_keys_of_a_namespace_are_counted(driver: Driver) -> None:
    declare(driver, "acme", api_keys=1)
    assert driver.send(CreateApiKey(ref=1, key=key("a0", ""))) == Accepted()
    assert driver.send(CreateApiKey(ref=1, key=key("a1", "acme"))) == Accepted()
    answer = driver.send(CreateApiKey(ref=1, key=key("a2", "acme")))
    assert quota_in(answer) == (Quota.API_KEYS, 1, 1)
    assert driver.send(CreateApiKey(ref=1, key=key("a3", "other"))) == Accepted()


def test_a_tenant_revokes_keys_of_its_own_namespace_alone(driver: Driver) -> None:
    for each in (key("a0", ""), key("a1", "acme"), key("b1", "other")):
        driver.send(CreateApiKey(ref=1, key=each))
    for other in ("a0", "b1", "c1"):
        refusal = driver.send(RevokeApiKey(ref=1, key=other, within="acme"))
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.UNKNOWN_API_KEY
        assert refusal.message.replace(other, "x") == "no API key with the id 'x'; list the keys"
    assert driver.send(RevokeApiKey(ref=1, key="a1", within="acme")) == Accepted()


def test_more_attempts_than_allowed_wait_and_are_not_refused(driver: Driver) -> None:
    declare(driver, concurrent_attempts=2)
    driver.join("w1", 1, slots=2, queues=("a",))
    driver.join("w2", 2, slots=2, queues=("b",))
    assert submit(driver, 1, 2, 3, queue="a") == Accepted(3)
    assert submit(driver, 4, queue="b") == Accepted(1)
    assert driver.core.book.namespaces[NS].leased == 2
    driver.finish(1)
    assert driver.core.book.namespaces[NS].leased == 2
    driver.finish(2)
    driver.finish(3)
    assert driver.worker(4) == "w2"
    driver.finish(4)
    assert driver.core.book.namespaces[NS].leased == 0


def test_a_raised_limit_of_attempts_lets_more_go(driver: Driver) -> None:
    declare(driver, concurrent_attempts=1)
    driver.join("w1", 1, slots=5)
    submit(driver, 1, 2, 3)
    assert driver.core.book.namespaces[NS].leased == 1
    declare(driver, concurrent_attempts=2)
    assert driver.core.book.namespaces[NS].leased == 2
    declare(driver, concurrent_attempts=0)
    assert driver.core.book.namespaces[NS].leased == 3


# The bucket.

settings = st.builds(
    NamespaceSettings, submits_per_second=st.integers(1, 10**6), submits_burst=st.integers(0, 10**6)
)


@given(settings, st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 50)), max_size=30))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(
    chosen: NamespaceSettings, steps: list[tuple[int, int]]
) -> None:
    bucket, now_us, taken = FULL, 10**15, 0
    for after_us, wanted in steps:
        now_us += after_us
        count = min(wanted, bucket.tokens(chosen, now_us))
        bucket = bucket.without(count, chosen, now_us)
        taken += count
        earned = (now_us - 10**15) * chosen.submits_per_second // SECOND
        assert taken <= chosen.burst() + earned
        wait_us = bucket.wait_us(chosen, now_us)
        assert bool(wait_us) == (bucket.tokens(chosen, now_us) == 0)
        assert bucket.tokens(chosen, now_us + wait_us) >= 1
        assert not wait_us or bucket.tokens(chosen, now_us + wait_us - 1) == 0


def test_a_clock_that_was_set_back_finds_the_bucket_full() -> None:
    chosen = NamespaceSettings(submits_per_second=2)
    assert Bucket(1_000, 2 * SECOND).tokens(chosen, 999) == 2


# Deletion.


def test_a_namespace_in_use_is_deleted_by_force_alone(driver: Driver) -> None:
    assert delete(driver, "acme").code is Code.UNKNOWN_NAMESPACE
    declare(driver)
    submit(driver, 1, 2)
    driver.join("w1", 1)
    refusal = delete(driver)
    assert refusal.code is Code.NAMESPACE_NOT_EMPTY
    assert "2 unfinished tasks and 1 workers" in refusal.message
    assert delete(driver, force=True) == NamespaceGone(2)
    assert NS not in driver.core.book.namespaces
    assert DrainAsked() in driver.messages(1)
    assert not driver.core.roster.workers


def test_everything_goes_with_a_namespace_in_one_batch(driver: Driver) -> None:
    declare(driver, tasks_queued=100)
    driver.send(CreateApiKey(ref=1, key=key("a0", "")))
    driver.send(CreateApiKey(ref=1, key=key("a1", NS)))
    driver.send(LimitTag(ref=1, tag="gpu", limit=1))
    driver.send(DeclareSchedule(ref=1, name="s", changes={"queue": "q", "every_us": HOUR}))
    driver.send(amqp.OpenQueue(queue="mail", durable=True))
    driver.send(amqp.OpenExchange(exchange=Exchange("x", Kind.DIRECT)))
    driver.send(amqp.Bind(binding=Binding("x", "mail", key="k")))
    hook = {"url": "https://example.com/", "on": ["killed"]}
    driver.send(DeclareQueue(ref=1, queue="told", changes={"callbacks": [hook]}))
    submit(driver, 1, 2)
    submit(driver, 3, depends_on=(task_id(1),), alias="last")
    submit(driver, 4, queue="told")
    driver.send(WatchTasks(ref=1, session=7, tasks=(task_id(1),)))
    driver.join("w1", 1)
    nodes = [FlowNode(spec(11), NodeSettings("a")), FlowNode(spec(12), NodeSettings("b"))]
    driver.send(SubmitFlow(1, spec(10), FlowSettings(), nodes))
    assert delete(driver, force=True) == NamespaceGone(7)
    assert isinstance(driver.records[-1], NamespaceDeleted)
    book = driver.core.book
    assert NS not in book.namespaces
    assert list(book.api_keys) == ["a0"]
    assert not [task for task in book.tasks.values() if task.queue.namespace.name == NS]
    assert not any((book.children, book.dependents, book.joiners))
    ends = [each.message for each in driver.effects if isinstance(each, SendToSession)]
    assert [each.task for each in ends if isinstance(each, TaskEnded)] == [task_id(1)]
    gone = book.take_changes()
    assert {each.kind for each in gone.entities if each.row is None} >= {
        *("namespace", "queue", "exchange", "binding", "limit", "schedule", "api_key")
    }
    assert not [each for each in gone.entities if each.row is not None and each.namespace == NS]
    assert driver.replayed().book.snapshot() == book.snapshot()


def test_a_namespace_can_come_again(driver: Driver) -> None:
    declare(driver, tasks_queued=1)
    submit(driver, 1)
    delete(driver, force=True)
    assert submit(driver, 2, 3) == Accepted(2)
    assert not driver.core.book.namespaces[NS].is_declared


def test_tasks_per_namespace_killed_max(driver: Driver) -> None:
    driver.submit(1)
    queue = driver.core.book.namespaces[NS].queues["q"]
    driver.is_checked = False
    ready = next(state for state, count in queue.counts.items() if count)
    queue.counts[ready] = TASKS_PER_NAMESPACE_KILLED_MAX + 1
    assert delete(driver, force=True).code is Code.NAMESPACE_NOT_EMPTY
    queue.counts[ready] = 1
    assert delete(driver, force=True) == NamespaceGone(1)


# Roles.


def test_roles_are_sets_of_permissions() -> None:
    for role, permissions in ROLES.items():
        assert role_of(key("a", "", *permissions)) == role
    assert set(ROLES) == set(Role)
    assert not role_of(key("a", "", Permission.WORK))


# The audit log.


def note(driver: Driver, command: Any, namespace: str = NS) -> Any:
    act = Act("pause_queue", "ada", namespace, "queue q", "127.0.0.1")
    return driver.send(NoteAct(ref=1, act=act, command=command))


def outcomes(driver: Driver) -> list[str]:
    return [entry.act.outcome for entry in driver.core.book.audit.in_order()]


def test_an_act_is_noted_with_its_outcome_in_the_same_batch(driver: Driver) -> None:
    refusal = note(driver, PauseQueue(queue="q", by="ada"))
    assert isinstance(refusal, Refusal)
    driver.declare("q")
    assert note(driver, PauseQueue(queue="q", by="ada")) == Accepted()
    assert [type(record) for record in driver.records] == [QueuePaused, ActNoted]
    assert note(driver, PauseQueue(queue="q", by="ada")) == Accepted()
    assert not driver.records  # It was paused already.
    assert note(driver, None) == Accepted()
    assert outcomes(driver) == ["unknown_queue", "done", "done"]
    again = driver.replayed().book.audit
    assert again.in_order() == driver.core.book.audit.in_order()


def test_acts_per_namespace_max_and_of_the_broker(driver: Driver) -> None:
    driver.is_checked = False
    log = driver.core.book.audit
    for place, most in ((NS, ACTS_PER_NAMESPACE_MAX), ("", ACTS_OF_BROKER_MAX)):
        for _ in range(most):
            note(driver, None, place)
        first = log.of(place)[0]
        assert len(log.of(place)) == most
        note(driver, None, place)
        assert len(log.of(place)) == most
        assert log.of(place)[0].number == first.number + 1
        assert driver.core.book.entities_dirty[entity_of(first)] is None


test_acts_per_namespace_max = test_acts_of_broker_max = (
    test_acts_per_namespace_max_and_of_the_broker
)


def test_acts_of_a_deleted_namespace_are_for_the_broker_alone(driver: Driver) -> None:
    declare(driver, "acme")
    note(driver, None, "acme")
    delete(driver, "acme")
    declare(driver, "acme")
    log = driver.core.book.audit
    assert log.of("acme") == []
    assert [(entry.act.namespace, entry.is_past) for entry in log.of("")] == [("acme", True)]
    note(driver, None, "acme")
    assert [entry.number for entry in log.of("acme")] == [2]
    again = driver.replayed().book.audit
    assert again.in_order() == log.in_order()
    stored = driver.core.book.snapshot()
    core = Core()
    core.book.restore(stored.counters, stored.entities, [])
    assert core.book.audit.in_order() == log.in_order()
    assert core.book.audit.last == 2
