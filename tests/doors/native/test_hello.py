"""The beginning and the end of a connection: HELLO, pulses, heartbeats, silence, goodbye."""

import asyncio
from pathlib import Path

import pytest

from jackalope.core.commands import Heartbeat, SubmitTasks
from jackalope.core.durations import MILLISECOND
from jackalope.doors.native.connection import HELLO_BYTES_MAX
from jackalope.wire.frames import FRAME_BYTES_MAX, VERSION, Kind
from jackalope.wire.messages import Ack, AnyMessage, Hello, Nack, Notice, Query, Welcome
from tests.doors.harness import Peer, codec, open_house, run, spec

#: Short enough for a test, long enough for a busy machine.
BEAT_US = 100 * MILLISECOND
BEAT_S = 0.1


@pytest.mark.feature("T1")
def test_welcome() -> None:
    async def test() -> None:
        async with open_house(None, heartbeat_us=7_000_000) as house:
            first = (await house.peer()).welcome
            second = (await house.peer()).welcome
            assert (first.version, first.heartbeat_us) == (VERSION, 7_000_000)
            assert first.frame_bytes_max == FRAME_BYTES_MAX
            assert first.server.startswith("jackalope ")
            assert second.session > first.session > 0
            assert len(first.pulse) == len(second.pulse) == 32
            assert first.pulse != second.pulse

    run(test())


@pytest.mark.feature("J20")
def test_newer_peer_is_told_what_will_be_spoken() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await (await house.connect()).greet(Hello(version=VERSION + 7))
            assert peer.welcome.version == VERSION

    run(test())


async def _error_of(peer: Peer) -> str:
    """Wait for the broker to give a peer up, and return what it said last."""
    *_, last = await peer.wait_closed()
    assert isinstance(last, Notice)
    assert last.what == "error"
    return last.detail


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([Hello(version=VERSION - 1)], "protocol version 0; this broker speaks 1"),
        ([Query(1, "stats")], "the first frame must be HELLO"),
        ([Hello(), Hello()], "HELLO was already received"),
        ([Hello(pulse="no such pulse")], "unknown pulse"),
    ],
)
@pytest.mark.feature("T2", "J20")
def test_bad_beginning(messages: list[AnyMessage], why: str) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.connect()
            await peer.send(*messages)
            assert why in await _error_of(peer)
            await house.until(lambda: not house.door.connections)

    run(test())


def test_hello_takes_too_long() -> None:
    async def test() -> None:
        async with open_house(None, heartbeat_us=BEAT_US, hello_us=BEAT_US) as house:
            mute, slow = await house.connect(), await house.connect()
            await slow.send_bytes(codec.encode(Hello())[:7])
            assert "no HELLO within the time limit" in await _error_of(mute)
            assert "no HELLO within the time limit" in await _error_of(slow)

    run(test())


def test_gone_in_the_middle_of_a_frame() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            hello, submit = codec.encode(Hello()), codec.encode(SubmitTasks(1, [spec()]))
            for cut in (1, 4, 5, len(hello) - 1):
                peer = await house.connect()
                await peer.send_bytes(hello[:cut])
                peer.close()
            for cut in (1, 4, 5, len(submit) - 1):
                peer = await house.peer()
                await peer.send_bytes(submit[:cut])
                peer.close()
            await house.until(lambda: not house.door.connections)
            peer = await house.peer()
            assert (await peer.ask_ok(Query(0, "queues"))) == []

    run(test())


def test_frames_in_pieces() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.connect()
            data = codec.encode(Hello()) + codec.encode(Query(1, "stats"))
            for at in range(len(data)):
                await peer.send_bytes(data[at : at + 1])
                await asyncio.sleep(0)
            await peer.expect(Welcome)
            assert (await peer.answer(1)).ref == 1

    run(test())


@pytest.mark.feature("D5")
def test_one_connection_too_many() -> None:
    async def test() -> None:
        async with open_house(None, max_connections=2) as house:
            first, second = await house.peer(), await house.peer()
            third = await house.connect()
            (refusal,) = await third.wait_closed()
            assert isinstance(refusal, Nack)
            assert (refusal.ref, refusal.code) == (0, "too_many")
            assert "2 connections" in refusal.message
            await second.ask_ok(Query(0, "stats"))
            first.close()
            await house.until(lambda: len(house.door.connections) == 1)
            await house.peer()
            second.close()
            await house.until(lambda: len(house.door.connections) == 1)

    run(test())


# Namespaces.


def test_namespaces_are_closed_worlds(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            here, there = await house.peer(), await house.peer(namespace="elsewhere")
            (task,) = await here.submit(spec())
            assert (await there.ask_no(Query(0, "task", {"id": task}))).code == "unknown_task"
            assert await there.ask_ok(Query(0, "queues")) == []
            await there.submit(spec("other"))
            assert [q["queue"] for q in await there.ask_ok(Query(0, "queues"))] == ["other"]

    run(test())


# Heartbeats and silence.


@pytest.mark.feature("T4")
def test_broker_beats_when_it_has_nothing_to_say() -> None:
    async def test() -> None:
        async with open_house(None, heartbeat_us=BEAT_US) as house:
            peer = await house.peer()
            await peer.expect(Heartbeat)
            await peer.expect(Heartbeat)

    run(test())


def test_silent_peer_is_given_up() -> None:
    async def test() -> None:
        async with open_house(None, heartbeat_us=BEAT_US) as house:
            begin = asyncio.get_running_loop().time()
            silent, alive = await house.peer(), await house.peer()

            async def beat() -> None:
                while True:
                    await alive.send(Heartbeat())
                    await asyncio.sleep(BEAT_S)

            beating = asyncio.create_task(beat())
            assert "three heartbeat intervals" in await _error_of(silent)
            took = asyncio.get_running_loop().time() - begin
            assert 3 * BEAT_S <= took < 30 * BEAT_S
            await alive.ask_ok(Query(0, "stats"))
            beating.cancel()

    run(test())


def test_pulse_keeps_a_silent_session_alive(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path, heartbeat_us=BEAT_US) as house:
            silent = await house.peer()
            await silent.join(lease_us=1_000_000)
            pulse = await house.connect()
            await pulse.greet(Hello(pulse=silent.welcome.pulse))
            assert (pulse.welcome.session, pulse.welcome.pulse) == (0, "")
            for _ in range(15):
                await asyncio.sleep(BEAT_S)
                await pulse.send(Heartbeat())
            body = await silent.ask_ok(Query(0, "workers"))
            assert [(w["worker"], w["state"]) for w in body] == [("w1", "idle")]
            silent.close()
            await house.until(lambda: len(house.door.connections) == 1)
            await pulse.send(Heartbeat())
            await pulse.expect(Heartbeat)

    run(test())


def test_beat_of_a_pulse_is_answered_while_its_session_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            worker = await house.peer()
            await worker.join()
            pulse = await house.connect()
            await pulse.greet(Hello(pulse=worker.welcome.pulse))
            assert await pulse.ask_ok(Heartbeat(1)) == {"count": 1, "refused": []}
            worker.close()
            await house.until(lambda: len(house.door.connections) == 1)
            await pulse.send(Heartbeat(2), Query(3, "stats"))
            # Nothing before the error, which comes after the beat.
            assert "a pulse connection only sends heartbeats" in await _error_of(pulse)
            assert not any(isinstance(heard, Ack) and heard.ref == 2 for heard in pulse.heard)

    run(test())


def test_pulse_only_beats() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer, pulse = await house.peer(), await house.connect()
            await pulse.greet(Hello(pulse=peer.welcome.pulse))
            await pulse.send(Query(1, "stats"))
            assert "a pulse connection only sends heartbeats" in await _error_of(pulse)
            await peer.ask_ok(Query(0, "stats"))

    run(test())


def test_pulse_ends_with_its_session() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            peer.close()
            await house.until(lambda: not house.door.connections)
            pulse = await house.connect()
            await pulse.send(Hello(pulse=peer.welcome.pulse))
            assert "unknown pulse" in await _error_of(pulse)

    run(test())


def test_client_may_beat() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.send(Heartbeat())
            await peer.ask_ok(Query(0, "stats"))
            assert peer.heard == []

    run(test())


@pytest.mark.feature("D12")
def test_beat_of_a_session_without_worker_is_refused(tmp_path: Path) -> None:
    """An ACK would say that a lease goes on, and there is none."""

    async def test() -> None:
        async with open_house(tmp_path) as house:
            stranger, peer = await house.connect(), await house.peer()
            await stranger.send(Heartbeat(7))
            assert (await stranger.expect(Nack)).code == "unknown_session"
            assert (await peer.ask_no(Heartbeat(0))).code == "unknown_session"
            await peer.join()
            await peer.ask_ok(Heartbeat(0))

    run(test())


def test_large_frame_right_behind_hello() -> None:
    """Frames may follow HELLO at once, up to the size that Welcome will name."""

    async def test() -> None:
        async with open_house(None) as house:
            for size in (HELLO_BYTES_MAX, 1_000_000):
                peer, task = await house.connect(), spec(payload=bytes(size))
                await peer.send(Hello(), SubmitTasks(1, [task]))
                assert await peer.answer(1) == Ack(1, {"count": 1, "refused": []})

    run(test())


def test_nothing_behind_a_refused_hello_is_read() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.connect()
            await peer.send(Query(1, "stats"), Hello(), SubmitTasks(2, [spec()]))
            (notice,) = await peer.wait_closed()
            assert isinstance(notice, Notice)
            assert "the first frame must be HELLO" in notice.detail

    run(test())


# The end.


def test_broker_says_goodbye(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            worker, client = await house.peer(), await house.peer()
            await worker.join()
            await house.door.stop()
            for peer in (worker, client):
                assert await peer.wait_closed() == [
                    Notice("goodbye", "the broker is shutting down; connect again later")
                ]
            with pytest.raises(OSError, match="Connect"):
                await house.connect()
            await house.door.start()

    run(test())


@pytest.mark.feature("T34")
def test_what_was_sent_before_the_end_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, other = await house.peer(), await house.peer()
            task = spec()
            await peer.send(SubmitTasks(1, [task]))
            peer.close()
            async with asyncio.timeout(5):
                while not isinstance(await other.ask(Query(0, "task", {"id": task.id})), Ack):
                    pass

    run(test())


def test_unknown_kind() -> None:
    """It is refused where it has a reference; else nobody knows who waits for what."""

    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.send_raw(99, b"\x91\x07")
            refusal = await peer.expect(Nack)
            assert (refusal.ref, refusal.code) == (7, "invalid")
            assert "kind 99" in refusal.message
            await peer.send_raw(99, b"\x90")
            assert "kind 99" in await _error_of(peer)
            peer = await house.peer()
            await peer.send_raw(Kind.ASSIGN, b"\x91\x90")
            assert "unexpected frame of kind" in await _error_of(peer)

    run(test())
