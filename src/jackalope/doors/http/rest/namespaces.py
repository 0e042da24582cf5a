"""Namespaces over REST: created, listed, changed and deleted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About
from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace
from jackalope.core.effects import NamespaceGone
from jackalope.core.settings import given, shown, taken
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import (
    Request,
    answer,
    by_of,
    door_of,
    own_namespace,
    read_body,
    read_query,
)
from jackalope.doors.http.rest.schemas import about, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import NamespaceView

routes = Routes("/api/v1")


_show = shape_of(
    NamespaceView,
    "NamespaceShown",
    "A namespace: its settings, of which a quota of 0 is none, and what it uses.",
    nullable=("by",),
    made={"settings": (dict[str, Any], shown)},
)

NamespaceShown: Any = _show.shown


class NamespaceList(msgspec.Struct):
    """The namespaces that the API key covers, by name."""

    namespaces: list[NamespaceShown]


#: The settings that change.
SettingsGiven: Any = given(NamespaceSettings, "NamespaceSettingsGiven", __name__)


class NamespaceWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a namespace. A quota of 0 is none."""

    settings: Annotated[SettingsGiven, about("The settings to change.")] = SettingsGiven()


class DeleteQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How to delete."""

    force: Annotated[bool, about("Kill its unfinished tasks, and tell its workers to finish.")] = (
        False
    )


class NamespaceDeleted(msgspec.Struct):
    """What was deleted with the namespace."""

    killed: int


@routes.get("/namespaces", "read_tasks", Spec(NamespaceList))
async def list_namespaces(request: Request) -> Response:
    """List the namespaces that the API key covers."""
    views = await queries.namespace_list(door_of(request).broker, own_namespace())
    return answer(NamespaceList([_show(view) for view in views]))


@routes.get("/namespaces/{name}", "read_tasks", Spec(NamespaceShown, errors=(404,)))
async def read_namespace(request: Request, name: str) -> Response:
    """Return a namespace."""
    return answer(await _shown(request, name))


@routes.put(
    "/namespaces/{name}", "admin", Spec(NamespaceShown, body=NamespaceWanted, errors=(404, 409))
)
async def declare_namespace(request: Request, name: str) -> Response:
    """Create a namespace, or change its settings. What is not named stays as it is."""
    wanted = await read_body(request, NamespaceWanted)
    changes = taken(NamespaceSettings, wanted.settings)
    command = DeclareNamespace(name=name, changes=changes, by=by_of(request))
    await door_of(request).client_session.ask(command)
    return answer(await _shown(request, name))


@routes.delete(
    "/namespaces/{name}", "admin", Spec(NamespaceDeleted, query=DeleteQuery, errors=(404, 409))
)
async def delete_namespace(request: Request, name: str) -> Response:
    """Delete a namespace with all that is in it: queues, schedules, limits, keys, history."""
    query = read_query(request, DeleteQuery)
    command = DeleteNamespace(name=name, force=query.force, by=by_of(request))
    gone = of_kind(await door_of(request).client_session.ask(command), NamespaceGone)
    return answer(NamespaceDeleted(gone.killed))


async def _shown(request: Request, name: str) -> msgspec.Struct:
    view = await queries.namespace(door_of(request).broker, own_namespace(), About(name=name))
    return _show(view)
