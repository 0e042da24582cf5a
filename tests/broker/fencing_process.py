"""A broker that gives out a message that is not durable, reports its fence, and waits to be killed.

Run by `test_kill`. Usage: python -m tests.broker.fencing_process FOLDER
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from jackalope.broker.access import THE_BROKER
from jackalope.broker.service import Broker
from jackalope.core.commands import JoinWorker
from jackalope.core.commands.amqp import OpenQueue, Publication, PublishMessages
from jackalope.core.effects import Assignment, Effect, SendToSession
from jackalope.storage import Storage
from jackalope.task_ids import new_task_id


class Worker:
    """Reports the fence of every task that it is given."""

    def deliver(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToSession) and isinstance(effect.message, Assignment):
                print(effect.message.fence, flush=True)

    def end(self, why: str) -> None:
        raise AssertionError(why)


async def work(folder: Path) -> None:
    broker = Broker(Storage.open(folder, has_writer_process=True))
    await broker.start()
    session = broker.open_session(Worker())
    message = Publication(new_task_id(), "", "replies", b"", b"")
    for command in (
        OpenQueue(session=session, queue="replies"),
        JoinWorker(ref=0, session=session, worker="w", queues=("replies",)),
        PublishMessages(session=session, messages=[message]),
    ):
        broker.post(command, THE_BROKER)
    await broker.failed()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
