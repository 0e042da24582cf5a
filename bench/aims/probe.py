"""Looks at a task and at lists of twenty over HTTP, in turns: `... PORT TASK SECONDS`."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

import uvloop

from bench.http import exchange, request_of

_PAUSE_S = 0.05


async def _probe(port: int, task: str, seconds: float) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times_ms: dict[str, list[float]] = {"task": [], "list": []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for kind, taken_ms in times_ms.items():
            await asyncio.sleep(_PAUSE_S)
            begin = time.perf_counter()
            await exchange(reader, writer, request_of(kind, task))
            taken_ms.append((time.perf_counter() - begin) * 1e3)
    writer.close()
    return {kind: statistics.median(taken_ms) for kind, taken_ms in times_ms.items()}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_probe(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))))
