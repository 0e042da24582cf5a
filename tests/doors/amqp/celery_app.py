"""A Celery application as its tutorial has it, for the tests beside it.

Its broker and the folder for the results of chords come from the environment; all other results
go back over `rpc://`.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("celery_app", broker=os.environ.get("TEST_CELERY_BROKER", "amqp://"), backend="rpc://")
# Chords are counted in a store: results over RPC have none.
chords = Celery(
    "chords",
    broker=os.environ.get("TEST_CELERY_BROKER", "amqp://"),
    backend=f"file://{os.environ.get('TEST_CELERY_RESULTS', '')}",
)
for each in (app, chords):
    each.conf.update(
        task_default_queue=f"celery-{each.main}",
        result_chord_retry_interval=0.2,
        task_acks_late=True,
        worker_prefetch_multiplier=2,
        broker_connection_retry_on_startup=True,
        task_queue_max_priority=10,
    )


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def flaky(self: Any, path: str) -> int:
    """Fail twice, and say which attempt went well."""
    if self.request.retries < 2:
        raise self.retry(exc=ValueError("not yet"))
    return int(self.request.retries)


@app.task
def fails() -> None:
    raise ValueError("on purpose")


@chords.task
def square(x: int) -> int:
    return x * x


@chords.task
def total(numbers: list[int]) -> int:
    return sum(numbers)
