"""An application whose worker declares limits."""

import asyncio

from jackalope import Jackalope, Limit

app = Jackalope()


@app.task(
    name="call",
    queue="q",
    limits=[Limit(key="user", concurrency=2), Limit(concurrency=9, name="all-calls")],
)
def call(user: str) -> str:
    return user


@app.task(name="stay", queue="q", limits=[Limit(key="user", concurrency=2)])
async def stay(user: str) -> str:
    await asyncio.Event().wait()
    return user
