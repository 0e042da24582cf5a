"""The tasks that run on a cluster under test."""

import os
import time
from pathlib import Path

from jackalope import Jackalope

app = Jackalope(os.environ.get("JACKALOPE_URL", "jackalope://localhost:7420"))


@app.task(queue="marks", retries=5)
def mark(folder: str, number: int) -> int:
    """Leave a file, so that a test sees who ran what, and how often."""
    with Path(folder, str(number)).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return number


@app.task(queue="marks")
def last(folder: str, seconds: float) -> int:
    """Take a while, and tell in which process."""
    with Path(folder, "began").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return os.getpid()


@app.task(queue="marks")
def echo(body: bytes) -> bytes:
    return body


@app.task(queue="models", retries=5)
def serve(folder: str, number: int, seconds: float = 0) -> str:
    """Leave a file, take a while, and tell which worker of the pool did it."""
    with Path(folder, str(number)).open("a") as file:
        file.write(f"{os.environ['WORKER_ID']}\n")
    time.sleep(seconds)
    return os.environ["WORKER_ID"]


@app.task(queue="marks")
def talk(folder: str) -> str:
    """Print a line whenever a test asks for one, until it asks for the end."""
    number = 0
    while True:
        while not Path(folder, str(number)).exists():
            time.sleep(0.01)
        print(f"line {number}", flush=True)
        if Path(folder, "end").exists():
            return "said"
        number += 1
