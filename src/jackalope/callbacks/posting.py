"""Posting: one POST to a receiver, and what its answer means.

Owns the resolution of the receiver's name, the check of its address, and the connection. The
address that was checked is the one that is connected to: a name that resolves otherwise a moment
later makes no difference. Redirects are not followed, no proxy of the environment is used, and the
body of the answer is not read.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from ipaddress import ip_address
from math import inf
from socket import SOCK_STREAM
from urllib.parse import SplitResult, urlsplit

import msgspec

from jackalope.core.durations import DAY, SECOND
from jackalope.core.shapes.callback import (
    Address,
    AllowedTargets,
    address_problem,
    host_of,
    url_problem,
)

#: How much of an answer is read at most, up to the end of its headers.
HEAD_BYTES_MAX = 32 * 1024

#: How many interim answers (1xx) may come before the answer.
_INTERIM_MAX = 5

#: How many addresses of a name are tried.
_ADDRESSES_MAX = 4

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([\x20-\x7e]{0,100}))?")

#: Answers by which a receiver asks for another try, besides those from 500 on.
_LATER = frozenset({408, 425, 429})


class Failed(Exception):
    """A receiver did not take a callback.

    Attributes:
        kind: what went wrong, in a word.
        is_final: whether trying again cannot help.
        retry_after_us: how long the receiver wants to be left alone; 0 if it does not say.
    """

    def __init__(
        self, kind: str, message: str, *, is_final: bool = False, retry_after_us: int = 0
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_final = is_final
        self.retry_after_us = retry_after_us


class Answer(msgspec.Struct, frozen=True):
    """The answer of a receiver."""

    status: int
    reason: str = ""
    retry_after_us: int = 0


class Poster:
    """Posts callbacks, each over a connection of its own."""

    def __init__(
        self, allowed: AllowedTargets, timeout_s: float, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._make_tls = tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """What verifies receivers; made when it is first needed, which takes a while."""
        return self._make_tls()

    async def post(
        self, url: str, headers: dict[str, str], body: bytes, at_most_s: float = inf
    ) -> int:
        """Post a body, and return the status with which it was taken.

        Raises:
            Failed: it was not.
        """
        if problem := url_problem(url, self._allowed):
            raise Failed("Forbidden", problem, is_final=True)
        parts, timeout_s = urlsplit(url), min(self._timeout_s, at_most_s)
        try:
            async with asyncio.timeout(timeout_s):
                addresses = await self._resolve(parts)
                answer = await self._exchange(parts, addresses, headers, body)
        except TimeoutError:
            message = f"no answer within {timeout_s:g} s"
            raise Failed("Timeout", message) from None
        except (OSError, ssl.SSLError, EOFError) as error:
            message = str(error) or type(error).__name__
            raise Failed("ConnectionFailed", message[:500]) from None
        _judge(answer)
        return answer.status

    async def _resolve(self, parts: SplitResult) -> list[Address]:
        """Return the addresses of a receiver that may be called."""
        host = host_of(parts)
        found = await self.look_up(host, _port_of(parts))
        if host in self._allowed.hosts:
            return found
        problems = {address: address_problem(address, self._allowed) for address in found}
        fit = [address for address, problem in problems.items() if not problem]
        if not fit:
            why = next(iter(problems.values()), "has no address")
            raise Failed("Forbidden", f"{host}: {why}", is_final=bool(problems))
        return fit

    async def look_up(self, host: str, port: int) -> list[Address]:
        """Return the addresses of a host as the system resolves it."""
        with suppress(ValueError):
            return [ip_address(host)]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
        texts = dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found)
        return [ip_address(text) for text in texts]

    async def _exchange(
        self, parts: SplitResult, addresses: list[Address], headers: dict[str, str], body: bytes
    ) -> Answer:
        reader, writer = await self._connect(parts, addresses)
        try:
            writer.write(_request(parts, headers, body))
            with suppress(ConnectionError):  # It may have answered before the end of the body.
                await writer.drain()
            return await _read_answer(reader)
        finally:
            writer.transport.abort()

    async def _connect(
        self, parts: SplitResult, addresses: list[Address]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that can be reached."""
        is_tls, last = parts.scheme == "https", OSError("no address")
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                return await asyncio.open_connection(
                    str(address),
                    _port_of(parts),
                    limit=HEAD_BYTES_MAX,
                    ssl=self._tls if is_tls else None,
                    server_hostname=host_of(parts) if is_tls else None,
                )
            except OSError as error:
                last = error
        raise last


def _port_of(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _request(parts: SplitResult, headers: dict[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read the status and the headers of an answer."""
    for _ in range(_INTERIM_MAX + 1):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            what = "it is not HTTP" if error.partial else "the connection was closed"
            raise Failed("BadAnswer", f"no answer: {what}") from None
        except asyncio.LimitOverrunError:
            raise Failed("BadAnswer", f"headers of more than {HEAD_BYTES_MAX} bytes") from None
        first, *lines = head.split(b"\r\n")
        match = _STATUS.fullmatch(first)
        if match is None:
            raise Failed("BadAnswer", "no answer: it is not HTTP")
        status = int(match[1])
        if status >= 200:
            return Answer(status, (match[2] or b"").decode(), _retry_after_us(lines))
    raise Failed("BadAnswer", f"more than {_INTERIM_MAX} interim answers")


def _retry_after_us(lines: list[bytes]) -> int:
    """Return for how long a receiver wants to be left alone."""
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"retry-after":
            text = value.strip().decode("latin-1")
            if text.isascii() and text.isdigit():
                return min(int(text[:12]) * SECOND, DAY)
            with suppress(ValueError, TypeError, OverflowError):
                until = parsedate_to_datetime(text)
                left_s = (until - datetime.now(UTC)).total_seconds()
                return min(max(int(left_s * SECOND), 0), DAY)
    return 0


def _judge(answer: Answer) -> None:
    """Raise unless a callback was taken."""
    status = answer.status
    if status < 300:
        return
    message = f"{status} {answer.reason}".strip()
    if status < 400:
        message += "; redirects are not followed"
    is_final = status < 500 and status not in _LATER
    raise Failed(
        "Refused" if is_final else "Unavailable",
        message,
        is_final=is_final,
        retry_after_us=0 if is_final else answer.retry_after_us,
    )
