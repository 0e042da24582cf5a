"""The book and storage: what leaves memory, when, and how it comes back."""

import msgspec
import pytest

from jackalope.core import Core
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    DeleteQueue,
    LimitTag,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.durations import NEVER, SECOND
from jackalope.core.effects import Accepted
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.invariants import check
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.refusals import Code
from jackalope.core.state.book import Book
from jackalope.core.state.changes import Changes, from_entities, to_entity
from jackalope.core.task import BlobRef, TaskRow
from tests.core.driving import Driver, refusal_in, snapshot_of, spec, task_id
from tests.core.routes import ROUTES, Route, arrive

RANDOM_ID = TaskId(bytes(6) + b"\x40\x00\x80" + bytes(7))


@pytest.fixture
def driver() -> Driver:
    return Driver()


def store(driver: Driver) -> Changes:
    """Write everything behind, as the engine does."""
    changes = driver.core.book.take_changes()
    driver.core.book.stored(changes)
    check(driver.core)
    return changes


def row_of(changes: Changes, number: int) -> TaskRow:
    return next(row for row in changes.tasks if row.id == task_id(number))


def is_in_memory(driver: Driver, number: int) -> bool:
    return task_id(number) in driver.core.book.tasks


def killed(driver: Driver, number: int = 1, **fields: object) -> None:
    driver.submit(number, **fields)  # type: ignore[arg-type]
    driver.act(Action.KILL, number)


# Leaving memory.


def test_an_ended_task_leaves_memory_only_when_storage_has_it(driver: Driver) -> None:
    killed(driver)
    book = driver.core.book
    assert is_in_memory(driver, 1)
    changes = book.take_changes()
    assert row_of(changes, 1).state is State.KILLED
    assert is_in_memory(driver, 1)
    book.stored(changes)
    assert not is_in_memory(driver, 1)
    check(driver.core)


def test_an_unfinished_task_stays_whatever_is_stored(driver: Driver) -> None:
    driver.submit(1)
    assert [row.id for row in store(driver).tasks] == [task_id(1)]
    assert is_in_memory(driver, 1)
    assert store(driver).tasks == []


def test_a_task_that_ends_while_storage_writes_stays_until_the_next_time(driver: Driver) -> None:
    driver.submit(1)
    changes = driver.core.book.take_changes()
    driver.act(Action.KILL, 1)
    driver.core.book.stored(changes)
    assert is_in_memory(driver, 1)
    assert row_of(store(driver), 1).state is State.KILLED
    assert not is_in_memory(driver, 1)


def test_a_task_that_lives_again_while_storage_writes_stays(driver: Driver) -> None:
    killed(driver)
    changes = driver.core.book.take_changes()
    driver.act(Action.RETRY, 1)
    driver.core.book.stored(changes)
    assert driver.state(1) is State.READY
    assert row_of(store(driver), 1).state is State.READY


def test_a_task_that_ends_again_while_storage_writes_stays(driver: Driver) -> None:
    killed(driver)
    changes = driver.core.book.take_changes()
    driver.act(Action.RETRY, 1)
    driver.act(Action.KILL, 1)
    driver.core.book.stored(changes)
    assert is_in_memory(driver, 1)
    happenings = [happening.what for happening in row_of(store(driver), 1).history]
    assert happenings == ["kill", "retry", "kill"]


def test_rows_that_were_taken_do_not_change_any_more(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1)
    changes = driver.core.book.take_changes()
    before = msgspec.msgpack.encode(changes)
    driver.start(1)
    driver.act(Action.KILL, 1)
    driver.fail(1)
    assert msgspec.msgpack.encode(changes) == before


def test_every_change_is_taken_once(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1, tags=("red",))
    driver.limit("red", 3)
    changes = driver.core.book.take_changes()
    assert [row.id for row in changes.tasks] == [task_id(1)]
    assert {each.kind: each.name for each in changes.entities} == {"queue": "q", "limit": "red"}
    assert dict(from_entities(changes.entities))[to_entity("limit", "default", "red", 3)] == 3
    assert driver.core.book.take_changes().is_empty()
    assert not driver.core.book.has_changes()
    driver.limit("red", -1)
    driver.pause_queue()
    driver.start(1)
    changes = driver.core.book.take_changes()
    assert row_of(changes, 1).state is State.RUNNING
    assert {each.kind: each.name for each in changes.entities} == {"queue": "q", "limit": "red"}
    ((_, queue),) = from_entities(changes.entities)
    assert queue.paused_by == "ada"


def test_a_dependency_that_ends_changes_who_waited_for_it(driver: Driver) -> None:
    driver.submit(1)
    driver.submit(2, depends_on=(task_id(1),), held=True)
    store(driver)
    driver.act(Action.KILL, 1)
    driver.act(Action.PLAY, 2)
    changes = store(driver)
    assert row_of(changes, 1).state is State.KILLED


def test_a_held_task_whose_dependency_ended_is_stored_without_it(driver: Driver) -> None:
    driver.join("w", 1)
    driver.submit(1)
    driver.submit(2, depends_on=(task_id(1),), held=True)
    store(driver)
    driver.finish(1)
    assert row_of(store(driver), 2).waiting_for == ()


# Forgetting.


def test_a_task_without_retention_is_gone_with_its_blobs(driver: Driver) -> None:
    driver.declare(retention_us=0)
    killed(driver, payload=BlobRef("blob", 70_000))
    changes = driver.core.book.take_changes()
    assert changes.tasks == []
    assert changes.gone == [task_id(1)]
    assert changes.blobs == ["blob"]
    assert is_in_memory(driver, 1)
    driver.core.book.stored(changes)
    assert not is_in_memory(driver, 1)
    assert not driver.core.book.has_changes()


@pytest.mark.parametrize(("retention_us", "kept_us"), [(SECOND, SECOND), (NEVER, None)])
def test_a_task_is_kept_for_its_retention(
    driver: Driver, retention_us: int, kept_us: int | None
) -> None:
    driver.declare(retention_us=retention_us)
    killed(driver)
    outcome = row_of(store(driver), 1).outcome
    assert outcome is not None
    assert outcome.forget_us == (NEVER if kept_us is None else driver.now_us + kept_us)


def test_a_purged_task_leaves_at_once_and_storage_is_told(driver: Driver) -> None:
    killed(driver, payload=BlobRef("blob", 70_000))
    driver.act(Action.PURGE, 1)
    assert not is_in_memory(driver, 1)
    changes = driver.core.book.take_changes()
    assert changes.tasks == []
    assert changes.gone == [task_id(1)]
    assert changes.blobs == ["blob"]


def test_a_purge_is_told_again_until_storage_has_done_it(driver: Driver) -> None:
    killed(driver)
    driver.act(Action.PURGE, 1)
    taken = driver.core.book.take_changes()
    assert driver.core.book.take_changes().gone == [task_id(1)]
    driver.core.book.stored(taken)
    assert driver.core.book.take_changes().gone == []


def test_an_id_that_was_purged_may_be_used_again(driver: Driver) -> None:
    killed(driver)
    driver.act(Action.PURGE, 1)
    assert driver.submit(1, name="new") == Accepted(1)
    changes = store(driver)
    assert row_of(changes, 1).name == "new"
    assert is_in_memory(driver, 1)
    assert store(driver).is_empty()


# Coming back.


def test_a_recalled_task_is_here_until_the_next_time_changes_are_stored(driver: Driver) -> None:
    killed(driver, alias="cat")
    row = row_of(store(driver), 1)
    assert driver.core.book.recall([row]) == 1
    assert driver.state(1) is State.KILLED
    check(driver.core)
    assert driver.core.book.namespaces["default"].aliases == {"cat": task_id(1)}
    assert store(driver).is_empty()
    assert not is_in_memory(driver, 1)
    assert driver.core.book.namespaces["default"].aliases == {}


def test_what_is_recalled_is_not_a_change_nor_part_of_the_snapshot(driver: Driver) -> None:
    killed(driver)
    row = row_of(store(driver), 1)
    before = driver.snapshot()
    driver.core.book.recall([row])
    assert driver.snapshot() == before
    assert driver.core.book.take_changes().tasks == []


def test_a_recalled_task_can_live_again(driver: Driver) -> None:
    killed(driver)
    driver.core.book.recall([row_of(store(driver), 1)])
    driver.act(Action.RETRY, 1)
    assert row_of(store(driver), 1).state is State.READY
    assert driver.state(1) is State.READY


def test_memory_knows_better_than_a_row_from_storage(driver: Driver) -> None:
    killed(driver)
    ended = row_of(store(driver), 1)
    driver.core.book.recall([ended])
    driver.act(Action.RETRY, 1)
    assert driver.core.book.recall([ended]) == 0
    assert driver.state(1) is State.READY


def test_an_unfinished_row_is_not_recalled(driver: Driver) -> None:
    driver.submit(1)
    row = row_of(store(driver), 1)
    empty = Core()
    assert empty.book.recall([row]) == 0
    assert empty.book.tasks == {}


def test_a_purged_task_is_never_recalled(driver: Driver) -> None:
    killed(driver)
    row = row_of(store(driver), 1)
    driver.core.book.recall([row])
    driver.act(Action.PURGE, 1)
    for _ in range(2):
        assert driver.core.book.recall([row]) == 0
        assert not is_in_memory(driver, 1)
        assert driver.core.book.take_changes().gone == [task_id(1)]


def test_a_task_of_a_deleted_queue_is_not_recalled(driver: Driver) -> None:
    killed(driver)
    row = row_of(store(driver), 1)
    driver.send(DeleteQueue(queue="q"))
    assert driver.core.book.recall([row]) == 0


def test_a_task_of_a_deleted_queue_is_not_recalled_before_storage_knows(driver: Driver) -> None:
    """The queue may exist again by then; its old tasks do not."""
    killed(driver)
    row = row_of(store(driver), 1)
    driver.send(DeleteQueue(queue="q"))
    changes = driver.core.book.take_changes()
    driver.submit(2)
    assert driver.core.book.recall([row]) == 0
    driver.core.book.stored(changes)


# Which submits ask storage.


def may_have_ended(driver: Driver, number: int) -> bool:
    return driver.core.book.may_have_ended(task_id(number))


def test_an_id_later_than_all_that_left_is_new(driver: Driver) -> None:
    assert not may_have_ended(driver, 1)
    for number in (5, 3):
        killed(driver, number)
        store(driver)
    assert driver.core.book.counters.floor == task_id(5)
    assert [may_have_ended(driver, number) for number in (3, 4, 5, 6)] == [True, True, True, False]


def test_an_id_that_is_not_time_ordered_may_always_have_ended(driver: Driver) -> None:
    assert driver.core.book.may_have_ended(RANDOM_ID)
    driver.send(SubmitTasks(ref=0, tasks=[spec(1)]))
    other = spec(2)
    other.id = RANDOM_ID
    driver.send(SubmitTasks(ref=0, tasks=[other]))
    driver.send(ActOnTasks(ref=0, action=Action.KILL, tasks=(RANDOM_ID,)))
    store(driver)
    assert driver.core.book.counters.floor == b""


def test_the_floor_only_grows_and_is_stored_before_a_task_leaves(driver: Driver) -> None:
    floor = b""
    for number in (2, 9, 4, 7):
        killed(driver, number)
        changes = driver.core.book.take_changes()
        assert changes.counters.floor >= task_id(number)
        assert changes.counters.floor >= floor
        floor = changes.counters.floor
        driver.core.book.stored(changes)
        assert all(may_have_ended(driver, left) for left in (2, number))


def test_a_task_without_retention_raises_the_floor_too(driver: Driver) -> None:
    """A repeated submit must not be taken for new before storage was asked."""
    driver.declare(retention_us=0)
    killed(driver, 3)
    store(driver)
    assert may_have_ended(driver, 3)


# What a command needs from storage.


def test_missing_of_a_submit(driver: Driver) -> None:
    killed(driver, 5)
    store(driver)
    driver.submit(6)
    core = driver.core
    assert core.missing(SubmitTasks(ref=0, tasks=[spec(6), spec(7)])) is None
    missing = core.missing(
        SubmitTasks(
            ref=0,
            tasks=[
                spec(5),
                spec(8, alias="cat", parent=task_id(5), depends_on=(task_id(6), task_id(4))),
            ],
        )
    )
    assert missing is not None
    assert missing.ids == [task_id(5), task_id(5), task_id(4)]
    assert missing.aliases == ["cat"]
    assert missing.namespace == "default"


def test_missing_of_actions_and_watches(driver: Driver) -> None:
    driver.submit(1)
    core = driver.core
    both = (task_id(1), task_id(2))
    for command in (
        ActOnTasks(ref=0, action=Action.KILL, tasks=both),
        WatchTasks(ref=0, tasks=both),
    ):
        missing = core.missing(command)
        assert missing is not None
        assert missing.ids == [task_id(2)]
    assert core.missing(WatchTasks(ref=0, tasks=both[:1])) is None
    assert core.missing(LimitTag(tag="red", limit=1)) is None


@pytest.mark.parametrize("action", Action)
def test_missing_of_an_action_by_filter_is_what_it_could_change(
    driver: Driver, action: Action
) -> None:
    missing = driver.core.missing(ActOnTasks(ref=0, action=action, filter=Filter(queue="q")))
    if action in (Action.RETRY, Action.PURGE):
        assert missing is not None
        assert missing.filter is not None
        assert missing.filter.queue == "q"
        assert set(missing.filter.states) <= ENDED
    else:
        assert missing is None


def test_a_repeated_submit_of_a_task_that_left_is_accepted_once(driver: Driver) -> None:
    killed(driver)
    row = row_of(store(driver), 1)
    driver.core.book.recall([row])
    assert driver.submit(1) == Accepted(1)
    assert driver.records == []
    conflict = refusal_in(driver.submit(1, name="other"))
    assert conflict is not None
    assert conflict.code is Code.ID_CONFLICT


def test_the_alias_of_a_task_that_left_is_still_taken(driver: Driver) -> None:
    killed(driver, alias="cat")
    row = row_of(store(driver), 1)
    driver.core.book.recall([row])
    refusal = refusal_in(driver.submit(2, alias="cat"))
    assert refusal is not None
    assert refusal.code is Code.DUPLICATE_ALIAS


# Rebuilding.


def restored(driver: Driver) -> Core:
    """Return a core made of what storage would load: rows, read anew."""
    body = msgspec.msgpack.encode(driver.core.book.snapshot())
    snapshot = msgspec.msgpack.decode(body, type=Changes)
    core = Core()
    live = [row for row in snapshot.tasks if row.state not in ENDED]
    core.book.restore(snapshot.counters, snapshot.entities, live)
    return core


@pytest.mark.parametrize("route", [route for routes in ROUTES.values() for route in routes])
def test_a_book_restored_from_rows_is_the_book(route: Route) -> None:
    driver = arrive(route)
    driver.limit("red", 2)
    core = restored(driver)
    check(core)
    store(driver)
    assert core.book.snapshot().tasks == driver.core.book.snapshot().tasks
    assert core.book.snapshot().entities == driver.core.book.snapshot().entities
    for timers in ("due", "expiry", "timeouts"):
        mine, theirs = getattr(core.book, timers), getattr(driver.core.book, timers)
        assert dict(mine.items()) == dict(theirs.items())


def test_only_an_empty_book_is_filled(driver: Driver) -> None:
    driver.submit(1)
    snapshot = driver.core.book.snapshot()
    with pytest.raises(AssertionError):
        driver.core.book.restore(snapshot.counters, snapshot.entities, [])
    book = Book()
    book.restore(snapshot.counters, snapshot.entities, snapshot.tasks)
    assert book.snapshot() == snapshot


@pytest.mark.parametrize("route", [route for routes in ROUTES.values() for route in routes])
@pytest.mark.parametrize("action", [Action.RETRY, Action.PURGE, Action.KILL])
def test_records_after_the_rows_lead_to_the_same_book(route: Route, action: Action) -> None:
    """Restart between two flushes: the rows, and then the records that storage lacks."""
    driver = arrive(route)
    snapshot = msgspec.msgpack.encode(driver.core.book.snapshot())
    stored_until = len(driver.journal)
    driver.act(action, 1)
    driver.resume_queue()
    rows = msgspec.msgpack.decode(snapshot, type=Changes)
    later = Driver()
    later.core.book.restore(rows.counters, rows.entities, rows.tasks)
    later.journal = driver.journal[stored_until:]
    for record in later.recorded():
        later.core.apply(record)
    assert later.snapshot() == driver.snapshot()
    check(later.core)


def test_the_book_replayed_is_the_book(driver: Driver) -> None:
    killed(driver)
    driver.act(Action.RETRY, 1)
    driver.act(Action.HOLD, 1)
    assert snapshot_of(driver.replayed()) == driver.snapshot()


def test_when_an_attempt_times_out_does_not_depend_on_the_way_of_the_restart(
    driver: Driver,
) -> None:
    """Rows or records, early or late: the same book on any machine."""
    driver.join("w", 1)
    driver.submit(1)
    driver.start(1)
    driver.declare(timeout_us=SECOND)
    ways = [driver.core, driver.replayed(), restored(driver)]
    timeouts = [dict(core.book.timeouts.items()) for core in ways]
    assert timeouts[0] == timeouts[1] == timeouts[2]


# Deleting a queue.


def test_ended_tasks_of_a_deleted_queue_do_no_harm(driver: Driver) -> None:
    """They may still be in memory, on their way to storage."""
    killed(driver)
    assert driver.send(DeleteQueue(queue="q")) == Accepted(1)
    changes = store(driver)
    assert changes.queues_gone == [("default", "q")]
    assert not is_in_memory(driver, 1)


def test_a_task_of_a_deleted_queue_cannot_live_again(driver: Driver) -> None:
    driver.is_checked = False
    killed(driver)
    driver.send(DeleteQueue(queue="q"))
    refusal = refusal_in(driver.act(Action.RETRY, 1))
    assert refusal is not None
    assert driver.records == []


def test_a_queue_with_an_unfinished_task_is_not_deleted(driver: Driver) -> None:
    driver.submit(1)
    refusal = refusal_in(driver.send(DeleteQueue(queue="q")))
    assert refusal is not None
    assert refusal.code is Code.QUEUE_NOT_EMPTY
