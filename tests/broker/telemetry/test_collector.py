"""One trace over four processes, sent to a real collector: client, broker, worker and its child."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.broker.telemetry.collector import Collector

Process = subprocess.Popen[str]

_ENDPOINT = "JACKALOPE_TELEMETRY__ENDPOINT"

#: A port on which nobody listens.
_NOWHERE = "http://127.0.0.1:9/v1/traces"

_CLIENT = """
import asyncio
from tests.broker.telemetry.application import app, outer

async def main() -> None:
    async with app:
        print(await outer.run(20))

asyncio.run(main())
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def start(*arguments: str, setting: dict[str, str], log: IO[str] | None = None) -> Process:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **setting},
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


def stop(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_one_trace_over_all_processes(tmp_path: Path, collector: Collector) -> None:
    serve = ["-m", "jackalope", "serve", "--no-http", "--port", "0", "--data", str(tmp_path)]
    broker = start(*serve, setting={_ENDPOINT: collector.url})
    assert broker.stdout is not None
    found = re.search(r"jackalope://\S+:\d+", broker.stdout.readline())
    assert found is not None
    setting = {"COLLECTOR": collector.url, "BROKER": found[0]}
    worker = start(
        "-m", "jackalope", "worker", "tests.broker.telemetry.application:app", setting=setting
    )
    client = start("-c", _CLIENT, setting=setting)
    assert client.communicate(timeout=60)[0].strip() == "41"
    stop(worker)
    stop(broker)
    spans = collector.wait_for(9)
    submitted, ran = spans["application: submit outer"], spans["application: run outer"]
    inner = spans["application: submit inner"]
    parents = {
        "application: submit outer": b"",
        "application: run outer": submitted.span_id,
        "application: my own": ran.span_id,
        "application: submit inner": spans["application: my own"].span_id,
        "application: run inner": inner.span_id,
        "jackalope: queued outer": submitted.span_id,
        "jackalope: running outer": submitted.span_id,
        "jackalope: queued inner": inner.span_id,
        "jackalope: running inner": inner.span_id,
    }
    assert {name: span.parent_span_id for name, span in spans.items()} == parents
    assert {span.trace_id for span in spans.values()} == {submitted.trace_id}
    queued, running = spans["jackalope: queued inner"], spans["jackalope: running inner"]
    assert queued.start_time_unix_nano <= queued.end_time_unix_nano
    assert queued.end_time_unix_nano <= running.start_time_unix_nano <= running.end_time_unix_nano


def test_broker_without_a_collector_goes_on(tmp_path: Path) -> None:
    """Spans that nobody takes are dropped, and the stop does not wait for them for long."""
    serve = ["-m", "jackalope", "serve", "--no-http", "--port", "0", "--data", str(tmp_path)]
    log = tmp_path / "log.txt"
    with log.open("w") as output:
        broker = start(*serve, log=output, setting={_ENDPOINT: _NOWHERE})
    assert broker.stdout is not None
    found = re.search(r"jackalope://\S+:\d+", broker.stdout.readline())
    assert found is not None
    worker = start(
        "-m",
        "jackalope",
        "worker",
        "tests.broker.telemetry.application:app",
        setting={"BROKER": found[0]},
    )
    traced = f'outer.options(headers={{"traceparent": "00-{"ab" * 16}-{"cd" * 8}-01"}})'
    client = start(
        "-c", _CLIENT.replace("await outer", f"await {traced}"), setting={"BROKER": found[0]}
    )
    assert client.communicate(timeout=60)[0].strip() == "41"
    stop(worker)
    begin = time.monotonic()
    stop(broker)
    assert time.monotonic() - begin < 8
    assert "Connection refused" in log.read_text()
