"""The table of the lifecycle, pair by pair.

A route brings task 1 into a state, a cause makes an event happen to it; both through commands. For
every route and cause the outcome follows from `lifecycle.TRANSITIONS`:

- a pair in the table ends in one of its states;
- an asked event that is not in the table is refused with a stable code, and changes nothing;
- an event that nobody asks for (time, a dependency, an assignment, a loss) and that is not in the
  table cannot be expressed: what would cause it does not touch the task.

The queue of task 1 is paused once the route is run, so that nothing is given out behind the event.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import msgspec
import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.commands import Action, Answer, Verdict
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.effects import Answered
from jackalope.core.lifecycle import (
    ENDED,
    LEASED,
    PENDING,
    RESTING,
    TRANSITIONS,
    Event,
    State,
    can_lead,
    is_legal,
)
from jackalope.core.records import (
    AnyRecord,
    AttemptEnded,
    TaskMoved,
    TaskPurged,
    TaskRevived,
    TaskSubmitted,
)
from jackalope.core.refusals import Code
from jackalope.core.task import to_row
from tests.core.driving import Driver, refusal_in, task_id
from tests.core.routes import REASONS, ROUTES, Route, arrive

# Causes.


class Cause(NamedTuple):
    """How an event comes about, and what must be so before."""

    happen: Callable[[Driver], Answered | None]
    prepare: Callable[[Driver], object] = lambda _driver: None


def asked(action: Action) -> Cause:
    return Cause(lambda driver: driver.act(action, 1))


def signalled(action: Action) -> Callable[[Driver], None]:
    """Return how to ask the worker for something, if there is one."""

    def prepare(driver: Driver) -> None:
        if driver.state(1) in LEASED:
            driver.act(action, 1)

    return prepare


def ruled(**changes: Any) -> Callable[[Driver], object]:
    return lambda driver: driver.declare(**changes)


def give_out(driver: Driver) -> Answered | None:
    """Let the queue run, with a worker that has room."""
    driver.join("new", 9)
    return driver.resume_queue()


def start(driver: Driver) -> Answered | None:
    return driver.start(1)


def progress(driver: Driver) -> Answered | None:
    return driver.progress(1)


def finish(driver: Driver) -> Answered | None:
    return driver.finish(1)


def fail(driver: Driver) -> Answered | None:
    return driver.fail(1)


def reject(driver: Driver) -> Answered | None:
    return driver.fail(1, Verdict.REJECT)


def release(driver: Driver) -> Answered | None:
    return driver.release(1)


def throttle(driver: Driver) -> Answered | None:
    return driver.fail(1, Verdict.THROTTLED)


def suspend(driver: Driver) -> Answered | None:
    return driver.suspend(1, 0, "sleep", after_us=SECOND)


def stop(driver: Driver) -> Answered | None:
    return driver.answer(1, Answer.STOPPED)


def lose(driver: Driver) -> Answered | None:
    return driver.close(1)


CAUSES: dict[Event, list[Cause]] = {
    Event.HOLD: [asked(Action.HOLD)],
    Event.PLAY: [asked(Action.PLAY)],
    Event.PAUSE: [asked(Action.PAUSE)],
    Event.KILL: [asked(Action.KILL)],
    Event.RETRY: [asked(Action.RETRY)],
    Event.PURGE: [asked(Action.PURGE)],
    Event.UNBLOCK: [Cause(lambda driver: driver.finish(2))],
    Event.ABANDON: [Cause(lambda driver: driver.fail(2, Verdict.DEAD))],
    Event.DUE: [Cause(lambda driver: driver.leap(61 * SECOND))],
    Event.EXPIRE: [Cause(lambda driver: driver.leap(2 * HOUR))],
    # The end of a flow, which none of these is: see `tests/core/flows`.
    Event.COMPLETE: [Cause(lambda driver: driver.leap(SECOND))],
    Event.ASSIGN: [Cause(give_out)],
    Event.START: [Cause(start)],
    Event.PROGRESS: [Cause(progress)],
    Event.FINISH: [Cause(finish)],
    Event.FAIL: [
        Cause(fail),
        Cause(fail, ruled(retry_base_us=0)),
        Cause(reject),
        Cause(fail, signalled(Action.PAUSE)),
        Cause(fail, signalled(Action.KILL)),
    ],
    Event.RELEASE: [
        Cause(release),
        Cause(release, ruled(interruption_limit=1)),
        Cause(release, signalled(Action.PAUSE)),
        Cause(release, signalled(Action.KILL)),
    ],
    Event.SUSPEND: [
        Cause(suspend),
        Cause(suspend, signalled(Action.PAUSE)),
        Cause(suspend, signalled(Action.KILL)),
    ],
    Event.THROTTLE: [
        Cause(throttle),
        Cause(throttle, signalled(Action.PAUSE)),
        Cause(throttle, signalled(Action.KILL)),
    ],
    Event.STOP: [Cause(stop, signalled(Action.PAUSE)), Cause(stop, signalled(Action.KILL))],
    Event.LOSE: [
        Cause(lose),
        Cause(lose, ruled(on_lost="pause")),
        Cause(lose, ruled(on_lost="dead", interruption_limit=1)),
        Cause(lose, signalled(Action.PAUSE)),
        Cause(lose, signalled(Action.KILL)),
    ],
}

#: Events that nobody asks for, with the states in which nothing can bring them about.
NOT_EXPRESSIBLE: dict[Event, frozenset[State]] = {
    # Only what waits for a task can be freed or given up by the end of that task.
    # (One that waits for an event is scheduled: `tests/scenarios/steps-event.txt`.)
    Event.UNBLOCK: frozenset(State) - {State.WAITING, State.SCHEDULED},
    Event.ABANDON: frozenset(State) - {State.HELD, State.WAITING, State.PAUSED},
    # Only a scheduled task has the one timer, and only one that has not begun the other.
    Event.DUE: frozenset(State) - {State.SCHEDULED},
    Event.EXPIRE: frozenset(State) - PENDING,
    # Only a flow ends without a worker, and no flow is in another state.
    Event.COMPLETE: frozenset(State) - {State.WAITING, State.PAUSED},
    # Only ready tasks stand in line, and only leased ones have a worker to lose.
    Event.ASSIGN: frozenset(State) - {State.READY},
    Event.LOSE: frozenset(State) - LEASED,
}

#: What a worker says. Without the lease its word does not count.
REPORTS = (
    Event.START,
    Event.PROGRESS,
    Event.FINISH,
    Event.FAIL,
    Event.RELEASE,
    Event.SUSPEND,
    Event.THROTTLE,
    Event.STOP,
)

#: Targets of the table to which no command leads. A retry by a person goes at once; a task that was
#: released or lost is ready at once.
UNREACHED = {
    *((state, Event.RETRY, to) for state in (State.DEAD, State.KILLED) for to in RESTING),
    *((state, event, State.SCHEDULED) for state in LEASED for event in (Event.RELEASE, Event.LOSE)),
    (State.SCHEDULED, Event.UNBLOCK, State.READY),
    # Only where a limit has its key: `tests/scenarios/limits-throttled.txt`.
    *((state, Event.THROTTLE, State.READY) for state in LEASED),
    *((state, Event.COMPLETE, to) for state in (State.WAITING, State.PAUSED) for to in ENDED),
    *(
        (state, Event.REPLACE, to)
        for state in (State.HELD, State.PAUSED, State.SCHEDULED, State.READY)
        for to in TRANSITIONS[state][Event.REPLACE]
    ),
}


def pairs() -> list[Any]:
    return [
        pytest.param(state, event, route, cause, id=f"{state}-{event}-{number}-{route.__name__}")
        for state, event in product(State, CAUSES)
        for route in ROUTES[state]
        for number, cause in enumerate(CAUSES[event])
    ]


def is_not_expressible(state: State, event: Event) -> bool:
    return state in NOT_EXPRESSIBLE.get(event, ())


def has_what_it_takes(driver: Driver, event: Event) -> bool:
    """Tell whether the route can show the event: not every task has a dependency or expires."""
    if event in (Event.UNBLOCK, Event.ABANDON):
        return bool(driver.task(1).waiting_for)
    if event is Event.COMPLETE:
        return driver.task(1).flow is not None
    return event is not Event.EXPIRE or bool(driver.task(1).expires_us)


def about_task_1(records: list[AnyRecord]) -> list[AnyRecord]:
    ids = [
        record.row.id if isinstance(record, TaskRevived) else getattr(record, "task", None)
        for record in records
    ]
    return [record for record, task in zip(records, ids, strict=True) if task == task_id(1)]


# The pairs.


@pytest.mark.parametrize(("state", "event", "route", "cause"), pairs())
def test_pair(state: State, event: Event, route: Route, cause: Cause) -> None:
    driver = arrive(route)
    cause.prepare(driver)
    assert driver.state(1) is state
    if is_not_expressible(state, event) or not has_what_it_takes(driver, event):
        check_not_expressible(driver, event, cause)
    elif is_legal(state, event):
        check_legal(driver, event, cause)
    else:
        check_refused(driver, event, cause)


def check_legal(driver: Driver, event: Event, cause: Cause) -> None:
    state = driver.state(1)
    assert refusal_in(cause.happen(driver)) is None
    if event is Event.PURGE:
        assert task_id(1) not in driver.core.book.tasks
        assert TRANSITIONS[state][event] == frozenset()
        return
    assert driver.state(1) in TRANSITIONS[state][event]
    for record in about_task_1(driver.records):
        if isinstance(record, TaskMoved | AttemptEnded):
            assert record.event is event
            assert can_lead(state, event, record.to)


def check_refused(driver: Driver, event: Event, cause: Cause) -> None:
    state, before = driver.state(1), driver.snapshot()
    refusal = refusal_in(cause.happen(driver))
    assert refusal is not None
    if event in REPORTS and state not in LEASED:
        assert refusal.code is Code.STALE_FENCE
    else:
        assert refusal.code is Code.WRONG_STATE
        assert state in refusal.message
    assert task_id(1).hex() in refusal.message
    assert driver.records == []
    assert driver.snapshot() == before


def check_not_expressible(driver: Driver, event: Event, cause: Cause) -> None:
    """Check that the task has no handle for the event, and that its usual cause finds none."""
    task, book = driver.task(1), driver.core.book
    match event:
        case Event.UNBLOCK | Event.ABANDON:
            others_wait = driver.core.book.dependents.get(task_id(2), {})
            assert task.waiting_for or task_id(1) not in others_wait
            if task_id(2) not in book.tasks or book.tasks[task_id(2)].state in ENDED:
                return
        case Event.COMPLETE:
            assert task.flow is None
            return
        case Event.DUE:
            assert task_id(1) not in book.due
        case Event.EXPIRE:
            assert task_id(1) not in book.expiry
        case Event.ASSIGN:
            assert task.lane is None
        case Event.LOSE:
            assert task.attempt is None
        case _:
            pytest.fail(f"{event} can always be asked for")
    cause.happen(driver)
    events = [getattr(record, "event", None) for record in about_task_1(driver.records)]
    assert event not in events
    assert driver.assigned() == []


def test_every_target_of_the_table_is_reached() -> None:
    reached = set()
    for state, event in product(State, CAUSES):
        for route, cause in product(ROUTES[state], CAUSES[event]):
            driver = arrive(route)
            cause.prepare(driver)
            if is_legal(state, event) and has_what_it_takes(driver, event):
                cause.happen(driver)
                if event is not Event.PURGE:
                    reached.add((state, event, driver.state(1)))
    table = {
        (state, event, to)
        for state, events in TRANSITIONS.items()
        for event, targets in events.items()
        for to in targets
    }
    assert reached <= table
    assert table - reached == table & UNREACHED


# The table itself.


def test_table_covers_every_state_and_event() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {event for events in TRANSITIONS.values() for event in events} == set(Event)
    assert set(ROUTES) == set(State)
    # Only what is submitted with a pace can be replaced: see `tests/core/pacing`.
    assert {*CAUSES, Event.REPLACE} == set(Event)


def test_groups_of_states_share_nothing_and_leave_nothing_out() -> None:
    groups = [RESTING, {State.READY}, LEASED, ENDED]
    assert sorted(state for group in groups for state in group) == sorted(State)
    assert RESTING | {State.READY} == PENDING


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_end_is_final(state: State) -> None:
    leading_out = {
        event for event, targets in TRANSITIONS[state].items() if targets != frozenset({state})
    }
    assert leading_out <= {Event.RETRY, Event.PURGE}


def test_nothing_leads_out_of_success_but_the_purge() -> None:
    assert set(TRANSITIONS[State.SUCCEEDED]) == {Event.PURGE}


def test_only_ready_tasks_are_assigned() -> None:
    assert [state for state in State if is_legal(state, Event.ASSIGN)] == [State.READY]
    to_assigned = {
        (state, event)
        for state, event in product(State, Event)
        if can_lead(state, event, State.ASSIGNED) and state not in LEASED
    }
    assert to_assigned == {(State.READY, Event.ASSIGN)}


def test_can_lead_says_what_the_table_says() -> None:
    for state, event, to in product(State, Event, State):
        assert can_lead(state, event, to) == (to in TRANSITIONS[state].get(event, ()))
        assert is_legal(state, event) == (event in TRANSITIONS[state])


def test_what_is_not_expressible_is_not_legal_and_never_asked_for() -> None:
    assert not set(NOT_EXPRESSIBLE) & {Event(action.value) for action in Action}
    assert not set(NOT_EXPRESSIBLE) & set(REPORTS)
    for event, states in NOT_EXPRESSIBLE.items():
        assert {state for state in State if is_legal(state, event)} == frozenset(State) - states


@pytest.mark.parametrize("route", REASONS, ids=lambda route: route.__name__)
def test_the_dead_have_a_reason(route: Route) -> None:
    outcome = arrive(route).task(1).outcome
    assert outcome is not None
    assert outcome.reason is REASONS[route]


# Beside the table.


def test_a_stop_that_nobody_asked_for_is_refused() -> None:
    driver = arrive(ROUTES[State.RUNNING][0])
    before = driver.snapshot()
    refusal = refusal_in(stop(driver))
    assert refusal is not None
    assert refusal.code is Code.WRONG_STATE
    assert driver.snapshot() == before


@pytest.mark.parametrize("action", Action)
def test_a_task_of_another_namespace_is_unknown(action: Action) -> None:
    driver = arrive(ROUTES[State.READY][0])
    before = driver.snapshot()
    refusal = refusal_in(driver.act(action, 1, namespace="elsewhere"))
    assert refusal is not None
    assert refusal.code is Code.UNKNOWN_TASK
    assert driver.snapshot() == before


@pytest.mark.parametrize(("state", "action"), list(product(State, Action)))
def test_a_dry_run_counts_and_changes_nothing(state: State, action: Action) -> None:
    driver = arrive(ROUTES[state][0])
    before = driver.snapshot()
    answer = driver.act(action, 1, dry_run=True)
    assert (refusal_in(answer) is None) == is_legal(state, Event(action.value))
    assert driver.records == []
    assert driver.snapshot() == before


@pytest.mark.parametrize("route", [route for routes in ROUTES.values() for route in routes])
def test_replaying_a_route_gives_the_same_book(route: Route) -> None:
    driver = arrive(route)
    replayed = driver.replayed().book.snapshot()
    assert replayed == driver.core.book.snapshot()


def test_what_is_compared_without_a_lookup_is_what_the_table_says() -> None:
    """`apply` spares `assign`, `start` and `finish` the table, and so must agree with it."""

    def allowing(event: Event) -> dict[State, frozenset[State]]:
        return {state: events[event] for state, events in TRANSITIONS.items() if event in events}

    assert allowing(Event.ASSIGN) == {State.READY: frozenset({State.ASSIGNED})}
    assert allowing(Event.START) == {State.ASSIGNED: frozenset({State.RUNNING})}
    assert allowing(Event.FINISH) == dict.fromkeys(LEASED, frozenset({State.SUCCEEDED}))


@pytest.mark.parametrize("state", sorted(LEASED | ENDED | {State.PAUSED}))
def test_no_life_begins_in_the_middle(state: State) -> None:
    driver = Driver()
    driver.submit(1)
    submitted = next(each for each in driver.records if isinstance(each, TaskSubmitted))
    with pytest.raises(BrokenInvariant):
        driver.replayed().apply(msgspec.structs.replace(submitted, state=state))


def test_a_task_that_has_not_ended_is_not_purged() -> None:
    driver = Driver()
    driver.submit(1)
    with pytest.raises(BrokenInvariant):
        driver.core.apply(TaskPurged(driver.now_us, task_id(1), "ada"))


def test_a_task_that_has_not_ended_is_not_revived() -> None:
    driver = Driver()
    driver.submit(1)
    with pytest.raises(BrokenInvariant):
        driver.core.apply(TaskRevived(driver.now_us, to_row(driver.task(1)), "ada"))
