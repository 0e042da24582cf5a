"""Large bodies in S3-compatible storage: through the broker, over links, and when it is away."""

import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackalope.broker import blobs as manager
from jackalope.broker.access import Access
from jackalope.broker.config.schema import GridlikeConfig
from jackalope.core.api_key import Permission
from jackalope.storage.blobs.s3 import S3Blobs, S3Place
from tests.doors.harness import run
from tests.doors.http.gridlike.harness import ASKED
from tests.doors.http.gridlike.harness import submit as submit_job
from tests.doors.http.gridlike.harness import worker as grid_worker
from tests.doors.http.gridlike.test_jobs import blob_files
from tests.doors.http.harness import HttpHouse, Serving, open_http, until
from tests.doors.http.test_large import GROWTH_MAX, Memory, Talk, pass_through
from tests.doors.native.test_access import make_key
from tests.storage.blobs.s3_server import KEYS, S3Server

MEBIBYTE = 1024 * 1024
LARGE = bytes(range(256)) * 4_000
RAW = "/api/v1/tasks/raw?name=t&queue=q"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def place(server: S3Server) -> S3Place:
    return server.place()


@asynccontextmanager
async def open_s3(folder: Path, place: S3Place, **settings: Any) -> AsyncIterator[HttpHouse]:
    async with open_http(folder, blobs_at=lambda owner: S3Blobs(place, owner), **settings) as house:
        yield house


def names(place: S3Place, folder: Path) -> list[str]:
    return list(S3Blobs(place, (folder / "id").read_text()).names())


async def submit_by_ticket(house: HttpHouse, ticket: str, **more: Any) -> httpx.Response:
    task = {"name": "t", "queue": "q", "payload_ticket": ticket}
    headers = more.pop("headers", {})
    return await house.client.post("/api/v1/tasks", json=task | more, headers=headers)


async def payload_of(house: HttpHouse, answer: httpx.Response) -> bytes:
    assert answer.status_code == 201, answer.text
    return (await house.client.get(f"/api/v1/tasks/{answer.json()['id']}/payload")).content


def test_payload_and_result_through_the_broker(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            body, result = LARGE * 12, LARGE + b"result"
            task = (await house.client.post(RAW, content=body)).json()["id"]
            path = f"/api/v1/tasks/{task}"
            assert (await house.client.get(f"{path}/payload")).content == body
            part = await house.client.get(f"{path}/payload", headers={"Range": "bytes=-5"})
            assert (part.status_code, part.content) == (206, body[-5:])
            claim = await house.client.post("/api/v1/workers/w/claim", json={"queues": ["q"]})
            fence = claim.json()["tasks"][0]["fence"]
            finish = f"/api/v1/attempts/{task}/finish?worker=w&fence={fence}"
            assert (await house.client.post(finish, content=result)).status_code == 200
            assert (await house.client.get(f"{path}/result")).content == result
            assert len(names(place, tmp_path)) == 2
            await house.client.post(f"{path}/purge")
            await until(lambda: names(place, tmp_path) == [])

    run(test())


@pytest.mark.feature("G30")
@pytest.mark.parametrize("store", ["folder", "s3"])
def test_a_job_of_gridlike_in_each_store(store: str, place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        blobs_at = (lambda owner: S3Blobs(place, owner)) if store == "s3" else None
        patient = GridlikeConfig(kick_after_us=30_000_000)
        async with open_http(tmp_path, patient, blobs_at=blobs_at) as house:
            await submit_job(house, LARGE, key="k")
            async with grid_worker(house) as worker:
                assert await worker.take() == LARGE
                await worker.send(LARGE[::-1])
                assert await worker.hear() == ASKED
            assert (await house.client.get("/api/jobs/k/result")).content == LARGE[::-1]
            if store == "s3":
                assert len(names(place, tmp_path)) == 2
            else:
                assert len(blob_files(tmp_path)) == 2
            assert (await house.client.delete("/api/jobs/k")).status_code == 202

    run(test())


# Links.


@pytest.mark.feature("G38")
def test_payload_over_links(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            given = (await house.client.post("/api/v1/blobs")).json()
            assert given["method"] == "PUT"
            async with httpx.AsyncClient() as outside:
                assert (await outside.put(given["url"], content=LARGE)).is_success
                answer = await submit_by_ticket(house, given["ticket"])
                assert await payload_of(house, answer) == LARGE
                path = f"/api/v1/tasks/{answer.json()['id']}/payload"
                link = (await house.client.get(f"{path}?link=1")).json()
                assert link["expires_at"] >= given["expires_at"]
                assert (await outside.get(link["url"])).content == LARGE
                # The link in still works; the payload is another object by now.
                await outside.put(given["url"], content=b"other")
            assert await payload_of(house, answer) == LARGE

    run(test())


@pytest.mark.feature("G38")
def test_result_over_links(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            task = (await house.client.post(RAW, content=b"small")).json()["id"]
            claim = await house.client.post("/api/v1/workers/w/claim", json={"queues": ["q"]})
            fence = claim.json()["tasks"][0]["fence"]
            attempt = f"/api/v1/attempts/{task}"
            stale = await house.client.post(f"{attempt}/link?worker=w&fence={fence + 1}")
            assert stale.json()["reason"] == "stale_fence"
            asked = await house.client.post(f"{attempt}/link?worker=w&fence={fence}")
            given = asked.json()
            async with httpx.AsyncClient() as outside:
                await outside.put(given["url"], content=LARGE)
                finish = f"{attempt}/finish?worker=w&fence={fence}"
                path = f"{finish}&ticket={given['ticket']}"
                assert (await house.client.post(path, content=b"x")).status_code == 400
                assert (await house.client.post(path)).status_code == 200
                link = await house.client.get(f"/api/v1/tasks/{task}/result?link=1")
                assert (await outside.get(link.json()["url"])).content == LARGE

    run(test())


def test_repeated_submit_with_a_ticket_is_harmless(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            given = (await house.client.post("/api/v1/blobs")).json()
            async with httpx.AsyncClient() as outside:
                await outside.put(given["url"], content=LARGE)
            task_id = "11111111-1111-4111-8111-111111111111"
            for _ in range(2):
                answer = await submit_by_ticket(house, given["ticket"], id=task_id)
                assert await payload_of(house, answer) == LARGE
            assert len(names(place, tmp_path)) == 1

    run(test())


def test_ticket_used_again_while_its_first_task_goes(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            given = (await house.client.post("/api/v1/blobs")).json()
            async with httpx.AsyncClient() as outside:
                await outside.put(given["url"], content=LARGE)
            first = await submit_by_ticket(house, given["ticket"])
            second = await submit_by_ticket(house, given["ticket"])
            path = f"/api/v1/tasks/{first.json()['id']}"
            await house.client.post(f"{path}/kill")
            await house.client.post(f"{path}/purge")
            await house.broker.flush()
            assert await payload_of(house, second) == LARGE
            path = f"/api/v1/tasks/{second.json()['id']}"
            house.broker.blobs.doubt_s = 0.0
            await house.client.post(f"{path}/kill")
            await house.client.post(f"{path}/purge")
            await until(lambda: names(place, tmp_path) == [])
            assert (await submit_by_ticket(house, given["ticket"])).status_code == 400

    run(test())


def test_tickets_that_stand_for_nothing(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place) as house:
            given = (await house.client.post("/api/v1/blobs")).json()
            until_s, _, chance = given["ticket"].partition("-")
            over = f"{int(time.time()) - 10}-{chance}"
            forged = f"{int(until_s) + 10_000}-{chance}"
            await house.client.post(RAW, content=LARGE)
            (blob,) = names(place, tmp_path)
            for ticket in (given["ticket"], over, forged, "nonsense", f"{until_s}-{blob}", blob):
                answer = await submit_by_ticket(house, ticket)
                assert answer.status_code == 400, ticket
                assert "invalid ticket" in answer.json()["error"]

    run(test())


def test_ticket_is_worth_nothing_in_other_hands(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        tokens, keys = zip(
            *[make_key(Permission.SUBMIT_TASKS, Permission.READ_TASKS) for _ in range(2)],
            strict=True,
        )
        mine, other = ({"Authorization": f"Bearer {token}"} for token in tokens)
        async with open_s3(tmp_path, place, access=Access(list(keys))) as house:
            given = (await house.client.post("/api/v1/blobs", headers=mine)).json()
            async with httpx.AsyncClient() as outside:
                await outside.put(given["url"], content=LARGE)
            stolen = await submit_by_ticket(house, given["ticket"], headers=other)
            assert (stolen.status_code, stolen.json()["reason"]) == (400, "invalid")
            elsewhere = mine | {"X-Jackalope-Namespace": "elsewhere"}
            assert (
                await submit_by_ticket(house, given["ticket"], headers=elsewhere)
            ).status_code == 400
            used = await submit_by_ticket(house, given["ticket"], headers=mine)
            assert used.status_code == 201

    run(test())


def test_ticket_for_too_much(place: S3Place, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_s3(tmp_path, place, upload_bytes_max=len(LARGE) - 1) as house:
            given = (await house.client.post("/api/v1/blobs")).json()
            assert given["bytes_max"] == len(LARGE) - 1
            async with httpx.AsyncClient() as outside:
                await outside.put(given["url"], content=LARGE)
            answer = await submit_by_ticket(house, given["ticket"])
            assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
            assert names(place, tmp_path) == []

    run(test())


def test_folder_makes_no_links(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            answer = await house.client.post("/api/v1/blobs")
            assert (answer.status_code, answer.json()["reason"]) == (501, "no_links")
            task = (await house.client.post(RAW, content=LARGE)).json()["id"]
            answer = await house.client.get(f"/api/v1/tasks/{task}/payload?link=1")
            assert (answer.status_code, answer.json()["reason"]) == (501, "no_links")
            assert (await submit_by_ticket(house, "1234567890-" + "0" * 32)).status_code == 400

    run(test())


# A store that is away.


def test_broker_works_on_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "DELETE_AGAIN_S", 0.1)

    async def test() -> None:
        server = S3Server()
        place = server.place()
        try:
            async with open_s3(tmp_path, place) as house:
                client = house.client
                task = (await client.post(RAW, content=LARGE)).json()["id"]
                server.stop()
                for answer in (
                    await client.post(RAW, content=LARGE),
                    await client.get(f"/api/v1/tasks/{task}/payload"),
                ):
                    assert (answer.status_code, answer.json()["reason"]) == (503, "storage_failed")
                    assert int(answer.headers["retry-after"]) >= 1
                    assert KEYS.secret not in answer.text
                assert (await client.post(RAW, content=b"small")).status_code == 201
                await client.post(f"/api/v1/tasks/{task}/kill")
                assert (await client.post(f"/api/v1/tasks/{task}/purge")).is_success
                await until(lambda: house.broker.blobs.leaving_count() == 1)
                server = S3Server(server.port)
                await until(lambda: house.broker.blobs.leaving_count() == 0)
                assert (await client.post(RAW, content=LARGE)).status_code == 201
        finally:
            server.stop()

    run(test())


# Processes.


def variables(place: S3Place) -> dict[str, str]:
    return {
        "JACKALOPE_BLOBS__STORE": "s3",
        "JACKALOPE_BLOBS__BUCKET": place.bucket,
        "JACKALOPE_BLOBS__PREFIX": place.prefix,
        "JACKALOPE_BLOBS__ENDPOINT": place.endpoint,
        "AWS_ACCESS_KEY_ID": KEYS.id,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret,
    }


def test_broker_killed_in_the_middle_of_an_upload(
    server: S3Server, place: S3Place, tmp_path: Path
) -> None:
    serving = Serving(tmp_path, variables=variables(place))
    kept = httpx.post(serving.url + RAW, content=LARGE).json()["id"]
    with socket.create_connection(("127.0.0.1", serving.http_port)) as half:
        head = f"POST {RAW} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90000000\r\n\r\n"
        half.sendall(head.encode() + bytes(12 * MEBIBYTE))
        while server.uploads() == 0:
            time.sleep(0.01)
        serving.stop(signal.SIGKILL)
    owner = (tmp_path / "data" / "id").read_text()
    S3Blobs(place, owner).write([b"was written, and never named by a record"])
    assert server.uploads() == 1

    serving = Serving(tmp_path, variables=variables(place))
    try:
        while server.uploads() or len(names(place, tmp_path / "data")) > 1:
            assert serving.process.poll() is None
            time.sleep(0.01)
        shown = httpx.get(f"{serving.url}/api/v1/tasks/{kept}/payload")
        assert shown.content == LARGE
    finally:
        _, log = serving.stop()
    assert KEYS.secret not in log


def test_broker_starts_while_the_store_is_away(tmp_path: Path) -> None:
    nowhere = S3Place("test", "x", "http://127.0.0.1:1")
    serving = Serving(tmp_path, variables=variables(nowhere))
    try:
        assert httpx.post(serving.url + RAW, content=b"small").status_code == 201
        large = httpx.post(serving.url + RAW, content=LARGE)
        assert (large.status_code, large.json()["reason"]) == (503, "storage_failed")
    finally:
        _, log = serving.stop()
    assert "the blob store is unreachable" in log


def test_broker_holds_little_of_what_passes_through(place: S3Place, tmp_path: Path) -> None:
    serving = Serving(tmp_path, variables=variables(place))
    try:
        httpx.post(serving.url + RAW, content=LARGE)
        memory, talk = Memory(serving.process.pid), Talk(serving)
        pass_through(talk, 128)
        talk.close()
        assert memory.growth() < GROWTH_MAX
    finally:
        serving.stop()
