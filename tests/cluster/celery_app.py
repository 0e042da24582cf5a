"""A Celery application, and a producer that says which of its tasks were taken in.

The producer is the module run as a program: `python -m tests.cluster.celery_app FOLDER COUNT`.
"""

import os
import sys
import time
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError

app = Celery("cluster", broker=os.environ.get("TEST_CELERY_BROKER", "amqp://"))
app.conf.update(
    task_default_queue="celery-cluster",
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


@app.task(name="tests.cluster.celery_app.mark")  # type: ignore[untyped-decorator]
def mark(folder: str, number: int) -> None:
    """Leave a file."""
    Path(folder, str(number)).touch()


def produce(folder: str, count: int) -> None:
    for number in range(count):
        while True:
            try:
                mark.apply_async((folder, number), retry=False)
                break
            except (OperationalError, OSError):
                time.sleep(0.2)
        print(number, flush=True)


if __name__ == "__main__":
    produce(sys.argv[1], int(sys.argv[2]))
