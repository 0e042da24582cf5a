"""Ports of loopback for tests: those that a server may take, and those at which nothing listens.

The kernel takes port 0 out of the range from which it also takes the local ports of connections,
and gives a closed port to the next process that asks. Tests run side by side, so a port found that
way may belong to another test when it is used. These come from below that range.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle

_FIRST, _LAST = 20_000, 32_000
_BEGIN = os.getpid() * 137 % (_LAST - _FIRST)
_PORTS: cycle[int] = cycle([*range(_FIRST + _BEGIN, _LAST), *range(_FIRST, _FIRST + _BEGIN)])


def free_port() -> int:
    """Return a port that nothing uses, another one at each call."""
    for port in _PORTS:
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("unreachable")


@contextmanager
def refusing_port() -> Iterator[int]:
    """Hold a port that refuses every connection, so that nothing else can take it."""
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
