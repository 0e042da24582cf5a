"""The line: how the applications of this process reach their brokers.

Owns the one place where a test kit can put a broker of its own in front of every application, so
that nothing that runs under it opens a connection elsewhere. Sessions that were made before keep
their connections and are not used meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jackalope.client.session.session import SessionOwner
    from jackalope.transport.connector import Dial


class Line(Protocol):
    """A broker in front of every application of the process."""

    def dial_for(self, app: SessionOwner) -> Dial:
        """Return what opens an application's connections to it."""


_lines: list[Line] = []


def substitute() -> Line | None:
    """Return the line that every application must use now; None for a broker of its own."""
    return _lines[-1] if _lines else None


@contextmanager
def taken_over(line: Line) -> Iterator[None]:
    """Let every application of this process use one line for a while. Can be nested."""
    _lines.append(line)
    try:
        yield
    finally:
        for index in reversed(range(len(_lines))):
            if _lines[index] is line:  # Others may have come meanwhile, in other threads.
                del _lines[index]
                break
