"""Every limit, at it and one past it. What is past it is refused, or cut where the limit says so.

Numbers are the real ones: ten thousand of anything take less than a second.
"""

import json
from typing import Any

import msgspec
import pytest

from jackalope.core import limits
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import (
    Action,
    ActOnGroup,
    ActOnTasks,
    Answer,
    ClaimTasks,
    CreateApiKey,
    DeclarePool,
    DeclareQueue,
    Fail,
    FailAttempts,
    FollowPools,
    GroupAction,
    LeaveWorker,
    LimitTag,
    ReportLaunches,
    RequestHelpers,
    RevokeApiKey,
    SubmitTasks,
    Tick,
    WatchTasks,
)
from jackalope.core.commands.amqp import Bind, OpenExchange, OpenQueue, SetRule
from jackalope.core.durations import DAY, SECOND
from jackalope.core.effects import (
    Accepted,
    Acted,
    Answered,
    Declared,
    HelpersPromised,
    Joined,
    NothingToClaim,
    Orders,
    Reply,
)
from jackalope.core.explain import Why, explain
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import State
from jackalope.core.limits import (
    AHEAD_COUNT_MAX,
    ARGUMENTS_BYTES_MAX,
    BINDINGS_PER_NAMESPACE_MAX,
    CLAIM_WAIT_US_MAX,
    CLAIMS_PER_WORKER_MAX,
    DEADLINES_PER_TICK_MAX,
    DEPARTED_WORKERS_MAX,
    DEPENDENCIES_PER_TASK_MAX,
    DEPTH_MAX,
    ERROR_CHARS_MAX,
    EXCHANGES_PER_NAMESPACE_MAX,
    FANOUTS_MAX,
    HAPPENINGS_PER_TASK_MAX,
    HEADERS_BYTES_MAX,
    HELPERS_PER_FANOUT_MAX,
    ITEMS_PER_COMMAND_MAX,
    KEY_NAME_CHARS_MAX,
    KEY_VALUE_CHARS_MAX,
    KEYS_PER_TASK_MAX,
    KEYS_PER_WORKER_MAX,
    LEASE_US_MAX,
    LEASE_US_MIN,
    LIMITED_TAGS_PER_NAMESPACE_MAX,
    NAME_CHARS_MAX,
    NAMES_PER_WORKER_MAX,
    NAMESPACES_MAX,
    NOTE_CHARS_MAX,
    QUEUES_PER_NAMESPACE_MAX,
    QUEUES_PER_WORKER_MAX,
    RETRIES_ASKED_MAX,
    RULES_PER_NAMESPACE_MAX,
    SLOTS_PER_WORKER_MAX,
    TAG_CHARS_MAX,
    TAGS_PER_TASK_MAX,
    TALLIES_PER_NAMESPACE_MAX,
    TASKS_PER_FILTER_MAX,
    WATCHES_PER_TASK_MAX,
    WORKERS_MAX,
)
from jackalope.core.refusals import Code
from jackalope.core.shapes.exchange import Binding, Exchange, Kind, Rule
from jackalope.core.state.changes import Tally
from jackalope.core.task import BlobRef, Error, encoded_size
from tests.core import test_namespaces, test_pool_limits, test_step_limits
from tests.core.callbacks.limits import *  # noqa: F403
from tests.core.contracts import test_contracts
from tests.core.driving import (
    NOW_US,
    Driver,
    assert_accepted,
    assert_refused,
    refusal_in,
    spec,
    task_id,
)
from tests.core.flows import test_flow_limits
from tests.core.limiting import test_limits as key_limits
from tests.core.pacing import test_submits
from tests.core.schedules.limits import *  # noqa: F403
from tests.core.state.fair_limits import *  # noqa: F403
from tests.core.tasks import test_placement
from tests.core.workers import test_sharing
from tests.doors.http.rest import test_logs
from tests.wire.shapes import nested

CONSTANTS = sorted(name for name in vars(limits) if name.endswith(("_MAX", "_MIN")))


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def crowd() -> Driver:
    """Return a driver for thousands: the invariants are looked at where a test asks for it."""
    return Driver(is_checked=False)


def submit_many(driver: Driver, count: int, **fields: Any) -> None:
    """Submit tasks 1 to `count`, in as few commands as it takes."""
    for first in range(1, count + 1, ITEMS_PER_COMMAND_MAX):
        numbers = range(first, min(first + ITEMS_PER_COMMAND_MAX, count + 1))
        specs = [spec(number, **fields) for number in numbers]
        assert driver.send(SubmitTasks(ref=0, tasks=specs)) == Accepted(len(specs))


def test_every_limit_has_a_test() -> None:
    assert CONSTANTS
    for name in CONSTANTS:
        others = (
            test_step_limits,
            test_flow_limits,
            test_pool_limits,
            test_submits,
            test_contracts,
            test_namespaces,
            test_placement,
            test_sharing,
            key_limits,
            test_logs,
        )
        tests = {*globals(), *(each for module in others for each in vars(module))}
        assert f"test_{name.lower()}" in tests, f"{name} is not tested"


def test_every_limit_is_a_positive_number() -> None:
    others = [name for name in vars(limits) if name.isupper() and name not in CONSTANTS]
    assert set(others) == {"DAY", "SECOND"}
    assert all(vars(limits)[name] > 0 for name in CONSTANTS)


# Of a task.


@pytest.mark.parametrize("blob", [BlobRef("", 1), BlobRef("blob", -1)])
@pytest.mark.parametrize("fields", [{}, {"alias": "with options"}])
def test_inline_bytes_max_is_not_passed_by_naming_no_blob(
    driver: Driver, blob: BlobRef, fields: dict[str, Any]
) -> None:
    refusal = refusal_in(driver.submit(1, payload=blob, **fields))
    assert refusal is not None
    assert refusal.code is Code.INVALID


@pytest.mark.parametrize("field", ["queue", "name", "key", "alias"])
def test_name_chars_max(driver: Driver, field: str) -> None:
    driver.submit(1)
    too_long = driver.submit(2, **{field: "x" * (NAME_CHARS_MAX + 1)})
    assert_refused(driver, too_long, Code.INVALID, NAME_CHARS_MAX)
    assert_accepted(driver.submit(3, **{field: "x" * NAME_CHARS_MAX}))


def test_name_chars_max_counts_for_declared_queues(driver: Driver) -> None:
    too_long = driver.declare("x" * (NAME_CHARS_MAX + 1))
    assert_refused(driver, too_long, Code.INVALID, NAME_CHARS_MAX)
    assert_refused(driver, driver.declare(""), Code.INVALID, NAME_CHARS_MAX)
    assert isinstance(driver.declare("x" * NAME_CHARS_MAX), Declared)


def test_name_chars_max_counts_for_namespaces(driver: Driver) -> None:
    def submit_into(namespace: str) -> Answered | None:
        return driver.send(SubmitTasks(ref=0, tasks=[spec(1)], namespace=namespace))

    assert_refused(driver, submit_into("x" * (NAME_CHARS_MAX + 1)), Code.INVALID, NAME_CHARS_MAX)
    assert_refused(driver, submit_into(""), Code.INVALID, NAME_CHARS_MAX)
    assert_accepted(submit_into("x" * NAME_CHARS_MAX))


def test_name_chars_max_counts_for_workers(driver: Driver) -> None:
    too_long = driver.join("x" * (NAME_CHARS_MAX + 1), 1)
    assert_refused(driver, too_long, Code.INVALID, NAME_CHARS_MAX)
    assert_refused(driver, driver.join("", 1), Code.INVALID, NAME_CHARS_MAX)
    assert_accepted(driver.join("x" * NAME_CHARS_MAX, 1))


def test_tags_per_task_max(driver: Driver) -> None:
    tags = tuple(map(str, range(TAGS_PER_TASK_MAX + 1)))
    assert_refused(driver, driver.submit(1, tags=tags), Code.INVALID, TAGS_PER_TASK_MAX)
    assert_accepted(driver.submit(2, tags=tags[1:]))


def test_keys_per_task_max(driver: Driver) -> None:
    most = {str(number): "v" for number in range(KEYS_PER_TASK_MAX)}
    assert_accepted(driver.submit(1, keys=most))
    more = driver.submit(2, keys={**most, "one more": "v"})
    assert_refused(driver, more, Code.INVALID, KEYS_PER_TASK_MAX)


def test_key_name_chars_max(driver: Driver) -> None:
    assert_accepted(driver.submit(1, keys={"x" * KEY_NAME_CHARS_MAX: "v"}))
    longer = driver.submit(2, keys={"x" * (KEY_NAME_CHARS_MAX + 1): "v"})
    assert_refused(driver, longer, Code.INVALID, KEY_NAME_CHARS_MAX)


def test_key_value_chars_max(driver: Driver) -> None:
    assert_accepted(driver.submit(1, keys={"k": "x" * KEY_VALUE_CHARS_MAX}))
    longer = driver.submit(2, keys={"k": "x" * (KEY_VALUE_CHARS_MAX + 1)})
    assert_refused(driver, longer, Code.INVALID, KEY_VALUE_CHARS_MAX)


def test_tag_chars_max(driver: Driver) -> None:
    for tag in ("", "x" * (TAG_CHARS_MAX + 1)):
        assert_refused(driver, driver.submit(1, tags=(tag,)), Code.INVALID, TAG_CHARS_MAX)
        assert_refused(driver, driver.limit(tag, 1), Code.INVALID, TAG_CHARS_MAX)
    assert_accepted(driver.submit(2, tags=("x" * TAG_CHARS_MAX,)))
    assert_accepted(driver.limit("x" * TAG_CHARS_MAX, 1))


def test_headers_bytes_max(driver: Driver) -> None:
    def headers(size: int) -> dict[str, str]:
        overhead = encoded_size({"h": "x" * HEADERS_BYTES_MAX}) - HEADERS_BYTES_MAX
        return {"h": "x" * (size - overhead)}

    assert encoded_size(headers(HEADERS_BYTES_MAX)) == HEADERS_BYTES_MAX
    too_large = driver.submit(1, headers=headers(HEADERS_BYTES_MAX + 1))
    assert_refused(driver, too_large, Code.INVALID, HEADERS_BYTES_MAX)
    assert_accepted(driver.submit(2, headers=headers(HEADERS_BYTES_MAX)))


@pytest.mark.parametrize("bracket", ["list", "map"])
def test_depth_max(driver: Driver, bracket: str) -> None:
    fits, too_deep = nested(DEPTH_MAX - 1, bracket), nested(DEPTH_MAX, bracket)
    assert_refused(driver, driver.submit(1, headers={"h": too_deep}), Code.INVALID, DEPTH_MAX)
    assert_accepted(driver.submit(2, headers={"h": fits}))
    arguments = OpenQueue(queue="b", arguments={"x": too_deep})
    assert_refused(driver, driver.send(arguments), Code.INVALID, DEPTH_MAX)
    assert_accepted(driver.send(OpenQueue(queue="b", arguments={"x": fits})))


def test_dependencies_per_task_max(crowd: Driver) -> None:
    submit_many(crowd, DEPENDENCIES_PER_TASK_MAX + 1)
    others = tuple(task_id(number) for number in range(1, DEPENDENCIES_PER_TASK_MAX + 2))
    too_many = crowd.submit(5_000, depends_on=others)
    assert_refused(crowd, too_many, Code.INVALID, DEPENDENCIES_PER_TASK_MAX)
    assert_accepted(crowd.submit(5_001, depends_on=others[1:]))
    assert len(crowd.task(5_001).waiting_for or ()) == DEPENDENCIES_PER_TASK_MAX


def test_error_chars_max(driver: Driver) -> None:
    """Keep the beginning of a message, and the end of a trace, where the cause stands."""
    driver.join("w", 1)
    fits = Error("e" * ERROR_CHARS_MAX, "m" * ERROR_CHARS_MAX, "t" * ERROR_CHARS_MAX)
    too_long = Error("e" + fits.type + "!", "m" + fits.message + "!", "!" + fits.trace)
    for number, error in enumerate((fits, too_long), start=1):
        driver.submit(number)
        fail = Fail(task_id(number), driver.fence(number), error)
        assert_accepted(driver.send(FailAttempts(session=1, attempts=[fail])))
        outcome = driver.task(number).outcome
        assert outcome is not None
        assert outcome.error == fits


def test_note_chars_max(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1)
    for cut in (0, 1):
        driver.progress(1, note="x" * (NOTE_CHARS_MAX + cut))
        assert driver.core.progress[task_id(1)].note == "x" * NOTE_CHARS_MAX
    driver.act(Action.KILL, 1)
    for cut, answer in enumerate((Answer.DELIVERED, Answer.ACKNOWLEDGED)):
        driver.answer(1, answer, "x" * (NOTE_CHARS_MAX + cut))
        assert (driver.task(1).history or [])[-1].detail == "x" * NOTE_CHARS_MAX


def test_happenings_per_task_max(driver: Driver) -> None:
    """Keep the beginning of a long history and its end, and leave out the middle."""
    driver.submit(1)
    expected: list[int] = []
    kept: list[int] = []
    for number in range(HAPPENINGS_PER_TASK_MAX + 1):
        assert kept == expected
        driver.now_us += 1
        driver.act((Action.PAUSE, Action.PLAY)[number % 2], 1)
        expected.append(driver.now_us)
        kept = [happening.at_us for happening in driver.task(1).history or ()]
    half = HAPPENINGS_PER_TASK_MAX // 2
    assert kept == expected[:half] + expected[half + 1 :]
    assert len(kept) == HAPPENINGS_PER_TASK_MAX


def test_retries_asked_max(driver: Driver) -> None:
    """Obey a worker that says when to try again, and bury the task one failure later."""
    driver.declare(retries=0)
    driver.join("w", 1)
    driver.submit(1)
    for _ in range(RETRIES_ASKED_MAX):
        driver.fail(1, retry_after_us=1)
        assert driver.task(1).state is State.SCHEDULED
        driver.tick(1)
    driver.fail(1, retry_after_us=1)
    assert driver.task(1).state is State.DEAD


def test_watches_per_task_max(crowd: Driver) -> None:
    crowd.submit(1)
    for session in range(1, WATCHES_PER_TASK_MAX + 1):
        watched = crowd.send(WatchTasks(ref=0, session=session, tasks=(task_id(1),)))
        assert watched == Accepted(1)
    too_many = crowd.send(WatchTasks(ref=0, session=WATCHES_PER_TASK_MAX + 1, tasks=(task_id(1),)))
    assert_refused(crowd, too_many, Code.TOO_MANY, WATCHES_PER_TASK_MAX)
    again = crowd.send(WatchTasks(ref=0, session=1, tasks=(task_id(1),), progress=True))
    assert again == Accepted(1)
    crowd.act(Action.KILL, 1)
    assert len(crowd.effects) == WATCHES_PER_TASK_MAX + 1


# Of a command.


def test_items_per_command_max(crowd: Driver) -> None:
    specs = [spec(number) for number in range(1, ITEMS_PER_COMMAND_MAX + 2)]
    assert_refused(
        crowd, crowd.send(SubmitTasks(ref=0, tasks=specs)), Code.TOO_MANY, ITEMS_PER_COMMAND_MAX
    )
    assert crowd.send(SubmitTasks(ref=0, tasks=specs[1:])) == Accepted(ITEMS_PER_COMMAND_MAX)


def test_items_per_command_max_counts_for_actions(crowd: Driver) -> None:
    ids = tuple(task_id(number) for number in range(ITEMS_PER_COMMAND_MAX + 1))
    too_many = crowd.send(ActOnTasks(ref=0, action=Action.KILL, tasks=ids))
    assert_refused(crowd, too_many, Code.TOO_MANY, ITEMS_PER_COMMAND_MAX)
    answer = crowd.send(ActOnTasks(ref=0, action=Action.KILL, tasks=ids[1:]))
    assert isinstance(answer, Acted)
    assert len(answer.refused) == ITEMS_PER_COMMAND_MAX


def test_items_per_command_max_counts_for_claims(driver: Driver) -> None:
    driver.join("w", 1, slots=0)
    for count in (0, ITEMS_PER_COMMAND_MAX + 1):
        claimed = driver.send(ClaimTasks(session=1, ref=5, count=count, wait_us=SECOND))
        assert_refused(driver, claimed, Code.INVALID, ITEMS_PER_COMMAND_MAX)
    claim = ClaimTasks(session=1, ref=5, count=ITEMS_PER_COMMAND_MAX, wait_us=SECOND)
    assert driver.send(claim) is None


def test_tasks_per_filter_max(crowd: Driver) -> None:
    submit_many(crowd, TASKS_PER_FILTER_MAX + 1)
    wanted = Filter(queue="q")
    first = crowd.act(Action.HOLD, filter=wanted)
    assert first == Acted(changed=TASKS_PER_FILTER_MAX, more=True)
    rest = crowd.act(Action.HOLD, filter=wanted)
    assert rest == Acted(changed=1, more=False)
    crowd.act(Action.KILL, 1)
    assert crowd.act(Action.PLAY, filter=wanted) == Acted(changed=TASKS_PER_FILTER_MAX)


def test_deadlines_per_tick_max(crowd: Driver) -> None:
    submit_many(crowd, DEADLINES_PER_TICK_MAX + 1, run_at_us=NOW_US + SECOND)
    crowd.now_us += SECOND
    crowd.send(Tick())
    assert len(crowd.records) == DEADLINES_PER_TICK_MAX
    assert crowd.core.next_deadline_us() == crowd.now_us
    crowd.send(Tick())
    assert len(crowd.records) == 1
    assert crowd.core.next_deadline_us() is None


# Of the broker.


def test_namespaces_max(crowd: Driver) -> None:
    def submit_into(namespace: str) -> Answered | None:
        return crowd.send(SubmitTasks(ref=0, tasks=[spec(len(crowd.journal))], namespace=namespace))

    for number in range(NAMESPACES_MAX):
        assert_accepted(submit_into(f"world {number}"))
    assert_refused(crowd, submit_into("one more"), Code.TOO_MANY, NAMESPACES_MAX)
    assert_refused(crowd, crowd.limit("tag", 1), Code.TOO_MANY, NAMESPACES_MAX)
    assert_refused(crowd, crowd.declare("q"), Code.TOO_MANY, NAMESPACES_MAX)
    assert_accepted(submit_into("world 0"))


def test_queues_per_namespace_max(crowd: Driver) -> None:
    for number in range(QUEUES_PER_NAMESPACE_MAX):
        assert isinstance(crowd.declare(f"queue {number}"), Declared)
    refused = [crowd.declare("one more"), crowd.submit(1, "one more"), crowd.join("w", 1)]
    for answer in refused:
        assert_refused(crowd, answer, Code.TOO_MANY, QUEUES_PER_NAMESPACE_MAX)
    assert_accepted(crowd.submit(1, "queue 0"))
    assert isinstance(crowd.declare("queue 0", retries=7), Declared)


def test_limited_tags_per_namespace_max(crowd: Driver) -> None:
    for number in range(LIMITED_TAGS_PER_NAMESPACE_MAX):
        assert_accepted(crowd.limit(f"tag {number}", 1))
    too_many = crowd.limit("one more", 1)
    assert_refused(crowd, too_many, Code.TOO_MANY, LIMITED_TAGS_PER_NAMESPACE_MAX)
    assert_accepted(crowd.limit("tag 0", 2))
    assert_accepted(crowd.limit("tag 0", -1))
    assert_accepted(crowd.limit("one more", 1))


def test_workers_max(crowd: Driver) -> None:
    for session in range(1, WORKERS_MAX + 1):
        assert isinstance(crowd.join(f"worker {session}", session), Joined)
    too_many = crowd.join("one more", WORKERS_MAX + 1)
    assert_refused(crowd, too_many, Code.TOO_MANY, WORKERS_MAX)
    assert isinstance(crowd.join("worker 1", 1, slots=2), Joined)
    crowd.send(LeaveWorker(session=1))
    assert isinstance(crowd.join("one more", WORKERS_MAX + 1), Joined)


def test_workers_max_lets_a_known_worker_come_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full broker must not lose the tasks of a worker whose connection broke."""
    monkeypatch.setattr("jackalope.core.workers.sessions.WORKERS_MAX", 1)
    driver.join("w", 1)
    driver.close(1)
    assert isinstance(driver.join("w", 2), Joined)


def test_departed_workers_max(crowd: Driver) -> None:
    for session in range(1, DEPARTED_WORKERS_MAX + 2):
        crowd.join(f"worker {session}", session)
        crowd.send(LeaveWorker(session=session))
        assert len(crowd.core.roster.departed) == min(session, DEPARTED_WORKERS_MAX)
    departed = [departure.worker for departure in crowd.core.roster.departed]
    assert departed[0] == "worker 2"
    assert departed[-1] == f"worker {DEPARTED_WORKERS_MAX + 1}"


def test_tallies_per_namespace_max(crowd: Driver) -> None:
    """The one that ended nothing for longest is forgotten, in storage too."""
    tallies = crowd.core.book.namespace("default").tallies
    for session in range(1, TALLIES_PER_NAMESPACE_MAX + 1):
        tallies[f"worker {session}"] = Tally(succeeded=1, at_us=session)
    crowd.join("worker 1", 1)
    crowd.submit(1)
    crowd.finish(1)
    assert len(tallies) == TALLIES_PER_NAMESPACE_MAX
    crowd.send(LeaveWorker(session=1))
    crowd.core.book.take_changes()

    crowd.join("one more", 2)
    crowd.submit(2)
    crowd.finish(2)
    assert len(tallies) == TALLIES_PER_NAMESPACE_MAX
    assert "worker 2" not in tallies
    assert tallies["worker 1"].succeeded == 2
    entities = crowd.core.book.take_changes().entities
    rows = {each.name: each.row for each in entities if each.kind == "tally"}
    assert rows.pop("worker 2") is None
    assert [json.loads(row or "")[0] for row in rows.values()] == [1]


def test_ahead_count_max(crowd: Driver) -> None:
    submit_many(crowd, AHEAD_COUNT_MAX + 2)

    def ahead(number: int) -> tuple[int | str, str]:
        causes = explain(crowd.core, crowd.task(number)).causes
        behind = next(cause for cause in causes if cause.why is Why.BEHIND)
        return behind.facts["ahead"], behind.text

    assert ahead(AHEAD_COUNT_MAX) == (AHEAD_COUNT_MAX - 1, f"behind {AHEAD_COUNT_MAX - 1} others")
    for number in (AHEAD_COUNT_MAX + 1, AHEAD_COUNT_MAX + 2):
        assert ahead(number) == (AHEAD_COUNT_MAX, f"behind {AHEAD_COUNT_MAX} or more others")


# Of a worker.


def test_queues_per_worker_max(crowd: Driver) -> None:
    queues = tuple(map(str, range(QUEUES_PER_WORKER_MAX + 1)))
    for unfit in ((), queues):
        answer = crowd.join("w", 1, unfit)
        assert_refused(crowd, answer, Code.INVALID, QUEUES_PER_WORKER_MAX)
    assert_accepted(crowd.join("w", 1, queues[1:]))


def test_keys_per_worker_max(driver: Driver) -> None:
    keys = tuple(map(str, range(KEYS_PER_WORKER_MAX + 1)))
    assert_refused(driver, driver.join("w", 1, keys=keys), Code.INVALID, KEYS_PER_WORKER_MAX)
    assert_accepted(driver.join("w", 1, keys=keys[1:]))


def test_names_per_worker_max(driver: Driver) -> None:
    names = tuple(map(str, range(NAMES_PER_WORKER_MAX + 1)))
    assert_refused(driver, driver.join("w", 1, names=names), Code.INVALID, NAMES_PER_WORKER_MAX)
    assert_accepted(driver.join("w", 1, names=names[1:]))


def test_slots_per_worker_max(driver: Driver) -> None:
    for slots in (-1, SLOTS_PER_WORKER_MAX + 1):
        answer = driver.join("w", 1, slots=slots)
        assert_refused(driver, answer, Code.INVALID, SLOTS_PER_WORKER_MAX)
    assert_accepted(driver.join("w", 1, slots=SLOTS_PER_WORKER_MAX))


def ask_for_helpers(driver: Driver, number: int, count: int) -> Answered | None:
    return driver.send(
        RequestHelpers(
            ref=0,
            session=1_000_000,
            task=task_id(number),
            fence=driver.fence(number),
            count=count,
            where="here",
            secret=driver.worker(number),
        )
    )


def test_helpers_per_fanout_max(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1)
    assert isinstance(ask_for_helpers(driver, 1, HELPERS_PER_FANOUT_MAX), HelpersPromised)
    too_many = ask_for_helpers(driver, 1, HELPERS_PER_FANOUT_MAX + 1)
    assert_refused(driver, too_many, Code.INVALID, HELPERS_PER_FANOUT_MAX)


def test_fanouts_max(crowd: Driver) -> None:
    crowd.join("w", 1, slots=FANOUTS_MAX + 1)
    submit_many(crowd, FANOUTS_MAX + 1)
    for number in range(1, FANOUTS_MAX + 1):
        assert isinstance(ask_for_helpers(crowd, number, 1), HelpersPromised)
    assert_refused(crowd, ask_for_helpers(crowd, FANOUTS_MAX + 1, 1), Code.TOO_MANY, FANOUTS_MAX)
    assert isinstance(ask_for_helpers(crowd, 1, 2), HelpersPromised)
    assert_accepted(ask_for_helpers(crowd, 1, 0))
    assert isinstance(ask_for_helpers(crowd, FANOUTS_MAX + 1, 1), HelpersPromised)


def test_claims_per_worker_max(crowd: Driver) -> None:
    crowd.join("w", 1, slots=0)
    for ref in range(1, CLAIMS_PER_WORKER_MAX + 1):
        assert crowd.send(ClaimTasks(session=1, ref=ref, wait_us=SECOND)) is None
    too_many = crowd.send(ClaimTasks(session=1, ref=5_000, wait_us=SECOND))
    assert_refused(crowd, too_many, Code.TOO_MANY, CLAIMS_PER_WORKER_MAX)


@pytest.mark.parametrize("wait_us", [CLAIM_WAIT_US_MAX, CLAIM_WAIT_US_MAX + 1])
def test_claim_wait_us_max(driver: Driver, wait_us: int) -> None:
    """Cut a longer wait: the worker asks again."""
    driver.join("w", 1, slots=0)
    driver.send(ClaimTasks(session=1, ref=5, wait_us=wait_us))
    driver.tick(CLAIM_WAIT_US_MAX - 1)
    assert Reply(1, 5, NothingToClaim()) not in driver.effects
    driver.tick(1)
    assert Reply(1, 5, NothingToClaim()) in driver.effects


def test_lease_us_min(driver: Driver) -> None:
    too_short = driver.join("w", 1, lease_us=LEASE_US_MIN - 1)
    assert_refused(driver, too_short, Code.INVALID, LEASE_US_MIN)
    assert_accepted(driver.join("w", 1, lease_us=LEASE_US_MIN))


def test_lease_us_max(driver: Driver) -> None:
    too_long = driver.join("w", 1, lease_us=LEASE_US_MAX + 1)
    assert_refused(driver, too_long, Code.INVALID, LEASE_US_MAX)
    assert_accepted(driver.join("w", 1, lease_us=LEASE_US_MAX))


@pytest.mark.parametrize("grace_us", [-1, LEASE_US_MAX + 1])
def test_lease_us_max_counts_for_the_grace(driver: Driver, grace_us: int) -> None:
    answer = driver.join("w", 1, grace_us=grace_us)
    assert_refused(driver, answer, Code.INVALID, LEASE_US_MAX)
    for fits in (0, LEASE_US_MAX):
        assert_accepted(driver.join("w", 1, grace_us=fits))


def test_every_problem_of_a_worker_is_told_at_once(driver: Driver) -> None:
    refusal = refusal_in(driver.join("", 0, (), slots=-1, lease_us=0, grace_us=-1))
    assert refusal is not None
    for problem in ("name", "queues", "slots", "lease_us", "grace_us", "session"):
        assert problem in refusal.message


def test_every_problem_of_a_task_is_told_at_once(driver: Driver) -> None:
    bad = spec(1, "", key="x" * 257, priority=256, tags=("",), timeout_us=-1, run_at_us=-1)
    bad.id = TaskId(b"short")
    refusal = refusal_in(driver.send(SubmitTasks(ref=0, tasks=[bad])))
    assert refusal is not None
    for problem in ("id", "queue", "key", "priority", "tags", "timeout_us", "run_at_us"):
        assert f"{problem}: " in refusal.message


# A number that the journal cannot hold would stop the node when the batch is encoded.

#: What else becomes of them: see `tests.core.test_numbers`.
TOO_BIG = [2**63 - 1, 2**64 - 1, 2**64]


@pytest.mark.parametrize("field", ["run_at_us", "expires_at_us", "timeout_us"])
def test_time_us_max(driver: Driver, field: str) -> None:
    at_limit: dict[str, Any] = {field: limits.TIME_US_MAX}
    past_limit: dict[str, Any] = {field: limits.TIME_US_MAX + 1}
    assert_accepted(driver.submit(1, **at_limit))
    assert_refused(driver, driver.submit(2, **past_limit), Code.INVALID, limits.TIME_US_MAX)


def api_key(number: int = 1, **fields: Any) -> CreateApiKey:
    key = ApiKey(f"{number:x}", "0" * 64, "ada", (Permission.WORK,))
    return CreateApiKey(key=msgspec.structs.replace(key, **fields))


def test_api_keys_max(crowd: Driver) -> None:
    crowd.core.has_admin = True
    for number in range(limits.API_KEYS_MAX):
        assert crowd.send(api_key(number)) == Accepted()
    too_many = crowd.send(api_key(limits.API_KEYS_MAX))
    assert_refused(crowd, too_many, Code.TOO_MANY, limits.API_KEYS_MAX)
    assert crowd.send(RevokeApiKey(key="7")) == Accepted()
    assert crowd.send(api_key(limits.API_KEYS_MAX)) == Accepted()


def test_cache_entries_max(driver: Driver) -> None:
    most = driver.declare(same="cached", cache_entries=limits.CACHE_ENTRIES_MAX)
    assert isinstance(most, Declared)
    more = driver.declare(cache_entries=limits.CACHE_ENTRIES_MAX + 1)
    assert_refused(driver, more, Code.INVALID, limits.CACHE_ENTRIES_MAX)


def test_cache_bytes_max(driver: Driver) -> None:
    assert isinstance(driver.declare(cache_bytes=limits.CACHE_BYTES_MAX), Declared)
    more = driver.declare(cache_bytes=limits.CACHE_BYTES_MAX + 1)
    assert_refused(driver, more, Code.INVALID, limits.CACHE_BYTES_MAX)


# Of pools.


def declare_pool(**changes: object) -> DeclarePool:
    return DeclarePool(queue="q", changes=changes)


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("groups_max", limits.GROUPS_PER_POOL_MAX),
        ("workers_max", limits.WORKERS_PER_GROUP_MAX),
        ("spares", limits.WORKERS_PER_GROUP_MAX),
        ("tasks_per_worker", limits.COUNT_MAX),
        ("unbind_delay_us", limits.TIME_US_MAX),
    ],
)
def test_numbers_of_a_pool(driver: Driver, field: str, limit: int) -> None:
    named = f"{limit // DAY}d" if field.endswith("_us") else limit
    assert_refused(driver, driver.send(declare_pool(**{field: limit + 1})), Code.INVALID, named)
    assert_accepted(driver.send(declare_pool(**{field: limit})))


def test_groups_per_pool_max(driver: Driver) -> None:
    test_numbers_of_a_pool(driver, "groups_max", limits.GROUPS_PER_POOL_MAX)


def test_workers_per_group_max(driver: Driver) -> None:
    test_numbers_of_a_pool(driver, "workers_max", limits.WORKERS_PER_GROUP_MAX)


def test_pinned_groups_per_pool_max(crowd: Driver) -> None:
    crowd.send(declare_pool())
    most = limits.PINNED_GROUPS_PER_POOL_MAX
    for number in range(most):
        pin = ActOnGroup(queue="q", key=str(number), action=GroupAction.PIN)
        assert_accepted(crowd.send(pin))
    more = ActOnGroup(queue="q", key="more", action=GroupAction.PIN)
    assert_refused(crowd, crowd.send(more), Code.TOO_MANY, most)
    assert_accepted(crowd.send(ActOnGroup(queue="q", key="0", action=GroupAction.UNPIN)))
    assert_accepted(crowd.send(more))


def test_starts_per_report_max(crowd: Driver) -> None:
    most = limits.STARTS_PER_REPORT_MAX
    crowd.send(FollowPools(session=9, launchers=("local",)))
    crowd.send(declare_pool(launcher="local", groups_max=most + 1))
    for number in range(most + 1):
        crowd.submit(number + 1, key=str(number))
    ids = tuple(f"w{number}" for number in range(most + 1))
    for starts in (most, 1):
        orders = crowd.send(ReportLaunches(session=9, launcher="local", ids=ids))
        assert isinstance(orders, Orders)
        assert len(orders.start) == starts


def test_queues_per_api_key_max(driver: Driver) -> None:
    driver.core.has_admin = True
    queues = tuple(f"q{number}" for number in range(limits.QUEUES_PER_API_KEY_MAX))
    too_many = driver.send(api_key(queues=(*queues, "more")))
    assert_refused(driver, too_many, Code.INVALID, limits.QUEUES_PER_API_KEY_MAX)
    assert driver.send(api_key(queues=queues)) == Accepted()
    meant = driver.act(Action.KILL, filter=Filter(queues=(*queues, "more")))
    assert_refused(driver, meant, Code.INVALID, limits.QUEUES_PER_API_KEY_MAX)
    assert driver.act(Action.KILL, filter=Filter(queues=queues)) == Acted()


@pytest.mark.parametrize("value", [limits.TIME_US_MAX + 1, 2**63, -1])
def test_the_end_of_an_api_key_is_a_time(driver: Driver, value: int) -> None:
    driver.core.has_admin = True
    answer = driver.send(api_key(expires_us=value))
    assert_refused(driver, answer, Code.INVALID, limits.TIME_US_MAX)
    assert driver.send(api_key(expires_us=limits.TIME_US_MAX)) == Accepted()


def test_queues_by_use_leave_room_for_those_that_are_declared(driver: Driver) -> None:
    driver.core.queues_by_use_max = 2
    driver.submit(1, "a")
    driver.join("w", 1, ("b",))
    assert_refused(driver, driver.submit(2, "c"), Code.TOO_MANY, 2)
    assert_refused(driver, driver.join("v", 2, ("c",)), Code.TOO_MANY, 2)
    elsewhere = SubmitTasks(ref=0, tasks=[spec(3, "c")], namespace="other")
    assert_refused(driver, driver.send(elsewhere), Code.TOO_MANY, 2)
    assert isinstance(driver.send(DeclareQueue(queue="c")), Declared)
    assert_accepted(driver.submit(2, "c"))


def test_namespaces_by_use_leave_room_for_those_that_are_declared(driver: Driver) -> None:
    driver.core.namespaces_by_use_max = 1
    driver.submit(1)
    for command in (
        SubmitTasks(ref=0, tasks=[spec(2)], namespace="other"),
        OpenExchange(exchange=Exchange("x", Kind.FANOUT), namespace="other"),
        OpenQueue(queue="q", passive=True, namespace="other"),
    ):
        assert_refused(driver, driver.send(command), Code.TOO_MANY, 1)
    assert "other" not in driver.core.book.namespaces
    assert isinstance(driver.send(DeclareQueue(queue="q", namespace="other")), Declared)
    assert_accepted(driver.send(SubmitTasks(ref=0, tasks=[spec(2)], namespace="other")))


def test_exchanges_per_namespace_max(crowd: Driver) -> None:
    for number in range(EXCHANGES_PER_NAMESPACE_MAX):
        assert_accepted(crowd.send(OpenExchange(exchange=Exchange(f"x{number}", Kind.FANOUT))))
    more = OpenExchange(exchange=Exchange("more", Kind.FANOUT))
    assert_refused(crowd, crowd.send(more), Code.TOO_MANY, EXCHANGES_PER_NAMESPACE_MAX)


def test_bindings_per_namespace_max(crowd: Driver) -> None:
    crowd.send(OpenQueue(queue="q", durable=True))
    for number in range(BINDINGS_PER_NAMESPACE_MAX):
        crowd.send(Bind(binding=Binding("amq.direct", "q", key=str(number))))
    assert len(crowd.core.book.namespace("default").topology.bindings) == BINDINGS_PER_NAMESPACE_MAX
    more = Bind(binding=Binding("amq.direct", "q", key="more"))
    assert_refused(crowd, crowd.send(more), Code.TOO_MANY, BINDINGS_PER_NAMESPACE_MAX)


def test_rules_per_namespace_max(crowd: Driver) -> None:
    for number in range(RULES_PER_NAMESPACE_MAX):
        rule = Rule(f"r{number}", "^none$", {"message-ttl": 1})
        assert_accepted(crowd.send(SetRule(rule=rule)))
    more = SetRule(rule=Rule("more", "^none$", {"message-ttl": 1}))
    assert_refused(crowd, crowd.send(more), Code.TOO_MANY, RULES_PER_NAMESPACE_MAX)


def test_arguments_bytes_max(driver: Driver) -> None:
    room = ARGUMENTS_BYTES_MAX - encoded_size({"x": "a" * 300}) + 300
    fits = OpenQueue(queue="q", arguments={"x": "a" * room})
    assert_accepted(driver.send(fits))
    more = OpenQueue(queue="q2", arguments={"x": "a" * (room + 1)})
    assert_refused(driver, driver.send(more), Code.INVALID, ARGUMENTS_BYTES_MAX)


def test_count_max(driver: Driver) -> None:
    assert driver.send(LimitTag(tag="gpu", limit=limits.COUNT_MAX)) == Accepted()
    too_many = driver.send(LimitTag(tag="gpu", limit=limits.COUNT_MAX + 1))
    assert_refused(driver, too_many, Code.INVALID, limits.COUNT_MAX)
