"""Lists are merged from memory and history, and are what they would be if all were written."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from jackalope.broker.engine import Engine, Flush
from jackalope.broker.views.lists import Moment, Totals
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    AnyCommand,
    DeclareQueue,
    DeleteQueue,
    SubmitTasks,
)
from jackalope.core.filter import Filter
from jackalope.core.lifecycle import State
from jackalope.core.task import TaskRow
from jackalope.storage import Level, Sort, Storage
from tests.core.driving import spec, task_id

QUEUES = ["kept", "short", "forgotten"]


class Written:
    """An engine whose flushes are taken apart: some lists are asked for in the middle of one."""

    def __init__(self, storage: Storage) -> None:
        self.engine = Engine(storage.journal, storage.history, storage.blobs)
        self.flush: Flush | None = None
        self.now_us = 1_000_000
        for queue, retention_us in (("short", 5), ("forgotten", 0)):
            changes: dict[str, object] = {"retention_us": retention_us}
            self.send(DeclareQueue(session=1, ref=1, queue=queue, changes=changes))

    def send(self, command: AnyCommand) -> None:
        turn = self.engine.decide(self.now_us, [command])
        self.engine.store(turn)
        self.engine.settle(turn)

    def begin(self) -> None:
        self.flush = self.engine.begin_flush(self.now_us) or self.flush

    def write(self) -> None:
        if self.flush is not None:
            self.engine.write_flush(self.flush)

    def end(self) -> None:
        if self.flush is not None:
            self.engine.write_flush(self.flush)
            self.engine.end_flush(self.flush)
            self.flush = None

    def forget(self) -> None:
        """Let go of what has been kept for long enough; storage has it until the next flush."""
        forgetting = self.engine.forgetting()
        if forgetting is not None:
            self.send(forgetting)

    def write_everything(self) -> None:
        while self.flush is not None or self.engine.core.book.has_changes():
            self.end()
            self.begin()

    def merged(self, wanted: Filter, sort: Sort) -> tuple[list[TaskRow], int]:
        """Return a list, page by page, and how many tasks it says it has."""
        history = self.engine.history
        rows: list[TaskRow] = []
        cursor, total = "", 0
        while True:
            after = history.position("default", wanted, sort, cursor)
            core = self.engine.core
            moment = Moment(core, "default", wanted, sort=sort, after=after, count=4)
            unwritten = moment.unwritten()
            page = history.page(
                "default", wanted, sort=sort, limit=3, cursor=cursor, unwritten=unwritten
            )
            if not cursor:
                total = Totals().count(history, "default", wanted, unwritten)
            rows += page.rows
            cursor = page.cursor
            if not cursor:
                return rows, total

    def counted_off(self, wanted: Filter, sort: Sort, offset: int) -> list[TaskRow]:
        core, count = self.engine.core, offset + 4
        moment = Moment(core, "default", wanted, sort=sort, after=None, count=count)
        return self.engine.history.page(
            "default", wanted, sort=sort, limit=3, offset=offset, unwritten=moment.unwritten()
        ).rows


def step(on: Written, chance: random.Random) -> None:
    """Do something, most often with some of a dozen tasks."""
    some = tuple(task_id(chance.randrange(1, 13)) for _ in range(4))
    match chance.randrange(8):
        case 0 | 1 | 2:
            number = chance.randrange(1, 13)
            task = spec(
                number,
                chance.choice(QUEUES),
                priority=chance.choice([1, 2]),
                name=f"n{number % 3}",
                key=f"k{number % 2}",
                payload=b"p" * chance.choice([3, 3_000]),
            )
            on.send(SubmitTasks(session=1, ref=1, tasks=[task]))
        case 3:
            on.send(ActOnTasks(session=1, ref=1, action=chance.choice(list(Action)), tasks=some))
        case 4:
            action = chance.choice([Action.KILL, Action.PURGE])
            on.send(ActOnTasks(session=1, ref=1, action=action, tasks=some))
        case 5:
            queue = chance.choice(QUEUES)
            wanted = Filter(queue=queue)
            if chance.randrange(2):
                on.send(ActOnTasks(session=1, ref=1, action=Action.KILL, filter=wanted))
                on.send(DeleteQueue(session=1, ref=1, queue=queue))
        case 6:
            on.now_us += chance.randrange(4)
        case _:
            chance.choice([on.begin, on.write, on.end, on.forget])()


def any_filter(chance: random.Random) -> Filter:
    """Make a filter that most often matches something."""
    return Filter(
        states=tuple(chance.sample(list(State), chance.choice([0, 0, 0, 2, 4]))),
        queue=chance.choice(["", "", "", *QUEUES]),
        name=chance.choice(["", "", "", "n1"]),
        key=chance.choice(["", "", "", "k1"]),
        text=chance.choice(["", "", "", "N2"]),
        older_than_us=chance.choice([0, 0, 0, 1_000_008]),
        newer_than_us=chance.choice([0, 0, 0, 1_000_008]),
        contains=chance.choice(["", "", "", "", "boom"]),
        queues=chance.choice([(), (), (), ("kept", "forgotten")]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_list_needs_nothing_written(seed: int) -> None:
    chance = random.Random(seed)
    with closing(Storage.open(None, Level.MEMORY)) as storage:
        on = Written(storage)
        for _ in range(25):
            for _ in range(chance.randrange(1, 16)):
                step(on, chance)
            lists = [(Filter(), Sort.CREATED_LAST)]
            lists += [(any_filter(chance), chance.choice(list(Sort))) for _ in range(6)]
            merged = [on.merged(*each) for each in lists]
            skipped = [on.counted_off(*each, 2) for each in lists]
            on.write_everything()
            for (wanted, sort), (rows, total), rest in zip(lists, merged, skipped, strict=True):
                stored = on.engine.history.page("default", wanted, sort=sort, limit=100).rows
                assert rows == stored
                assert total == len(stored)
                assert rest == stored[2:5]
