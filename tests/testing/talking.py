"""An application whose tasks print and log."""

import logging

from jackalope import Jackalope, current

app = Jackalope("jackalope://nowhere.invalid/logs")
orders = logging.getLogger("shop.orders")


@app.task
async def speak(name: str) -> str:
    print("printed for", name)
    orders.warning("logged for %s", name)
    current().log.info("told", name=name)
    return "spoken"


@app.task
def speak_in_thread(name: str) -> str:
    print("printed for", name)
    return "spoken"


@app.task(isolation="process")
def speak_in_process(name: str) -> str:
    print("printed for", name)
    return "spoken"


@app.task(retries=1, retry_delay=10)
def fail_first() -> str:
    print("attempt", current().attempt)
    if current().attempt == 1:
        raise ValueError
    return "well"


@app.task
async def follow(name: str) -> list[str]:
    handle = await speak.submit(name)
    return [line.text async for line in handle.logs(follow=True)]


@app.task
def print_much(lines: int) -> None:
    for number in range(lines):
        print("line", number)
