"""Tasks of a communicator: ours does what kiwipy's over RabbitMQ does."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from typing import Any

import kiwipy
import pytest
import yaml

from tests.kiwipy.harness import PATIENCE_S, Inbox, Switch, result_of

BODIES = {
    "nothing": None,
    "number": 0,
    "text": "Grüße",
    "list": [1, 2.5, {"a": None}],
    "map": {"task": "continue", "args": {"pid": 123, "nowait": True, "tag": None}},
    "tuple": (1, 2),
    "uuid": uuid.UUID(int=7),
    "large": "x" * 100_000,
}


def load(data: bytes) -> Any:
    """Decode as AiiDA does, which trusts its own messages and has UUIDs in them."""
    return yaml.load(data, Loader=yaml.UnsafeLoader)  # noqa: S506


def raising(error: BaseException) -> Any:
    def act(_: Any) -> Any:
        raise error

    return act


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_task_and_its_result_arrive_as_they_were(switch: Switch, body: Any) -> None:
    sender, taker = switch.connect(decoder=load), switch.connect(decoder=load)
    inbox = Inbox(lambda task: task)
    taker.add_task_subscriber(inbox)
    assert result_of(sender.task_send(body)) == body
    assert inbox.next() == body


def test_no_reply_means_no_future(switch: Switch) -> None:
    communicator, inbox = switch.connect(), Inbox()
    communicator.add_task_subscriber(inbox)
    assert communicator.task_send("quiet", no_reply=True) is None
    assert inbox.next() == "quiet"


def test_a_task_waits_for_a_subscriber(switch: Switch) -> None:
    sender, taker = switch.connect(), switch.connect()
    futures = [sender.task_send(number) for number in range(5)]
    taker.add_task_subscriber(Inbox(lambda task: task + 1))
    assert [result_of(future) for future in futures] == [1, 2, 3, 4, 5]


def test_each_task_goes_to_one_of_several_takers(switch: Switch) -> None:
    sender, takers = switch.connect(), [switch.connect() for _ in range(2)]
    got: list[int] = []
    for taker in takers:
        taker.add_task_subscriber(lambda _, task: got.append(task))
    for future in [sender.task_send(number) for number in range(50)]:
        result_of(future)
    assert sorted(got) == list(range(50))


def test_what_a_subscriber_raises_the_sender_gets_once(switch: Switch) -> None:
    communicator, inbox = switch.connect(), Inbox(raising(ValueError("no good")))
    communicator.add_task_subscriber(inbox)
    with pytest.raises(kiwipy.RemoteException, match="no good"):
        result_of(communicator.task_send("try"))
    assert inbox.next() == "try"
    with pytest.raises(kiwipy.RemoteException):
        result_of(communicator.task_send("next"))
    assert inbox.next() == "next"  # The first was acknowledged, and did not come again.


def test_a_rejected_task_goes_to_the_next_subscriber(switch: Switch) -> None:
    communicator = switch.connect()
    first, second = Inbox(raising(kiwipy.TaskRejected())), Inbox(lambda _: "taken")
    communicator.add_task_subscriber(first)
    communicator.add_task_subscriber(second)
    assert result_of(communicator.task_send("for somebody")) == "taken"
    assert first.next() == second.next() == "for somebody"


def test_a_task_that_all_here_reject_goes_to_another_communicator(switch: Switch) -> None:
    sender, fussy, willing = (switch.connect() for _ in range(3))
    inbox = Inbox(raising(kiwipy.TaskRejected()))
    fussy.add_task_subscriber(inbox)
    future = sender.task_send("for somebody")
    inbox.next()
    willing.add_task_subscriber(Inbox(lambda _: "taken"))
    assert result_of(future) == "taken"


def test_futures_are_delivered_level_by_level(switch: Switch) -> None:
    sender, taker = switch.connect(), switch.connect()
    levels = [kiwipy.Future() for _ in range(3)]
    taker.add_task_subscriber(Inbox(lambda _: levels[0]))
    seen = sender.task_send("chain").result(PATIENCE_S)
    for level, following in zip(levels, [*levels[1:], "the end"], strict=True):
        assert isinstance(seen, kiwipy.Future)
        assert not seen.done()
        level.set_result(following)
        seen = seen.result(PATIENCE_S)
    assert seen == "the end"


def test_a_task_is_held_until_its_chain_of_futures_has_ended(switch: Switch) -> None:
    sender, taker, other = (switch.connect() for _ in range(3))
    inner, outer = kiwipy.Future(), kiwipy.Future()
    taker.add_task_subscriber(Inbox(lambda _: outer))
    future = sender.task_send("long")
    future.result(PATIENCE_S)
    outer.set_result(inner)
    idle = Inbox()
    other.add_task_subscriber(idle)
    assert idle.is_empty()
    taker.close()  # It has not ended, so somebody else shall do it.
    assert idle.next() == "long"


def test_an_exception_within_a_future_reaches_the_sender(switch: Switch) -> None:
    sender, taker = switch.connect(), switch.connect()
    late: kiwipy.Future = kiwipy.Future()
    taker.add_task_subscriber(Inbox(lambda _: late))
    seen = sender.task_send("late").result(PATIENCE_S)
    late.set_exception(RuntimeError("after all"))
    with pytest.raises(kiwipy.RemoteException, match="after all"):
        seen.result(PATIENCE_S)


def test_a_coroutine_function_is_a_subscriber(our_switch: Switch) -> None:
    # Over RabbitMQ the future of a coroutine is lost on its way between two threads.
    async def subscriber(_: Any, task: int) -> int:
        await asyncio.sleep(0)
        return task * 2

    communicator = our_switch.connect()
    communicator.add_task_subscriber(subscriber)
    assert result_of(communicator.task_send(4)) == 8


def test_a_cancelled_future_does_not_acknowledge(switch: Switch) -> None:
    sender, taker, other = (switch.connect() for _ in range(3))
    started: kiwipy.Future = kiwipy.Future()
    inbox = Inbox(lambda _: started)
    identifier = taker.add_task_subscriber(inbox)
    sender.task_send("give up", no_reply=True)
    inbox.next()
    # Before the taker leaves: RabbitMQ deletes the queue of a test that nobody consumes for 10 s.
    heir = Inbox()
    other.add_task_subscriber(heir)
    taker.remove_task_subscriber(identifier)
    assert heir.is_empty()
    started.cancel()
    taker.close()
    assert heir.next() == "give up"


def test_subscribers_have_identifiers(switch: Switch) -> None:
    communicator = switch.connect()
    assert communicator.add_task_subscriber(Inbox(), "mine") == "mine"
    with pytest.raises(kiwipy.DuplicateSubscriberIdentifier):
        communicator.add_task_subscriber(Inbox(), "mine")
    assert communicator.add_task_subscriber(Inbox()) not in (None, "mine")
    communicator.remove_task_subscriber("mine")
    for unknown in ("mine", "never"):
        with pytest.raises(ValueError, match=unknown):
            communicator.remove_task_subscriber(unknown)


def test_who_has_left_gets_nothing(switch: Switch) -> None:
    communicator, gone, there = switch.connect(), Inbox(), Inbox()
    communicator.remove_task_subscriber(communicator.add_task_subscriber(gone))
    communicator.add_task_subscriber(there)
    result_of(communicator.task_send("who"))
    assert there.next() == "who"
    assert gone.is_empty()


def test_no_more_than_the_prefetch_is_held(switch: Switch) -> None:
    sender, taker = switch.connect(), switch.connect(task_prefetch_count=2)
    held = [kiwipy.Future() for _ in range(4)]
    inbox = Inbox(lambda number: held[number])
    taker.add_task_subscriber(inbox)
    futures = [sender.task_send(number) for number in range(4)]
    assert {inbox.next(), inbox.next()} == {0, 1}
    for number, following in ((0, 2), (1, 3)):
        assert inbox.is_empty()
        held[number].set_result(number)
        assert inbox.next() == following
    held[2].set_result(2)
    held[3].set_result(3)
    assert [result_of(future) for future in futures] == [0, 1, 2, 3]


def test_encoder_and_decoder_are_those_that_were_given(switch: Switch) -> None:
    def encode(value: Any) -> bytes:
        return json.dumps(value).encode()

    sender, taker = (switch.connect(encoder=encode, decoder=json.loads) for _ in range(2))
    taker.add_task_subscriber(Inbox(lambda task: task))
    assert result_of(sender.task_send({"a": (1, 2)})) == {"a": [1, 2]}  # JSON has no tuples.


def test_it_may_be_used_from_many_threads(switch: Switch) -> None:
    communicator = switch.connect()
    communicator.add_task_subscriber(Inbox(lambda task: task))
    results: list[int] = []

    def send(number: int) -> None:
        results.append(result_of(communicator.task_send(number)))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(results) == list(range(10))


def test_a_crowd_may_use_it_from_the_first_moment(our_switch: Switch) -> None:
    communicator = our_switch.connect()
    threads = [
        threading.Thread(target=communicator.task_send, args=(number, True))
        for number in range(150)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    inbox = Inbox()
    communicator.add_task_subscriber(inbox)
    assert sorted(inbox.next() for _ in threads) == list(range(150))


def test_a_closed_communicator_does_nothing_more(switch: Switch) -> None:
    communicator = switch.connect()
    assert not communicator.is_closed()
    communicator.close()
    communicator.close()
    assert communicator.is_closed()
    calls: list[Any] = [
        lambda: communicator.task_send(1),
        lambda: communicator.rpc_send("a", 1),
        lambda: communicator.broadcast_send(1),
        lambda: communicator.add_task_subscriber(Inbox()),
        lambda: communicator.add_rpc_subscriber(Inbox()),
        lambda: communicator.add_broadcast_subscriber(Inbox()),
        lambda: communicator.remove_task_subscriber("a"),
        lambda: communicator.remove_rpc_subscriber("a"),
        lambda: communicator.remove_broadcast_subscriber("a"),
        lambda: communicator.task_queue("q"),
        lambda: communicator.add_close_callback(print),
    ]
    for call in calls:
        with pytest.raises(kiwipy.CommunicatorClosed):
            call()


def test_it_is_a_context_that_closes_it(switch: Switch) -> None:
    with switch.connect() as communicator:
        assert "product" in communicator.server_properties
        assert isinstance(communicator, kiwipy.Communicator)
    assert communicator.is_closed()


def test_who_asked_hears_that_it_was_closed(switch: Switch) -> None:
    communicator, closed = switch.connect(), threading.Event()
    communicator.add_close_callback(lambda *_: closed.set())
    communicator.close()
    assert closed.wait(PATIENCE_S)


@pytest.mark.parametrize("no_reply", [True, False])
def test_a_body_that_fits_into_no_frame(switch: Switch, no_reply: bool) -> None:
    def encode(value: Any) -> bytes:
        return json.dumps(value).encode()

    body = "x" * 20_000_000
    sender, taker = (switch.connect(encoder=encode, decoder=json.loads) for _ in range(2))
    inbox = Inbox(lambda task: task)
    taker.add_task_subscriber(inbox)
    reply = sender.task_send(body, no_reply=no_reply)
    assert inbox.next() == body
    assert no_reply or result_of(reply) == body
