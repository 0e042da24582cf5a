"""The worker in plain JavaScript that ships as an example: a real process, on a real broker."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope.core.commands import Action, ActOnTasks, WatchTasks
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.task import Options, TaskSpec
from jackalope.wire.messages import Ended, Manage, Query
from tests.doors.harness import House, Peer, open_house, run, spec

WORKER = Path(__file__).resolve().parents[3] / "examples" / "javascript" / "worker.mjs"

encode = msgspec.msgpack.encode

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")


@asynccontextmanager
async def _worker(house: House, **flags: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a worker, and see that it is gone at the end."""
    settings = {"address": f"127.0.0.1:{house.door.port}", "queues": "q", "name": "js", **flags}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    process = await asyncio.create_subprocess_exec("node", str(WORKER), *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _call(name: str, *args: Any, content: str = "", **kwargs: Any) -> TaskSpec:
    if content == "json":
        payload = msgspec.json.encode([args, kwargs])
    else:
        payload = args[0] if content == "bytes" else encode([args, kwargs])
    options = Options(headers={"content": content}) if content else None
    return spec(name=name, payload=payload, options=options)


def _result(ended: TaskEnded) -> Any:
    assert isinstance(ended.result, bytes)
    return msgspec.msgpack.decode(ended.result)


async def _ends(peer: Peer, *tasks: TaskId) -> dict[TaskId, TaskEnded]:
    """Wait until these tasks have ended."""
    await peer.ask_ok(WatchTasks(0, tasks))
    ended: dict[TaskId, TaskEnded] = {}
    while len(ended) < len(tasks):
        ended |= {one.task: one for one in (await peer.expect(Ended)).tasks}
    return ended


async def _until_state(peer: Peer, task: TaskId, state: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while (view := await peer.ask_ok(Query(0, "task", {"id": task})))["state"] != state:
            pass
    return dict(view)


def test_messagepack() -> None:
    """What it decodes and encodes again is byte for byte what another library has written."""
    values: list[Any] = [
        [None, True, False, 0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32],
        [2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1],
        [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**53), -(2**63)],
        [0.5, -1e300, 1e-7, 3.141592653589793],
        ["", "a", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65_535, "x" * 65_536, "é€😀"],
        [b"", b"\x00", b"x" * 255, b"x" * 256, b"x" * 65_535, b"x" * 65_536],
        [[], [1] * 15, [1] * 16, [1] * 65_535, [1] * 65_536, [[[[]]]]],
        [{}, {"a": {"b": [1]}}, {str(n): n for n in range(15)}, {f"k{n}": n for n in range(16)}],
    ]
    script = f"""
        import {{ decode, encode }} from {WORKER.as_uri()!r};
        import {{ readFileSync }} from "node:fs";
        for (const line of readFileSync(0, "utf8").split("\\n"))
          console.log(encode(decode(Buffer.from(line, "hex"))).toString("hex"));
    """
    lines = [encode(value).hex() for value in values]
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == lines


@pytest.mark.feature("T1", "T32")
@pytest.mark.feature("D4")
def test_two_hundred_tasks_one_killed_and_a_worker_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            async with _worker(house, slots=8) as worker:
                calls = [_call("add", number, 1) for number in range(200)]
                ids = await client.submit(*calls)
                ended = await _ends(client, *ids)
                assert [_result(ended[each]) for each in ids] == [*range(1, 201)]

                (killed,) = await client.submit(_call("sleep", 60))
                view = await _until_state(client, killed, "running")
                assert view["worker"] == "js"
                await client.ask_ok(ActOnTasks(0, Action.KILL, (killed,)))
                assert (await _ends(client, killed))[killed].state == "killed"

                (task,) = await client.submit(_call("sleep", 0.3))
                await _until_state(client, task, "running")
                worker.send_signal(signal.SIGKILL)
                await worker.wait()
            async with _worker(house):
                # It comes back with empty hands: what it ran is lost, and tried again.
                assert (await _ends(client, task))[task].state == "succeeded"
                view = await client.ask_ok(Query(0, "task", {"id": task}))
                assert (view["attempts"], view["crashes"]) == (2, 1)

    run(test())


def test_values_and_errors(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            await client.ask_ok(
                Manage(0, "declare_queue", {"queue": "q", "changes": {"retries": 0}})
            )
            deep = {"text": "é€😀", "list": [1, -1, 0.5, None, True], "large": 2**60, "raw": b"\0"}
            calls = [
                _call("echo", deep),
                _call("echo", {"a": [1, "b"]}, content="json"),
                _call("echo", b"\x00\xff raw", content="bytes"),
                _call("echo", None),
                _call("echo", "x" * 1_000_000),
                _call("fail", "on purpose"),
                _call("unheard of"),
            ]
            async with _worker(house, slots=3):
                ids = await client.submit(*calls)
                ended = [one for _, one in sorted((await _ends(client, *ids)).items())]
            assert _result(ended[0]) == deep
            assert [one.result for one in ended[1:4]] == [b'{"a":[1,"b"]}', b"\x00\xff raw", b""]
            assert _result(ended[4]) == "x" * 1_000_000
            failed, unknown = ended[5:]
            assert (failed.state, failed.reason) == ("dead", "failed")
            assert failed.error is not None
            assert (failed.error.type, failed.error.message) == ("Error", "on purpose")
            assert "worker.mjs" in failed.error.trace
            assert (unknown.state, unknown.reason) == ("dead", "rejected")

    run(test())


def test_lost_connection_and_back(tmp_path: Path) -> None:
    """The broker is away for a while: what runs goes on, and ends once."""

    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            async with _worker(house, slots=2) as worker:
                short, long = await client.submit(_call("sleep", 0.2), _call("sleep", 1))
                await _until_state(client, long, "running")
                await house.door.stop()
                await house.until(lambda: not house.door.connections)
                await asyncio.sleep(0.4)  # The short one ends while nobody listens.
                await house.door.start()
                client = await house.peer()
                ended = await _ends(client, short, long)
                assert {one.state for one in ended.values()} == {"succeeded"}
                for task in (short, long):
                    view = await client.ask_ok(Query(0, "task", {"id": task}))
                    assert view["attempts"] == 1
                assert worker.returncode is None

    run(test())


def test_drains_when_told_to_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            async with _worker(house, slots=2, drain=0.6) as worker:
                short, long = await client.submit(_call("sleep", 0.3), _call("sleep", 60))
                await _until_state(client, long, "running")
                worker.send_signal(signal.SIGTERM)
                await client.submit(_call("echo", 1))
                assert await asyncio.wait_for(worker.wait(), 10) == 0
            # It finished what it could, handed back the rest, took nothing new, and said so.
            assert await client.state_of(short) == "succeeded"
            view = await client.ask_ok(Query(0, "task", {"id": long}))
            assert (view["state"], view["interruptions"]) == ("ready", 1)
            assert (await client.ask_ok(Query(0, "queues")))[0]["counts"] == {"ready": 2}
            (gone,) = await client.ask_ok(Query(0, "workers"))
            assert (gone["state"], gone["why_gone"]) == ("gone", "left")

    run(test())


def test_drained_by_the_broker(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            async with _worker(house) as worker:
                (task,) = await client.submit(_call("sleep", 0.2))
                await _until_state(client, task, "running")
                await client.ask_ok(Manage(0, "drain_worker", {"worker": "js"}))
                assert await asyncio.wait_for(worker.wait(), 10) == 0
            assert await client.state_of(task) == "succeeded"

    run(test())


def test_name_taken_by_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            async with _worker(house) as worker:
                (task,) = await client.submit(_call("echo", 1))
                await _ends(client, task)
                await client.join("js")
                assert await asyncio.wait_for(worker.wait(), 10) == 1

    run(test())


@pytest.mark.feature("D44")
def test_readme(tmp_path: Path) -> None:
    """What it tells people to run from Python works, and brings the answer."""
    readme = WORKER.with_name("README.md").read_text()
    (program,) = re.findall(r"(?s)^```python\n(.*?)^```", readme, re.MULTILINE)

    async def test() -> None:
        async with open_house(tmp_path) as house, _worker(house, queues="js"):
            python = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program.replace(":7420", f":{house.door.port}"),
                stdout=subprocess.PIPE,
            )
            out, _ = await asyncio.wait_for(python.communicate(), 20)
            assert out == b"5\n"

    run(test())


def test_file_can_be_run_and_imported() -> None:
    assert os.access(WORKER, os.R_OK)
    assert WORKER.read_text().startswith("#!/usr/bin/env node\n")
    packages = [line for line in WORKER.read_text().splitlines() if line.startswith("import ")]
    assert packages
    assert all('from "node:' in line for line in packages)
