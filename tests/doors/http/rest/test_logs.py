"""Task logs over REST: read, followed, and sent by a worker."""

import asyncio
import json
from typing import Any

import httpx

from jackalope.broker.access import Access
from jackalope.broker.config.task_logs import TaskLogsConfig
from jackalope.broker.logs.limits import BURST_S
from jackalope.core.api_key import Permission
from jackalope.core.limits import LOG_LINE_BYTES_MAX, LOG_LINES_PER_FRAME_MAX, LOG_LINES_READ_MAX
from jackalope.terminal import is_safe
from tests.doors.harness import run
from tests.doors.http.harness import HttpHouse, open_http
from tests.doors.http.rest.test_tasks import claim, finish, submit
from tests.doors.http.rest.test_worker_api import report
from tests.doors.native.test_access import make_key


async def send(client: httpx.AsyncClient, task: Any, *lines: Any, **more: Any) -> httpx.Response:
    given = [line if isinstance(line, dict) else {"text": line} for line in lines]
    return await report(client, task, "logs", json={"lines": given}, **more)


async def begun(house: HttpHouse) -> Any:
    await submit(house.client)
    return await claim(house.client)


async def read(client: httpx.AsyncClient, task: Any, **query: Any) -> Any:
    answer = await client.get(f"/api/v1/tasks/{task['task']}/logs", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def texts(client: httpx.AsyncClient, task: Any, **query: Any) -> list[str]:
    return [line["text"] for line in (await read(client, task, **query))["lines"]]


def test_lines_are_sent_and_read() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            line = {"text": "it broke", "level": "error", "logger": "shop", "stream": "stderr"}
            sent = await send(client, task, "hello", line | {"at": "2026-01-02T03:04:05Z"})
            assert sent.json() == {"kept": 2, "dropped": 0}
            page = await read(client, task)
            assert page["lines"][1] == line | {
                "id": f"{task['fence']}-2",
                "attempt": 1,
                "number": 2,
                "at": "2026-01-02T03:04:05Z",
            }
            (kept,) = page["attempts"]
            assert (kept["attempt"], kept["lines"], kept["dropped"]) == (1, 2, 0)
            assert (page["ended"], page["has_more"], page["missing"]) == (False, False, "")
            assert await texts(client, task, level="warn") == ["it broke"]
            assert await texts(client, task, text="HELLO") == ["hello"]
            first = page["lines"][0]["id"]
            assert await texts(client, task, after=first) == ["it broke"]
            assert await texts(client, task, limit=1) == ["hello"]
            assert await texts(client, task, limit=1, tail="true") == ["it broke"]
            plain = await client.get(
                f"/api/v1/tasks/{task['task']}/logs", params={"format": "text"}
            )
            assert plain.text == "hello\nit broke\n"
            assert plain.headers["content-type"] == "text/plain; charset=utf-8"
            assert plain.headers["x-content-type-options"] == "nosniff"
            await send(client, task, "\x1b]0;title\x07\x1b[2J\u202efdp\x9b1m")
            plain = await client.get(
                f"/api/v1/tasks/{task['task']}/logs", params={"format": "text", "tail": "true"}
            )
            assert is_safe(plain.text)
            assert plain.text.endswith("\\x1b]0;title\\x07\\x1b[2J\\u202efdp\\x9b1m\n")
            await finish(client, task, b"")
            assert (await read(client, task))["ended"]

    run(check())


def test_lines_with_numbers_are_stored_once_and_gaps_are_counted() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = await begun(house)
            lines = [{"text": str(number), "number": number} for number in (1, 2, 5)]
            for _ in range(2):
                assert (await send(house.client, task, *lines)).status_code == 200
            page = await read(house.client, task)
            assert [line["number"] for line in page["lines"]] == [1, 2, 5]
            assert page["attempts"][0]["dropped"] == 2

    run(check())


def test_stream_follows_until_the_task_ends() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            await send(client, task, "one")
            seen: list[tuple[str, Any]] = []
            has_two = asyncio.Event()

            async def follow() -> None:
                url = f"/api/v1/tasks/{task['task']}/logs"
                async with client.stream("GET", url, params={"follow": "true"}) as answer:
                    assert answer.headers["content-type"].startswith("text/event-stream")
                    event = ""
                    async for line in answer.aiter_lines():
                        if line.startswith("event: "):
                            event = line.removeprefix("event: ")
                        elif line.startswith("data: "):
                            seen.append((event, json.loads(line.removeprefix("data: "))))
                            if event == "line" and seen[-1][1]["text"] == "two":
                                has_two.set()

            async with asyncio.timeout(10):
                following = asyncio.create_task(follow())
                await send(client, task, "two")
                await has_two.wait()
                await send(client, task, "three")
                await finish(client, task, b"")
                await following
            assert [what["text"] for event, what in seen if event == "line"] == [
                "one",
                "two",
                "three",
            ]
            assert seen[-1] == ("end", {"ended": True})

    run(check())


def test_stream_goes_on_where_the_reader_was() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            await send(client, task, "one", "two")
            await finish(client, task, b"")
            first = (await read(client, task))["lines"][0]["id"]
            url = f"/api/v1/tasks/{task['task']}/logs?follow=true"
            answer = await client.get(url, headers={"Last-Event-ID": first})
            assert "two" in answer.text
            assert "one" not in answer.text
            text = await client.get(f"{url}&format=text")
            assert text.text == "one\ntwo\n"

    run(check())


def test_closing_door_ends_streams() -> None:
    async def check() -> None:
        async with open_http() as house:
            task = await begun(house)
            url = f"{house.url}/api/v1/tasks/{task['task']}/logs?follow=true"
            async with httpx.AsyncClient() as other, other.stream("GET", url) as answer:
                chunks = answer.aiter_text()
                assert "nothing new" in await anext(chunks)
                async with asyncio.timeout(5):
                    await house.door.stop()
                    rest = [chunk async for chunk in chunks]
                assert '"ended":false' in "".join(rest)

    run(check())


def test_only_the_one_who_runs_an_attempt_sends_its_lines() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            stale = await send(client, task, "x", fence=task["fence"] + 1)
            assert stale.status_code == 409
            assert "not the current lease" in stale.text
            await client.post("/api/v1/workers/w2/claim", json={"queues": ["default"]})
            other = await send(client, task, "x", worker="w2")
            assert other.status_code == 409
            assert house.broker.logs.counts.stale == 2
            await send(client, task, "while it runs")
            await finish(client, task, b"")
            late = await send(client, task, "just after its end")
            assert late.json() == {"kept": 1, "dropped": 0}
            assert await texts(client, task) == ["while it runs", "just after its end"]

    run(check())


def test_bad_questions_and_lines_are_refused() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            url = f"/api/v1/tasks/{task['task']}/logs"
            for bad in ({"after": "x"}, {"level": "loud"}, {"limit": 0}, {"attempt": -1}):
                assert (await client.get(url, params=bad)).status_code == 400, bad
            unknown = await client.get("/api/v1/tasks/00000000-0000-7000-8000-000000000000/logs")
            assert unknown.status_code == 404
            assert (await send(client, task, {"text": "x", "number": -1})).status_code == 400
            assert await texts(client, task) == []

    run(check())


def test_log_lines_per_frame_max() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            many = ["x"] * (LOG_LINES_PER_FRAME_MAX + 1)
            assert (await send(client, task, *many)).status_code == 400
            assert await texts(client, task) == []
            assert (await send(client, task, *many[1:])).json()["kept"] == len(many) - 1

    run(check())


def test_log_line_bytes_max() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            assert (await send(client, task, "x" * (LOG_LINE_BYTES_MAX + 1))).status_code == 400
            assert await texts(client, task) == []
            assert (await send(client, task, "x" * LOG_LINE_BYTES_MAX)).json()["kept"] == 1

    run(check())


def test_log_lines_read_max() -> None:
    async def check() -> None:
        async with open_http() as house:
            client, task = house.client, await begun(house)
            for limit, status in ((LOG_LINES_READ_MAX, 200), (LOG_LINES_READ_MAX + 1, 400)):
                url = f"/api/v1/tasks/{task['task']}/logs"
                assert (await client.get(url, params={"limit": limit})).status_code == status

    run(check())


def test_other_namespaces_and_queues_see_nothing() -> None:
    async def check() -> None:
        token, key = make_key(Permission.READ_TASKS, queues=("other",))
        working, worker = make_key(Permission.WORK, Permission.SUBMIT_TASKS, Permission.READ_TASKS)
        async with open_http(access=Access((key, worker))) as house:
            house.client.headers["Authorization"] = f"Bearer {working}"
            task = await begun(house)
            await send(house.client, task, "secret")
            assert await texts(house.client, task) == ["secret"]
            url = f"/api/v1/tasks/{task['task']}/logs"
            for follow in ("false", "true"):
                elsewhere = await house.client.get(
                    url, params={"follow": follow}, headers={"X-Jackalope-Namespace": "elsewhere"}
                )
                assert elsewhere.status_code == 404
                house.client.headers["Authorization"] = f"Bearer {token}"
                hidden = await house.client.get(url, params={"follow": follow})
                assert hidden.status_code == 404
                assert "secret" not in hidden.text
                house.client.headers["Authorization"] = f"Bearer {working}"

    run(check())


def test_client_that_floods_is_bounded() -> None:
    """Whatever a foreign client does: the rate, the size of a line and of an attempt hold."""
    small = TaskLogsConfig(
        lines_per_s=100, bytes_per_s=10_000_000, attempt_bytes_max=64 * 1024, line_bytes_max=256
    )

    async def check() -> None:
        async with open_http() as house:
            house.broker.logs.settings = small
            client, task = house.client, await begun(house)
            burst = BURST_S * small.lines_per_s
            sent = 0
            for _ in range(5):
                lines = [str(sent + number) + "é" * 1_000 for number in range(1_000)]
                answer = await send(client, task, *lines)
                assert answer.json()["kept"] + answer.json()["dropped"] == len(lines)
                sent += len(lines)
            page = await read(client, task, limit=10_000)
            (kept,) = page["attempts"]
            assert kept["size"] <= small.attempt_bytes_max
            assert kept["lines"] == len(page["lines"]) <= burst
            assert all(len(line["text"].encode()) < 300 for line in page["lines"])
            assert house.broker.logs.counts.dropped >= sent - burst - 500
            assert page["lines"][-1]["text"].startswith(("999é", "4999é"))

    run(check())


def test_broker_that_keeps_no_logs_says_so() -> None:
    async def check() -> None:
        async with open_http() as house:
            house.broker.logs.settings = TaskLogsConfig(enabled=False)
            task = await begun(house)
            answer = await send(house.client, task, "x")
            assert answer.status_code == 400
            assert "keeps no task logs" in answer.text

    run(check())
