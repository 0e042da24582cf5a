"""Copies of blobs over a real peer port: they go on where a lost connection left them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jackalope.broker.cluster.blob_copies import BlobCopies
from jackalope.broker.cluster.peer_host import PeerHost
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, PeerLink, PeerRefused, connect
from jackalope.broker.service import Broker
from jackalope.core.lifecycle import State
from jackalope.core.records import TaskSubmitted, encode_batch
from jackalope.core.task import BlobRef, TaskSpec
from jackalope.doors.peer import PeerDoor
from jackalope.storage import Storage
from jackalope.storage.blobs.folder import path_of
from jackalope.wire.messages import Message
from jackalope.wire.peer import PART_BYTES, AskBlob
from tests.broker.cluster.machines import in_loop
from tests.storage.making import task_id

pytestmark = pytest.mark.timeout(60)

BODY = bytes(range(256)) * (10 * PART_BYTES // 256) + b"end"


class Ends:
    """Two brokers, and the way from the second to the first."""

    def __init__(self, primary: Broker, standby: Broker, port: int) -> None:
        self.primary = primary
        self.standby = standby
        self.copies = BlobCopies(standby)
        self._port = port

    async def link(self) -> PeerLink:
        return await connect("127.0.0.1", self._port, Credentials("s"))

    def batch(self, ref: BlobRef) -> bytes:
        spec = TaskSpec(task_id(1), "q", payload=ref)
        return encode_batch([TaskSubmitted(1, "default", spec, State.READY, "", 1)])

    def read(self, ref: BlobRef) -> bytes:
        return b"".join(self.standby.storage.blobs.read(ref))


@asynccontextmanager
async def ends(folder: Path) -> AsyncIterator[Ends]:
    brokers = [Broker(Storage.open(folder / name)) for name in ("primary", "standby")]
    for each in brokers:
        await each.start()
    door = PeerDoor(PeerHost(brokers[0], "c", "a"), ("127.0.0.1", 0), "s")
    await door.start()
    try:
        yield Ends(brokers[0], brokers[1], door.port)
    finally:
        await door.stop()
        for each in brokers:
            await each.stop()


def breaking(link: PeerLink, parts: int) -> PeerLink:
    """Let a connection be lost after some parts."""
    received = link.parts

    async def some() -> AsyncIterator[bytes]:
        left = parts
        async for part in received():
            if not left:
                link.abort()
                raise PeerGone("the connection was closed")
            left -= 1
            yield part

    link.parts = some  # type: ignore[method-assign]
    return link


def noting(link: PeerLink, asked: list[AskBlob]) -> PeerLink:
    send = link.send

    async def note(message: Message) -> None:
        if isinstance(message, AskBlob):
            asked.append(message)
        await send(message)

    link.send = note  # type: ignore[method-assign]
    return link


@in_loop
async def test_a_blob_goes_on_where_it_was(tmp_path: Path) -> None:
    async with ends(tmp_path) as both:
        ref = both.primary.storage.blobs.write([BODY])
        asked: list[AskBlob] = []
        for parts in (3, 4):
            link = noting(breaking(await both.link(), parts), asked)
            with pytest.raises(PeerGone):
                await both.copies.fetch_named(link, [both.batch(ref)])
            await link.leave()
        link = noting(await both.link(), asked)
        await both.copies.fetch_named(link, [both.batch(ref)])
        await both.copies.fetch_named(link, [both.batch(ref)])  # It is here: not asked for again.
        await link.leave()
        assert [each.offset // PART_BYTES for each in asked] == [0, 3, 7]
        assert both.read(ref) == BODY
        assert not both.copies.lacking


@in_loop
async def test_a_damaged_blob_is_lacking_and_does_not_stop_the_others(tmp_path: Path) -> None:
    async with ends(tmp_path) as both:
        blobs = both.primary.storage.blobs
        bad, good = blobs.write([BODY]), blobs.write([BODY[::-1]])
        path = path_of(tmp_path / "primary" / "blobs", bad.blob)
        path.write_bytes(b"?" + BODY[1:])
        bodies = [both.batch(bad), both.batch(good)]
        link = await both.link()
        with pytest.raises(PeerRefused, match="checksum"):
            await both.copies.fetch_named(link, bodies)
        await link.leave()
        link = await both.link()
        await both.copies.fetch_named(link, bodies)  # The bad one is asked for again later.
        await link.leave()
        assert list(both.copies.lacking) == [bad.blob]
        assert both.read(good) == BODY[::-1]
        assert list(both.standby.storage.blobs.names()) == [good.blob]


@in_loop
async def test_what_was_forgotten_is_not_lacking(tmp_path: Path) -> None:
    """The primary has removed the blob with its task, of which the standby has yet to hear."""
    async with ends(tmp_path) as both:
        ref = both.primary.storage.blobs.write([BODY])
        both.primary.storage.blobs.delete(ref.blob)
        link = await both.link()
        await both.copies.fetch_named(link, [both.batch(ref)])
        assert list(both.copies.lacking) == [ref.blob]
        await both.copies.fetch_lacking(link, is_all=True)
        assert not both.copies.lacking  # No task here names it.
        assert await both.copies.look() == []
        await link.leave()
