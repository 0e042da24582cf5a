"""Makes tasks and changes for the tests of storage."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import ENDED, State
from jackalope.core.state.changes import Changes, Counters
from jackalope.core.task import (
    NO_OPTIONS,
    Attempt,
    BlobRef,
    Error,
    HistoryEntry,
    OnDependency,
    Options,
    Outcome,
    Retry,
    Signal,
    SignalRequest,
    TaskRow,
)

FOREVER_US = 2**62


def task_id(number: int) -> TaskId:
    return TaskId(number.to_bytes(16, "big"))


def make_row(number: int, **fields: Any) -> TaskRow:
    """Make a plain task that is ready, or ended if `state` says so."""
    state = fields.get("state", State.READY)
    is_ended = state in ENDED
    values: dict[str, Any] = {
        "id": task_id(number),
        "namespace": "default",
        "queue": "images",
        "name": "resize",
        "key": "",
        "priority": 150,
        "payload": b"payload %d" % number,
        "options": NO_OPTIONS,
        "state": state,
        "by": "client",
        "created_us": 1_000 + number,
        "batch": 1,
        "rank": number,
        "penalty": 0,
        "due_us": 0,
        "expires_us": 0,
        "waiting_for": (),
        "failures": 0,
        "crashes": 0,
        "interruptions": 0,
        "attempts": 0,
        "guardian": NO_TASK,
        "avoid": "",
        "attempt": None,
        "outcome": Outcome(b"result", ended_us=5_000, forget_us=FOREVER_US) if is_ended else None,
        "history": [HistoryEntry(1_000 + number, "submit", "client")],
    }
    return TaskRow(**values | fields)


def make_full_row(number: int) -> TaskRow:
    """Make a task in which nothing is left at its default."""
    return make_row(
        number,
        key="gpu",
        options=Options(
            alias=f"alias {number}",
            headers={"trace": b"\x00\xff", "depth": [1, {"two": None}]},
            tags=("disk", 'a "quoted", tag', "ümlaut"),
            run_at_us=1,
            expires_at_us=2,
            timeout_us=3,
            retry=Retry(1, 2, 2.5, 4),
            depends_on=(task_id(90), task_id(91)),
            on_dependency=OnDependency.RUN,
            parent=task_id(92),
            held=True,
        ),
        state=State.RUNNING,
        payload=BlobRef("payload-blob", 70_000),
        penalty=2,
        due_us=5,
        expires_us=6,
        waiting_for=(task_id(90),),
        failures=1,
        crashes=2,
        interruptions=3,
        attempts=6,
        guardian=task_id(93),
        avoid="worker 7",
        attempt=Attempt(12, "worker 8", 7, 8, SignalRequest(Signal.KILL, "ann", 9)),
        outcome=Outcome(BlobRef("result-blob", 80_000), Error("ValueError", "no", "trace")),
        history=[HistoryEntry(1, "submit", "ann"), HistoryEntry(2, "fail", "worker 7", "no")],
    )


def make_changes(*rows: TaskRow, horizon_us: int = 0, **fields: Any) -> Changes:
    counters = Counters(fence=7, rank=8, floor=task_id(9), horizon_us=horizon_us)
    return Changes(counters, tasks=list(rows), **fields)


def bring_back_version_1(file: Path) -> None:
    """Make a history what the first version would have made of it: without what came later."""
    with closing(sqlite3.connect(file)) as tool:
        tool.execute("DROP TABLE entities")
        tool.execute("DROP TABLE answers")
        tool.execute("CREATE TABLE queues (namespace, queue, row)")
        tool.execute("CREATE TABLE limits (namespace, tag, max_count)")
        tool.execute("PRAGMA user_version = 1")
