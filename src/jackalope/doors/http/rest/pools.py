"""Pools over REST: their settings, their groups and workers; and acting on a group by hand.

A key may be any text, the empty one and `/` included, so it stands in bodies and never in a path.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import ActOnGroup, AnyCommand, DeclarePool, DeletePool, GroupAction
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import given, shown, taken
from jackalope.core.shapes.pool import PoolSettings
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import (
    Request,
    answer,
    by_of,
    door_of,
    namespace_of,
    nothing,
    read_body,
    view_of,
)
from jackalope.doors.http.rest.schemas import MaybeName, about, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import GroupView, LaunchView, PoolView

routes = Routes("/api/v1", has_namespace=True)


_show_launch = shape_of(
    LaunchView,
    "LaunchShown",
    "Something that was started for a group: a worker, or a group that scales itself.",
    names={"launch": "worker", "ordered_us": "started_at"},
)

_show_group = shape_of(
    GroupView,
    "GroupShown",
    "The workers of one key of a pool. `rate` is attempts that ended, a second.",
    names={"leased": "running"},
    nullable=("trouble",),
    inner={"launches": _show_launch},
)

_show = shape_of(
    PoolView,
    "PoolShown",
    "A pool: its settings, durations as text, and its groups.",
    names={"up": "groups_up", "waiting": "groups_waiting"},
    inner={"groups": _show_group},
    without=("settings",),
    settings=(dict[str, Any], lambda view: shown(view.settings)),
)

PoolShown: Any = _show.shown


class PoolList(msgspec.Struct):
    """The pools of a namespace, by name."""

    pools: list[PoolShown]


#: The settings of a pool that change; durations in seconds or as text.
PoolGiven: Any = given(PoolSettings, "PoolGiven", __name__)


class GroupActed(msgspec.Struct, forbid_unknown_fields=True):
    """What to do with the group of a key."""

    action: GroupAction
    key: Annotated[MaybeName, about("Any text; empty for tasks without a key.")] = ""


@routes.get("/pools", "read_tasks", Spec(PoolList))
async def list_pools(request: Request) -> Response:
    """List the pools, with their groups."""
    return answer(PoolList([_show(view) for view in await views(request)]))


@routes.get("/pools/{queue}", "read_tasks", Spec(PoolShown, errors=(404,)))
async def read_pool(request: Request, queue: str) -> Response:
    """Return the pool of a queue, with its groups."""
    return answer(await _pool(request, queue))


@routes.put("/pools/{queue}", "admin", Spec(PoolShown, body=PoolGiven, errors=(404, 409)))
async def declare_pool(request: Request, queue: str) -> Response:
    """Have workers started for a queue, or change how. What is not named stays as it is."""
    changes = taken(PoolSettings, await read_body(request, PoolGiven))
    await _ask(request, DeclarePool(queue=queue, changes=changes))
    return answer(await _pool(request, queue))


@routes.delete("/pools/{queue}", "admin", Spec(status=204, errors=(404,)))
async def delete_pool(request: Request, queue: str) -> Response:
    """Have no more workers started for a queue. Those there are go when they are idle."""
    await _ask(request, DeletePool(queue=queue))
    return nothing()


@routes.post("/pools/{queue}/groups", "admin", Spec(PoolShown, body=GroupActed, errors=(404, 409)))
async def act_on_group(request: Request, queue: str) -> Response:
    """Start or stop the workers of a key by hand, or let them stay up."""
    wanted = await read_body(request, GroupActed)
    await _ask(request, ActOnGroup(queue=queue, key=wanted.key, action=wanted.action))
    return answer(await _pool(request, queue))


async def views(request: Request, queue: str = "") -> list[PoolView]:
    """Return the pools of the namespace that a request is about."""
    return await view_of(request, queries.pools, About(queue=queue))


async def _pool(request: Request, queue: str) -> msgspec.Struct:
    for view in await views(request, queue):
        return _show(view)
    raise Refused(Refusal(Code.UNKNOWN_POOL, f"queue {queue!r} has no pool; list the pools"))


async def _ask(request: Request, command: AnyCommand) -> None:
    for name, value in (("namespace", namespace_of(request)), ("by", by_of(request))):
        setattr(command, name, value)
    await door_of(request).client_session.ask(command)
