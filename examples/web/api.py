"""The web application: an order submits a task, and its page shows what came of it."""

from typing import Any

from fastapi import FastAPI, HTTPException

from examples.web.tasks import app, send_receipt
from jackalope import Rejected, State
from jackalope.contrib.asgi import lifespan

api = FastAPI(lifespan=lifespan(app))


@api.post("/orders/{order}", status_code=202)
async def take(order: int, to: str) -> dict[str, str]:
    """Take an order; the task is durable when this answers."""
    handle = await send_receipt.submit(order, to)
    return {"task": handle.id.hex()}


@api.get("/tasks/{task}")
async def show(task: str) -> dict[str, Any]:
    """Show a task, and its result once there is one."""
    handle = app.handle(task, returns=str)
    try:
        state = (await handle.status()).state
    except Rejected as error:
        raise HTTPException(404, str(error)) from None
    result = await handle.result() if state is State.SUCCEEDED else None
    return {"state": state, "result": result}
