"""A client and a worker as they were written for GridLike: `httpx`, `websockets`, and its words."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from jackalope.broker.config.schema import GridlikeConfig
from jackalope.core.commands import DeclareQueue
from jackalope.core.durations import SECOND
from tests.doors.harness import run
from tests.doors.http.harness import PATIENCE_S, HttpHouse, Serving, open_http

READY = {"code": 1, "status": 1}
BUSY = {"code": 1, "status": 0}
ASKED = {"code": 2}

#: What a worker without a job registers with, if it keeps track of its attempts.
NO_ATTEMPT = {"job": None, "attempt": None}

PENDING, RUNNING, DONE, FAILED = range(4)

#: What workers must say where the configuration wants it.
TOKEN = "secret"  # noqa: S105  it opens nothing but a test


class Place(Protocol):
    """Where a broker is: in this process or in another."""

    client: httpx.AsyncClient

    @property
    def socket_url(self) -> str:
        """Return the beginning of the addresses of its sockets."""


@asynccontextmanager
async def open_grid(
    folder: Path | None = None, http: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[HttpHouse]:
    """Start a broker whose HTTP door has these settings for GridLike.

    Whoever does not test how soon workers must register gives them the time that a busy machine
    may need.
    """
    settings = {"kick_after_us": 30 * SECOND} | settings
    async with open_http(folder, GridlikeConfig(**settings), **(http or {})) as house:
        yield house


async def declare(house: HttpHouse, queue: str, preset: str = "gridlike", **changes: Any) -> None:
    """Declare a job type."""
    await house.door.client_session.ask(DeclareQueue(queue=queue, preset=preset, changes=changes))


async def submit(
    house: Place, payload: bytes = b"payload", job_type: str = "", **fields: str
) -> dict[str, Any]:
    """Submit a job, and return the answer of one that was accepted."""
    answer = await try_submit(house, payload, job_type, **fields)
    assert answer.status_code == 202, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def try_submit(
    house: Place, payload: bytes = b"payload", job_type: str = "", **fields: str
) -> httpx.Response:
    path = f"/api/jobs/submit/{job_type}" if job_type else "/api/jobs/submit"
    form = {"priority": "immediate"} | fields
    return await house.client.post(path, data=form, files={"payload": ("job.bin", payload)})


async def show(house: Place, key: str) -> dict[str, Any]:
    answer = await house.client.get(f"/api/jobs/{key}")
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def eventually(is_so: Callable[[], Awaitable[object]]) -> None:
    """Look until something is so; of disks and of lists, nobody is told."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.005)


async def until(house: Place, key: str, is_it: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Look at a job until it is as it should be, and return it."""
    seen: list[dict[str, Any]] = []

    async def look() -> object:
        seen[:] = [await show(house, key)]
        return is_it(seen[0])

    await eventually(look)
    return seen[0]


class GridWorker:
    """A worker of GridLike, driven by a test.

    Attributes:
        attempt: the attempt that it was last told about; only if it keeps track of them.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.attempt: dict[str, Any] = {}

    async def register(
        self,
        worker_id: str = "machine-1",
        token: str = "",
        name: str = "a machine",
        attempt: dict[str, Any] | None = None,
    ) -> None:
        said = {"code": 0, "name": name, "id": worker_id, "token": token}
        await self.say(said | (attempt or {}))

    async def say(self, message: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(message))

    async def send(self, result: bytes) -> None:
        await self.socket.send(result)

    async def hear(self) -> Any:
        """Return the next message: a payload as bytes, anything else decoded."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.socket.recv()
        if isinstance(message, bytes):
            return message
        said = json.loads(message)
        if said["code"] == 5:
            self.attempt = {"job": said["job"], "attempt": said["attempt"]}
            return await self.hear()
        return said

    async def take(self) -> bytes:
        """Be asked for the status, and return the payload that comes for `ready`."""
        assert await self.hear() == ASKED
        await self.say(READY)
        return await self.answer_ready()

    async def answer_ready(self) -> bytes:
        """Say `ready` as often as that is asked for, and return the payload that comes."""
        while True:
            message = await self.hear()
            if isinstance(message, bytes):
                return message
            assert message == ASKED
            await self.say(READY)

    async def closed(self) -> ConnectionClosed:
        """Wait until the broker closes the socket, whatever it says before."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.socket.recv()
                except ConnectionClosed as closed:
                    return closed


@asynccontextmanager
async def worker(
    house: Place,
    worker_id: str = "machine-1",
    job_type: str = "",
    token: str = "",
    attempt: dict[str, Any] | None = None,
) -> AsyncIterator[GridWorker]:
    """Connect a worker, and register it.

    With `attempt` it keeps track of its attempts: `NO_ATTEMPT`, or the one that it comes back with.
    """
    async with stranger(house, job_type) as one:
        await one.register(worker_id, token, attempt=attempt)
        yield one


@asynccontextmanager
async def stranger(house: Place, job_type: str = "") -> AsyncIterator[GridWorker]:
    """Connect a worker that has not registered."""
    path = f"/api/worker/{job_type}" if job_type else "/api/worker"
    async with connect(house.socket_url + path, max_size=None) as socket:
        yield GridWorker(socket)


CONFIG = """
namespaces:
  default:
    queues:
      hasty: {preset: gridlike, restart_grace: 500ms}
"""


class Remote:
    """A broker in another process, and a client of it; it can be stopped and started again."""

    client: httpx.AsyncClient

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "jackalope.yaml").write_text(CONFIG)
        self.serving = self._serve()

    @property
    def socket_url(self) -> str:
        return self.serving.url.replace("http", "ws", 1)

    def restart(self, number: int) -> None:
        self.serving.stop(number)
        self.serving = self._serve(self.serving.http_port)

    def _serve(self, http_port: int = 0) -> Serving:
        config = str(self._folder / "jackalope.yaml")
        return Serving(self._folder, "--config", config, http_port=http_port)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test with a client."""
        run(self._with_client(test))

    async def _with_client(self, test: Coroutine[Any, Any, None]) -> None:
        url = self.serving.url
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as self.client:
            await test
