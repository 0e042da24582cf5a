"""The contract of `LogEngine`, on every engine."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from jackalope.storage.shared.log import LogEngine, Put
from tests.storage.shared.conftest import OpenEngine
from tests.storage.shared.servers import Servers

TIMEOUT_S = 5.0
PATIENCE_S = 30.0


def put(engine: LogEngine, position: int, message: bytes) -> Put:
    """Put a message until its fate is known: an engine may not answer while it elects."""
    end, outcome = time.monotonic() + PATIENCE_S, engine.put(position, message, TIMEOUT_S)
    while outcome is Put.UNKNOWN and time.monotonic() < end:
        time.sleep(0.1)
        outcome = engine.put(position, message, TIMEOUT_S)
        if outcome is Put.TAKEN and engine.get(position) == message:
            return Put.STORED  # by an earlier try
    return outcome


def fill(engine: LogEngine, count: int) -> None:
    """Put messages at the first positions; one that is counted as taken and is not, once more."""
    end = time.monotonic() + PATIENCE_S
    for position in range(1, count + 1):
        message = b"%d" % position
        while (outcome := put(engine, position, message)) is not Put.STORED:
            assert outcome is Put.TAKEN
            assert engine.get(position) in (None, message)
            assert time.monotonic() < end
            if engine.get(position) == message:
                break
            time.sleep(0.1)


def test_a_new_log_is_empty(engine: LogEngine) -> None:
    assert (engine.start(), engine.end()) == (1, 0)
    assert engine.get(1) is None
    assert engine.read(0, 10) == []


def test_messages_stand_where_they_were_put(engine: LogEngine) -> None:
    fill(engine, 3)
    assert (engine.start(), engine.end()) == (1, 3)
    assert [engine.get(position) for position in range(1, 5)] == [b"1", b"2", b"3", None]
    assert engine.read(1, 10) == [(2, b"2"), (3, b"3")]
    assert engine.read(0, 2) == [(1, b"1"), (2, b"2")]
    assert engine.read(3, 10) == []


@pytest.mark.parametrize("position", [1, 2, 3, 5, 9])
def test_only_the_next_position_can_be_taken(engine: LogEngine, position: int) -> None:
    fill(engine, 3)
    assert put(engine, position, b"x") is Put.TAKEN
    assert engine.read(0, 10) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert put(engine, 4, b"4") is Put.STORED


def test_a_message_that_is_put_again_is_not_stored_twice(engine: LogEngine) -> None:
    fill(engine, 2)
    assert put(engine, 2, b"2") is Put.TAKEN
    assert engine.end() == 2


def test_one_of_many_writers_gets_a_position(open_engine: OpenEngine) -> None:
    engines = [open_engine() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for position in range(1, 11):
            outcomes = list(
                threads.map(lambda n, at=position: put(engines[n], at, b"%d" % n), range(4))
            )
            assert outcomes.count(Put.STORED) == 1
            winner = outcomes.index(Put.STORED)
            assert {each.get(position) for each in engines} == {b"%d" % winner}


@pytest.mark.parametrize("size", [0, 1, 1_000, 1_000_000])
def test_messages_of_any_size(engine: LogEngine, size: int) -> None:
    message = bytes(number % 251 for number in range(size))
    assert put(engine, 1, message) is Put.STORED
    assert engine.get(1) == message
    assert engine.read(0, 1) == [(1, message)]


def test_the_largest_message(engine: LogEngine) -> None:
    message = b"m" * engine.message_bytes_max
    assert put(engine, 1, message) is Put.STORED
    assert engine.get(1) == message


def test_more_messages_than_are_read_at_once(engine: LogEngine) -> None:
    fill(engine, 150)
    read, after = [], 0
    while found := engine.read(after, 70):
        read += found
        after = found[-1][0]
    assert read == [(position, b"%d" % position) for position in range(1, 151)]


def test_another_reader_is_woken(open_engine: OpenEngine) -> None:
    writer, reader = open_engine(), open_engine()
    fill(writer, 1)
    woken: list[tuple[bool, float]] = []

    def listen() -> None:
        began = time.monotonic()
        while not reader.read(1, 1) and time.monotonic() - began < 10:
            reader.wait(1, 10)
        woken.append((bool(reader.read(1, 1)), time.monotonic() - began))

    thread = threading.Thread(target=listen)
    thread.start()
    time.sleep(0.2)
    assert put(writer, 2, b"2") is Put.STORED
    thread.join(15)
    assert woken
    assert woken[0][0]
    assert woken[0][1] < 5


def test_news_are_read_once_and_old_ones_make_room(servers: Servers) -> None:
    """A follower gets what the leader stores without asking for it; the log has the rest."""
    writer, reader = servers.engine("news"), servers.engine("news")
    with closing(writer), closing(reader):
        fill(writer, 40)
        deadline = time.monotonic() + 20
        while reader._told_end < 40 and time.monotonic() < deadline:
            reader.wait(39, 1)
        assert 0 < len(reader._told) <= 32
        expected = [(position, b"%d" % position) for position in range(1, 41)]
        assert reader.read(0, 8) == expected[:8]
        assert reader.read(8, 256) == expected[8:]
        assert not reader._told
        assert reader.read(8, 256) == expected[8:]
        assert reader.read(40, 256) == []


def test_waiting_ends(engine: LogEngine) -> None:
    began = time.monotonic()
    engine.wait(0, 0.1)
    assert time.monotonic() - began < 3


def test_closing_ends_waiting(open_engine: OpenEngine) -> None:
    engine = open_engine()
    threading.Timer(0.2, engine.close).start()
    began = time.monotonic()
    engine.wait(0, 30)
    assert time.monotonic() - began < 5


def test_cut_removes_the_beginning(engine: LogEngine) -> None:
    fill(engine, 5)
    engine.cut(3)
    assert (engine.start(), engine.end()) == (4, 5)
    assert [engine.get(position) for position in (3, 4)] == [None, b"4"]
    assert engine.read(0, 10) == [(4, b"4"), (5, b"5")]
    assert put(engine, 6, b"6") is Put.STORED
    engine.cut(2)
    assert engine.start() == 4


def test_state_is_told(engine: LogEngine) -> None:
    fill(engine, 3)
    state = engine.state()
    assert (state.start, state.end) == (1, 3)
    assert state.leader
    assert state.size > 0


def test_close_is_safe_to_repeat(engine: LogEngine) -> None:
    engine.close()
    engine.close()
