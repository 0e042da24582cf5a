"""Bodies of any size: in raw or in a form, out whole or in part, and nothing left behind."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jackalope.broker import body_streams
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.task import BlobRef, Body
from jackalope.doors.http import app, bodies
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.bodies import Received, body_response, receiving
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Request, answer, door_of
from jackalope.doors.http.router import Routes
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http, until

LARGE = bytes(range(256)) * 4_000
BYTES_MAX = 2_000_000


class Shelf:
    """What the routes below have received."""

    def __init__(self) -> None:
        self.received: list[Received] = []

    def routes(self) -> Routes:
        routes = Routes("/shelf")

        @routes.post("", "admin")
        async def take(request: Request) -> Response:
            blobs = door_of(request).broker.blobs
            async with receiving(request, blobs, BYTES_MAX) as received:
                if received.fields.get("fail"):
                    raise Rejected(409, "told to fail")
                self.received.append(received)
            return answer(len(self.received) - 1, 201)

        @routes.read("/{index}", "admin")
        async def give(request: Request, index: str) -> Response:
            body = self.received[int(index)].body
            assert body is not None
            return await body_response(request, door_of(request).broker.blobs, body)

        return routes


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """Give the door a part that does nothing but take bodies and give them back."""
    shelf, routes = Shelf(), app.ROUTES[:]
    app.ROUTES[:] = shelf.routes()
    yield shelf
    app.ROUTES[:] = routes


def files_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


# In.


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES_MAX])
def test_small_body_stays_inline(shelf: Shelf, tmp_path: Path, size: int) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            await house.client.post("/shelf", content=LARGE[:size])
            assert shelf.received[0].body == LARGE[:size]
            assert files_in(tmp_path) == []

    run(test())


@pytest.mark.parametrize(
    "size", [INLINE_BYTES_MAX + 1, body_streams.CHUNK_BYTES, len(LARGE), BYTES_MAX]
)
@pytest.mark.parametrize("piece", [1_000, 300_000])
def test_large_body_becomes_a_blob(shelf: Shelf, tmp_path: Path, size: int, piece: int) -> None:
    async def test() -> None:
        body = (LARGE * 2)[:size]
        async with open_http(tmp_path) as house:
            response = await house.client.post("/shelf", content=in_pieces(body, piece))
            assert response.status_code == 201
            ref = shelf.received[0].body
            assert isinstance(ref, BlobRef)
            assert ref.size == size
            (file,) = files_in(tmp_path)
            assert file.read_bytes() == body
            assert (await house.client.get("/shelf/0")).content == body

    run(test())


@pytest.mark.parametrize("is_announced", [True, False])
def test_too_large_is_refused_and_leaves_nothing(
    shelf: Shelf, tmp_path: Path, is_announced: bool
) -> None:
    async def test() -> None:
        body = bytes(BYTES_MAX + 1)
        async with open_http(tmp_path) as house:
            content = body if is_announced else in_pieces(body, 100_000)
            response = await house.client.post("/shelf", content=content)
            assert response.status_code == 413
            assert response.json()["reason"] == "too_large"
            assert str(BYTES_MAX) in response.json()["error"]
            await until(lambda: files_in(tmp_path) == [])
            assert shelf.received == []

    run(test())


def test_form_with_fields_around_the_file(shelf: Shelf, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            await house.client.post(
                "/shelf",
                data={"priority": "immediate", "tags": ["a", "ü"]},
                files={"payload": ("cat.png", LARGE, "image/png")},
            )
            received = shelf.received[0]
            assert received.fields == {"priority": ["immediate"], "tags": ["a", "ü"]}
            assert received.media_type == "image/png"
            assert (await house.client.get("/shelf/0")).content == LARGE
            assert received.field("priority") == "immediate"
            assert received.field("absent", "default") == "default"
            with pytest.raises(Rejected, match="given 2 times"):
                received.field("tags")

    run(test())


@pytest.mark.parametrize("body", [b"", b"\r\n--", b"x\r\n--b\r\n" * 50_000])
def test_any_bytes_pass_through_a_form(shelf: Shelf, body: bytes) -> None:
    async def test() -> None:
        async with open_http() as house:
            await house.client.post("/shelf", files={"payload": body})
            assert (await house.client.get("/shelf/0")).content == body

    run(test())


def test_form_without_the_file(shelf: Shelf) -> None:
    async def test() -> None:
        async with open_http() as house:
            await house.client.post("/shelf", files={"other": b"x"})
            assert shelf.received[0].body is None
            assert shelf.received[0].fields == {"other": ["x"]}

    run(test())


def form(*parts: bytes) -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"


def part(name: bytes, value: bytes) -> bytes:
    return b'Content-Disposition: form-data; name="' + name + b'"\r\n\r\n' + value


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not a valid form"),
        (b"nonsense", 400, "not a valid form"),
        (form(part(b"payload", LARGE))[:-8], 400, "end of multipart"),
        (form(part(b"payload", LARGE), part(b"payload", b"x")), 400, "given twice"),
        (form(part(b"payload", LARGE), part(b"x", b"\xff")), 400, "UTF-8"),
        (form(part(b"payload", LARGE), b"X: y\r\n\r\n"), 400, "not a valid form"),
        (form(part(b"payload", bytes(BYTES_MAX + 1))), 413, "too large"),
        (form(part(b"x", bytes(bodies.FIELD_BYTES_MAX + 1))), 413, "x: a field"),
        (form(*[part(b"x", b"")] * (bodies.FIELDS_MAX + 2)), 413, "too large"),
        (form(part(b"payload", LARGE), part(b"fail", b"yes")), 409, "told to fail"),
    ],
    ids=[
        "empty",
        "nonsense",
        "cut off",
        "two files",
        "not text",
        "no name",
        "large file",
        "large field",
        "many fields",
        "fails",
    ],
)
def test_bad_form_leaves_nothing(
    shelf: Shelf, tmp_path: Path, body: bytes, status: int, message: str
) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            house.broker.blobs.doubt_s = 0.0
            response = await house.client.post(
                "/shelf", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
            )
            assert response.status_code == status, response.text
            assert message in response.json()["error"]
            await until(lambda: files_in(tmp_path) == [])
            assert shelf.received == []

    run(test())


@pytest.mark.parametrize("sent", [0, 1_000, 500_000])
def test_sender_that_goes_away_leaves_nothing(shelf: Shelf, tmp_path: Path, sent: int) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            writer.write(
                b"POST /shelf HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
            )
            writer.write(bytes(sent))
            await writer.drain()
            if sent > body_streams.CHUNK_BYTES:
                await until(lambda: files_in(tmp_path) != [])
            writer.transport.abort()
            await until(lambda: house.broker.blobs.draft_count() == 0)
            await until(lambda: files_in(tmp_path) == [])
            assert shelf.received == []
            del reader

    run(test())


def test_sender_that_pauses_for_too_long(shelf: Shelf, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path, body_timeout_us=200_000) as house:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            writer.write(b"POST /shelf HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n")
            writer.write(b"\r\n" + bytes(500_000))
            answer = await reader.read()  # To the end: the broker closes the connection.
            assert b" 408 " in answer
            writer.close()
            await until(lambda: house.broker.blobs.draft_count() == 0)
            await until(lambda: files_in(tmp_path) == [])
            assert shelf.received == []

    run(test())


def test_more_uploads_than_there_may_be_are_refused(shelf: Shelf) -> None:
    async def test() -> None:
        async with open_http() as house:
            house.broker.blobs.drafts_max = 1
            draft = house.broker.blobs.begin()
            response = await house.client.post("/shelf", content=LARGE)
            assert (response.status_code, response.json()["reason"]) == (503, "overloaded")
            assert int(response.headers["retry-after"]) >= 1
            assert (await house.client.post("/shelf", content=b"small")).status_code == 201
            draft.abort()
            assert (await house.client.post("/shelf", content=LARGE)).status_code == 201

    run(test())


# Out.


@asynccontextmanager
async def shown(shelf: Shelf, body: bytes) -> AsyncIterator[HttpHouse]:
    async with open_http() as house:
        assert (await house.client.post("/shelf", content=body)).status_code == 201
        yield house


RANGES = [
    ("bytes=0-0", 0, 1),
    ("bytes=10-19", 10, 20),
    ("bytes=990-", 990, None),
    ("bytes=-7", -7, None),
    ("bytes=5-99999999", 5, None),
    ("bytes=-99999999", 0, None),
    ("Bytes = 1-2", 1, 3),
]


@pytest.mark.parametrize("body", [LARGE, LARGE[:1_000]], ids=["blob", "inline"])
def test_ranges(shelf: Shelf, body: bytes) -> None:
    async def test() -> None:
        async with shown(shelf, body) as house:
            for asked, begin, end in RANGES:
                response = await house.client.get("/shelf/0", headers={"Range": asked})
                assert (response.status_code, response.content) == (206, body[begin:end]), asked
                first = begin % len(body)
                last = first + len(response.content) - 1
                assert response.headers["content-range"] == f"bytes {first}-{last}/{len(body)}"
                assert response.headers["content-length"] == str(len(response.content))

    run(test())


def test_no_range_is_everything(shelf: Shelf) -> None:
    nothing = ["", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "lines=1-2", "bytes=0-1,3-4"]

    async def test() -> None:
        async with shown(shelf, LARGE) as house:
            for asked in nothing:
                response = await house.client.get("/shelf/0", headers={"Range": asked})
                assert (response.status_code, response.content) == (200, LARGE), asked

    run(test())


@pytest.mark.parametrize("body", [LARGE, b"inline", b""], ids=["blob", "inline", "empty"])
def test_range_outside(shelf: Shelf, body: bytes) -> None:
    async def test() -> None:
        async with shown(shelf, body) as house:
            for asked in (f"bytes={len(body)}-", "bytes=-0"):
                response = await house.client.get("/shelf/0", headers={"Range": asked})
                assert response.status_code == 416
                assert response.headers["content-range"] == f"bytes */{len(body)}"
                assert response.json()["reason"] == "wrong_range"

    run(test())


@pytest.mark.parametrize("body", [LARGE, b"inline", b""], ids=["blob", "inline", "empty"])
def test_head_tells_all_but_the_bytes(shelf: Shelf, body: bytes) -> None:
    async def test() -> None:
        async with shown(shelf, body) as house:
            head, get = await house.client.head("/shelf/0"), await house.client.get("/shelf/0")
            assert (head.status_code, head.content, get.content) == (200, b"", body)
            assert head.headers["content-length"] == str(len(body))
            for header in ("etag", "content-length", "accept-ranges", "content-type"):
                assert head.headers[header] == get.headers[header]

    run(test())


def test_tags_tell_bodies_apart(shelf: Shelf) -> None:
    async def test() -> None:
        async with shown(shelf, LARGE) as house:
            await house.client.post("/shelf", content=LARGE)
            await house.client.post("/shelf", content=LARGE + b"x")
            tags = [(await house.client.head(f"/shelf/{n}")).headers["etag"] for n in range(3)]
            assert tags[0] == tags[1] != tags[2]
            known = {"If-None-Match": tags[0]}
            response = await house.client.get("/shelf/0", headers=known)
            assert (response.status_code, response.content) == (304, b"")
            assert (await house.client.get("/shelf/2", headers=known)).content == LARGE + b"x"
            other = {"Range": "bytes=0-1", "If-Range": tags[2]}
            assert (await house.client.get("/shelf/0", headers=other)).content == LARGE

    run(test())


def test_missing_blob_is_an_error_before_the_first_byte(shelf: Shelf, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            await house.client.post("/shelf", content=LARGE)
            (file,) = files_in(tmp_path)
            file.unlink()
            response = await house.client.get("/shelf/0")
            assert (response.status_code, response.json()["reason"]) == (503, "storage_failed")
            assert file.name in response.json()["error"]

    run(test())


def test_damaged_blob_breaks_the_connection(shelf: Shelf, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            await house.client.post("/shelf", content=LARGE)
            (file,) = files_in(tmp_path)
            file.write_bytes(bytes(len(LARGE)))
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            writer.write(b"GET /shelf/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert f"content-length: {len(LARGE)}".encode() in head.lower()
            rest = await reader.read()
            # Every byte was sent before the checksum told: only the connection can say it.
            assert len(rest) <= len(LARGE)
            writer.close()
            assert (await house.client.get("/shelf/0", headers={"Range": "bytes=0-0"})).is_success

    run(test())


def test_slow_readers_cost_nobody(shelf: Shelf, tmp_path: Path) -> None:
    """More readers that do not read than there are threads keep nobody from reading."""

    async def test() -> None:
        async with open_http(tmp_path) as house:
            for _ in range(8):
                await house.client.post("/shelf", content=bytes(BYTES_MAX))
            deaf = []
            for index in range(24):
                sock = socket.create_connection(("127.0.0.1", house.door.port))
                sock.send(b"GET /shelf/%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (index % 8))
                deaf.append(sock)
            response = await house.client.get("/shelf/0")
            assert response.content == bytes(BYTES_MAX)
            for sock in deaf:
                sock.close()

    run(test())


def bodies_of(received: list[Received]) -> list[Body | None]:
    return [each.body for each in received]


def run_all(*work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.gather(*work)


def test_many_at_once(shelf: Shelf, tmp_path: Path) -> None:
    async def test() -> None:
        async with open_http(tmp_path) as house:
            sizes = [INLINE_BYTES_MAX + number * 10_000 for number in range(20)]
            answers = await run_all(
                *[house.client.post("/shelf", content=LARGE[:size]) for size in sizes]
            )
            for answer, size in zip(answers, sizes, strict=True):
                response = await house.client.get(f"/shelf/{answer.json()}")
                assert response.content == LARGE[:size]
            assert len(bodies_of(shelf.received)) == 20

    run(test())
