"""An application whose tasks come as messages."""

from typing import Any

from jackalope import Jackalope, current

app = Jackalope()


@app.task(name="shout", queue="shouts", content="bytes")
async def shout(text: bytes) -> bytes:
    return text.upper()


@app.task(name="add", queue="shouts", content="json")
async def add(a: int, b: int) -> int:
    return a + b


@app.task(name="describe", queue="shouts", content="json")
async def describe() -> dict[str, Any]:
    headers = current().headers
    return {**headers, "raw": headers["raw"].hex()}
