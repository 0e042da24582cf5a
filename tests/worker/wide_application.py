"""The application of `tests.worker.application` after one of its tasks got another parameter."""

from tests.worker.application import Application

app = Application()


@app.task()
async def add(left: int, right: int, factor: int) -> int:
    return (left + right) * factor
