"""The tasks, for the worker and for the web application."""

import os

from jackalope import Jackalope, current

app = Jackalope(os.environ.get("JACKALOPE", "jackalope://localhost:7420"))


@app.task(queue="mail", retries=5)
async def send_receipt(order: int, to: str) -> str:
    """Send a receipt, and report how far that is."""
    current().progress(50, "written")
    return f"order {order} to {to}"
