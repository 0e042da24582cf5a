"""Bodies in parts at the native door: what is answered, who may, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackalope.core.api_key import Permission
from jackalope.core.commands import Finish, SubmitTasks
from jackalope.core.task import BlobRef
from jackalope.doors.native.streams import UPLOADS_PER_CONNECTION_MAX
from jackalope.wire.frames import PART_BYTES_MAX
from jackalope.wire.messages import Fetch, Hello, Query, Result, Upload
from tests.doors.harness import House, Peer, open_house, run, spec
from tests.doors.native.test_access import create

BODY = bytes(range(256)) * 4096  # 1 MiB


async def upload(peer: Peer, data: bytes = BODY, number: int = 1) -> BlobRef:
    await peer.ask_ok(Upload(0, number, data[: len(data) // 2]))
    return BlobRef(*await peer.ask_ok(Upload(0, number, data[len(data) // 2 :], last=True)))


async def names_left(house: House) -> list[str]:
    """Return the blobs that are there, once those are gone that are to be deleted."""
    await house.until(lambda: not house.broker.blobs.leaving_count())
    return list(house.storage.blobs.names())


def test_up_and_down(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, worker = await house.peer(), await house.connect()
            assert peer.welcome.part_bytes_max == PART_BYTES_MAX
            assert await peer.ask_ok(Upload(0, 1, BODY[:100])) == 100
            assert await peer.ask_ok(Upload(0, 1, BODY[100:300])) == 300
            blob, size, _ = await peer.ask_ok(Upload(0, 1, BODY[300:], last=True))
            assert size == len(BODY)
            task = spec(payload=BlobRef(blob, 0))  # The size is the broker's to know.
            await peer.submit(task)
            await (await worker.greet(Hello(fetches=True))).join()
            [given] = await worker.take()
            assert given.payload == BODY  # It fits into a frame.
            read = b""
            while len(read) < size:
                ask = Fetch(0, task.id, given.fence, len(read), 300_000)
                part = await worker.ask_ok(ask)
                assert part["size"] == size
                read += part["data"]
            assert read == BODY
            result = await upload(worker, BODY[::-1])
            await worker.ask_ok(Result(0, [Finish(task.id, given.fence, result)]))
            part = await peer.ask_ok(Fetch(0, task.id, offset=5, length=7))
            assert part["data"] == BODY[::-1][5:12]
            assert (await peer.ask_ok(Fetch(0, task.id, payload=True)))["size"] == size

    run(test())


def test_only_who_fetches_gets_what_fits_into_no_frame(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path, frame_bytes_max=200_000) as house:
            peer, worker = await house.peer(), await house.connect()
            for begin in range(0, len(BODY), 100_000):
                await peer.ask_ok(Upload(0, 1, BODY[begin : begin + 100_000]))
            blob, size, digest = await peer.ask_ok(Upload(0, 1, last=True))
            await peer.submit(spec(payload=BlobRef(blob, size)))
            await (await worker.greet(Hello(fetches=True))).join()
            [given] = await worker.take()
            assert isinstance(given.payload, BlobRef)
            assert (given.payload.size, given.payload.digest) == (size, digest)

    run(test())


def test_question_does_not_load_what_fits_into_no_frame(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            for _ in range(17):
                await peer.ask_ok(Upload(0, 1, BODY))
            ref = BlobRef(*await peer.ask_ok(Upload(0, 1, last=True)))
            [task] = await peer.submit(spec(payload=ref))
            refused = await peer.ask_no(Query(0, "task", {"id": task, "bodies": True}))
            assert refused.code == "too_large"
            assert (await peer.ask_ok(Query(0, "task", {"id": task})))["id"] == task

    run(test())


def test_upload_is_used_once_and_known_to_its_connection_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, other = await house.peer(), await house.peer()
            ref = await upload(peer)
            refused = [
                (other, SubmitTasks(0, [spec(payload=ref)])),
                (peer, SubmitTasks(0, [spec(payload=ref), spec(payload=ref)])),
                (peer, SubmitTasks(0, [spec(payload=BlobRef("0" * 32 + "-00000000", 1))])),
            ]
            for who, message in refused:
                assert (await who.ask_no(message)).code == "unknown_blob"
            await peer.submit(spec(payload=ref))
            assert (await peer.ask_no(SubmitTasks(0, [spec(payload=ref)]))).code == "unknown_blob"
            assert (await peer.ask_no(Result(0, [Finish(spec().id, 1, ref)]))).code == (
                "unknown_blob"
            )
            assert await names_left(house) == [ref.blob]

    run(test())


def test_nothing_is_left_of_what_no_request_names(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await upload(peer)
            await peer.ask_ok(Upload(0, 2, BODY))
            await peer.ask_ok(Upload(0, 3, BODY))
            await peer.ask_ok(Upload(0, 3, abort=True))
            peer.close()
            await house.until(lambda: not house.door.connections)
            assert await names_left(house) == []
            await house.until(lambda: not house.broker.blobs.draft_count())

    run(test())


def test_refused_task_leaves_no_blob(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            body = await peer.ask_ok(
                SubmitTasks(0, [spec(priority=999, payload=await upload(peer))])
            )
            assert body["count"] == 0
            await house.broker.flush()
            assert await names_left(house) == []

    run(test())


def test_limits_of_uploads(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            assert (await peer.ask_no(Upload(0, 1, bytes(PART_BYTES_MAX + 1)))).code == "too_large"
            for number in range(UPLOADS_PER_CONNECTION_MAX):
                await peer.ask_ok(Upload(0, number, b"x"))
            assert (await peer.ask_no(Upload(0, 99, b"x"))).code == "too_many"
            await peer.ask_ok(Upload(0, 0, abort=True))
            await peer.ask_ok(Upload(0, 99, b"x"))
            assert (await peer.ask_no(Fetch(0, spec().id))).code == "unknown_task"
            [task] = await peer.submit(spec(payload=b"abc"))
            assert (await peer.ask_no(Fetch(0, task, offset=4, payload=True))).code == "invalid"
            part = await peer.ask_ok(Fetch(0, task, offset=1, payload=True))
            assert (part["size"], part["data"]) == (3, b"bc")

    run(test())


@pytest.mark.parametrize(
    ("permissions", "may_upload", "may_fetch"),
    [
        ((Permission.SUBMIT_TASKS,), True, False),
        ((Permission.WORK,), True, False),
        ((Permission.READ_TASKS,), False, True),
        ((Permission.CANCEL_TASKS,), False, False),
    ],
)
def test_who_may(
    tmp_path: Path, permissions: tuple[Permission, ...], may_upload: bool, may_fetch: bool
) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            opener = await house.peer()
            admin_token, _ = await create(opener, *Permission)
            admin = await (await house.connect()).greet(Hello(token=admin_token))
            token, _ = await create(admin, *permissions)
            peer = await (await house.connect()).greet(Hello(token=token))
            [task] = await admin.submit(spec(payload=b"abc"))
            uploaded = await peer.ask(Upload(0, 1, b"x"))
            assert getattr(uploaded, "code", "") == ("" if may_upload else "forbidden")
            fetched = await peer.ask(Fetch(0, task, payload=True))
            assert getattr(fetched, "code", "") == ("" if may_fetch else "forbidden")

    run(test())


def test_payload_of_a_lease_is_for_its_worker(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, worker, other = await house.peer(), await house.peer(), await house.peer()
            await worker.join("w1")
            await other.join("w2", ("elsewhere",))
            [task] = await peer.submit(spec(payload=b"abc"))
            [given] = await worker.take()
            assert (await worker.ask_ok(Fetch(0, task, given.fence)))["data"] == b"abc"
            for who, fence in ((other, given.fence), (peer, given.fence), (worker, 999)):
                assert (await who.ask_no(Fetch(0, task, fence))).code == "stale_fence"

    run(test())
