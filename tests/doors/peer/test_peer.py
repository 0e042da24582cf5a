"""The peer port: who is let in, what is refused, and what members learn of each other."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster import peer_link, peers
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.broker.cluster.peer_link import (
    Credentials,
    PeerGone,
    PeerLink,
    PeerRefused,
    _split,
    connect,
)
from jackalope.broker.cluster.peers import Peers
from jackalope.broker.config.exposure import client_context, server_context
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.core.state.changes import Changes, Counters
from jackalope.doors.peer import PeerDoor, server
from jackalope.storage import Level, Storage
from jackalope.storage.entry import NO_DIGEST, Entry, Kind, decode
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.wire.frames import frame
from jackalope.wire.messages import Codec
from jackalope.wire.peer import (
    FROM_GUEST,
    FROM_HOST,
    PEER_VERSION,
    AskEntries,
    AskStatus,
    Challenge,
    Greeting,
    NodeStatus,
    PeerKind,
    Refused,
    guest_codec,
    host_codec,
    proof_of_guest,
)
from tests.broker.cluster.machines import in_loop, until
from tests.certificates import certificates
from tests.ports import free_port

pytestmark = pytest.mark.timeout(60)

SECRET = "of the tests"  # noqa: S105
GOOD = Credentials(SECRET, "c", "b")


@asynccontextmanager
async def opened(
    name: str = "a",
    tls: ssl.SSLContext | None = None,
    port: int = 0,
    storage: Storage | None = None,
) -> AsyncIterator[PeerDoor]:
    broker = Broker(storage or Storage.open(None, Level.MEMORY))
    await broker.start()
    door = PeerDoor(PeerHost(broker, "c", name), ("127.0.0.1", port), SECRET, tls)
    await door.start()
    try:
        yield door
    finally:
        await door.stop()
        await broker.stop()


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[PeerLink]:
    """Open a connection on which anything may be sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    codec = Codec(sends=FROM_GUEST, hears=FROM_HOST)
    link = PeerLink(reader, writer, codec)
    try:
        yield link
    finally:
        await link.leave()


async def refusal(link: PeerLink) -> str:
    """Return why the other end refuses, once it has closed the connection as well."""
    message = await link.receive(10)
    assert isinstance(message, Refused)
    with pytest.raises(PeerGone, match="closed"):
        await link.receive(10)
    return message.why


@in_loop
async def test_a_node_tells_what_it_is_to_who_has_the_secret() -> None:
    async with opened() as door:
        link = await connect("127.0.0.1", door.port, GOOD)
        assert link.peer == "a"
        for _ in range(3):
            status = await link.ask(AskStatus(), NodeStatus)
            assert (status.node, status.cluster, status.role) == ("a", "c", "alone")
            assert status.level_min <= status.level_max
        link.close()
        await until(lambda: not door.connections)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (Credentials("another", "c", "b"), "the secret is another one"),
        (Credentials(SECRET, "d", "b"), "this node is of the cluster 'c'"),
    ],
)
@in_loop
async def test_another_secret_or_cluster_is_refused(who: Credentials, why: str) -> None:
    async with opened() as door:
        with pytest.raises(PeerRefused, match=why):
            await connect("127.0.0.1", door.port, who)
        await until(lambda: not door.connections)


@in_loop
async def test_a_greeting_that_was_overheard_lets_nobody_in() -> None:
    async with opened() as door:
        async with raw(door.port) as link:
            challenge = await link.expect(Challenge)
            nonce = os.urandom(16)
            proof = proof_of_guest(SECRET, challenge.nonce, nonce, "c", "b")
            greeting = Greeting(PEER_VERSION, "c", "b", nonce, proof)
            assert SECRET.encode() not in guest_codec.encode(greeting)
            await link.send(greeting)
            await link.receive(10)
        async with raw(door.port) as again:
            assert (await again.expect(Challenge)).nonce != challenge.nonce
            await again.send(greeting)
            assert "secret" in await refusal(again)


@in_loop
async def test_a_host_without_the_secret_is_not_believed() -> None:
    """It may pass on what it hears, but has no proof of its own."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = PeerLink(reader, writer, host_codec)
        with suppress(PeerGone):
            await link.send(Challenge(PEER_VERSION, b"n" * 16))
            greeting = await link.expect(Greeting)
            writer.write(frame(PeerKind.WELCOME, b"\x93\xc4\x20" + greeting.proof + b"\xa1c\xa1a"))
            await link.receive(10)
        writer.close()

    async with await asyncio.start_server(play, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(PeerRefused, match="does not have the secret"):
            await connect("127.0.0.1", port, GOOD)


@in_loop
async def test_another_protocol_is_refused_by_both_ends() -> None:
    async with opened() as door, raw(door.port) as link:
        await link.expect(Challenge)
        await link.send(Greeting(PEER_VERSION + 1, "c", "b", b"", b""))
        assert await refusal(link) == "version 2; this node speaks 1"

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(host_codec.encode(Challenge(PEER_VERSION + 1, b"")))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(play, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(PeerRefused, match="speaks version 2"):
            await connect("127.0.0.1", port, GOOD)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (b"\0\0\x20\0\x02" + b"x" * 8191, "a frame of 8192 bytes; at most 4096"),
        (b"\0\0\0\0\0", "a frame of 0 bytes"),
        (frame(PeerKind.GREETING, b"\xff"), "invalid body in a frame of kind 2"),
        (frame(PeerKind.PART, b"\x91\xc4\0"), "unexpected frame of kind 8"),
        (frame(PeerKind.STATUS, b"\x90"), "AskStatus in place of Greeting"),
    ],
)
@in_loop
async def test_garbage_is_refused_before_any_proof(sent: bytes, why: str) -> None:
    async with opened() as door, raw(door.port) as link:
        await link.expect(Challenge)
        link._writer.write(sent)
        assert why in await refusal(link)
        await until(lambda: not door.connections)


@in_loop
async def test_a_request_that_is_too_large_is_refused() -> None:
    async with opened() as door:
        link = await connect("127.0.0.1", door.port, GOOD)
        link._writer.write((1 << 20).to_bytes(4, "big") + b"\x05")
        assert "at most 65536" in await refusal(link)
        await link.leave()


def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_S", 0.1)


def _idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)


@pytest.mark.parametrize(("shorten", "is_proved"), [(_silent, False), (_idle, True)])
def test_who_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, shorten: Callable[[pytest.MonkeyPatch], None], is_proved: bool
) -> None:
    shorten(monkeypatch)

    async def play() -> None:
        async with opened() as door:
            if is_proved:
                link = await connect("127.0.0.1", door.port, GOOD)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
                link = PeerLink(reader, writer, guest_codec)
                await link.expect(Challenge)
            with pytest.raises(PeerGone, match="closed"):
                await link.receive(10)
            await until(lambda: not door.connections)
            await link.leave()

    asyncio.run(play())


def test_no_more_than_so_many_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)

    async def play() -> None:
        async with opened() as door:
            links = [await connect("127.0.0.1", door.port, GOOD) for _ in range(2)]
            with pytest.raises(PeerRefused, match="2 nodes and programs are connected"):
                await connect("127.0.0.1", door.port, GOOD)
            await links[0].leave()
            await until(lambda: door.connections == 1)
            third = await connect("127.0.0.1", door.port, GOOD)
            for link in (links[1], third):
                await link.leave()

    asyncio.run(play())


@asynccontextmanager
async def silent(port: int, count: int, host: str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open connections that say nothing, one after the other, from an address of this machine."""
    readers, writers = [], []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
        await reader.readexactly(1)  # The door has begun to serve it.
        readers.append(reader)
        writers.append(writer)
    yield readers
    for writer in writers:
        writer.close()


async def is_dropped(reader: asyncio.StreamReader) -> bool:
    """Return whether the other end has closed a connection, which is not when it gives it up."""
    try:
        async with asyncio.timeout(2):
            await reader.read(-1)
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@in_loop
async def test_members_get_in_past_any_number_of_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELLO_S", 60)  # None is given up for its silence.
    async with opened() as door:
        member = await connect("127.0.0.1", door.port, GOOD)
        count = server.CONNECTIONS_MAX + server.STRANGERS_MAX
        async with silent(door.port, count, "127.0.0.1") as strangers:
            assert door.connections <= server.STRANGERS_MAX + 2
            second = await connect("127.0.0.1", door.port, GOOD)
            for link in (member, second):
                assert (await link.ask(AskStatus(), NodeStatus)).node == "a"
                await link.leave()
            # The oldest were dropped, and the last of them is still listened to.
            assert await is_dropped(strangers[0])
            assert not await is_dropped(strangers[-1])


@in_loop
async def test_strangers_drop_each_other_and_not_who_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "HELLO_S", 60)  # None is given up for its silence.
    async with (
        opened() as door,
        silent(door.port, 1, "127.0.0.2") as lone,
        silent(door.port, 2 * server.STRANGERS_MAX, "127.0.0.1") as crowd,
    ):
        assert await is_dropped(crowd[0])
        assert not await is_dropped(lone[0])


@in_loop
async def test_nodes_may_speak_over_tls() -> None:
    made = certificates("localhost")
    trusting = client_context(made.config, made.ca)
    async with opened(tls=server_context(made.config)) as door:
        link = await connect("localhost", door.port, GOOD._replace(tls=trusting))
        assert (await link.ask(AskStatus(), NodeStatus)).node == "a"
        await link.leave()
        with pytest.raises(PeerGone, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(
                "localhost", door.port, GOOD._replace(tls=client_context(made.config, ""))
            )
        with pytest.raises(PeerGone):
            await connect("localhost", door.port, GOOD)


def test_members_are_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ASK_EVERY_S", 0.05)
    ahead = [0]
    monkeypatch.setattr(peers, "wall_us", lambda: wall_us() - ahead[0])

    async def play() -> None:
        async with opened(port=free_port()) as door:
            places = {"a": ("127.0.0.1", door.port), "b": ("127.0.0.1", 1)}
            known = Peers(places, GOOD)
            assert list(known.known) == ["a"]
            known.start()
            peer = known.known["a"]
            await until(lambda: peer.is_reachable)
            assert peer.status is not None
            assert abs(peer.offset_us) <= peer.round_trip_us < 10 * SECOND
            ahead[0] = 3_600 * SECOND
            await until(lambda: peer.offset_us > 3_500 * SECOND)
            await door.stop()
            await until(lambda: not peer.is_reachable)
            heard_us = peer.heard_us
            async with opened(port=door.port):
                await until(lambda: peer.is_reachable)
                assert peer.heard_us > heard_us
            await known.stop()

    asyncio.run(play())


@in_loop
async def test_another_node_at_the_address_of_a_member_is_not_taken_for_it() -> None:
    async with opened("x") as door:
        known = Peers({"a": ("127.0.0.1", door.port)}, GOOD)
        with pytest.raises(PeerGone, match="is 'x' and not 'a'"):
            await known.connect("a")


# Entries.


def filled(folder: Path, count: int, size: int = 100) -> Storage:
    """Open a storage in whose journal stand so many batches, which history contains."""
    storage = Storage.open(folder)
    storage.journal.claim()
    for _ in range(count):
        storage.journal.append(bytes(size))
    storage.flush(count, Changes(Counters()))
    return storage


async def read_all(link: PeerLink, bytes_max: int) -> list[Entry]:
    """Read a log from its beginning, an answer at a time."""
    read: list[Entry] = []
    sequence, digest = 0, NO_DIGEST
    while raw := await link.entries(sequence, digest, bytes_max):
        entries = [decode(each) for each in raw]
        read += [each for each in entries if each is not None]
        assert len(read) == len(raw) or read[-len(raw)].before == digest
        sequence, digest = read[-1].sequence, read[-1].digest
    return read


@pytest.mark.parametrize("bytes_max", [0, 1_000, 10**9])
@in_loop
async def test_entries_are_read_from_another_nodes_journal(tmp_path: Path, bytes_max: int) -> None:
    journal = (storage := filled(tmp_path, 30)).journal
    expected = list(journal.read(0))
    async with opened(storage=storage) as door:
        link = await connect("127.0.0.1", door.port, GOOD)
        read = await read_all(link, bytes_max)
        batches = [(each.sequence, each.body) for each in read if each.kind == Kind.BATCH]
        assert batches[:30] == expected
        assert await link.entries(5, b"of nothing", 1_000) is None
        assert isinstance(journal, SegmentJournal)
        middle = journal.digest_at(12)
        assert middle is not None
        following = await link.entries(12, middle, 0)
        assert following is not None
        found = decode(following[0])
        assert found is not None
        assert found.sequence == 13
        await link.leave()


@in_loop
async def test_entries_are_read_over_segments_and_after_a_trim(tmp_path: Path) -> None:
    storage = filled(tmp_path, 60, 100_000)
    storage.journal.trim(25)
    async with opened(storage=storage) as door:
        link = await connect("127.0.0.1", door.port, GOOD)
        assert await link.entries(0, NO_DIGEST) is None
        journal = storage.journal
        assert isinstance(journal, SegmentJournal)
        digest, sequence, read = journal.digest_at(25), 25, []
        while digest is not None and (raw := await link.entries(sequence, digest)):
            entries = [must_be(decode(each)) for each in raw]
            read += [each.sequence for each in entries if each.kind == Kind.BATCH]
            sequence, digest = entries[-1].sequence, entries[-1].digest
        assert read[:35] == list(range(26, 61))
        await link.leave()


def must_be(entry: Entry | None) -> Entry:
    assert entry is not None
    return entry


@in_loop
async def test_a_broker_without_such_a_journal_says_so() -> None:
    async with opened() as door:
        link = await connect("127.0.0.1", door.port, GOOD)
        with pytest.raises(PeerRefused, match="is in memory"):
            await link.entries(0, NO_DIGEST)
        await link.leave()


@in_loop
async def test_entries_that_do_not_continue_the_log_are_not_believed(tmp_path: Path) -> None:
    storage = filled(tmp_path, 3)
    journal = storage.journal
    assert isinstance(journal, SegmentJournal)
    whole = journal.entries(0, NO_DIGEST, 10**9)
    assert whole is not None
    damaged = bytearray(whole[1])
    damaged[-1] ^= 1
    for wrong in ([whole[0], whole[2]], [whole[0], bytes(damaged)], [whole[1]], [whole[0][:-1]]):
        with pytest.raises(PeerRefused, match="do not continue"):
            _split(b"".join(wrong), NO_DIGEST)
    assert _split(b"".join(whole), NO_DIGEST) == whole
    storage.close()


def test_a_slow_reader_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_link, "STUCK_S", 0.2)

    async def play() -> None:
        async with opened(storage=filled(tmp_path, 80, 100_000)) as door:
            link = await connect("127.0.0.1", door.port, GOOD)
            for _ in range(20):  # Much more than sockets hold, and nothing of it is read.
                await link.send(AskEntries(0, NO_DIGEST, 10**9))
            await until(lambda: not door.connections)
            await link.leave()

    asyncio.run(play())
