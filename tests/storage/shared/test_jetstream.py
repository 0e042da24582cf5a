"""JetStream as an engine: what is asked again because a server took the question with it."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nats.aio.msg import Msg

from jackalope.storage.shared.jetstream import FULL, JetStreamEngine
from jackalope.storage.shared.log import Put
from tests.storage.shared.servers import Servers

TIMEOUT_S = 20.0

StandIn = Callable[[dict[str, Any], int], list[bytes]]


@pytest.fixture
def engine(servers: Servers) -> Iterator[JetStreamEngine]:
    engine = servers.engine("forgetful")
    yield engine
    engine.close()


@pytest.fixture
def stand_in(servers: Servers, engine: JetStreamEngine) -> Iterator[StandIn]:
    """Return what lets puts go to another client, which answers late; and what that one hears."""
    other = servers.engine("forgetful")
    yield lambda answer, unanswered: _stand_in(other, engine, answer, unanswered)
    other.close()


def _stand_in(
    other: JetStreamEngine, engine: JetStreamEngine, answer: dict[str, Any], unanswered: int
) -> list[bytes]:
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)
        if len(heard) > unanswered:
            await message.respond(json.dumps(answer).encode())

    engine.subject = f"stand.in.{time.monotonic_ns()}"
    other._call(other._client.subscribe(engine.subject, cb=hear))
    other._call(other._client.flush())
    return heard


@pytest.mark.parametrize("unanswered", [0, 1, 2])
def test_a_put_that_is_not_answered_is_sent_again(
    engine: JetStreamEngine, stand_in: StandIn, unanswered: int
) -> None:
    heard = stand_in({"seq": 1}, unanswered)
    assert engine.put(1, b"entry", TIMEOUT_S) is Put.STORED
    assert set(heard) == {b"entry"}
    assert len(heard) >= unanswered + 1


@pytest.mark.parametrize("code", sorted(FULL))
def test_no_room_for_one_that_may_be_stored_is_no_answer(
    engine: JetStreamEngine, stand_in: StandIn, code: int
) -> None:
    full = {"error": {"err_code": code}}
    stand_in(full, 0)
    assert engine.put(1, b"entry", TIMEOUT_S) is Put.FULL
    stand_in(full, 1)
    assert engine.put(1, b"entry", TIMEOUT_S) is Put.UNKNOWN


def test_a_put_that_is_never_answered_is_in_doubt(
    engine: JetStreamEngine, stand_in: StandIn
) -> None:
    heard = stand_in({}, 1_000)
    assert engine.put(1, b"entry", 1.0) is Put.UNKNOWN
    assert 1 <= len(heard) <= 3


def test_a_copy_that_decides_hands_that_over(servers: Servers, engine: JetStreamEngine) -> None:
    before = engine.state().leader
    engine.shun("another")
    assert engine.state().leader == before
    engine.shun(before)
    end = time.monotonic() + TIMEOUT_S
    while engine.state().leader in ("", before) and time.monotonic() < end:
        time.sleep(0.05)
    assert engine.state().leader not in ("", before)
    assert len(servers.all) == 3
