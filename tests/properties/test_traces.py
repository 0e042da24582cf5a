"""What a core makes of commands by chance: the same as before, and the same in runs as one by one.

The sums are of no meaning by themselves. A change that is to change no behaviour changes none of
them; one that is to is followed by `REWRITE=1 pytest tests/properties/test_traces.py`.
"""

import os
from pathlib import Path

from jackalope.core import Core
from jackalope.core.invariants import check
from jackalope.core.lifecycle import ENDED
from jackalope.core.records import decode_batch
from jackalope.core.task import TaskRow, to_row
from tests.properties.traces import Trace

SUMS = Path(__file__).with_name("traces.txt")
SEEDS = 30
STEPS = 200


def test_same_bytes_as_before() -> None:
    sums = [_played(seed).digest() for seed in range(SEEDS)]
    if os.environ.get("REWRITE"):
        SUMS.write_text("\n".join(sums) + "\n")
    assert sums == SUMS.read_text().splitlines()


def test_records_mean_the_same_in_runs_as_one_by_one() -> None:
    for seed in range(SEEDS // 3):
        trace = _played(seed)
        in_runs, one_by_one = Core(), Core()
        for body in trace.batches:
            in_runs.apply(*decode_batch(body))
            for record in decode_batch(body):
                one_by_one.apply(record)
        assert _unfinished(in_runs) == _unfinished(trace.core)
        assert _tasks_of(in_runs) == _tasks_of(one_by_one)
        assert _lines_of(in_runs) == _lines_of(one_by_one)
        assert in_runs.next_deadline_us() == one_by_one.next_deadline_us()
        ours, theirs = in_runs.book.take_changes(), one_by_one.book.take_changes()
        for changes in (ours, theirs):
            changes.tasks.sort(key=lambda row: row.id)
        assert ours == theirs


def _played(seed: int) -> Trace:
    trace = Trace(seed)
    trace.play(STEPS)
    check(trace.core)
    return trace


def _tasks_of(core: Core) -> list[TaskRow]:
    return [to_row(task) for task in core.book.tasks.values()]


def _unfinished(core: Core) -> list[TaskRow]:
    rows = [row for row in _tasks_of(core) if row.state not in ENDED]
    return sorted(rows, key=lambda row: row.id)


def _lines_of(core: Core) -> list[object]:
    """Return what stands in the lanes of all queues, in which order, and what is counted."""
    return [
        (queue.entity, lane.name, [task.id for task in lane.ordered(core.book.tasks)], queue.counts)
        for namespace in core.book.namespaces.values()
        for queue in namespace.queues.values()
        for lane in queue.line.lanes.values()
    ]
