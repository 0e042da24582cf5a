"""Requests that make no sense: each gets a clear answer, and costs nobody else."""

from pathlib import Path
from urllib.parse import quote

import httpx

from tests.doors.harness import run
from tests.doors.http.gridlike.harness import open_grid, submit
from tests.doors.http.gridlike.test_jobs import LARGE, blobs_are_gone

KEYS = [
    "nobody",
    "..",
    "../../etc/passwd",
    "%",
    "%00",
    "\x00",
    "a/b",
    "é",
    "𐀀",
    "x" * 5_000,
    "00000000-0000-0000-0000-000000000000",
    "0" * 32,
    "{key}",
    "'; DROP TABLE tasks; --",
    " ",
]

PART = '--xyz\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
PAYLOAD = PART.format("payload", '; filename="p"')
PRIORITY = PART.format("priority", "")

#: Bodies of forms, and what is the matter with each.
FORMS: dict[str, bytes] = {
    "empty": b"",
    "no part": b"--xyz--\r\n",
    "another boundary": b"--abc\r\n\r\n--abc--\r\n",
    "cut off in the payload": f"{PRIORITY}batch\r\n{PAYLOAD}".encode() + LARGE,
    "cut off in a header": b"--xyz\r\nContent-Disposition: form-",
    "no name": b"--xyz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xyz--\r\n",
    "payload twice": f"{PAYLOAD}a\r\n{PAYLOAD}b\r\n--xyz--\r\n".encode(),
    "priority twice": f"{PAYLOAD}a\r\n{PRIORITY}batch\r\n{PRIORITY}batch\r\n--xyz--\r\n".encode(),
    "too many fields": (PRIORITY + "batch\r\n").encode() * 100 + b"--xyz--\r\n",
    "a field too large": f"{PRIORITY}{'x' * 70_000}\r\n--xyz--\r\n".encode(),
    "a field that is no text": f"{PAYLOAD}a\r\n{PRIORITY}".encode() + b"\xff\r\n--xyz--\r\n",
}


def assert_said_no(answer: httpx.Response, what: str) -> None:
    assert 400 <= answer.status_code < 500, (what, answer.status_code, answer.text)
    body = answer.json()
    assert "problem" in body or "errors" in body or "error" in body, what


def test_keys_of_nothing_are_not_found() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for key in KEYS:
                path = f"/api/jobs/{quote(key, safe='')}"
                for method, where in (
                    ("GET", ""),
                    ("GET", "/payload"),
                    ("GET", "/result"),
                    ("DELETE", ""),
                    ("POST", "/delete"),
                ):
                    assert_said_no(await house.client.request(method, path + where), key)
                assert_said_no(await house.client.get(f"/api/batches/{quote(key, safe='')}"), key)
                lists = await house.client.get("/api/jobs", params={"type": key, "status": key})
                assert_said_no(lists, key)
            await submit(house, key="fine")

    run(check())


def test_keys_that_are_odd_are_keys_all_the_same() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for key in ("é", "𐀀", " ", "%", "{key}", "'; DROP TABLE tasks; --"):
                await submit(house, key.encode(), key=key)
                payload = await house.client.get(f"/api/jobs/{quote(key, safe='')}/payload")
                assert payload.content == key.encode()

    run(check())


def test_forms_that_are_none_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_grid(tmp_path) as house:
            headers = {"Content-Type": "multipart/form-data; boundary=xyz"}
            for what, form in FORMS.items():
                answer = await house.client.post("/api/jobs/submit", content=form, headers=headers)
                assert_said_no(answer, what)
            for header in ("multipart/form-data", "multipart/form-data; boundary=", "text/plain"):
                answer = await house.client.post(
                    "/api/jobs/submit", content=b"--\r\n", headers={"Content-Type": header}
                )
                assert_said_no(answer, header)
            assert (await house.client.get("/api/jobs")).json() == []
            await blobs_are_gone(tmp_path)
            await submit(house, LARGE, key="fine")

    run(check())


def test_methods_that_mean_nothing_are_refused() -> None:
    async def check() -> None:
        async with open_grid() as house:
            for method, path in (
                ("PUT", "/api/jobs"),
                ("GET", "/api/jobs/submit"),
                ("POST", "/api/batches"),
                ("POST", "/api/worker"),
                ("PATCH", "/api/jobs/k"),
            ):
                answer = await house.client.request(method, path)
                assert answer.status_code == 405, (method, path)

    run(check())
