"""Contracts over REST: what tasks take and return, as their workers say."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.core.limits import QUEUES_PER_WORKER_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.contract import Parameter
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    nothing,
    read_body,
    read_query,
    view_of,
)
from jackalope.doors.http.rest.schemas import MaybeName, Name, about, shape_of
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import ContractView

routes = Routes("/api/v1", has_namespace=True)

_show = shape_of(
    ContractView,
    "ContractShown",
    "What a task of a queue takes and returns; `arguments` is a JSON Schema of all arguments.",
    made={"parameters": (list[Parameter], list)},
)

ContractShown: Any = _show.shown


class ContractList(msgspec.Struct):
    """Contracts of a namespace, by queue and name."""

    contracts: list[ContractShown]


class ContractQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which contracts."""

    queue: Annotated[MaybeName, about("Only of this queue.")] = ""
    text: Annotated[str, about("Only with this text in the name.", max_length=256)] = ""


class ContractPlace(msgspec.Struct, forbid_unknown_fields=True):
    """Where the task is run."""

    queue: Annotated[Name, about("The queue.")]


class ContractsWanted(msgspec.Struct, forbid_unknown_fields=True):
    """What the tasks of a worker take, by their names, in the queues that it serves."""

    queues: Annotated[tuple[Name, ...], msgspec.Meta(max_length=QUEUES_PER_WORKER_MAX)]
    contracts: dict[str, dict[str, Any]]


@routes.get("/contracts", "read_tasks", Spec(ContractList, query=ContractQuery))
async def list_contracts(request: Request) -> Response:
    """List what tasks take and return, as their workers say."""
    wanted = read_query(request, ContractQuery)
    views = await view_of(request, queries.contracts, About(queue=wanted.queue, text=wanted.text))
    return answer(ContractList([_show(view) for view in views]))


@routes.get(
    "/contracts/{name}", "read_tasks", Spec(ContractList, query=ContractQuery, errors=(404,))
)
async def read_contract(request: Request, name: str) -> Response:
    """Show what one task takes and returns, in each queue where it is known."""
    wanted = read_query(request, ContractQuery)
    views = await view_of(request, queries.contracts, About(queue=wanted.queue, name=name))
    if not views:
        message = f"no worker has declared a task {name!r}; list the contracts"
        raise Refused(Refusal(Code.UNKNOWN_TASK, message))
    return answer(ContractList([_show(view) for view in views]))


@routes.post("/contracts", "work", Spec(status=204, body=ContractsWanted))
async def declare_contracts(request: Request) -> Response:
    """Declare what tasks take, as a worker does; calls that cannot fit are refused."""
    wanted = await read_body(request, ContractsWanted)
    await ask(request, DeclareContracts(queues=wanted.queues, contracts=wanted.contracts))
    return nothing()


@routes.delete("/contracts/{name}", "admin", Spec(status=204, query=ContractPlace, errors=(404,)))
async def delete_contract(request: Request, name: str) -> Response:
    """Delete what a task takes in a queue. Workers that join later declare it again."""
    place = read_query(request, ContractPlace)
    await ask(request, DeleteContract(queue=place.queue, name=name))
    return nothing()
