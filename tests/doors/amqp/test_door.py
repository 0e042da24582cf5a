"""The AMQP door: what survives, who is let in, and what garbage does. Nothing else notices.

What clients of RabbitMQ see is in `tests/doors/amqp`; here are the door's own promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.broker.access import THE_BROKER, Access, hash_of, id_of, new_token
from jackalope.broker.config.schema import AmqpConfig
from jackalope.broker.service import Broker
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import CreateApiKey, Tick
from jackalope.core.durations import DAY, MILLISECOND
from jackalope.core.lifecycle import State
from jackalope.core.limits import DEPTH_MAX
from jackalope.core.tasks.assign import FENCES_PER_BLOCK
from jackalope.doors.amqp import AmqpDoor
from jackalope.storage import Level, Storage
from jackalope.wire import amqp
from jackalope.wire.amqp_properties import REPLY_TO, headline, join, short
from jackalope.wire.frames import FrameError
from tests.doors.harness import PATIENCE_S, run
from tests.profiles import examples
from tests.wire.shapes import DEPTHS

PERSISTENT = b"\x10\x00\x02"
TRANSIENT = b"\x00\x00"


class Peer:
    """A connection made of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = amqp.FrameReader(2**20)
        self._heard: list[tuple[int, int, bytes]] = []

    def send(self, channel: int, name: str, **args: Any) -> None:
        self._writer.write(amqp.encode_method(channel, name, **args))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def publish(self, queue: str, body: bytes, properties: bytes = PERSISTENT) -> None:
        self.send(1, "basic.publish", routing_key=queue)
        self.write(amqp.encode_content(1, properties, body, 4096))

    async def frame(self) -> tuple[int, int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while not self._heard:
                data = await self._reader.read(65_536)
                if not data:
                    raise EOFError
                self._heard += self._frames.feed(data)
        return self._heard.pop(0)

    async def method(self, name: str) -> dict[str, Any]:
        """Return the next method, which must be this one; heartbeats do not count."""
        while True:
            kind, _, payload = await self.frame()
            if kind == amqp.METHOD:
                found = amqp.decode_method(payload)
                assert found.name == name, found
                return found.args

    async def body(self) -> bytes:
        """Return the body of the content that comes next."""
        _, _, header = await self.frame()
        _, size, _ = amqp.decode_content_header(header)
        body = b""
        while len(body) < size:
            body += (await self.frame())[2]
        return body

    async def ask(self, name: str, answer: str, **args: Any) -> dict[str, Any]:
        self.send(1, name, **args)
        return await self.method(answer)

    def end(self) -> None:
        """Send nothing more, whatever is still missing."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()


#: Those that are open: a test need not close them.
PEERS: list[Peer] = []


async def connect(door: AmqpDoor, vhost: str = "/", key: str = "guest") -> Peer:
    """Open a connection, as far as the broker goes along."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", door.port))
    PEERS.append(peer)
    peer.write(amqp.HEADER)
    await peer.method("connection.start")
    response = b"\0guest\0" + key.encode()
    peer.send(0, "connection.start-ok", mechanism="PLAIN", response=response, locale="en_US")
    await peer.method("connection.tune")
    peer.send(0, "connection.tune-ok", channel_max=10, frame_max=131_072, heartbeat=0)
    peer.send(0, "connection.open", virtual_host=vhost)
    await peer.method("connection.open-ok")
    await peer.ask("channel.open", "channel.open-ok")
    return peer


@asynccontextmanager
async def house(
    folder: Path | None = None, access: Access | None = None, **terms: Any
) -> AsyncIterator[tuple[Broker, AmqpDoor]]:
    level = Level.MEMORY if folder is None else Level.FSYNC
    broker = Broker(Storage.open(folder, level), access=access)
    await broker.start()
    door = AmqpDoor(broker, AmqpConfig(port=0, **terms))
    await door.start()
    try:
        yield broker, door
    finally:
        for peer in PEERS:
            peer.close()
        PEERS.clear()
        await door.stop()
        await broker.stop()


def test_durable_and_persistent_survive_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path / "data") as (_, door):
            peer = await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="kept", durable=True)
            await peer.ask("queue.declare", "queue.declare-ok", queue="gone")
            await peer.ask("confirm.select", "confirm.select-ok")
            peer.publish("kept", b"persistent")
            peer.publish("kept", b"transient", TRANSIENT)
            peer.publish("gone", b"persistent")
            while (await peer.method("basic.ack"))["delivery_tag"] < 3:
                pass
        async with house(tmp_path / "data") as (_, door):
            peer = await connect(door)
            found = await peer.ask("queue.declare", "queue.declare-ok", queue="kept", passive=True)
            assert found["message_count"] == 1
            await peer.ask("basic.get", "basic.get-ok", queue="kept", no_ack=True)
            assert await peer.body() == b"persistent"
            gone = await peer.ask("queue.declare", "channel.close", queue="gone", passive=True)
            assert gone["reply_code"] == 404

    run(test())


def test_what_is_volatile_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path / "data") as (broker, door):
            peer = await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="kept", durable=True)
            await peer.ask("queue.declare", "queue.declare-ok", queue="q", exclusive=True)
            await broker.flush()
            before = broker.engine.sequence
            await peer.ask("confirm.select", "confirm.select-ok")
            await peer.ask("basic.consume", "basic.consume-ok", queue="q", consumer_tag="c")
            for queue in ("q", "kept"):
                peer.publish(queue, b"body", TRANSIENT)
            heard = {amqp.METHOD: 0}
            while heard[amqp.METHOD] < 2:  # A delivery and the confirmation of both.
                kind, _, _ = await peer.frame()
                heard[kind] = heard.get(kind, 0) + 1
            peer.send(1, "basic.ack", delivery_tag=1)
            await peer.ask("basic.get", "basic.get-ok", queue="kept", no_ack=True)
            # But for the fences, of which one record reserves a million.
            reserved = broker.engine.core.book.counters.reserved
            assert (broker.engine.sequence, reserved) == (before + 1, FENCES_PER_BLOCK)
            await broker.read(lambda engine: engine.core.handle(broker.now_us(), Tick()))
            assert not broker.engine.core.book.dirty

    run(test())


def test_each_message_of_a_channel_has_its_own_way_and_properties() -> None:
    """Also one that looks like the one before it in all but one of them."""
    sent = [
        ("a", PERSISTENT),
        ("a", PERSISTENT),
        ("b", PERSISTENT),
        ("b", TRANSIENT),
        ("a", TRANSIENT),
        ("a", PERSISTENT),
    ]

    async def test() -> None:
        async with house() as (_, door):
            peer = await connect(door)
            for queue in ("a", "b"):
                await peer.ask("queue.declare", "queue.declare-ok", queue=queue, durable=True)
            for number, (queue, properties) in enumerate(sent):
                peer.publish(queue, bytes([number]), properties)
            found = {}
            for queue in ("a", "b"):
                for _ in range(sum(each == queue for each, _ in sent)):
                    await peer.ask("basic.get", "basic.get-ok", queue=queue, no_ack=True)
                    properties = amqp.decode_content_header((await peer.frame())[2])[2]
                    found[(await peer.frame())[2][0]] = (queue, properties)
            assert [found[number] for number in range(len(sent))] == sent

    run(test())


def test_a_call_carries_the_address_that_replies_come_to_now() -> None:
    direct = "amq.rabbitmq.reply-to"
    asking = join({REPLY_TO: short(direct)})

    async def test() -> None:
        async with house() as (_, door):
            peer = await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="calls")
            addresses = []
            for _ in range(2):
                await peer.ask("basic.consume", "basic.consume-ok", queue=direct, no_ack=True)
                for _ in range(2):
                    peer.publish("calls", b"?", asking)
                    await peer.ask("basic.get", "basic.get-ok", queue="calls", no_ack=True)
                    raw = amqp.decode_content_header((await peer.frame())[2])[2]
                    addresses.append(headline(raw).reply_to)
                    await peer.frame()
                peer.publish(addresses[-1], b"!", TRANSIENT)
                tag = (await peer.method("basic.deliver"))["consumer_tag"]
                assert await peer.body() == b"!"
                await peer.ask("basic.cancel", "basic.cancel-ok", consumer_tag=tag)
            first, again, other, _ = addresses
            assert first == again != other

    run(test())


def test_a_large_body_survives_both_ways(tmp_path: Path) -> None:
    body = bytes(range(256)) * 2_000

    async def test() -> None:
        async with house(tmp_path / "data") as (broker, door):
            peer = await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="q", durable=True)
            await peer.ask("confirm.select", "confirm.select-ok")
            peer.publish("q", body)
            peer.publish("q", b"small")
            while (await peer.method("basic.ack"))["delivery_tag"] < 2:
                pass
            assert list(broker.blobs.names())
            peer.send(1, "basic.consume", queue="q", consumer_tag="c")
            await peer.method("basic.consume-ok")
            for expected in (body, b"small"):
                await peer.method("basic.deliver")
                assert await peer.body() == expected

    run(test())


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_large_dead_letter_keeps_its_body(tmp_path: Path, *, is_durable: bool) -> None:
    """On the way from queue to queue, all but one of which are only in memory."""
    body = bytes(range(256)) * 2_000

    async def test() -> None:
        async with house(tmp_path / "data") as (broker, door):
            peer = await connect(door)
            for queue, following in (("one", "two"), ("two", "three"), ("three", "nowhere")):
                to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
                durable = queue == "one" or (queue == "three" and is_durable)
                args = {"queue": queue, "durable": durable, "arguments": to}
                await peer.ask("queue.declare", "queue.declare-ok", **args)
            await peer.ask("confirm.select", "confirm.select-ok")
            peer.publish("one", body)
            await peer.method("basic.ack")
            (blob,) = broker.blobs.names()
            broker.blobs._flight.drop(blob)  # As if it had been written long ago.
            for queue in ("one", "two", "three"):
                await broker.flush()
                assert await broker.blobs.sweep() == 0
                assert list(broker.blobs.names()) == [blob]
                got = await peer.ask("basic.get", "basic.get-ok", queue=queue)
                assert await peer.body() == body
                peer.send(1, "basic.reject", delivery_tag=got["delivery_tag"])
                # The answer to this comes after the reject was heeded.
                await peer.ask("queue.declare", "queue.declare-ok", queue=queue, passive=True)
            async with asyncio.timeout(PATIENCE_S):
                while list(broker.blobs.names()):
                    # What has ended leaves with the next command.
                    await peer.ask("queue.declare", "queue.declare-ok", queue="three", passive=True)
                    await broker.flush()

    run(test())


def test_keys_are_passwords() -> None:
    token = new_token()
    key = ApiKey(id_of(token), hash_of(token), "ada", (Permission.SUBMIT_TASKS,), namespace="mine")

    async def test() -> None:
        async with house(access=Access([key])) as (_, door):
            peer = await connect(door, vhost="mine", key=token)
            await peer.ask("queue.declare", "queue.declare-ok", exclusive=True)
            await peer.ask("basic.consume", "basic.consume-ok")
            refused = await peer.ask("queue.declare", "channel.close", queue="q")
            assert refused["reply_code"] == 403
            peer = await connect(door, vhost="mine", key=token)
            refused = await peer.ask("basic.consume", "channel.close", queue="q")
            assert refused["reply_code"] == 403
            with pytest.raises(AssertionError, match="ACCESS_REFUSED"):
                await connect(door, key="wrong")
            with pytest.raises(AssertionError, match="NOT_ALLOWED"):
                await connect(door, key=token)

    run(test())


def test_a_key_that_expires_ends_its_connections() -> None:
    token = new_token()

    async def test() -> None:
        async with house(access=Access(may_be_open=False)) as (broker, door):
            until_us = broker.now_us() + 300 * MILLISECOND
            terms = (Permission.WORK,)
            key = ApiKey(id_of(token), hash_of(token), "ada", terms, expires_us=until_us)
            other = new_token()
            first = ApiKey(id_of(other), hash_of(other), "root", (Permission.ADMIN,))
            broker.post(CreateApiKey(key=first), THE_BROKER)
            broker.post(CreateApiKey(key=key), THE_BROKER)
            await broker.read(lambda _: None)
            peer = await connect(door, key=token)
            closed = await peer.method("connection.close")
            assert "the API key expired" in closed["reply_text"]
            assert broker.now_us() >= until_us

    run(test())


def test_virtual_hosts_see_nothing_of_each_other() -> None:
    async def test() -> None:
        async with house() as (_, door):
            one, other = await connect(door, "one"), await connect(door, "other")
            await one.ask("queue.declare", "queue.declare-ok", queue="q")
            gone = await other.ask("queue.declare", "channel.close", queue="q", passive=True)
            assert gone["reply_text"] == "NOT_FOUND - no queue 'q' in vhost 'other'"

    run(test())


def test_a_lost_connection_gives_everything_back_in_order() -> None:
    async def test() -> None:
        async with house() as (broker, door):
            peer, other = await connect(door), await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="q")
            await peer.ask("basic.consume", "basic.consume-ok", queue="q", consumer_tag="c")
            for number in range(3):
                peer.publish("q", b"%d" % number)
            for _ in range(3):
                await peer.method("basic.deliver")
                await peer.body()
            peer.close()
            while True:
                queue = broker.engine.core.book.queue("default", "q")
                if queue is not None and queue.counts[State.READY] == 3:
                    break
                await asyncio.sleep(0.01)
            await other.ask("basic.consume", "basic.consume-ok", queue="q", consumer_tag="c")
            for number in range(3):
                delivered = await other.method("basic.deliver")
                assert delivered["redelivered"]
                assert await other.body() == b"%d" % number

    run(test())


@pytest.mark.parametrize("count", [2, 3])
def test_connections_have_a_limit(count: int) -> None:
    async def test() -> None:
        async with house(max_connections=2) as (_, door):
            peers = [await connect(door) for _ in range(min(count, 2))]
            assert len(door.connections) == len(peers)
            if count > 2:
                with pytest.raises((EOFError, ConnectionError)):
                    await connect(door)

    run(test())


names = st.sampled_from([name for name in amqp._BY_NAME if name != "connection.close"])
values = st.sampled_from(["", "q", "x", "amq.topic", 0, 1, 65_535, True, {"x-max-length": -1}])
methods = st.builds(
    lambda channel, name, value: amqp.encode_method(channel, name, **_fitting(name, value)),
    st.integers(0, 3),
    names,
    values,
)
contents = st.builds(
    lambda channel, body: amqp.encode_content(channel, PERSISTENT, body, 4096),
    st.integers(0, 3),
    st.binary(max_size=20),
)
garbage = st.builds(amqp.frame, st.integers(0, 9), st.integers(0, 3), st.binary(max_size=30))


def _fitting(name: str, value: object) -> dict[str, object]:
    """Return arguments of a method, as many as the value fits."""
    wanted = {bool: "bit", str: "shortstr", dict: "table"}
    kinds = ("octet", "short", "long", "big") if type(value) is int else (wanted[type(value)],)
    most = {"octet": 255}
    return {
        field: min(value, most.get(kind, 65_535)) if isinstance(value, int) else value
        for field, kind in amqp._BY_NAME[name].fields
        if kind in kinds
    }


@given(st.lists(st.lists(methods | contents | garbage | st.binary(max_size=40)), max_size=4))
@settings(max_examples=examples(25))
def test_garbage_harms_nobody_else(peers: list[list[bytes]]) -> None:
    async def test() -> None:
        async with house() as (broker, door):
            witness = await connect(door)
            await witness.ask("queue.declare", "queue.declare-ok", queue="safe")
            for frames in peers:
                peer = await connect(door)
                peer.write(b"".join(frames))
                peer.end()
                with suppress(EOFError, ConnectionError, FrameError):
                    while True:
                        await peer.frame()
                peer.close()
            witness.publish("safe", b"still here")
            await witness.ask("basic.get", "basic.get-ok", queue="safe", no_ack=True)
            assert await witness.body() == b"still here"
            assert broker.health.trouble() == ""

    run(test())


def test_a_clock_that_jumps_ahead_closes_nothing() -> None:
    async def test() -> None:
        async with house() as (broker, door):
            peer = await connect(door)
            await peer.ask("queue.declare", "queue.declare-ok", queue="q")
            (connection,) = door.connections
            connection.heartbeat_s = 1
            broker._clock._ahead_us += DAY
            await door.look()
            assert list(door.connections) == [connection]
            await peer.ask("queue.declare", "queue.declare-ok", queue="q")

    run(test())


# Values that nest, and others that clients do not send.


def table_of(depth: int, kind: bytes = b"F") -> bytes:
    """Return a table, with its length, that has so many tables or arrays inside each other."""
    value = b"V"
    for _ in range(depth - 1):
        inner = b"\x01a" + value if kind == b"F" else value
        value = kind + len(inner).to_bytes(4, "big") + inner
    body = b"\x01h" + value
    return len(body).to_bytes(4, "big") + body


def declare_with(table: bytes) -> bytes:
    payload = bytes.fromhex("0032000a0000") + b"\x03new" + b"\x02" + table
    return amqp.frame(amqp.METHOD, 1, payload)


def bind_with(table: bytes) -> bytes:
    payload = bytes.fromhex("003200140000") + b"\x04safe" + b"\x0bamq.headers" + b"\0\0" + table
    return amqp.frame(amqp.METHOD, 1, payload)


AMQP_DEPTHS = tuple(depth for depth in DEPTHS if depth < 10_000)


@pytest.mark.parametrize("kind", [b"F", b"A"])
@pytest.mark.parametrize("what", ["declare", "bind", "publish"])
def test_nested_tables(tmp_path: Path, kind: bytes, what: str) -> None:
    """At every depth a table is taken, or its sender is told; the broker goes on."""

    async def test() -> None:
        async with house(tmp_path) as (broker, door):
            witness = await connect(door)
            await witness.ask("queue.declare", "queue.declare-ok", queue="safe", durable=True)
            bound = {"queue": "safe", "exchange": "amq.headers", "arguments": {"x": 1}}
            await witness.ask("queue.bind", "queue.bind-ok", **bound)
            for depth in AMQP_DEPTHS:
                peer, table = await connect(door), table_of(depth, kind)
                if what == "publish":
                    await peer.ask("confirm.select", "confirm.select-ok")
                    peer.send(1, "basic.publish", exchange="amq.headers", routing_key="CC")
                    peer.write(amqp.encode_content(1, b"\x20\x00" + table, b"x", 100_000))
                    answer = "basic.ack"
                else:
                    peer.write(declare_with(table) if what == "declare" else bind_with(table))
                    answer = f"queue.{what}-ok"
                if depth <= DEPTH_MAX:
                    await peer.method(answer)
                    if what == "declare":
                        await peer.ask("queue.delete", "queue.delete-ok", queue="new")
                else:
                    with pytest.raises((EOFError, AssertionError, ConnectionError)):
                        await peer.method(answer)
                peer.close()
            witness.publish("safe", b"still here")
            await witness.ask("basic.get", "basic.get-ok", queue="safe", no_ack=True)
            assert await witness.body() == b"still here"
            assert broker.health.trouble() == ""
        async with house(tmp_path) as (broker, _):
            assert broker.health.trouble() == ""

    run(test())


def entry(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


#: Tables that cannot be read, or whose values do not fit where they are put.
STRANGE = {
    "a name that is no text": entry(b"\xff\xfe", b"V"),
    "a broken table inside": entry(b"h", b"F" + sized(b"\xff\xff")),
    "a broken array inside": entry(b"h", b"A" + sized(b"F\0\0\0\xff")),
    "a match that is a list": entry(b"x-match", b"A" + sized(b"V")),
    "not a number": entry(b"h", b"d" + bytes.fromhex("7ff8000000000000")),
    "the last time": entry(b"h", b"T" + b"\xff" * 8),
    "no text": entry(b"h", b"S" + sized(b"\xff")),
    "a great count of deaths": entry(
        b"x-death",
        b"A"
        + sized(
            b"F"
            + sized(
                entry(b"queue", b"S" + sized(b"dying"))
                + entry(b"reason", b"S" + sized(b"rejected"))
                + entry(b"count", b"l" + (2**63 - 1).to_bytes(8, "big"))
            )
        ),
    ),
}


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_strange_tables(tmp_path: Path, fields: bytes) -> None:
    """As arguments and as headers, of what is routed by headers and of what dies."""

    async def test() -> None:
        async with house(tmp_path) as (broker, door):
            witness = await connect(door)
            await witness.ask("queue.declare", "queue.declare-ok", queue="safe", durable=True)
            dying = {"x-dead-letter-exchange": "amq.headers"}
            await witness.ask("queue.declare", "queue.declare-ok", queue="dying", arguments=dying)
            bound = {"queue": "safe", "exchange": "amq.headers", "arguments": {"x": 1}}
            await witness.ask("queue.bind", "queue.bind-ok", **bound)
            published = amqp.encode_method(1, "basic.publish", exchange="amq.headers")
            to_die = amqp.encode_method(1, "basic.publish", routing_key="dying")
            content = amqp.encode_content(1, b"\x20\x00" + sized(fields), b"x", 4096)
            for frames in (
                declare_with(sized(fields)),
                bind_with(sized(fields)),
                published + content,
                to_die + content,
            ):
                peer = await connect(door)
                peer.write(frames)
                peer.end()
                with suppress(EOFError, ConnectionError, FrameError):
                    while True:
                        await peer.frame()
                peer.close()
            witness.send(1, "basic.get", queue="dying")
            with suppress(AssertionError):
                got = await witness.method("basic.get-ok")
                await witness.body()
                witness.send(1, "basic.reject", delivery_tag=got["delivery_tag"], requeue=False)
            await witness.ask("queue.declare", "queue.declare-ok", queue="safe", durable=True)
            assert broker.health.trouble() == ""
        async with house(tmp_path) as (broker, _):
            assert broker.health.trouble() == ""

    run(test())


def test_open_channels_count_against_channel_max_and_their_numbers_do_not() -> None:
    async def test() -> None:
        async with house(channel_max=2) as (_, door):
            peer = await connect(door)  # With one channel open.
            peer.send(900, "channel.open")
            await peer.method("channel.open-ok")
            peer.send(900, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
            await peer.method("channel.close-ok")
            peer.send(7, "channel.open")  # One that was closed makes room.
            await peer.method("channel.open-ok")
            peer.send(8, "channel.open")
            refused = await peer.method("connection.close")
            assert refused["reply_code"] == 530
            assert "number of channels opened (2)" in refused["reply_text"]

    run(test())
