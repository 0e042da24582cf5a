"""Ids: sixteen bytes, in order of time where they are of version 7."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.core.ids import ID_BYTES, NO_TASK, TaskId, as_task_id, is_time_ordered, successor_id
from tests.core.driving import task_id

ids = st.binary(min_size=ID_BYTES, max_size=ID_BYTES).map(TaskId)
names = st.text(max_size=20)


@given(ids, names)
def test_the_same_task_and_queue_have_the_same_successor(task: TaskId, queue: str) -> None:
    assert successor_id(task, queue) == successor_id(TaskId(bytes(task)), queue)


@given(ids, names)
def test_a_successor_is_a_time_ordered_id_of_the_time_of_its_ancestor(
    task: TaskId, queue: str
) -> None:
    successor = successor_id(task, queue)
    assert len(successor) == ID_BYTES
    assert is_time_ordered(successor)
    assert UUID(bytes=bytes(successor)).version == 7
    assert successor[:6] == task[:6]


@given(ids, names, names)
def test_another_queue_gives_another_successor(task: TaskId, queue: str, other: str) -> None:
    assert (successor_id(task, queue) == successor_id(task, other)) == (queue == other)


@given(st.lists(ids, min_size=2, max_size=20, unique=True))
def test_other_tasks_have_other_successors(tasks: list[TaskId]) -> None:
    assert len({successor_id(task, "q") for task in tasks}) == len(tasks)


@given(ids, ids, names)
def test_successors_are_in_the_order_of_time_of_their_ancestors(
    task: TaskId, other: TaskId, queue: str
) -> None:
    if task[:6] < other[:6]:
        assert successor_id(task, queue) < successor_id(other, queue)


def test_a_successor_is_what_it_was_in_every_version() -> None:
    """Freeze the derivation: another one would run results twice after an update."""
    assert successor_id(task_id(1), "next").hex() == "00000000000175e4a70c04ff31dd1849"


def test_time_ordered_ids_compare_by_time() -> None:
    numbers = [0, 1, 2, 255, 256, 2**32, 2**48 - 1]
    assert sorted(map(task_id, numbers)) == [task_id(number) for number in numbers]
    assert all(is_time_ordered(task_id(number)) for number in numbers)


@pytest.mark.parametrize("version", range(16))
def test_only_version_7_is_time_ordered(version: int) -> None:
    task = TaskId(bytes(6) + bytes([version << 4]) + bytes(9))
    assert is_time_ordered(task) == (version == 7)


def test_random_ids_are_not_time_ordered() -> None:
    assert not is_time_ordered(TaskId(uuid4().bytes))


def test_no_task_is_false() -> None:
    assert not NO_TASK


@given(ids)
def test_an_id_is_read_with_hyphens_and_without(task: TaskId) -> None:
    assert as_task_id(str(UUID(bytes=bytes(task)))) == task == as_task_id(task.hex().upper())


@pytest.mark.parametrize("text", ["", "12", "x" * 32, "0" * 31, "0" * 33, "0x" + "0" * 30])
def test_what_is_no_id_is_not_read(text: str) -> None:
    assert as_task_id(text) is None
