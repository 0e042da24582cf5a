"""Limits by key over REST: what each allows, how much of it is used, and when it opens."""

from __future__ import annotations

from typing import Any

import msgspec

from jackalope.broker import queries
from jackalope.core.commands.limits import DeclareLimits, DeleteLimit
from jackalope.core.settings import given, shown, taken
from jackalope.core.shapes.limit import LimitSettings
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import Request, answer, ask, nothing, read_body, view_of
from jackalope.doors.http.rest.schemas import shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import GateView, KeyLimitView

routes = Routes("/api/v1", has_namespace=True)

_show_gate = shape_of(GateView, "GateShown", "The use of a limit by tasks with equal keys.")

GateShown: Any = _show_gate.shown


def _gates(gates: list[GateView]) -> list[Any]:
    return [_show_gate(each) for each in gates]


_show = shape_of(
    KeyLimitView,
    "KeyLimitShown",
    "A limit by keys: its settings, durations as text, its use, and its busiest values.",
    made={"settings": (dict[str, Any], shown), "gates": (list[GateShown], _gates)},
)

KeyLimitShown: Any = _show.shown


class KeyLimitList(msgspec.Struct):
    """The limits by key of a namespace, by name."""

    key_limits: list[KeyLimitShown]


#: The settings of a limit that change; durations in seconds or as text.
KeyLimitGiven: Any = given(LimitSettings, "KeyLimitGiven", __name__)


@routes.get("/key-limits", "read_tasks", Spec(KeyLimitList))
async def list_key_limits(request: Request) -> Response:
    """List the limits by key, their use, and when they open."""
    return answer(KeyLimitList([_show(view) for view in await _views(request)]))


@routes.get("/key-limits/{name}", "read_tasks", Spec(KeyLimitShown, errors=(404,)))
async def read_key_limit(request: Request, name: str) -> Response:
    """Return a limit by key."""
    return answer(await _limit(request, name))


@routes.put("/key-limits/{name}", "admin", Spec(KeyLimitShown, body=KeyLimitGiven, errors=(404,)))
async def declare_key_limit(request: Request, name: str) -> Response:
    """Create a limit by key, or change one. What is not named stays as it is."""
    changes = taken(LimitSettings, await read_body(request, KeyLimitGiven))
    await ask(request, DeclareLimits(limits={name: changes}))
    return answer(await _limit(request, name))


@routes.delete("/key-limits/{name}", "admin", Spec(status=204, errors=(404,)))
async def delete_key_limit(request: Request, name: str) -> Response:
    """Delete a limit by key. What waits for it alone can start."""
    await _limit(request, name)
    await ask(request, DeleteLimit(name=name))
    return nothing()


async def _limit(request: Request, name: str) -> msgspec.Struct:
    for view in await _views(request):
        if view.name == name:
            return _show(view)
    raise Rejected(404, f"no limit by key {name!r}; list the limits", "unknown_limit")


async def _views(request: Request) -> list[KeyLimitView]:
    return await view_of(request, queries.key_limits)
