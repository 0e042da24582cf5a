"""Digests of state: equal after equal records, and of nothing else."""

import pytest

from jackalope.core.commands import Action, ActOnTasks, LimitTag, SubmitTasks
from jackalope.core.state.digest import SLICES_MAX, TASKS_PER_SLICE, digest_of, slices_of
from jackalope.core.state.slices import in_slice
from jackalope.core.task import TaskSpec
from tests.core.driving import Driver, spec, task_id
from tests.core.flows.graphs import FlowDriver, node

COUNT = 4


def digests(driver: Driver) -> list[bytes]:
    return [digest_of(driver.core.book, index, COUNT) for index in range(COUNT)]


def mixed(number: int) -> TaskSpec:
    """Return a task whose id is not of the first slice alone."""
    made = spec(number, payload=b"%d" % number)
    made.id = type(made.id)(made.id[:15] + bytes([number]))
    return made


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.send(SubmitTasks(1, [mixed(number) for number in range(1, 40)], namespace="default"))
    return driver


def test_a_core_that_applied_the_same_records_has_the_same_digests(driver: Driver) -> None:
    replayed = driver.replayed()
    assert digests(driver) == [digest_of(replayed.book, index, COUNT) for index in range(COUNT)]
    assert len(set(digests(driver))) == COUNT


def test_what_left_the_line_and_came_back_makes_no_difference(driver: Driver) -> None:
    """Tables are in another order on a node that was started again."""
    before = digests(driver)
    book = driver.core.book
    book.tasks = dict(reversed(book.tasks.items()))
    for task in book.tasks.values():
        task.rank += 7
    assert digests(driver) == before


def test_every_difference_is_in_some_slice(driver: Driver) -> None:
    before = digests(driver)
    for task in driver.core.book.tasks.values():
        task.failures += 1
        changed = digests(driver)
        assert sum(a != b for a, b in zip(before, changed, strict=True)) == 1
        task.failures -= 1
    assert digests(driver) == before
    driver.send(LimitTag(tag="gpu", limit=3, namespace="default"))
    assert digests(driver) != before


def test_slices_are_as_many_as_the_tasks_need(driver: Driver) -> None:
    book = driver.core.book
    assert slices_of(book) == 1
    task = book.tasks[mixed(1).id]
    book.tasks |= {task_id(number): task for number in range(5 * TASKS_PER_SLICE)}
    assert slices_of(book) == 8
    assert SLICES_MAX == 1 << 16


def test_an_index_of_slices_finds_the_same(driver: Driver) -> None:
    """Tasks come, end and leave while the index is kept; slices are fewer or more than buckets."""
    book = driver.core.book
    book.slice_up()
    for number in range(40, 80):
        driver.send(SubmitTasks(1, [mixed(number)], namespace="default"))
    leaving = [mixed(number).id for number in (3, 40, 41)]
    driver.send(ActOnTasks(ref=0, action=Action.KILL, tasks=tuple(leaving)))
    changes = book.take_changes()
    book.stored(changes)
    assert not set(leaving) & set(book.tasks)
    for count in (1, 4, 256, 1024):
        for index in range(min(count, 300)):
            assert book.slices is not None
            assert set(book.slices.ids(index, count)) == set(in_slice(book.tasks, index, count))
    indexed = digests(driver)
    book.slices = book.answers.slices = None
    assert digests(driver) == indexed


def test_maps_of_ids_and_numbers_have_a_digest() -> None:
    """The headers of a task may have some, and a flow whose nodes failed has."""
    driver = FlowDriver()
    driver.submit(8, headers={"sizes": {1: "small", 2: "large"}})
    driver.flow(1, node("a"), node("b"))
    driver.break_(1, "a")
    assert digest_of(driver.core.book, 0, 1) == digest_of(driver.replayed().book, 0, 1)
