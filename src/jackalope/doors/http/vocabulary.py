"""Whose words an answer uses: ours, or those of the published task queue design.

Owns the choice, which holds for one request: the header `X-Jackalope-Names`, for a scrape the
parameter `names`, or else the setting `http.names`. An answer has the words of one, never of both.
"""

from __future__ import annotations

from contextvars import ContextVar

from jackalope.broker.config.schema import Names
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Connection

HEADER = "x-jackalope-names"

_names: ContextVar[Names] = ContextVar("names", default=Names.JACKALOPE)


def choose(connection: Connection) -> None:
    """Choose the words for what follows in this request."""
    if said := connection.header(HEADER):
        _names.set(read(said, HEADER))
    else:
        # The management API has no such setting, and none of its answers asks.
        _names.set(getattr(connection.app.owner, "names", Names.JACKALOPE))


def use(names: Names) -> None:
    """Choose the words of a route that has its own."""
    _names.set(names)


def names() -> Names:
    """Return the words that were chosen."""
    return _names.get()


def is_ours() -> bool:
    """Return whether answers have our words."""
    return _names.get() is Names.JACKALOPE


def read(text: str, where: str) -> Names:
    """Read a choice.

    Raises:
        Rejected: there is no such choice.
    """
    try:
        return Names(text)
    except ValueError:
        known = " or ".join(Names)
        raise Rejected(400, f"{where}: must be {known}, got {text[:50]!r}") from None
