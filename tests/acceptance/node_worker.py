"""A worker for nodes of flows, as a process that is killed: it writes down what it was given.

Each node returns its name. What it got from others is in the line that it writes before it reports.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from jackalope.core.commands import Finish, Held, JoinWorker, StartAttempts
from jackalope.core.effects import Assignment
from jackalope.errors import JackalopeError
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.wire.messages import AnyMessage, Assign, Hello, Result

#: How long a node takes: long enough that many are under way when a process is killed.
_TAKES_S = 0.03


class NodeWorker:
    """Runs nodes until it is killed, and comes back when the broker was."""

    def __init__(self, port: int, name: str, log: Path) -> None:
        self._address = Address("127.0.0.1", port)
        self._name = name
        self._log = log
        self._connection: Connection

    async def run(self) -> None:
        while True:
            lost = asyncio.Event()
            try:
                self._connection = await Connection.open(
                    self._address,
                    Hello(name=self._name),
                    heard=self._heard,
                    lost=lambda _, lost=lost: lost.set(),  # type: ignore[misc]
                )
                join = JoinWorker(0, self._name, ("nodes",), slots=20, lease_us=2_000_000)
                join.grace_us = 200_000
                await self._connection.request(join)
                await lost.wait()
            except (JackalopeError, OSError):
                pass
            await asyncio.sleep(0.05)

    def _heard(self, message: AnyMessage) -> None:
        if isinstance(message, Assign):
            for given in message.assignments:
                self._work(given)

    def _work(self, given: Assignment) -> None:
        inputs = [f"{each.node}={bytes(each.result).decode()}" for each in given.inputs]  # type: ignore[arg-type]
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{given.name} {','.join(inputs)} {os.getpid()}\n")
        connection = self._connection
        connection.send(StartAttempts(0, [Held(given.task, given.fence)]))
        result = Result(0, finished=[Finish(given.task, given.fence, given.name.encode())])
        asyncio.get_running_loop().call_later(
            _TAKES_S, lambda: connection.send(result) if connection.is_open else None
        )


if __name__ == "__main__":
    asyncio.run(NodeWorker(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])).run())
