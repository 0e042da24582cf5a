"""What the page on HTTP says that follows from the code: the routes, and the status of each no."""

from functools import cache
from typing import Any

from jackalope.broker.service import Broker
from jackalope.doors.http.app import HttpDoor, build
from jackalope.doors.http.errors import STATUS
from jackalope.doors.http.openapi import describe
from jackalope.doors.http.rest.schemas import STATES
from jackalope.doors.http.vocabulary import aliases
from jackalope.storage import Level, Storage
from tests.docs.blocks import Table


@cache
def described() -> dict[str, Any]:
    """Return the description of the API, without opening a door."""
    storage = Storage.open(None, Level.MEMORY)
    try:
        return describe(build(HttpDoor(Broker(storage))).routes)
    finally:
        storage.close()


def routes() -> Table:
    rows = [
        (
            f"`{method.upper()} {path}`",
            f"`{operation['x-permission']}`" if operation["x-permission"] else "none",
            f"{operation['summary']}.",
        )
        for path, methods in described()["paths"].items()
        for method, operation in sorted(methods.items())
    ]
    return Table(("route", "permission", "what it does"), rows)


def statuses() -> Table:
    by_status: dict[int, list[str]] = {}
    for code, status in STATUS.items():
        by_status.setdefault(status, []).append(f"`{code}`")
    rows = [(str(status), ", ".join(by_status[status])) for status in sorted(by_status)]
    return Table(("status", "reasons"), rows)


def words() -> Table:
    rows = [
        (f"`{status}`", ", ".join(f"`{state}`" for state in states))
        for status, states in STATES.items()
    ]
    return Table(("`status`", "`state`"), rows)


def fields() -> Table:
    """List every field that has an alias, and where."""
    where: dict[tuple[str, str], list[str]] = {}
    for shape, alias in aliases().items():
        for ours, theirs in alias.names.items():
            if ours in shape.__struct_fields__:
                where.setdefault((ours, theirs), []).append(f"`{shape.__name__}`")
    rows = [
        (f"`{theirs}`", f"`{ours}`", ", ".join(sorted(shapes)))
        for (ours, theirs), shapes in sorted(where.items(), key=lambda each: each[0][1])
    ]
    return Table(("alias", "field", "shapes"), rows)


HTTP = {"routes": routes, "aliases": fields, "statuses": statuses, "words": words}
