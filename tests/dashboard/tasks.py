"""Tasks for the tests of the dashboard. Those that take long wait for a file, not for time."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import zlib

from jackalope import Jackalope, current

app = Jackalope(os.environ.get("JACKALOPE_BROKER", "jackalope://localhost:7420"), timeout=60)


@app.task(queue="images", name="resize")
async def resize(path: str, width: int) -> dict[str, object]:
    return {"path": path, "size": [width, width * 3 // 4]}


@app.task(queue="images", name="paint", content="bytes")
async def paint(payload: bytes) -> bytes:
    """Return a picture: a square of that many dots, from one colour to another."""
    size = int(payload)
    rows = b"".join(
        b"\0" + bytes(part for x in range(size) for part in (200, 255 * x // size, 255 * y // size))
        for y in range(size)
    )
    return png(size, size, rows)


def png(width: int, height: int, rows: bytes) -> bytes:
    """Return a picture: of each row a zero, then red, green and blue of each dot."""
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
        for kind, body in chunks
    )


@app.task(queue="reports", name="report")
async def report(gate: str, percent: float = 40) -> str:
    """Say how far it has come, then wait until somebody opens the gate."""
    current().progress(percent, "reading the figures")
    while not os.access(gate, os.F_OK):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)
    return "done"


@app.task(queue="reports", name="measure")
def measure(number: int, gate: str) -> int:
    """Let the last of ten items wait until somebody opens the gate."""
    while number == 9 and not os.access(gate, os.F_OK):
        time.sleep(0.02)
    return number


@app.task(queue="reports", name="survey")
async def survey(gate: str) -> int:
    async with current().helpers() as helpers:
        results = helpers.map(measure, range(10), fixed={"gate": gate})
        return sum([number async for number in results])


def _receipt(number: int) -> str:
    time.sleep(0.01)
    return f"receipt {number}"


@app.task(queue="payments", name="order")
async def order(number: int) -> str:
    """Charge, sleep for a moment, and wait for an approval."""
    receipt: str = await current().step("charge", _receipt, number)
    await current().sleep(0.05)
    approved = await current().wait_for("approved", timeout=3_600)
    return f"{receipt}, approved by {approved['by']}"


@app.task(queue="payments", name="charge", retries=0)
async def charge(customer: int) -> None:
    raise ValueError(f"customer {customer} has no card")


@app.task(queue="reports", name="chat", retries=1)
async def chat(gate: str) -> str:
    """Print and log in every way, fail once, and wait until somebody opens the gate."""
    log = logging.getLogger("shop.orders")
    attempt = current().attempt
    for number in range(20):
        print(f"order {number} packed in attempt {attempt}")
    log.warning("the scales are slow")
    print("\x1b[31mred\x1b[0m <script>document.title = 'hacked'</script>")
    if attempt == 1:
        log.error("no card for customer 17")
        raise ValueError("customer 17 has no card")
    while not os.access(gate, os.F_OK):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)
    print("all orders are packed")
    return "packed"
