"""A broker with an open HTTP door, and a real client; and the same in a process of its own."""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from jackalope.broker.access import Access
from jackalope.broker.config.schema import GridlikeConfig, HttpConfig
from jackalope.broker.service import Broker
from jackalope.doors.forwarding import Forwarding
from jackalope.doors.http.app import HttpDoor
from jackalope.storage import Blobs, Level, Storage

JACKALOPE = str(Path(sys.executable).with_name("jackalope"))

#: What is still missing after this long does not come any more.
PATIENCE_S = 10.0


class HttpHouse:
    """A broker and its HTTP door.

    Attributes:
        client: talks to the door over real sockets.
        faults: what the loop had to report because nobody else did; empty at the end.
    """

    client: httpx.AsyncClient

    def __init__(
        self,
        storage: Storage,
        settings: HttpConfig,
        gridlike: GridlikeConfig | None = None,
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.broker = Broker(storage, access=access)
        self.broker.leader = None if forwarding is None else forwarding.leader
        self.door = HttpDoor(
            self.broker, settings, gridlike=gridlike, tls=tls, forwarding=forwarding
        )
        self.faults: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.door.port}"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.door.port}"


@asynccontextmanager
async def open_http(
    folder: Path | None = None,
    gridlike: GridlikeConfig | None = None,
    *,
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    blobs_at: Callable[[str], Blobs] | None = None,
    forwarding: Forwarding | None = None,
    **settings: Any,
) -> AsyncIterator[HttpHouse]:
    """Start a broker with an HTTP door, and see at the end that both are still sound.

    Without a folder it keeps everything in memory: quicker, where the disk has no part to play.
    """
    level = Level.FSYNC if folder else Level.MEMORY
    storage = Storage.open(folder, level, blobs_at=blobs_at)
    config = HttpConfig(**({"port": 0} | settings))
    house = HttpHouse(storage, config, gridlike, access, tls, forwarding=forwarding)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: house.faults.append(context)
    )
    await house.broker.start()
    await house.door.start()
    try:
        async with httpx.AsyncClient(base_url=house.url, timeout=PATIENCE_S) as client:
            house.client = client
            yield house
    finally:
        await house.door.stop()
        await house.broker.stop()
    assert house.faults == []


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens, such as a file that goes."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Serving:
    """A broker in a process of its own, started with `jackalope serve`.

    Attributes:
        url: where its HTTP door is.
        port: the port of its native door.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        http_port: int = 0,
        port: int = 0,
        variables: dict[str, str] | None = None,
    ) -> None:
        self._log = folder / "log.txt"
        ports = ["--port", str(port), "--http-port", str(http_port)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JACKALOPE_")}
        environment |= variables or {}
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [JACKALOPE, "serve", "--data", str(folder / "data"), *ports, *flags],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        out = self.process.stdout
        assert out is not None
        first = out.readline()
        native = re.search(r"at jackalopes?://[^:]+:(\d+)", first)
        # Other doors that are open have lines before that of HTTP.
        lines = iter(out.readline, "")
        http = next(
            filter(None, map(re.compile(r"HTTP at (https?://\S+?:(\d+)),").search, lines)), None
        )
        assert native, self._log.read_text()
        assert http, self._log.read_text()
        self.port = int(native[1])
        self.url, self.http_port = http[1], int(http[2])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal, and return the exit code and the log."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode, self._log.read_text()
