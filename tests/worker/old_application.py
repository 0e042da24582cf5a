"""The application of `tests.worker.application` before its latest tasks were written."""

from tests.worker.application import Application

app = Application()


@app.task()
async def add(left: int, right: int) -> int:
    return left + right
