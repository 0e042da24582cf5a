"""Calls and broadcasts of a communicator: ours does what kiwipy's over RabbitMQ does."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import kiwipy
import pytest
import yaml

from jackalope.aiida import communicator as earlier
from jackalope.kiwipy.communicator import connect
from tests.kiwipy.harness import PATIENCE_S, Ear, Inbox, Switch, result_of


def raising(error: BaseException) -> Any:
    def act(_: Any) -> Any:
        raise error

    return act


# Calls.


def test_a_call_is_answered(switch: Switch) -> None:
    caller, answerer = switch.connect(), switch.connect()
    answerer.add_rpc_subscriber(Inbox(lambda message: {"got": message}), "clerk")
    assert result_of(caller.rpc_send("clerk", [1, "two"])) == {"got": [1, "two"]}


def test_nobody_there_is_said_by_the_call_itself(switch: Switch) -> None:
    caller = switch.connect()
    with pytest.raises(kiwipy.UnroutableError):
        caller.rpc_send("nobody", 1)
    with pytest.raises(kiwipy.DeliveryFailed):
        caller.rpc_send("nobody", 1)


def test_recipients_are_compared_as_texts(switch: Switch) -> None:
    communicator = switch.connect()
    assert communicator.add_rpc_subscriber(Inbox(lambda _: "here"), "123") == "123"
    assert result_of(communicator.rpc_send(123, "?")) == "here"


def test_what_a_recipient_raises_the_caller_gets(switch: Switch) -> None:
    communicator = switch.connect()
    communicator.add_rpc_subscriber(Inbox(raising(KeyError("missing"))), "clerk")
    with pytest.raises(kiwipy.RemoteException, match="missing"):
        result_of(communicator.rpc_send("clerk", 1))


def test_futures_of_a_recipient_come_level_by_level(switch: Switch) -> None:
    caller, answerer = switch.connect(), switch.connect()
    outer, inner = kiwipy.Future(), kiwipy.Future()
    answerer.add_rpc_subscriber(Inbox(lambda _: outer), "clerk")
    seen = caller.rpc_send("clerk", 1).result(PATIENCE_S)
    assert isinstance(seen, kiwipy.Future)
    outer.set_result(inner)
    seen = seen.result(PATIENCE_S)
    inner.set_result("the end")
    assert seen.result(PATIENCE_S) == "the end"


def test_a_future_that_fails_fails_for_the_caller(switch: Switch) -> None:
    communicator, late = switch.connect(), kiwipy.Future()
    communicator.add_rpc_subscriber(Inbox(lambda _: late), "clerk")
    seen = communicator.rpc_send("clerk", 1).result(PATIENCE_S)
    late.set_exception(RuntimeError("after all"))
    with pytest.raises(kiwipy.RemoteException, match="after all"):
        seen.result(PATIENCE_S)


def test_a_coroutine_function_answers(our_switch: Switch) -> None:
    # Over RabbitMQ the future of a coroutine is lost on its way between two threads.
    async def subscriber(_: Any, message: int) -> int:
        await asyncio.sleep(0)
        return message + 1

    communicator = our_switch.connect()
    communicator.add_rpc_subscriber(subscriber, "clerk")
    assert result_of(communicator.rpc_send("clerk", 1)) == 2


def test_recipients_have_identifiers(switch: Switch) -> None:
    communicator = switch.connect()
    communicator.add_rpc_subscriber(Inbox(), "mine")
    with pytest.raises(kiwipy.DuplicateSubscriberIdentifier):
        communicator.add_rpc_subscriber(Inbox(), "mine")
    made = communicator.add_rpc_subscriber(Inbox(lambda _: "made"))
    assert result_of(communicator.rpc_send(made, 1)) == "made"
    communicator.remove_rpc_subscriber("mine")
    with pytest.raises(ValueError, match="mine"):
        communicator.remove_rpc_subscriber("mine")
    with pytest.raises(kiwipy.UnroutableError):
        communicator.rpc_send("mine", 1)


def test_who_has_closed_cannot_be_called(switch: Switch) -> None:
    caller, answerer = switch.connect(), switch.connect()
    answerer.add_rpc_subscriber(Inbox(), "clerk")
    answerer.close()
    with pytest.raises(kiwipy.UnroutableError):
        caller.rpc_send("clerk", 1)


# Broadcasts.


def test_a_broadcast_reaches_all_also_oneself(switch: Switch) -> None:
    communicators = [switch.connect() for _ in range(3)]
    ears = [Ear() for _ in communicators]
    for communicator, ear in zip(communicators, ears, strict=True):
        communicator.add_broadcast_subscriber(ear)
    sent = ({"state": "finished"}, 42, "state_changed.running.finished", "c-1")
    assert communicators[0].broadcast_send(*sent) is True
    assert [ear.next() for ear in ears] == [sent] * 3


def test_that_nobody_listens_is_no_fault(switch: Switch) -> None:
    assert switch.connect().broadcast_send("hello?") is True


def test_all_but_the_body_may_be_left_out(switch: Switch) -> None:
    communicator, ear = switch.connect(), Ear()
    communicator.add_broadcast_subscriber(ear)
    communicator.broadcast_send("alone")
    assert ear.next() == ("alone", None, None, None)


def test_several_subscribers_of_one_communicator_hear_it(switch: Switch) -> None:
    communicator, ears = switch.connect(), [Ear(), Ear()]
    for ear in ears:
        communicator.add_broadcast_subscriber(ear)
    communicator.broadcast_send(1)
    assert [ear.next()[0] for ear in ears] == [1, 1]


@pytest.mark.parametrize("sender", [7, "seven", uuid.UUID(int=7)])
def test_a_sender_keeps_its_type(switch: Switch, sender: Any) -> None:
    def load(data: bytes) -> Any:
        return yaml.load(data, Loader=yaml.UnsafeLoader)  # noqa: S506  for the UUID

    communicator, ear = switch.connect(decoder=load), Ear()
    communicator.add_broadcast_subscriber(ear)
    communicator.broadcast_send("from", sender=sender)
    assert ear.next()[1] == sender


@pytest.mark.parametrize(
    ("subject", "sender", "expected"),
    [
        ("purchase.*", None, ["purchase.car", "purchase.piano"]),
        ("*.guitar", None, ["sell.guitar"]),
        ("purchase.car", None, ["purchase.car"]),
        (None, "bob.*", ["purchase.car", "sell.guitar"]),
        ("purchase.*", "alice.*", ["purchase.piano"]),
    ],
)
def test_filters_choose_by_subject_and_sender(
    switch: Switch, subject: str | None, sender: str | None, expected: list[str]
) -> None:
    communicator, ear, every = switch.connect(), Ear(), Ear()
    communicator.add_broadcast_subscriber(
        kiwipy.BroadcastFilter(ear, subject=subject, sender=sender)
    )
    communicator.add_broadcast_subscriber(every)
    said = [
        ("purchase.car", "bob.jones"),
        ("purchase.piano", "alice.smith"),
        ("sell.guitar", "bob.jones"),
    ]
    for about, by in said:
        communicator.broadcast_send(None, sender=by, subject=about)
    for _ in said:
        every.next()
    assert [ear.next()[2] for _ in expected] == expected
    assert ear.is_empty()


def test_a_subscriber_that_fails_does_not_keep_it_from_others(switch: Switch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("deaf")

    communicator, ear = switch.connect(), Ear()
    communicator.add_broadcast_subscriber(fail)
    communicator.add_broadcast_subscriber(ear)
    communicator.broadcast_send("still")
    assert ear.next()[0] == "still"


def test_listeners_have_identifiers(switch: Switch) -> None:
    communicator, ear, other = switch.connect(), Ear(), Ear()
    assert communicator.add_broadcast_subscriber(ear, "mine") == "mine"
    with pytest.raises(kiwipy.DuplicateSubscriberIdentifier):
        communicator.add_broadcast_subscriber(Ear(), "mine")
    communicator.add_broadcast_subscriber(other)
    communicator.remove_broadcast_subscriber("mine")
    with pytest.raises(ValueError, match="mine"):
        communicator.remove_broadcast_subscriber("mine")
    communicator.broadcast_send("who")
    assert other.next()[0] == "who"
    assert ear.is_empty()


def test_other_exchanges_hear_nothing(switch: Switch) -> None:
    here, elsewhere = switch.connect(), switch.connect(message_exchange=f"other-{switch.name}")
    near, far = Ear(), Ear()
    here.add_broadcast_subscriber(near)
    elsewhere.add_broadcast_subscriber(far)
    here.add_rpc_subscriber(Inbox(), "clerk")
    here.broadcast_send("here")
    assert near.next()[0] == "here"
    with pytest.raises(kiwipy.UnroutableError):
        elsewhere.rpc_send("clerk", 1)
    assert far.is_empty()


def test_the_earlier_name_of_the_communicator_still_works() -> None:
    assert earlier.connect is connect
