"""History beside a plain model of it: a dict of tasks, and sorted lists."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.task import NO_OPTIONS, Attempt, BlobRef, Body, Error, Options, Outcome, TaskRow
from jackalope.storage import History, Sort
from jackalope.storage.sqlite.schema import BODIES_IN_ROW_MAX
from tests.storage.making import FOREVER_US, make_changes, make_row, task_id
from tests.storage.sqlite.test_task_query import is_wanted

QUEUES = ["images", "sounds", "letters"]
PARENTS = [task_id(900), task_id(901)]


def any_body(chance: random.Random) -> Body:
    size = chance.choice([0, 5, 5, 5, BODIES_IN_ROW_MAX, BODIES_IN_ROW_MAX + 1, 30_000])
    if chance.randrange(10) == 0:
        return BlobRef(f"blob-{chance.randrange(5)}", 70_000)
    return chance.randbytes(size)


def any_row(chance: random.Random, number: int) -> TaskRow:
    """Make a task: most are plain, some have one thing, and few have everything."""

    def unusual() -> bool:
        return chance.randrange(6) == 0

    state = chance.choice([State.READY, State.READY, State.RUNNING, *ENDED])
    options = Options(
        alias=f"alias {number}" if unusual() else "",
        tags=("gpu", 'a "b"') if unusual() else (),
        parent=chance.choice(PARENTS) if unusual() else NO_TASK,
    )
    outcome = None
    if state in ENDED or unusual():
        error = Error("ValueError", "no") if unusual() else None
        forget_us = chance.choice([FOREVER_US, FOREVER_US, 50, 150])
        outcome = Outcome(any_body(chance), error, None, chance.randrange(1, 9), forget_us)
    return make_row(
        number,
        namespace=chance.choice(["default", "default", "default", "other"]),
        queue=chance.choice(QUEUES),
        name=chance.choice(["resize", "Cut"]),
        key=chance.choice(["", "", "gpu"]),
        priority=chance.choice([1, 150]),
        payload=any_body(chance),
        options=options if options != NO_OPTIONS else NO_OPTIONS,
        state=state,
        created_us=chance.randrange(1, 6),
        batch=chance.randrange(1, 4),
        rank=0 if unusual() else number,
        failures=chance.choice([0, 0, 0, 2]),
        crashes=chance.choice([0, 0, 0, 1]),
        interruptions=chance.choice([0, 0, 0, 3]),
        attempt=Attempt(3, "w1", 2) if state is State.RUNNING else None,
        outcome=outcome,
    )


def any_filter(chance: random.Random) -> Filter:
    return Filter(
        states=tuple(chance.sample(list(State), chance.choice([0, 0, 1, 4]))),
        queue=chance.choice(["", "", *QUEUES]),
        name=chance.choice(["", "", "", "resize"]),
        key=chance.choice(["", "", "", "gpu"]),
        tag=chance.choice(["", "", "", "gpu"]),
        parent=chance.choice([NO_TASK] * 3 + PARENTS),
        batch=chance.choice([0, 0, 0, 2]),
        text=chance.choice(["", "", "", "cU", "ALIAS 1", task_id(3).hex()]),
        older_than_us=chance.choice([0, 0, 0, 4]),
        queues=chance.choice([(), (), (), ("images", "none")]),
    )


def sorted_value(row: TaskRow, sort: Sort) -> int:
    by_ended = row.outcome.ended_us if row.outcome is not None and row.state in ENDED else 0
    values = {"created": row.created_us, "ended": by_ended, "priority": row.priority}
    return values[sort.removeprefix("-")]


class Model:
    """The tasks that a history must have."""

    def __init__(self) -> None:
        self.rows: dict[TaskId, TaskRow] = {}

    def write(
        self, rows: list[TaskRow], gone: list[TaskId], queue_gone: str, horizon_us: int
    ) -> None:
        for task in gone:
            self.rows.pop(task, None)
        for row in list(self.rows.values()):
            if (row.namespace, row.queue) == ("default", queue_gone):
                del self.rows[row.id]
        self.rows |= {row.id: row for row in rows}
        for row in list(self.rows.values()):
            if row.state in ENDED and row.outcome and row.outcome.forget_us <= horizon_us:
                del self.rows[row.id]

    def list(self, wanted: Filter, sort: Sort) -> list[TaskRow]:
        found = [
            row
            for row in self.rows.values()
            if row.namespace == "default" and is_wanted(row, wanted)
        ]
        found.sort(key=lambda row: (sorted_value(row, sort), row.id), reverse=sort.startswith("-"))
        return found


def pages(history: History, wanted: Filter, sort: Sort, limit: int) -> list[TaskRow]:
    rows: list[TaskRow] = []
    cursor = ""
    while True:
        page = history.page(
            "default", wanted, sort=sort, limit=limit, cursor=cursor, with_bodies=True
        )
        rows += page.rows
        cursor = page.cursor
        if not cursor:
            return rows


def check(history: History, model: Model, chance: random.Random) -> None:
    for _ in range(4):
        wanted, sort = any_filter(chance), chance.choice(list(Sort))
        expected = model.list(wanted, sort)
        assert pages(history, wanted, sort, chance.randrange(1, 9)) == expected
        assert history.count("default", wanted) == Counter(row.state for row in expected)
        offset = chance.randrange(6)
        found = history.page("default", wanted, sort=sort, limit=3, offset=offset)
        assert [row.id for row in found.rows] == [row.id for row in expected][offset : offset + 3]
    live = [row for row in model.rows.values() if row.state not in ENDED]
    assert sorted(history.load().tasks, key=lambda row: row.id) == sorted(
        live, key=lambda row: row.id
    )
    ids = [task_id(number) for number in range(40)]
    assert {row.id: row for row in history.find(ids)} == model.rows
    aliases = [f"alias {number}" for number in range(40)]
    named = {row.id for row in model.rows.values() if row.options.alias}
    found_by_alias = history.find_aliases("default", aliases) + history.find_aliases(
        "other", aliases
    )
    assert {row.id for row in found_by_alias} == named
    for queue in QUEUES:
        counts: dict[int, Counter[State]] = {}
        for row in model.rows.values():
            if (row.namespace, row.queue) == ("default", queue):
                counts.setdefault(row.batch, Counter())[row.state] += 1
        assert {each.number: each.counts for each in history.batches("default", queue)} == counts


@pytest.mark.parametrize("seed", range(12))
def test_history_is_what_a_dict_would_be(tmp_path: Path, seed: int) -> None:
    chance, model = random.Random(seed), Model()
    history = History(tmp_path / "tasks.db")
    try:
        for sequence in range(1, 30):
            rows = [any_row(chance, n) for n in chance.sample(range(40), chance.randrange(12))]
            gone = [task_id(chance.randrange(40)) for _ in range(chance.randrange(3))]
            queue_gone = chance.choice(QUEUES) if chance.randrange(12) == 0 else ""
            queues_gone = [("default", queue_gone)] if queue_gone else []
            horizon_us = chance.choice([0, 0, 0, 49, 50, 200])
            changes = make_changes(*rows, gone=gone, queues_gone=queues_gone)
            changes.counters.horizon_us = horizon_us
            history.write(sequence, changes)
            model.write(rows, gone, queue_gone, horizon_us)
            if chance.randrange(8) == 0:
                history.close()
                history = History(tmp_path / "tasks.db")
            check(history, model, chance)
    finally:
        history.close()
    check_columns(tmp_path / "tasks.db", model)


def check_columns(file: Path, model: Model) -> None:
    """Compare what people see with the tasks: also where one was another kind of task before."""
    sql = """SELECT id, alias, parent, worker, failures, crashes, interruptions, error, tags ->> 0,
        row_checksum > 0, payload IS NOT NULL FROM tasks"""
    with closing(sqlite3.connect(file)) as tool:
        found = {task: rest for task, *rest in tool.execute(sql)}
    expected = {}
    for row in model.rows.values():
        outcome = row.outcome or Outcome()
        inline = [body for body in (row.payload, outcome.result) if isinstance(body, bytes)]
        is_large = sum(map(len, inline)) > BODIES_IN_ROW_MAX
        expected[row.id] = [
            row.options.alias,
            row.options.parent,
            row.attempt.worker if row.attempt else "",
            row.failures,
            row.crashes,
            row.interruptions,
            f"{outcome.error.type}: {outcome.error.message}" if outcome.error else "",
            row.options.tags[0] if row.options.tags else None,
            True,
            is_large and isinstance(row.payload, bytes),
        ]
    assert found == expected
