"""The contract of `History`, on every backend."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.core.policy import OnLost, Policy
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.state.changes import (
    Changes,
    Counters,
    QueueRow,
    Tally,
    from_entities,
    to_entity,
)
from jackalope.core.task import NO_OPTIONS, BlobRef, Error, Options, Outcome, TaskRow
from jackalope.storage import BadCursor, BatchSummary, History, Sort
from jackalope.storage.sqlite.history import OVERDUE, page_query
from jackalope.storage.sqlite.history_writer import FORGET
from tests.storage.making import (
    FOREVER_US,
    bring_back_version_1,
    make_changes,
    make_full_row,
    make_row,
    task_id,
)

OpenHistory = Callable[[], History]


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[OpenHistory]:
    """Open the same file each time."""
    with ExitStack() as opened:

        def open_history() -> History:
            history = History(tmp_path / "tasks.db")
            opened.callback(history.close)
            return history

        yield open_history


@pytest.fixture(params=["memory", "file", "process"])
def history(
    request: pytest.FixtureRequest, open_file: OpenHistory, tmp_path: Path
) -> Iterator[History]:
    if request.param == "process":
        path = tmp_path / "tasks.db"
        with (
            (tmp_path / "lock").open("w") as lock,
            closing(History(path, lock.fileno())) as history,
        ):
            yield history
        return
    with closing(History(None) if request.param == "memory" else open_file()) as history:
        yield history


def by_id(rows: list[TaskRow]) -> list[TaskRow]:
    return sorted(rows, key=lambda row: row.id)


def numbers(rows: list[TaskRow]) -> list[int]:
    return [int.from_bytes(row.id, "big") for row in rows]


# Writing, finding and loading.


def test_new_history_is_empty(history: History) -> None:
    snapshot = history.load()
    assert (snapshot.sequence, snapshot.counters) == (0, Counters())
    assert (snapshot.entities, list(snapshot.tasks)) == ([], [])
    assert (history.applied(), history.sync()) == (0, 0)


@pytest.mark.parametrize(
    "row",
    [
        make_row(1),
        make_full_row(1),
        make_row(1, state=State.SUCCEEDED),
        make_row(1, payload=b"", state=State.SUCCEEDED),
        make_row(1, payload=b"x" * 65_536),
        make_row(
            1,
            name="\0 % _ \\ ' ☃",
            state=State.DEAD,
            outcome=Outcome(b"", Error("E", "ü"), None, 1, FOREVER_US),
        ),
        make_row(1, outcome=Outcome(b"half", Error("E"), ended_us=1), failures=1),
    ],
    ids=["plain", "full", "ended", "empty", "large", "odd", "retried"],
)
def test_row_comes_back_exactly(history: History, row: TaskRow) -> None:
    history.write(1, make_changes(row))
    assert history.find([row.id]) == [row]
    assert history.page("default", Filter(), with_bodies=True).rows == [row]


def test_loaded_tasks_share_what_is_the_same(history: History) -> None:
    history.write(1, make_changes(make_row(1), make_row(2)))
    first, second = history.load().tasks
    assert first.queue is second.queue
    assert first.options is second.options is NO_OPTIONS


def test_write_replaces_what_is_stored(history: History) -> None:
    history.write(1, make_changes(make_row(1), make_row(2)))
    changed = make_row(1, state=State.DEAD, queue="sounds", name="cut", options=Options("a"))
    history.write(2, make_changes(changed))
    assert by_id(history.find([task_id(1), task_id(2)])) == [changed, make_row(2)]
    assert history.count("default", Filter()) == {State.READY: 1, State.DEAD: 1}
    assert history.applied() == 2


def test_gone_tasks_are_removed_before_rows_are_written(history: History) -> None:
    history.write(1, make_changes(make_row(1), make_row(2)))
    again = make_row(2, name="again")
    history.write(2, make_changes(again, gone=[task_id(1), task_id(2), task_id(3)]))
    assert history.find([task_id(1), task_id(2)]) == [again]


def test_task_to_forget_at_once_is_not_kept(history: History) -> None:
    history.write(1, make_changes(make_row(1)))
    outcome = Outcome(b"r", ended_us=9, forget_us=9)
    history.write(2, make_changes(make_row(1, state=State.SUCCEEDED, outcome=outcome)))
    assert history.find([task_id(1)]) == []
    assert list(history.load().tasks) == []


def test_writing_backwards_is_a_bug(history: History) -> None:
    history.write(5, make_changes())
    with pytest.raises(BrokenInvariant, match="backwards"):
        history.write(4, make_changes())


def test_load_returns_live_tasks_by_rank(history: History) -> None:
    ended = [State.SUCCEEDED, State.DEAD, State.KILLED]
    rows = [make_row(1, rank=3), make_row(2, rank=1), make_full_row(3)]
    rows[2].rank = 2
    rows += [make_row(10 + number, state=state) for number, state in enumerate(ended)]
    history.write(4, make_changes(*rows))
    snapshot = history.load()
    assert list(snapshot.tasks) == [rows[1], rows[2], rows[0]]
    assert snapshot.sequence == 4
    assert snapshot.counters == make_changes().counters


def test_ended_task_without_time_is_not_loaded(history: History) -> None:
    row = make_row(1, state=State.KILLED, outcome=Outcome(ended_us=0, forget_us=1))
    history.write(1, make_changes(row))
    assert list(history.load().tasks) == []


def test_many_rows_in_one_write(history: History) -> None:
    rows = [make_row(number) for number in range(1, 1_312)]
    history.write(1, make_changes(*rows))
    assert list(history.load().tasks) == rows
    assert by_id(history.find([row.id for row in rows])) == rows
    history.write(2, make_changes(gone=[row.id for row in rows[1:]]))
    assert list(history.load().tasks) == rows[:1]


def test_find_skips_what_is_not_there(history: History) -> None:
    history.write(1, make_changes(make_row(1)))
    assert history.find([task_id(2), task_id(1)]) == [make_row(1)]
    assert history.find([]) == []


def test_find_aliases(history: History) -> None:
    named = [make_row(number, options=Options(alias=f"a{number}")) for number in (1, 2)]
    ended = make_row(3, state=State.DEAD, options=Options(alias="a3"))
    elsewhere = make_row(4, namespace="other", options=Options(alias="a1"))
    history.write(1, make_changes(*named, ended, elsewhere, make_row(5)))
    assert by_id(history.find_aliases("default", ["a1", "a3", "a9"])) == [named[0], ended]
    assert history.find_aliases("default", [""]) == []


def test_queues_and_limits(history: History) -> None:
    policy = Policy(on_lost=OnLost.PAUSE, retries=7)
    first, second = (
        to_entity("queue", "default", name, QueueRow("default", name, policy, "ann", 3, 4))
        for name in ("a", "b")
    )
    limits = [to_entity("limit", "default", tag, most) for tag, most in (("disk", 4), ("gpu", 0))]
    history.write(1, make_changes(entities=[first, second, *limits]))
    snapshot = history.load()
    assert snapshot.entities == [*limits, first, second]
    assert list(snapshot.tasks) == []

    row = QueueRow("default", "b", Policy(), paused_by="", batch=5, batch_fill=0)
    changed = to_entity("queue", "default", "b", row)
    gone = [to_entity("queue", "default", name, None) for name in ("a", "none")]
    fewer = [to_entity("limit", "default", "disk", None), to_entity("limit", "default", "gpu", 2)]
    history.write(2, make_changes(entities=[changed, *gone, *fewer]))
    assert history.load().entities == [to_entity("limit", "default", "gpu", 2), changed]


def test_api_keys(history: History) -> None:
    ada = ApiKey("a1", "0f" * 32, "ada", (Permission.WORK,), ("q",), "team", 5, 1, "root")
    bob = ApiKey("b2", "1f" * 32, "bob", (Permission.ADMIN,))
    entities = [to_entity("api_key", "", key.id, key) for key in (ada, bob)]
    history.write(1, make_changes(entities=entities))
    assert [key for _, key in from_entities(history.load().entities)] == [ada, bob]
    changed = msgspec.structs.replace(bob, name="bobby")
    entities = [to_entity("api_key", "", name, None) for name in ("a1", "none")]
    entities.append(to_entity("api_key", "", "b2", changed))
    history.write(2, make_changes(entities=entities))
    assert [key for _, key in from_entities(history.load().entities)] == [changed]


def test_a_file_of_version_1_is_brought_up_to_date(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with closing(History(file)) as history:
        history.write(1, make_changes(make_row(1)))
    bring_back_version_1(file)
    with closing(History(file)) as history:
        snapshot = history.load()
        assert (snapshot.entities, snapshot.answers) == ([], [])
        assert [row.id for row in snapshot.tasks] == [task_id(1)]


def make_answer(number: int, **fields: Any) -> StoredAnswer:
    return StoredAnswer("default", "images", bytes([number]) * 32, task_id(number), **fields)


def test_answers(history: History) -> None:
    first = make_answer(1, name="resize", version="2", worker="w", size=3, made_us=4, until_us=5)
    second = make_answer(2, state=State.DEAD, rank=7, used_by="ada", pinned_by="ben")
    history.write(1, make_changes(answers=[first, second]))
    assert history.load().answers == [first, second]
    used = make_answer(1, uses=1, used_us=9)
    history.write(2, make_changes(answers=[used], answers_gone=[task_id(2), task_id(3)]))
    assert history.load().answers == [used]


def test_what_is_an_answer_is_not_forgotten(history: History) -> None:
    blob = BlobRef("b1", 100)
    ended = [
        make_row(number, state=State.SUCCEEDED, outcome=Outcome(blob, ended_us=10, forget_us=11))
        for number in (1, 2)
    ]
    history.write(1, make_changes(*ended, answers=[make_answer(1)]))
    assert history.overdue_us(20, 10) == 11
    assert history.write(2, make_changes(horizon_us=20)) == []
    assert [row.id for row in history.find([task_id(1), task_id(2)])] == [task_id(1)]
    assert history.overdue_us(20, 10) == 0
    gone = make_changes(answers_gone=[task_id(1)], horizon_us=20)
    assert history.write(3, gone) == ["b1"]
    assert history.find([task_id(1)]) == []


def test_tallies(history: History) -> None:
    ann = to_entity("tally", "default", "ann", Tally(3, 1, 100))
    bob = to_entity("tally", "other", "bob", Tally(0, 2, 101))
    history.write(1, make_changes(entities=[ann, bob]))
    assert history.load().entities == [ann, bob]
    more = to_entity("tally", "default", "ann", Tally(4, 1, 102))
    history.write(2, make_changes(entities=[more, to_entity("tally", "other", "bob", None)]))
    assert history.load().entities == [more]


def test_a_gone_queue_takes_its_tasks_along(history: History) -> None:
    blob = BlobRef("b1", 100)
    stored = [
        make_row(1, state=State.SUCCEEDED),
        make_row(2, state=State.DEAD, payload=blob),
        make_row(3, queue="other", state=State.DEAD),
    ]
    history.write(1, make_changes(*stored))
    # The queue came back meanwhile, and has a new task.
    unowned = history.write(2, make_changes(make_row(4), queues_gone=[("default", "images")]))
    found = {row.id for row in history.find([task_id(number) for number in range(1, 5)])}
    assert found == {task_id(3), task_id(4)}
    assert unowned == ["b1"]


def test_content_survives_opening_again(open_file: OpenHistory) -> None:
    history = open_file()
    history.write(3, make_changes(make_row(1)))
    history.close()
    history.close()
    again = open_file()
    assert again.applied() == again.sync() == 3
    assert list(again.load().tasks) == [make_row(1)]


def test_snapshot_is_of_one_moment(open_file: OpenHistory) -> None:
    history = open_file()
    history.write(1, make_changes(make_row(1), make_row(2)))
    snapshot = history.load()
    assert next(snapshot.tasks) == make_row(1)
    history.write(2, make_changes(make_row(2, name="later"), make_row(3)))
    assert list(snapshot.tasks) == [make_row(2)]
    assert snapshot.sequence == 1


def test_dropped_snapshot_is_in_nobodys_way(history: History) -> None:
    history.write(1, make_changes(make_row(1), make_row(2)))
    assert history.load().sequence == 1
    assert next(history.load().tasks) == make_row(1)
    history.write(2, make_changes(make_row(3)))
    assert len(list(history.load().tasks)) == 3


def test_read_from_other_threads_while_writing(history: History) -> None:
    """Each reader sees whole writes only: as many tasks as the number of writes it sees."""

    def read() -> None:
        for _ in range(50):
            counts = history.count("default", Filter())
            assert counts.get(State.READY, 0) % 10 == 0

    with ThreadPoolExecutor(3) as readers:
        reading = [readers.submit(read) for _ in range(3)]
        for number in range(50):
            rows = [make_row(10 * number + each) for each in range(1, 11)]
            history.write(number, make_changes(*rows))
        for each in reading:
            each.result()


def test_people_can_read_the_file(open_file: OpenHistory, tmp_path: Path) -> None:
    history = open_file()
    dead = make_row(
        255, state=State.DEAD, outcome=Outcome(b"", Error("ValueError", "bad"), None, 9, FOREVER_US)
    )
    history.write(1, make_changes(make_full_row(1), dead))
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as tool:
        found = tool.execute(
            "SELECT id_hex, queue, state, worker, tags ->> '$[0]', error FROM tasks ORDER BY id"
        ).fetchall()
    assert found == [
        (task_id(1).hex(), "images", "running", "worker 8", "disk", "ValueError: no"),
        (task_id(255).hex(), "images", "dead", "", None, "ValueError: bad"),
    ]


# Blobs and forgetting.


def with_blobs(number: int, payload: str, result: str = "", **fields: object) -> TaskRow:
    outcome = Outcome(BlobRef(result, 1) if result else b"", ended_us=1, forget_us=100)
    return make_row(number, payload=BlobRef(payload, 1), outcome=outcome, **fields)


def test_write_reports_blobs_that_nobody_names(history: History) -> None:
    assert history.write(1, make_changes(with_blobs(1, "a", "b"), with_blobs(2, "c"))) == []
    assert history.unowned(["a", "b", "x", "y"]) == ["x", "y"]
    changes = make_changes(with_blobs(1, "a", "d"), gone=[task_id(2)])
    assert sorted(history.write(2, changes)) == ["b", "c"]
    assert history.unowned(["c"]) == ["c"]
    assert sorted(history.write(3, make_changes(gone=[task_id(1)]))) == ["a", "d"]


def test_blob_is_owned_until_its_last_task_is_gone(history: History) -> None:
    """A result becomes the payload of the next task, without being copied."""
    first = with_blobs(1, "a", "b", state=State.SUCCEEDED)
    history.write(1, make_changes(first, with_blobs(2, "b")))
    assert history.write(2, make_changes(gone=[task_id(1)])) == ["a"]
    assert history.write(3, make_changes(gone=[task_id(2)])) == ["b"]


def test_blobs_of_tasks_that_were_never_stored(history: History) -> None:
    forgotten = make_row(
        1,
        state=State.SUCCEEDED,
        payload=BlobRef("a", 1),
        outcome=Outcome(BlobRef("b", 1), ended_us=5, forget_us=5),
    )
    changes = make_changes(forgotten, with_blobs(2, "b"), with_blobs(3, "c"), blobs=["c", "d"])
    assert sorted(history.write(1, changes)) == ["a", "d"]


@pytest.mark.feature("D24")
def test_forget(history: History) -> None:
    rows = [
        make_row(number, state=State.DEAD, outcome=Outcome(ended_us=1, forget_us=number * 10))
        for number in (1, 2, 3, 4)
    ]
    rows.append(make_row(5, outcome=Outcome(ended_us=1, forget_us=1)))
    rows[1].payload = BlobRef("a", 1)
    history.write(1, make_changes(*rows))
    assert history.overdue_us(9, limit=10) == 0
    assert history.overdue_us(30, limit=2) == 20
    assert history.overdue_us(30, limit=10) == 30
    assert history.write(2, make_changes(horizon_us=9)) == []
    assert len(history.find(row.id for row in rows)) == 5
    assert history.write(3, make_changes(horizon_us=20)) == ["a"]
    assert by_id(history.find(row.id for row in rows)) == rows[2:]
    # One that comes later, and was to be kept until then at the latest, does not stay either.
    late = make_row(6, state=State.DEAD, outcome=Outcome(ended_us=1, forget_us=30))
    assert history.write(4, make_changes(late, horizon_us=30)) == []
    assert by_id(history.find([late.id, *(row.id for row in rows)])) == rows[3:]
    assert history.load().counters.horizon_us == 30


def test_forgetting_takes_no_scan(open_file: OpenHistory, tmp_path: Path) -> None:
    open_file()
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as tool:
        removing = tool.execute(f"EXPLAIN QUERY PLAN {FORGET}", (1,)).fetchall()
        looking = tool.execute(f"EXPLAIN QUERY PLAN {OVERDUE}", (1, 1)).fetchall()
    steps = [step for *_, step in removing + looking]
    assert "SEARCH tasks USING INDEX tasks_to_forget (forget_us<?)" in steps
    assert not any(step.startswith("SCAN tasks") for step in steps)


# Lists.


@pytest.mark.feature("D9")
@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.SUCCEEDED, State.DEAD])
def test_list_of_a_state_takes_no_scan(
    open_file: OpenHistory, tmp_path: Path, state: State
) -> None:
    open_file()
    sql, params = page_query(
        "default", Filter(states=(state,)), Sort.CREATED_LAST, limit=100, after=None
    )
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as tool:
        plan = tool.execute(f"EXPLAIN QUERY PLAN {sql}", params).fetchall()
    steps = [step for *_, step in plan]
    index = "COVERING INDEX tasks_by_state (namespace=? AND state=?"
    assert any(index in step for step in steps), steps
    assert not any(step.startswith("SCAN tasks") for step in steps)
    assert not any("TEMP B-TREE" in step for step in steps if "tasks" in step)


@pytest.mark.parametrize(
    "sort", ["created", "-created", "ended", "-ended", "priority", "-priority"]
)
@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(queue="q1"),
        Filter(states=(State.READY, State.DEAD, State.READY)),
        Filter(queue="q1", batch=1),
        Filter(parent=task_id(900)),
    ],
    ids=["all", "queue", "states", "batch", "parent"],
)
def test_pages_hold_every_task_once_in_order(history: History, sort: str, wanted: Filter) -> None:
    chance = random.Random(f"{sort} {wanted}")
    rows = [
        make_row(
            number,
            created_us=chance.randrange(5),
            priority=chance.randrange(3),
            queue=chance.choice(["q1", "q2"]),
            batch=chance.randrange(1, 3),
            state=chance.choice([State.READY, State.DEAD, State.SUCCEEDED]),
            outcome=Outcome(ended_us=chance.randrange(4), forget_us=FOREVER_US),
            options=Options(parent=chance.choice([task_id(900), task_id(901)])),
        )
        for number in range(1, 61)
    ]
    history.write(1, make_changes(*rows))
    found: list[TaskRow] = []
    cursor = ""
    while True:
        page = history.page("default", wanted, sort=sort, limit=7, cursor=cursor, with_bodies=True)
        found += page.rows
        cursor = page.cursor
        if not cursor:
            break
        assert len(page.rows) == 7

    for offset in (0, 1, 7, len(found), len(found) + 1):
        skipped = history.page("default", wanted, sort=sort, limit=5, offset=offset)
        assert numbers(skipped.rows) == numbers(found[offset : offset + 5])

    def value(row: TaskRow) -> int:
        is_ended = row.state in {State.DEAD, State.SUCCEEDED} and row.outcome is not None
        return {
            "created": row.created_us,
            "ended": row.outcome.ended_us if is_ended and row.outcome else 0,
            "priority": row.priority,
        }[sort.removeprefix("-")]

    wanted_rows = [
        row
        for row in rows
        if (not wanted.queue or row.queue == wanted.queue)
        and (not wanted.states or row.state in wanted.states)
        and (not wanted.batch or row.batch == wanted.batch)
        and (not wanted.parent or row.options.parent == wanted.parent)
    ]
    is_reversed = sort.startswith("-")
    expected = sorted(
        wanted_rows, key=lambda row: (value(row), numbers([row])), reverse=is_reversed
    )
    assert numbers(found) == numbers(expected)
    assert found == expected
    assert sum(history.count("default", wanted).values()) == len(expected)


def test_page_ends_exactly(history: History) -> None:
    history.write(1, make_changes(*(make_row(number) for number in (1, 2, 3, 4))))
    first = history.page("default", Filter(), sort="created", limit=2)
    second = history.page("default", Filter(), sort="created", limit=2, cursor=first.cursor)
    assert (numbers(first.rows), numbers(second.rows)) == ([1, 2], [3, 4])
    assert second.cursor == ""


def test_page_without_bodies(history: History) -> None:
    row = make_row(1, state=State.SUCCEEDED)
    blob = make_full_row(2)
    history.write(1, make_changes(row, blob))
    lean, same = history.page("default", Filter(), sort="created").rows
    assert lean.payload == b""
    assert lean.outcome is not None
    assert lean.outcome.result == b""
    assert same == blob


def test_pages_stay_in_place_while_tasks_come_and_go(history: History) -> None:
    history.write(1, make_changes(*(make_row(number) for number in range(10, 20))))
    page = history.page("default", Filter(), sort="created", limit=4)
    early = [make_row(number) for number in range(1, 5)]
    changed = make_row(15, name="changed")
    history.write(2, make_changes(*early, changed, gone=[task_id(11), task_id(14)]))
    following = history.page("default", Filter(), sort="created", limit=4, cursor=page.cursor)
    assert numbers(following.rows) == [15, 16, 17, 18]


def test_cursor_of_another_list_is_refused(history: History) -> None:
    history.write(1, make_changes(*(make_row(number) for number in range(1, 5))))
    cursor = history.page("default", Filter(), limit=2).cursor
    for namespace, wanted, sort in [
        ("other", Filter(), "-created"),
        ("default", Filter(queue="images"), "-created"),
        ("default", Filter(), "created"),
    ]:
        with pytest.raises(BadCursor, match="another list"):
            history.page(namespace, wanted, sort=sort, cursor=cursor)
    for nonsense in ("x", "ü", "AAAA", "!!!!", cursor[:-4]):
        with pytest.raises(BadCursor, match="not a cursor"):
            history.page("default", Filter(), cursor=nonsense)


def test_unknown_sort_and_empty_page_are_refused(history: History) -> None:
    with pytest.raises(ValueError, match="rank"):
        history.page("default", Filter(), sort="rank")
    with pytest.raises(BrokenInvariant):
        history.page("default", Filter(), limit=0)


def test_namespaces_do_not_see_each_other(history: History) -> None:
    history.write(1, make_changes(make_row(1), make_row(2, namespace="other")))
    assert numbers(history.page("other", Filter()).rows) == [2]
    assert history.count("other", Filter()) == {State.READY: 1}
    assert history.count("none", Filter()) == {}


def test_batches(history: History) -> None:
    rows = [
        make_row(1, batch=1, state=State.SUCCEEDED),
        make_row(2, batch=1),
        make_row(3, batch=1),
        make_row(4, batch=2),
        make_row(5, batch=4, state=State.DEAD),
        make_row(6, batch=9, queue="other"),
        make_row(7, batch=9, namespace="other"),
    ]
    history.write(1, make_changes(*rows))
    one = BatchSummary(1, {State.SUCCEEDED: 1, State.READY: 2})
    two, four = BatchSummary(2, {State.READY: 1}), BatchSummary(4, {State.DEAD: 1})
    assert history.batches("default", "images") == [four, two, one]
    assert history.batches("default", "images", limit=2) == [four, two]
    assert history.batches("default", "images", before=4) == [two, one]
    assert history.batches("default", "none") == []


def test_changes_of_nothing_move_the_sequence(history: History) -> None:
    history.write(1, Changes(Counters(fence=1)))
    history.write(2, Changes(Counters(fence=2)))
    assert history.load().counters == Counters(fence=2)
    assert history.applied() == 2
