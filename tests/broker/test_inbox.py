"""What makes one turn: so many items, so many bytes, and never less than one command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jackalope.broker.inbox import ITEMS_PER_TURN_MAX, TURN_BYTES_MAX, Inbox, bytes_of
from jackalope.core.commands import AnyCommand, Finish, FinishAttempts, SubmitTasks, Tick
from jackalope.core.commands.amqp import Publication, PublishMessages
from jackalope.core.task import BlobRef
from tests.core.driving import spec, task_id

LARGE = b"x" * 65_536
PER_TURN = TURN_BYTES_MAX // len(LARGE)

Make = Callable[[list[bytes]], AnyCommand]


def submit(bodies: list[bytes]) -> AnyCommand:
    return SubmitTasks(ref=0, tasks=[spec(1, payload=body) for body in bodies])


def finish(bodies: list[bytes]) -> AnyCommand:
    return FinishAttempts(attempts=[Finish(task_id(1), 1, body) for body in bodies])


def publish(bodies: list[bytes]) -> AnyCommand:
    return PublishMessages(
        messages=[Publication(task_id(1), "", "q", b"", body) for body in bodies]
    )


EVERY = pytest.mark.parametrize("make", [submit, finish, publish])


def turns_of(commands: list[AnyCommand]) -> list[int]:
    """Return how many commands each turn takes."""

    async def take_all() -> list[int]:
        inbox, taken = Inbox(), []
        for command in commands:
            inbox.put(command, 1)
        while inbox.has_commands():
            taken.append(inbox.take())
        assert [command for turn in taken for command in turn] == commands
        return [len(turn) for turn in taken]

    return asyncio.run(take_all())


@EVERY
def test_a_turn_takes_so_many_bytes(make: Make) -> None:
    exactly = [make([LARGE]) for _ in range(PER_TURN)]
    assert turns_of(exactly) == [PER_TURN]
    assert turns_of([*exactly, make([b"one more"])]) == [PER_TURN, 1]
    assert turns_of(exactly * 3) == [PER_TURN] * 3


@EVERY
def test_a_command_that_is_larger_makes_a_turn_of_its_own(make: Make) -> None:
    larger, small = make([LARGE] * (PER_TURN + 1)), make([b"small"])
    assert turns_of([larger]) == [1]
    assert turns_of([small, larger, larger, small]) == [1, 1, 1, 1]


def test_what_has_no_body_counts_nothing() -> None:
    blob = BlobRef("name", 10**9)
    assert bytes_of(Tick()) == 0
    assert bytes_of(SubmitTasks(ref=0, tasks=[spec(1, payload=blob)])) == 0
    assert bytes_of(FinishAttempts(attempts=[Finish(task_id(1), 1, blob)])) == 0


def test_a_turn_takes_so_many_items() -> None:
    commands = [submit([b""] * 500) for _ in range(5)]
    assert turns_of(commands) == [ITEMS_PER_TURN_MAX // 500, 1]
