"""Calls and broadcasts over the native door: from session to session, at once or not at all."""

from typing import Any

import pytest

from jackalope.broker.access import Access
from jackalope.core.api_key import Permission
from jackalope.wire.messages import (
    Ack,
    Broadcast,
    Call,
    Called,
    CallReplied,
    CallReply,
    CallStage,
    Heard,
    Interest,
    Listen,
    Nack,
    Query,
)
from tests.doors.harness import House, Peer, open_house, run
from tests.doors.native.test_access import make_key


async def answering(house: House, name: str = "clerk", **more: Any) -> Peer:
    """Let a peer in that takes calls."""
    peer = await house.peer(**more)
    await peer.ask_ok(Listen(0, (name,)))
    return peer


def test_a_call_goes_there_and_the_reply_comes_back() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk, caller = await answering(house), await house.peer()
            await caller.ask_ok(Call(7, "clerk", b"question"))
            called = await clerk.expect(Called)
            assert (called.recipient, called.body) == ("clerk", b"question")
            await clerk.send(CallReply(0, called.call, CallStage.PENDING))
            await clerk.send(CallReply(0, called.call, CallStage.RESULT, b"answer"))
            assert await caller.expect(CallReplied) == CallReplied(7, CallStage.PENDING)
            assert await caller.expect(CallReplied) == CallReplied(7, CallStage.RESULT, b"answer")
            # It is over: what is said after that reaches nobody.
            await clerk.ask_ok(CallReply(0, called.call, CallStage.RESULT, b"more"))
            await caller.ask_ok(Query(0, "stats"))
            assert caller.heard == []

    run(test())


def test_nobody_there_is_said_at_once() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            caller = await house.peer()
            refused = await caller.ask_no(Call(0, "nobody"))
            assert (refused.code, "'nobody'" in refused.message) == ("unknown_recipient", True)

    run(test())


def test_who_takes_no_more_calls_is_not_there() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk, caller = await answering(house), await house.peer()
            await clerk.ask_ok(Listen(0, ("clerk",), begin=False))
            assert (await caller.ask_no(Call(0, "clerk"))).code == "unknown_recipient"

    run(test())


def test_the_latest_session_has_the_calls_and_then_the_one_before() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            old, new, caller = await answering(house), await answering(house), await house.peer()
            await caller.ask_ok(Call(0, "clerk", b"1"))
            assert (await new.expect(Called)).body == b"1"
            new.close()
            await house.until(lambda: len(house.door.connections) == 2)
            await caller.ask_ok(Call(0, "clerk", b"2"))
            assert (await old.expect(Called)).body == b"2"

    run(test())


def test_a_caller_hears_at_once_that_the_recipient_is_gone() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk, caller = await answering(house), await house.peer()
            await caller.ask_ok(Call(5, "clerk"))
            await clerk.expect(Called)
            clerk.close()
            assert await caller.expect(CallReplied) == CallReplied(5, CallStage.LOST)

    run(test())


def test_that_a_call_is_lost_is_not_for_a_recipient_to_say() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk = await answering(house)
            refused = await clerk.ask_no(CallReply(0, 1, CallStage.LOST))
            assert refused.code == "invalid"

    run(test())


def test_a_session_may_call_itself() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk = await answering(house)
            await clerk.ask_ok(Call(3, "clerk", b"me"))
            called = await clerk.expect(Called)
            await clerk.send(CallReply(0, called.call, CallStage.RESULT, b"yes"))
            assert (await clerk.expect(CallReplied)).body == b"yes"

    run(test())


def test_broadcasts_go_to_those_who_want_them() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            every, doors, ada, deaf = [await house.peer() for _ in range(4)]
            await every.ask_ok(Listen(0, (), (Interest(),)))
            await doors.ask_ok(Listen(0, (), (Interest(subject="door.*"), Interest("nobody"))))
            await ada.ask_ok(Listen(0, (), (Interest(sender="ada"),)))
            said = [("door.open", "bob"), ("wind", "ada"), ("door.shut", "ada")]
            counts = [
                (await deaf.ask_ok(Broadcast(0, subject, sender, b"!")))["count"]
                for subject, sender in said
            ]
            assert counts == [2, 2, 3]
            for peer, expected in ((every, said), (doors, [said[0], said[2]]), (ada, said[1:])):
                heard = [await peer.expect(Heard) for _ in expected]
                assert [(one.subject, one.sender) for one in heard] == expected
                assert {(one.body, one.missed) for one in heard} == {(b"!", 0)}
            assert deaf.heard == []

    run(test())


def test_a_session_with_several_interests_hears_a_broadcast_once() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.ask_ok(Listen(0, (), (Interest(), Interest(subject="a*"))))
            assert (await peer.ask_ok(Broadcast(0, "abc")))["count"] == 1
            await peer.expect(Heard)
            await peer.ask_ok(Listen(0, (), (Interest(),), begin=False))
            assert (await peer.ask_ok(Broadcast(0, "xyz")))["count"] == 0
            assert (await peer.ask_ok(Broadcast(0, "abc")))["count"] == 1

    run(test())


def test_namespaces_see_nothing_of_each_other() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            clerk = await answering(house, namespace="other")
            await clerk.ask_ok(Listen(0, (), (Interest(),)))
            caller = await house.peer()
            assert (await caller.ask_no(Call(0, "clerk"))).code == "unknown_recipient"
            assert (await caller.ask_ok(Broadcast(0, "door")))["count"] == 0

    run(test())


def test_a_slow_session_is_spared_and_told_what_it_missed() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            slow = await house.connect(receive_bytes=4096)
            await slow.greet()
            await slow.ask_ok(Listen(0, ("sloth",), (Interest(),)))
            loud, body = await house.peer(), bytes(500_000)
            sent, refused = 0, None
            while refused is None:
                await loud.ask_ok(Broadcast(0, "noise", "", body))
                sent += 1
                answer = await loud.ask(Call(0, "sloth"))
                refused = answer if isinstance(answer, Nack) else None
            assert (refused.code, refused.retry_after_us > 0) == ("overloaded", True)
            assert sent < 200  # Nowhere near what may wait for a peer.
            await loud.ask_ok(Broadcast(0, "noise", "", body))
            # It reads again, and hears how many it has missed.
            heard = 0
            while heard < sent:
                heard += (await slow.expect(Heard)).missed + 1
            await house.until(lambda: not any(c._stuck_since_us for c in house.door.connections))
            await loud.ask_ok(Broadcast(0, "calm"))
            last = await slow.expect(Heard, lambda one: one.subject == "calm")
            assert (heard - sent) + last.missed == 1
            assert isinstance(await loud.ask(Call(0, "sloth")), Ack)

    run(test())


def test_one_who_shouts_does_not_crowd_out_others() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            listeners = [await house.peer() for _ in range(20)]
            for listener in listeners:
                await listener.ask_ok(Listen(0, (), (Interest(),)))
            loud, other = await house.peer(), await house.peer()
            await loud.send(*[Broadcast(0, "noise") for _ in range(2_000)])
            await other.ask_ok(Query(0, "stats"))
            for listener in listeners:
                for _ in range(2_000):
                    await listener.expect(Heard)

    run(test())


@pytest.mark.parametrize(
    "message", [Call(0, "clerk"), Broadcast(0), Listen(0, ("clerk",)), Listen(0, (), (Interest(),))]
)
def test_a_key_for_some_queues_does_not_cover_messages(message: Any) -> None:
    token, key = make_key(
        Permission.SUBMIT_TASKS, Permission.READ_TASKS, Permission.WORK, queues=("q",)
    )

    async def test() -> None:
        async with open_house(None, access=Access([key])) as house:
            peer = await house.peer(token=token)
            message.ref = 0
            assert (await peer.ask_no(message)).code == "forbidden"

    run(test())
