"""The gRPC door of a real process: killed and started again, with a worker that comes back."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.certificates import certificates
from tests.doors.grpc.harness import PATIENCE_S, Client
from tests.doors.harness import run
from tests.ports import free_port

JACKALOPE = str(Path(sys.executable).with_name("jackalope"))


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a broker; yield its process and what it said about its gRPC door."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKALOPE_")}
    command = [JACKALOPE, "serve", "--data", str(folder / "data"), "--port", "0", "--no-http"]
    with (folder / "log.txt").open("a") as log:
        process = subprocess.Popen(
            [*command, *flags], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        found = re.search(r"gRPC at (grpcs?://\S+)", "".join(lines))
        assert found, (folder / "log.txt").read_text()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def channel(port: int) -> Any:
    return grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", options=[("grpc.max_reconnect_backoff_ms", 200)]
    )


def attempt(given: Any) -> pb.Attempt:
    return pb.Attempt(task_id=given.task_id, fence=given.fence)


def test_a_worker_resumes_after_the_broker_was_killed(tmp_path: Path) -> None:
    port = free_port()
    flags = ("--grpc-port", str(port))

    async def before() -> tuple[list[str], list[Any]]:
        async with channel(port) as opened:
            client = Client(opened)
            ids = [await client.submit() for _ in range(3)]
            worker = client.worker()
            await worker.join(slots=2, generation=1)
            given = await worker.take(2)
            await worker.start(*given)
            process.kill()
            assert await worker.over() is grpc.StatusCode.UNAVAILABLE
            return ids, given

    async def after(ids: list[str], given: list[Any]) -> None:
        async with channel(port) as opened:
            client = Client(opened)
            worker = client.worker()
            forged = pb.Attempt(task_id=given[1].task_id, fence=given[1].fence + 1)
            joined = await worker.join(slots=2, generation=2, holding=[attempt(given[0]), forged])
            assert list(joined.resumed) == [attempt(given[0])]
            assert list(joined.drop) == [forged]
            assert (await worker.finish(given[0], result=b"kept")).accepted.count == 1
            task = await client.get(ids[0], include_result=True)
            assert (task.state, task.result) == (pb.TASK_STATE_SUCCEEDED, b"kept")
            assert (task.attempts, task.crashes) == (1, 0)
            rest = await worker.take(2)
            assert {each.task_id for each in rest} == set(ids[1:])
            late = await worker.finish(given[1])
            assert late.accepted.refused[0].refusal.code == pb.REFUSAL_CODE_STALE_FENCE

    with serving(tmp_path, *flags) as (process, where):
        assert where == f"grpc://127.0.0.1:{port}"
        ids, given = run(before())
    with serving(tmp_path, *flags) as (process, _):
        run(after(ids, given))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_what_a_stream_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    port = free_port()
    flags = ("--grpc-port", str(port))
    acked: list[str] = []

    async def submit_until_killed() -> None:
        async with channel(port) as opened:
            call = Client(opened).tasks.StreamTasks()

            async def write() -> None:
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    while True:
                        tasks = [pb.TaskSpec(queue="q", payload=b"p")] * 20
                        await call.write(pb.StreamTasksRequest(ref=1, tasks=tasks))

            writing = asyncio.create_task(write())
            try:
                while (response := await call.read()) is not grpc.aio.EOF:
                    acked.extend(name for ack in response.acks for name in ack.ids)
                    if len(acked) > 400:
                        process.kill()
            except grpc.aio.AioRpcError:
                pass
            await asyncio.wait_for(writing, PATIENCE_S)

    async def look() -> None:
        async with channel(port) as opened:
            tasks = Client(opened).tasks
            request = pb.ListTasksRequest(page_size=1_000)
            found = set()
            while True:
                page = await tasks.ListTasks(request)
                found |= {task.id for task in page.tasks}
                request.page_token = page.next_page_token
                if not request.page_token:
                    break
            assert found >= set(acked)

    with serving(tmp_path, *flags) as (process, _):
        run(submit_until_killed())
    assert len(acked) > 400
    with serving(tmp_path, *flags):
        run(look())


def test_the_door_is_opened_as_configured(tmp_path: Path) -> None:
    ours = certificates()
    config = tmp_path / "jackalope.yaml"
    config.write_text(
        f"grpc: {{enabled: true, port: 0, client_ca: {ours.ca}}}\n"
        f"tls: {{cert: {ours.cert}, key: {ours.key}}}\n"
    )
    with serving(tmp_path, "--config", str(config)) as (_, where):
        assert where.startswith("grpcs://127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("grpc: {enabled: true, client_ca: none.pem}", "grpc.client_ca needs TLS"),
        ("grpc: {enabled: true, host: 0.0.0.0}", "grpc.host is 0.0.0.0"),
        ("grpc: {compression: zip}", "grpc.compression: must be none or gzip or deflate"),
    ],
)
def test_a_door_that_cannot_be_opened_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    config = tmp_path / "jackalope.yaml"
    config.write_text(text)
    command = [JACKALOPE, "serve", "--data", str(tmp_path / "data"), "--config", str(config)]
    done = subprocess.run(
        [*command, "--port", "0", "--no-http"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert problem in done.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, "--grpc-port", "0") as (_, where):
        other = tmp_path / "other"
        other.mkdir()
        command = [JACKALOPE, "serve", "--data", str(other / "data"), "--port", "0", "--no-http"]
        port = where.rpartition(":")[2]
        done = subprocess.run(
            [*command, "--grpc-port", port], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 4
        assert "--grpc-port" in done.stderr
