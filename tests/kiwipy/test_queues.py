"""Task queues of a communicator: ours do what kiwipy's over RabbitMQ do."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import kiwipy
import pytest

from tests.kiwipy.harness import PATIENCE_S, Inbox, Switch, result_of


@pytest.fixture
def queue(switch: Switch) -> Any:
    return switch.connect().task_queue(f"named-{switch.name}")


def take(queue: Any) -> Any:
    """Take the next task, which may be on its way back into the queue."""
    with queue.next_task() as task:
        body = task.body
        with task.processing() as outcome:
            outcome.set_result(None)
    return body


def test_a_task_is_taken_and_processed(queue: Any) -> None:
    future = queue.task_send("work")
    with queue.next_task() as task:
        assert (task.body, task.no_reply, task.state) == ("work", False, "pending")
        with task.processing() as outcome:
            assert task.state == "processing"
            outcome.set_result("done")
        assert task.state == "finished"
    assert result_of(future) == "done"


def test_an_empty_queue_says_so(queue: Any) -> None:
    with pytest.raises(kiwipy.QueueEmpty), queue.next_task(timeout=PATIENCE_S):
        pass


def test_a_task_that_is_left_alone_goes_back(queue: Any) -> None:
    queue.task_send("later", no_reply=True)
    with queue.next_task() as task:
        assert task.no_reply
    assert take(queue) == "later"


def test_a_task_without_an_outcome_goes_back(queue: Any) -> None:
    queue.task_send("later", no_reply=True)
    with queue.next_task() as task:
        with task.processing():
            pass
        assert task.state == "requeued"
    assert take(queue) == "later"


def test_what_is_raised_while_processing_is_the_outcome(queue: Any) -> None:
    future = queue.task_send("bad")
    with pytest.raises(ValueError, match="spoiled"), queue.next_task() as task, task.processing():
        raise ValueError("spoiled")
    with pytest.raises(kiwipy.RemoteException, match="spoiled"):
        result_of(future)


def test_a_task_can_be_put_back(queue: Any) -> None:
    queue.task_send("again", no_reply=True)
    with queue.next_task() as task:
        task.requeue()
        assert task.state == "requeued"
        with pytest.raises(asyncio.InvalidStateError):
            task.requeue()
    assert take(queue) == "again"


def test_a_task_is_processed_once(queue: Any) -> None:
    queue.task_send("once", no_reply=True)
    with queue.next_task() as task:
        with task.processing() as outcome:
            outcome.set_result(None)
        with pytest.raises(asyncio.InvalidStateError), task.processing():
            pass
        with pytest.raises(asyncio.InvalidStateError):
            task.process()


def test_the_outcome_can_be_set_later(queue: Any) -> None:
    future = queue.task_send("slow")
    with queue.next_task() as task:
        outcome = task.process()
    assert not future.done()
    outcome.set_result("at last")
    assert result_of(future) == "at last"


def test_an_outcome_that_is_thrown_away_puts_the_task_back(queue: Any) -> None:
    queue.task_send("forgotten", no_reply=True)
    with queue.next_task() as task:
        outcome = task.process()
    with pytest.raises(kiwipy.QueueEmpty), queue.next_task():
        pass
    del outcome
    gc.collect()
    assert take(queue) == "forgotten"


def test_every_task_is_visited_once(queue: Any) -> None:
    for number in range(5):
        queue.task_send(number, no_reply=True)
    seen = []
    for task in queue:
        seen.append(task.body)
        if task.body % 2:
            with task.processing() as outcome:
                outcome.set_result(None)
    assert seen == [0, 1, 2, 3, 4]
    assert sorted(task.body for task in queue) == [0, 2, 4]  # The others have gone back.


def test_a_queue_has_subscribers_of_its_own(switch: Switch, queue: Any) -> None:
    other = switch.connect()
    stranger, inbox = Inbox(), Inbox(lambda task: task * 2)
    other.add_task_subscriber(stranger)
    queue.add_task_subscriber(inbox)
    assert result_of(queue.task_send(4)) == 8
    assert stranger.is_empty()


def test_queues_of_one_name_are_one_queue(switch: Switch, queue: Any) -> None:
    same = switch.connect().task_queue(f"named-{switch.name}")
    future = queue.task_send("shared")
    with same.next_task() as task, task.processing() as outcome:
        outcome.set_result(task.body)
    assert result_of(future) == "shared"
