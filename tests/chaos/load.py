"""The load of a run: clients that submit, kill, wait and read, and one that publishes over AMQP.

Owns nothing but that each operation is noted with what came of it. Ends when told to (`stop` in its
folder); what is under way then is noted as unanswered. Run as a program: `FOLDER ADDRESS HOST…`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path

import aio_pika
import msgspec
from aio_pika.exceptions import AMQPError
from aiormq.exceptions import AMQPError as LowerError

from jackalope import Jackalope
from jackalope.client.handle import Handle
from jackalope.errors import JackalopeError, Rejected, TaskFailed
from jackalope.task_ids import new_task_id
from tests.chaos.application import NAME, QUEUE
from tests.chaos.history import Notes, Op, now

CLIENTS = 4
LETTERS = "letters"

#: How long a client waits for an answer, and for the end of a task; and the pause between submits.
ANSWER_S = 90.0
END_S = 600.0
PAUSE_S = (0.05, 0.25)

_Answer = tuple[str, str]

#: A channel that is closed is a RuntimeError.
_AMQP_ERRORS = (AMQPError, LowerError, OSError, TimeoutError, RuntimeError)


def digest(payload: bytes) -> str:
    return blake2b(payload, digest_size=8).hexdigest()


def _absent(error: Rejected) -> str:
    if error.code != "unknown_task":
        raise error
    return "absent"


class Load:
    """All clients of a run."""

    def __init__(self, folder: Path, address: str, hosts: list[str]) -> None:
        self.notes = Notes(folder / "load.jsonl")
        self.address = address
        self.hosts = hosts
        self.is_over = False
        self.ended: list[tuple[str, str]] = []  # tasks of which somebody was told the end
        self.chance = random.Random()
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, stop: Path) -> None:
        jobs = [self.submit(f"client-{number}") for number in range(CLIENTS)]
        tasks = [asyncio.create_task(job) for job in (*jobs, self.look("reader"), self.publish())]
        while not stop.exists():  # noqa: ASYNC240  a look at a name is quick
            await asyncio.sleep(0.05)
            for task in tasks:
                if task.done():
                    task.result()  # It ends only by an error.
        self.is_over = True
        await asyncio.wait(tasks, timeout=ANSWER_S)
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=ANSWER_S)
        for task in (*tasks, *self._waiting):
            task.cancel()
        await asyncio.gather(*tasks, *self._waiting, return_exceptions=True)

    async def note(self, op: Op, job: Callable[[], Awaitable[_Answer]]) -> str:
        """Do something, and note it with what came of it; return the outcome, if any is known."""
        try:
            outcome, value = await job()
        except Rejected as error:
            if error.code in {"not_leader", "storage_failed", "overloaded"}:
                outcome, value = "", op.value  # It may have been done by an earlier try.
            else:
                outcome, value = f"refused {error.code}", op.value
        except (JackalopeError, *_AMQP_ERRORS):
            outcome, value = "", op.value
        except asyncio.CancelledError:
            if self.is_over:
                self.notes.add(op)
                raise
            outcome, value = "", op.value  # aiormq cancels what waits for a channel that is closed.
        if outcome:
            op = msgspec.structs.replace(op, back=now(), outcome=outcome, value=value)
        self.notes.add(op)
        return outcome

    async def submit(self, name: str) -> None:
        """Submit tasks one by one, kill some, and wait for the end of each."""
        async with Jackalope(self.address, name=name, timeout=ANSWER_S) as app:
            number = 0
            while not self.is_over:
                number += 1
                await self._submit(app, name, number)
                await asyncio.sleep(self.chance.uniform(*PAUSE_S))
            await asyncio.gather(*self._waiting, return_exceptions=True)

    async def _submit(self, app: Jackalope, name: str, number: int) -> None:
        body = {"client": name, "number": number, "ms": self.chance.choice((1, 20, 100, 700))}
        payload = json.dumps(body).encode()
        task = new_task_id()

        async def job() -> _Answer:
            await app.submit(QUEUE, payload, name=NAME, content="bytes", id=task)
            return "ok", digest(payload)

        op = Op(name, "submit", task.hex(), now(), value=digest(payload))
        await self.note(op, job)
        handle = app.handle(task, content="bytes")
        if self.chance.random() < 0.05:
            await self._kill(handle, name)
        waiting = asyncio.create_task(self._wait(handle, f"{name}/wait"))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _kill(self, handle: Handle[bytes], name: str) -> None:
        async def job() -> _Answer:
            try:
                return "killed" if await handle.kill() else "asked", ""
            except Rejected as error:
                outcome = {"wrong_state": "refused", "unknown_task": "absent"}.get(error.code)
                if outcome is None:
                    raise
                return outcome, ""

        await self.note(Op(name, "kill", handle.id.hex(), now()), job)

    async def _wait(self, handle: Handle[bytes], name: str) -> None:
        """Wait to be told the end of a task."""

        async def job() -> _Answer:
            try:
                result = await handle.result(timeout=END_S)
            except TaskFailed as error:
                return str(error.state), ""
            except Rejected as error:
                return _absent(error), ""
            return "succeeded", result.decode().partition(":")[0]

        task = handle.id.hex()
        outcome = await self.note(Op(name, "read", task, now()), job)
        if outcome:
            self.ended.append((task, outcome))

    async def look(self, name: str) -> None:
        """Ask for tasks that have ended, as somebody was told."""
        async with Jackalope(self.address, name=name, timeout=ANSWER_S) as app:
            while not self.is_over:
                await asyncio.sleep(self.chance.uniform(*PAUSE_S))
                if self.ended:
                    # Mostly the latest: what is long ended is hard to get wrong.
                    await self._look(app, name, self.chance.choice(self.ended[-20:])[0])

    async def _look(self, app: Jackalope, name: str, task: str) -> None:
        async def job() -> _Answer:
            try:
                return str((await app.handle(task).status()).state), ""
            except Rejected as error:
                return _absent(error), ""

        await self.note(Op(name, "read", task, now()), job)

    # AMQP.

    async def publish(self) -> None:
        """Publish messages one by one, each once, to whichever node takes connections."""
        number, turn = 0, 0
        while not self.is_over:
            turn += 1
            host = self.hosts[turn % len(self.hosts)]
            try:
                async with asyncio.timeout(20):
                    connection = await aio_pika.connect(f"amqp://guest:guest@{host}/")
            except _AMQP_ERRORS:
                await asyncio.sleep(0.2)
                continue
            try:
                number = await self._publish(connection, number)
            except _AMQP_ERRORS:
                await asyncio.sleep(0.2)
            finally:
                closing = asyncio.ensure_future(connection.close())
                await asyncio.wait([closing], timeout=1)
                closing.cancel()

    async def _publish(self, connection: aio_pika.abc.AbstractConnection, number: int) -> int:
        """Publish over one connection as long as it works; return the number to go on with."""
        async with asyncio.timeout(20):
            channel = await connection.channel(publisher_confirms=True)
            await channel.declare_queue(LETTERS, durable=True)
        while not self.is_over:
            number += 1
            payload = f"letter {number}".encode()
            message = aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)

            async def job(message: aio_pika.Message = message) -> _Answer:
                async with asyncio.timeout(10):
                    await channel.default_exchange.publish(message, LETTERS)
                return "ok", digest(message.body)

            op = Op("publisher", "publish", str(number), now(), value=digest(payload))
            if not await self.note(op, job):
                break
            await asyncio.sleep(self.chance.uniform(*PAUSE_S))
        return number


def main() -> None:
    folder, address, *hosts = sys.argv[1:]
    load = Load(Path(folder), address, hosts)
    asyncio.run(load.run(Path(folder) / "stop"))


if __name__ == "__main__":
    main()
