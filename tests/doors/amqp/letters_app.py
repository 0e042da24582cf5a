"""An application whose tasks come as messages."""

from jackalope import Jackalope

app = Jackalope()


@app.task(name="shout", queue="shouts", content="bytes")
async def shout(text: bytes) -> bytes:
    return text.upper()


@app.task(name="add", queue="shouts", content="json")
async def add(a: int, b: int) -> int:
    return a + b
