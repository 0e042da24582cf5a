"""The pulse keeper: keeps the heartbeat process of a worker running.

Owns the process of `pulse`: starts it, starts it again if it dies, and sends it the session to
keep alive.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from jackalope.core.commands import Heartbeat
from jackalope.transport.address import Address
from jackalope.transport.connector import Backoff
from jackalope.wire.messages import Hello, peer_codec
from jackalope.worker.heartbeat.pulse import now

log = structlog.get_logger(component="worker")

# As a plain file and without site packages: it starts in a few milliseconds and stays small.
_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("pulse.py")))

_codec = peer_codec()


def _tls_words(address: Address) -> tuple[str, ...]:
    """Return how the connection is encrypted; empty where it is plain."""
    if not address.tls:
        return ()
    ca_file = str(Path(address.ca_file).absolute()) if address.ca_file else ""
    return ("verify" if address.verify else "trust", ca_file.encode().hex())


class PulseKeeper:
    """Keeps one pulse going."""

    def __init__(self) -> None:
        self.pid = 0  # the process of the pulse; 0 while there is none
        self._orders = b""
        self._guard_s = 0.0
        self._is_holding = False
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the pulse, and keep it."""
        self._task = asyncio.create_task(self._keep(), name="jackalope-pulse")

    def beat_for(self, address: Address, hello: Hello, every_s: float) -> None:
        """Have it beat for a session, whose pulse stands in the greeting.

        Args:
            address: where the broker of the session is; others are tried when it is not there.
            hello: the greeting.
            every_s: how often.
        """
        words = (
            address.hosts,
            f"{every_s:.3f}",
            # The pulse alone lets it in; the token is not its business.
            _codec.encode(msgspec.structs.replace(hello, token="")).hex(),
            _codec.encode(Heartbeat(ref=1)).hex(),
            *_tls_words(address),
        )
        self._orders, self._guard_s = (" ".join(words) + "\n").encode(), 0.0
        self._tell(self._orders)

    def guard(self, limit_s: float, joined: float) -> None:
        """Have this process killed when it holds tasks and the broker is silent for so long.

        Args:
            limit_s: for how long.
            joined: when, by the clock of the pulse, the word was sent by which the broker knows the
                worker as that of the session for which the pulse beats.
        """
        self._guard_s = limit_s
        self._tell(self._guarding(joined))

    def hold(self, *, is_holding: bool) -> None:
        """Take the word that the worker holds tasks, or that it does not."""
        self._is_holding = is_holding
        if self._guard_s:
            self._tell(self._holds())

    def _guarding(self, joined: float) -> bytes:
        if not self._guard_s:
            return b""
        until = joined + self._guard_s
        return f"guard {self._guard_s:.3f} {until:.3f}\n".encode() + self._holds()

    def _holds(self) -> bytes:
        return b"holds 1\n" if self._is_holding else b"holds 0\n"

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self.pid = 0

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            try:
                log.warning("the pulse has ended; starting it again", status=await self._live())
            except OSError as error:
                log.warning("the pulse cannot be started; trying again", why=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _live(self) -> int:
        """Start the process, and return its status when it has ended."""
        self._process = await asyncio.create_subprocess_exec(
            *_COMMAND, str(os.getpid()), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid
        if self._orders:
            self._tell(self._orders + self._guarding(now()))
        return await self._process.wait()

    def _tell(self, lines: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, RuntimeError):
                self._process.stdin.write(lines)
