"""No blob without an owner: after failures, refusals, deletes and crashes."""

import asyncio
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from jackalope.broker import blobs as manager
from jackalope.broker.blobs import BlobKeeper
from jackalope.core.task import BlobRef
from jackalope.storage import History, OutOfReach
from jackalope.storage.memory import MemoryBlobs
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, Serving, open_http, until

LARGE = bytes(range(256)) * 4_000
RAW = "/api/v1/tasks/raw?name=t&queue=q"


def names(house: HttpHouse) -> list[str]:
    return list(house.broker.blobs.names())


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# Refusals and deletes.


def test_refused_submits_leave_nothing() -> None:
    async def test() -> None:
        async with open_http() as house:
            task = "11111111-1111-4111-8111-111111111111"
            path = f"{RAW}&id={task}&alias=a"
            assert (await house.client.post(path, content=LARGE)).status_code == 201
            (first,) = names(house)
            # The same again is the same task; another under its id or alias is refused.
            assert (await house.client.post(path, content=LARGE)).status_code == 201
            assert (await house.client.post(path, content=LARGE + b"x")).status_code == 409
            other = await house.client.post(f"{RAW}&alias=a", content=LARGE)
            assert (other.status_code, other.json()["reason"]) == (409, "duplicate_alias")
            await until(lambda: names(house) == [first])

    run(test())


def test_refused_results_leave_nothing() -> None:
    async def test() -> None:
        async with open_http() as house:
            task = (await house.client.post(RAW, content=b"small")).json()["id"]
            finish = f"/api/v1/attempts/{task}/finish?worker=w&fence="
            claim = await house.client.post("/api/v1/workers/w/claim", json={"queues": ["q"]})
            fence = claim.json()["tasks"][0]["fence"]
            refused = await house.client.post(f"{finish}{fence + 1}", content=LARGE)
            assert refused.json()["reason"] == "stale_fence"
            assert (await house.client.post(f"{finish}{fence}", content=LARGE)).status_code == 200
            await until(lambda: len(names(house)) == 1)
            shown = await house.client.get(f"/api/v1/tasks/{task}/result")
            assert shown.content == LARGE

    run(test())


def test_what_is_purged_takes_its_blobs_along() -> None:
    async def test() -> None:
        async with open_http() as house:
            tasks = [(await house.client.post(RAW, content=LARGE)).json()["id"] for _ in range(3)]
            assert len(names(house)) == 3
            for task in tasks:
                await house.client.post(f"/api/v1/tasks/{task}/kill")
                await house.client.post(f"/api/v1/tasks/{task}/purge")
            await until(lambda: names(house) == [])

    run(test())


@pytest.mark.parametrize("retention", ["7d", "0s"])
def test_result_that_becomes_a_payload_has_two_owners(retention: str) -> None:
    """Whichever of the two tasks goes first, the other keeps the blob."""

    async def test() -> None:
        async with open_http() as house:
            client = house.client
            for queue, policy in (
                ("b", {}),
                ("q", {"result_becomes": "b", "retention": retention}),
            ):
                declared = await client.put(f"/api/v1/queues/{queue}", json={"policy": policy})
                assert declared.is_success, declared.text
            first = (await client.post(RAW, content=b"small")).json()["id"]
            claim = await client.post("/api/v1/workers/w/claim", json={"queues": ["q"]})
            finish = {"worker": "w", "fence": claim.json()["tasks"][0]["fence"]}
            path = f"/api/v1/attempts/{first}/finish"
            assert (await client.post(path, params=finish, content=LARGE)).is_success
            (second,) = (await client.get("/api/v1/tasks?queue=b")).json()["tasks"]
            await client.post(f"/api/v1/tasks/{first}/purge")
            await house.broker.flush()
            assert await house.broker.blobs.sweep() == 0
            shown = await client.get(f"/api/v1/tasks/{second['id']}/payload")
            assert shown.content == LARGE
            await client.post(f"/api/v1/tasks/{second['id']}/kill")
            await client.post(f"/api/v1/tasks/{second['id']}/purge")
            await until(lambda: names(house) == [])

    run(test())


# The sweep.


def test_sweep_takes_what_nobody_names_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            blobs = house.broker.blobs
            for _ in range(5):
                await house.client.post(RAW, content=LARGE)
            named = set(names(house))
            # As a crash leaves them: written by nobody who is still there.
            orphans = {house.broker._storage.blobs.write([b"x"]).blob for _ in range(7)}
            draft = blobs.begin()
            fresh = blobs.write([b"just written"]).blob
            assert await blobs.sweep() == 7
            await until(lambda: not orphans & set(names(house)))
            assert set(names(house)) == named | {fresh}
            draft.add(b"goes on")
            assert draft.finish().size == 7
            assert await blobs.sweep() == 0

    run(test())


def test_sweep_beside_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task that was accepted keeps its payload, however often is swept meanwhile."""
    monkeypatch.setattr(manager, "SWEEP_NAMES", 3)

    async def test() -> None:
        async with open_http() as house:
            is_over = asyncio.Event()

            async def sweep() -> int:
                count = 0
                while not is_over.is_set():
                    assert await house.broker.blobs.sweep() == 0
                    count += 1
                return count

            sweeping = asyncio.create_task(sweep())
            tasks = []
            for _ in range(10):
                answers = await asyncio.gather(
                    *[house.client.post(RAW, content=LARGE) for _ in range(4)]
                )
                tasks += [answer.json()["id"] for answer in answers]
            is_over.set()
            assert await sweeping > 1
            for task in tasks:
                shown = await house.client.get(f"/api/v1/tasks/{task}/payload")
                assert shown.content == LARGE

    run(test())


def test_hold_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "HOLD_S", 0.0)

    async def test() -> None:
        async with open_http() as house:
            house.broker.blobs.write([b"nobody hands it in"])
            assert await house.broker.blobs.sweep() == 1
            await until(lambda: names(house) == [])

    run(test())


def test_many_blobs_do_not_hold_up_the_start(tmp_path: Path) -> None:
    """The sweep runs beside everything else: the start does not wait for it."""

    async def test() -> None:
        folder = tmp_path / "blobs" / "ab"
        folder.mkdir(parents=True)
        for number in range(5_000):
            (folder / f"ab{number:030x}-00000000").write_bytes(b"x")
        async with open_http(tmp_path) as house:
            assert (await house.client.post(RAW, content=b"x")).status_code == 201
            await until(lambda: files_in(folder) == [])

    run(test())


# Stores that fail.


class Failing(MemoryBlobs):
    """A store that can be out of reach."""

    is_down = False

    def delete(self, name: str) -> None:
        if self.is_down:
            raise OutOfReach("down")
        super().delete(name)


async def _flush() -> None:
    pass


def test_failed_deletes_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "DELETE_AGAIN_S", 0.01)

    async def test() -> None:
        store = Failing()
        blobs = BlobKeeper(store, History(None), _flush, list)
        refs = [blobs.write([b"x"]) for _ in range(3)]
        blobs.start()
        store.is_down = True
        for ref in refs:
            blobs.delete(ref.blob)
        await asyncio.sleep(0.1)
        assert (len(list(store.names())), blobs.leaving_count()) == (3, 3)
        store.is_down = False
        await until(lambda: not list(store.names()))
        assert blobs.leaving_count() == 0
        await blobs.stop()

    run(test())


def test_deletes_beyond_the_limit_are_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "DELETES_MAX", 2)

    async def test() -> None:
        blobs = BlobKeeper(MemoryBlobs(), History(None), _flush, list)
        for number in range(3):
            blobs.delete(f"{number:032x}")
        assert blobs.leaving_count() == 2
        await blobs.stop()

    run(test())


def test_nothing_is_swept_while_history_cannot_be_relied_on() -> None:
    async def test() -> None:
        store = MemoryBlobs()
        blobs = BlobKeeper(store, History(None), _flush, lambda _: [])
        store.write([b"x"])
        assert await blobs.sweep() == 0
        assert len(list(store.names())) == 1
        await blobs.stop()

    run(test())


def test_what_was_given_up_half_way_goes_unless_a_task_names_it() -> None:
    async def test() -> None:
        async with open_http() as house:
            blobs = house.broker.blobs
            blobs.doubt_s = 0.0
            await house.client.post(RAW, content=LARGE)
            (named,) = names(house)
            given_up = await blobs.off_loop(lambda: blobs.write([b"x"]))
            blobs.doubt(given_up)
            blobs.doubt(BlobRef(named, len(LARGE)))
            await until(lambda: names(house) == [named])

    run(test())


# Crashes.


def test_broker_killed_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    blobs = tmp_path / "data" / "blobs"
    serving = Serving(tmp_path)
    kept = httpx.post(serving.url + RAW, content=LARGE).json()["id"]
    with socket.create_connection(("127.0.0.1", serving.http_port)) as half:
        head = f"POST {RAW} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n"
        half.sendall(head.encode() + bytes(4_000_000))
        while sum(path.stat().st_size for path in files_in(blobs / "unfinished")) < 3_000_000:
            time.sleep(0.01)
        serving.stop(signal.SIGKILL)
    assert len(files_in(blobs)) == 2
    orphan = blobs / "ab" / f"ab{1:030x}-00000000"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"was renamed, and never named by a record")

    serving = Serving(tmp_path)
    try:
        while len(files_in(blobs)) > 1:
            assert serving.process.poll() is None
            time.sleep(0.01)
        shown = httpx.get(f"{serving.url}/api/v1/tasks/{kept}/payload")
        assert shown.content == LARGE
    finally:
        serving.stop()
