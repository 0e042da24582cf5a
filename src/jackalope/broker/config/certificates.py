"""Certificates: what the doors encrypt with, replaced while they are open.

Owns the contexts of all doors, and when their files are read again: on request, and when a file has
changed. A connection that is made later gets the new certificate; one that is there keeps its own.
Files that cannot be used are logged, and the old certificate stays. Knows no door.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable

import structlog

from jackalope.broker.config.exposure import client_context, server_context
from jackalope.broker.config.schema import TlsConfig

log = structlog.get_logger(component="tls")

#: What tells two versions of a file apart: device, inode, size and time of change.
Stamp = tuple[int, ...]


class Certificates:
    """The certificates of one process.

    Attributes:
        version: how often they were replaced.
    """

    def __init__(self, tls: TlsConfig, peer_ca: str = "", client_cas: tuple[str, ...] = ()) -> None:
        self.version = 0
        self._tls = tls
        self._peer_ca = peer_ca
        self._files = sorted({tls.cert, tls.key, peer_ca, *client_cas} - {""})
        self._servers: list[tuple[_Server, str]] = []
        self._clients: list[ssl.SSLContext] = []
        self._watching: asyncio.Task[None] | None = None
        self._checks: list[Callable[[], object]] = []
        self._stamps = self._look()

    def server(self, client_ca: str = "") -> ssl.SSLContext | None:
        """Return what a door encrypts with; None without a certificate.

        Raises:
            ValueError: a file cannot be used.
        """
        context = server_context(self._tls, client_ca)
        if context is None:
            return None
        server = _Server(context)
        self._servers.append((server, client_ca))
        return server.front

    def trust_alike(self, context: ssl.SSLContext | None) -> None:
        """Let what this node connects to others with trust new authorities of `peer.ca` too."""
        if context is not None:
            self._clients.append(context)

    def also_check(self, check: Callable[[], object]) -> None:
        """Let a door that reads the files itself refuse new ones, with a `ValueError`."""
        self._checks.append(check)

    def reload(self) -> bool:
        """Read the files again, and use them if all can be used; return whether they are used."""
        if not self._tls.cert:
            log.info("nothing to reload", hint="there are no certificates: tls.cert is not set")
            return False
        self._stamps = self._look()
        try:
            fresh = [server_context(self._tls, client_ca) for _, client_ca in self._servers]
            client_context(self._tls, self._peer_ca)
            for check in self._checks:
                check()
        except (ValueError, OSError) as error:
            log.error("certificates not replaced: the old ones stay", error=str(error))  # noqa: TRY400
            return False
        for (server, _), context in zip(self._servers, fresh, strict=True):
            if context is not None:
                server.current = context
        for each in self._clients:
            if self._peer_ca:
                each.load_verify_locations(self._peer_ca)
        self.version += 1
        log.info("certificates replaced", cert=self._tls.cert)
        return True

    def start(self) -> None:
        """Begin to watch the files, if there are any."""
        if self._files:
            self._watching = asyncio.create_task(self._watch(), name="jackalope-certificates")

    async def stop(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._tls.watch_us / 1e6)
            if self._look() != self._stamps:
                self.reload()

    def _look(self) -> dict[str, Stamp]:
        return {file: _stamp(file) for file in self._files}


class _Server:
    """A context that lets another one answer each handshake.

    A context cannot be given a new certificate safely: where the key does not match it, it is left
    with half of each. So a new one is made, and the door's hands every handshake to it.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.front = self.current = context
        self.front.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, *_: object) -> None:
        if self.current is not self.front:
            connection.context = self.current


def _stamp(file: str) -> Stamp:
    try:
        found = os.stat(file)  # noqa: PTH116  a follower of links, like `ssl`
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
