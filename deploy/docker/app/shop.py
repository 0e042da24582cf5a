"""The tasks of the example: what the two workers of `compose.yaml` run."""

import time

from jackalope import Jackalope

app = Jackalope("jackalope://broker:7420")


@app.task(queue="letters", retries=3)
def greet(name: str) -> str:
    """Take a moment, and greet."""
    time.sleep(0.1)
    return f"Hello, {name}!"
