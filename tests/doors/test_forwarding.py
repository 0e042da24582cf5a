"""Peers of a node that does not lead: what is done with them, and splices to the node that does."""

import asyncio
import hashlib
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from jackalope.broker.config.exposure import client_context, server_context
from jackalope.broker.config.schema import Forward
from jackalope.core.commands import SubmitTasks
from jackalope.doors.forwarding import MAGIC, Forwarding, Handed, Letter, Way, choose
from jackalope.doors.splice import BUFFER_BYTES, Silence
from jackalope.wire.messages import Hello, Moved, Notice, Welcome
from tests.certificates import certificates
from tests.doors.elsewhere import SECRET, Elsewhere
from tests.doors.harness import PATIENCE_S, House, Peer, codec, open_house, run, spec


def put_into_cluster(
    house: House,
    address: str | None,
    mode: Forward = Forward.AUTO,
    tls: ssl.SSLContext | None = None,
) -> Elsewhere:
    cluster = Elsewhere(address)
    house.broker.leader = cluster
    house.door.forwarding = Forwarding(cluster, mode, SECRET, tls)
    return cluster


def alone(*houses: House) -> None:
    """Let them serve whoever comes, as a house is asked to at its end."""
    for house in houses:
        house.door.forwarding = house.broker.leader = None


class Pair:
    """A node that leads, and one that knows it."""

    def __init__(self, leading: House, following: House) -> None:
        self.leading, self.following = leading, following
        self.cluster = put_into_cluster(following, f"127.0.0.1:{leading.door.port}")
        put_into_cluster(leading, None)

    @property
    def forwarding(self) -> Forwarding:
        assert self.following.door.forwarding is not None
        return self.following.door.forwarding


@asynccontextmanager
async def pair(mode: Forward = Forward.AUTO, **terms: Any) -> AsyncIterator[Pair]:
    async with open_house(None, **terms) as leading, open_house(None, **terms) as following:
        both = Pair(leading, following)
        both.forwarding.mode = mode
        yield both
        alone(leading, following)


@pytest.mark.parametrize(
    ("address", "mode", "follows", "way"),
    [
        *((None, mode, follows, Way.HERE) for mode, follows in product(Forward, (False, True))),
        ("b:1", Forward.AUTO, True, Way.POINT),
        ("b:1", Forward.AUTO, False, Way.HAND_ON),
        ("b:1", Forward.ALWAYS, True, Way.HAND_ON),
        ("b:1", Forward.ALWAYS, False, Way.HAND_ON),
        ("b:1", Forward.NEVER, True, Way.POINT),
        ("b:1", Forward.NEVER, False, Way.POINT),
        # No leader is known: one that is handed on waits for it.
        ("", Forward.AUTO, True, Way.REFUSE),
        ("", Forward.AUTO, False, Way.HAND_ON),
        ("", Forward.ALWAYS, True, Way.HAND_ON),
        ("", Forward.ALWAYS, False, Way.HAND_ON),
        ("", Forward.NEVER, True, Way.REFUSE),
        ("", Forward.NEVER, False, Way.REFUSE),
    ],
)
def test_what_is_done_with_a_peer(
    address: str | None, mode: Forward, follows: bool, way: Way
) -> None:
    assert choose(address, mode, follows=follows, was_forwarded=False) is way
    once = Way.HERE if address is None else Way.REFUSE
    assert choose(address, mode, follows=follows, was_forwarded=True) is once


# Native peers.


def test_a_peer_that_follows_is_sent_on() -> None:
    async def play() -> None:
        async with pair() as both:
            peer = await both.following.connect()
            await peer.send(Hello(name="new", follows=True))
            moved = await peer.expect(Moved)
            assert (moved.address, moved.epoch) == (both.cluster.address, 7)
            assert both.forwarding.spliced["native"] == 0

    run(play())


@pytest.mark.parametrize(
    ("mode", "follows", "said"),
    [
        (Forward.AUTO, True, Notice("moved", "b:1")),
        (Forward.NEVER, True, Notice("moved", "b:1")),
        (Forward.AUTO, False, Notice("goodbye", "why")),
        (Forward.ALWAYS, True, Notice("goodbye", "why")),  # It may be unable to go there.
    ],
)
def test_sessions_of_a_node_that_leads_no_more_are_sent_on(
    mode: Forward, follows: bool, said: Notice
) -> None:
    async def play() -> None:
        async with open_house(None) as house:
            cluster = put_into_cluster(house, None, mode)
            peer = await house.connect()
            await peer.send(Hello(name="new", follows=follows))
            await peer.expect(Welcome)
            cluster.move("b:1")
            house.broker.end_sessions("why")
            assert await peer.expect(Notice) == said
            alone(house)

    run(play())


@pytest.mark.parametrize("mode", [Forward.AUTO, Forward.ALWAYS])
def test_a_peer_that_does_not_follow_is_served_by_the_leader(mode: Forward) -> None:
    async def play() -> None:
        async with pair(mode) as both:
            old = await both.following.peer("old")
            (task,) = await old.submit(spec())
            assert await (await both.leading.peer()).state_of(task) == "ready"
            assert both.forwarding.count("native") == 1
            old.close()
            await both.following.until(lambda: both.forwarding.count("native") == 0)

    run(play())


def test_a_peer_that_follows_is_spliced_where_all_are() -> None:
    async def play() -> None:
        async with pair(Forward.ALWAYS) as both:
            peer = await both.following.connect()
            await peer.greet(Hello(name="behind a bridge", follows=True))
            await peer.submit(spec())

    run(play())


@pytest.mark.parametrize(
    ("mode", "members"),
    [
        (Forward.AUTO, ("a:1", "b:2")),
        (Forward.NEVER, ("a:1", "b:2")),
        (Forward.ALWAYS, ()),  # It may not be able to reach them.
    ],
)
def test_the_leader_names_the_members(mode: Forward, members: tuple[str, ...]) -> None:
    async def play() -> None:
        async with open_house(None) as house:
            alone_welcome = (await house.peer()).welcome
            assert (alone_welcome.members, alone_welcome.epoch) == ((), 0)
            cluster = put_into_cluster(house, None)
            house.door.forwarding = Forwarding(cluster, mode, SECRET, None, ("a:1", "b:2"))
            welcome = (await house.peer()).welcome
            assert (welcome.members, welcome.epoch) == (members, 7)
            alone(house)

    run(play())


def test_without_forwarding_an_old_peer_is_closed() -> None:
    async def play() -> None:
        async with pair(Forward.NEVER) as both:
            peer = await both.following.connect()
            await peer.send(Hello(name="old"))
            assert await peer.wait_closed() == []
            assert both.forwarding.spliced["native"] == 0

    run(play())


def test_what_was_sent_together_with_hello_arrives_once() -> None:
    async def play() -> None:
        async with pair() as both:
            peer = await both.following.connect()
            await peer.send(Hello(name="old"), SubmitTasks(5, [spec()]), SubmitTasks(6, [spec()]))
            await peer.answer(5)
            await peer.answer(6)
            assert len(both.leading.broker.engine.core.book.tasks) == 2

    run(play())


def test_a_lost_leader_closes_what_was_handed_on() -> None:
    async def play() -> None:
        async with pair() as both:
            peer = await both.following.peer()
            both.cluster.move("")
            await peer.wait_closed()
            await both.following.until(lambda: not both.forwarding.splices)

    run(play())


def test_a_peer_waits_for_the_next_leader() -> None:
    async def play() -> None:
        async with pair() as both:
            address, both.cluster.address = both.cluster.address, ""
            peer = await both.following.connect()
            await peer.send(Hello(name="early"))
            await both.following.until(lambda: both.forwarding.count("native") == 1)
            both.cluster.move(address)
            await peer.expect(Welcome)

    run(play())


def test_a_peer_is_served_here_if_this_node_leads_by_then() -> None:
    async def play() -> None:
        async with pair() as both:
            both.cluster.address = ""
            peer = await both.following.connect()
            await peer.send(Hello(name="early"))
            await both.following.until(lambda: both.forwarding.count("native") == 1)
            both.cluster.move(None)
            await peer.expect(Welcome)
            await peer.submit(spec())
            assert len(both.following.broker.engine.core.book.tasks) == 1

    run(play())


def test_two_nodes_that_take_each_other_for_the_leader_do_not_loop() -> None:
    async def play() -> None:
        async with pair() as both:
            put_into_cluster(both.leading, f"127.0.0.1:{both.following.door.port}")
            peer = await both.following.connect()
            await peer.send(Hello(name="old"))
            await peer.wait_closed()
            assert both.forwarding.spliced["native"] == 1
            assert both.leading.door.forwarding is not None
            assert both.leading.door.forwarding.spliced["native"] == 0

    run(play())


def test_a_peer_over_tls_is_handed_on_over_tls() -> None:
    made = certificates()

    async def play() -> None:
        tls = server_context(made.config)
        async with open_house(None, tls=tls) as leading, open_house(None, tls=tls) as following:
            put_into_cluster(leading, None)
            address = f"127.0.0.1:{leading.door.port}"
            put_into_cluster(following, address, tls=client_context(made.config, made.ca))
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                following.door.port,
                ssl=ssl.create_default_context(cafile=made.ca),
                server_hostname="localhost",
            )
            writer.write(codec.encode(Hello(name="old")))
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read(1)
            assert leading.broker.session_count() == 1
            writer.close()
            await following.until(lambda: leading.broker.session_count() == 0)
            alone(leading, following)

    run(play())


def test_a_leader_whose_certificate_is_not_trusted_gets_nothing() -> None:
    made = certificates()

    async def play() -> None:
        tls = server_context(made.config)
        async with open_house(None, tls=tls) as leading, open_house(None) as following:
            put_into_cluster(leading, None)
            address = f"127.0.0.1:{leading.door.port}"
            put_into_cluster(following, address, tls=client_context(made.config, ""))
            following.door._tls = tls  # It has TLS, and its peer here has not.
            forwarding = following.door.forwarding
            peer = await following.connect()
            await peer.send(Hello(name="old"))
            await following.until(lambda: forwarding is not None and forwarding.failed == 1, 30)
            assert await peer.wait_closed() == []
            assert leading.broker.session_count() == 0
            following.door._tls = None
            alone(leading, following)

    run(play())


# Letters.


def test_a_letter_says_where_the_peer_is_if_it_is_signed() -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            shown = {"subject": ((("commonName", "ada"),),), "version": 3}
            return {"peername": ("10.1.2.3", 99), "peercert": shown}.get(name, default)

    here = Forwarding(Elsewhere(None), secret=SECRET)
    letter = here.write_letter(Transport())
    for size in range(len(letter)):
        assert here.read_letter(letter[:size]) is None
    read = here.read_letter(letter + b"more")
    assert read is not None
    assert read[0] == Letter("10.1.2.3", 99, {"subject": [[["commonName", "ada"]]]})
    assert read[1] == len(letter)
    for secret in ("another", ""):
        other = Forwarding(Elsewhere(None), secret=secret)
        assert other.read_letter(letter) == (Letter(), len(letter))


def test_what_begins_otherwise_is_no_letter() -> None:
    here = Forwarding(Elsewhere(None), secret=SECRET)
    assert here.read_letter(b"AMQP\x00\x00\x09\x01") == (None, 0)
    assert here.read_letter(b"J\0") == (None, 0)
    with pytest.raises(ValueError, match="too long"):
        here.read_letter(MAGIC + b"\xff\xff")


# Bytes.


class Far:
    """The other node, which does with its connections what a test says."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.got.put_nowait((reader, writer))


@asynccontextmanager
async def spliced(
    stuck_s: float = 30.0,
) -> AsyncIterator[
    tuple[
        tuple[asyncio.StreamReader, asyncio.StreamWriter],
        tuple[asyncio.StreamReader, asyncio.StreamWriter],
        Forwarding,
    ]
]:
    """Give both ends of what was handed on: the peer's, and the other node's."""
    far = Far()
    server = await asyncio.start_server(far.take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    forwarding = Forwarding(Elsewhere(f"127.0.0.1:{port}"), Forward.ALWAYS)

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            handed = Handed("native", b"head", False, stuck_s, lambda peer: peer.close())
            forwarding.hand_on(cast("asyncio.Transport", transport), handed, Silence())

    door = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
    near = await asyncio.open_connection("127.0.0.1", door.sockets[0].getsockname()[1])
    async with asyncio.timeout(PATIENCE_S):
        other = await far.got.get()
        assert await other[0].readexactly(4) == b"head"
    try:
        yield near, other, forwarding
    finally:
        for _, writer in (near, other):
            writer.close()
        door.close()
        server.close()


async def flood(writer: asyncio.StreamWriter, for_s: float) -> None:
    async with asyncio.timeout(for_s):
        while True:
            writer.write(bytes(1_000_000))
            await writer.drain()


async def over(forwarding: Forwarding) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while forwarding.splices:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_much_goes_both_ways_at_once_and_an_end_may_be_done_first() -> None:
    there, back = os.urandom(20_000_000), os.urandom(15_000_000)

    async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    async def play() -> None:
        async with spliced() as (near, far, forwarding), asyncio.timeout(60):
            first = asyncio.create_task(send(near[1], there))
            assert hashlib.sha256(await far[0].read()).digest() == hashlib.sha256(there).digest()
            await first
            assert forwarding.splices  # One end is done, the other is not.
            second = asyncio.create_task(send(far[1], back))
            assert hashlib.sha256(await near[0].read()).digest() == hashlib.sha256(back).digest()
            await second
            await over(forwarding)

    run(play())


def test_an_end_that_does_not_read_holds_the_other_up() -> None:
    async def play() -> None:
        async with spliced() as (near, far, forwarding):
            far[0]._transport.pause_reading()  # type: ignore[attr-defined]
            (splice,) = forwarding.splices
            with pytest.raises(TimeoutError):
                await flood(near[1], 2)
            transport = splice.far.transport
            assert transport is not None
            # One read may come after the buffer was full.
            assert transport.get_write_buffer_size() <= BUFFER_BYTES + 300_000
            assert transport.get_write_buffer_size() > 0

    run(play())


def test_an_end_that_does_not_read_for_long_is_given_up() -> None:
    async def play() -> None:
        async with spliced(stuck_s=0.5) as (near, far, forwarding):
            far[0]._transport.pause_reading()  # type: ignore[attr-defined]
            with pytest.raises(ConnectionError):
                await flood(near[1], PATIENCE_S)
            await over(forwarding)

    run(play())


def test_a_lost_end_takes_the_other_with_it() -> None:
    async def play() -> None:
        async with spliced() as (near, far, forwarding), asyncio.timeout(PATIENCE_S):
            far[1].transport.abort()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await near[0].readexactly(1)
            await over(forwarding)
        async with spliced() as (near, far, forwarding), asyncio.timeout(PATIENCE_S):
            near[1].transport.abort()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await far[0].readexactly(1)
            far[1].close()
            await over(forwarding)

    run(play())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_idle_peers_cost_little() -> None:
    """Each is here the connection of a peer, both ends of a splice, and a session of the leader."""

    async def play() -> None:
        async with pair(max_connections=2_000) as both:
            peers: list[Peer] = [await both.following.peer()]
            before = resident_bytes()
            peers += [await both.following.peer() for _ in range(1_000)]
            cost = (resident_bytes() - before) / 1_000
            assert both.forwarding.count("native") == 1_001
            assert cost < 64 * 1024
            await peers[500].submit(spec())

    run(play())
