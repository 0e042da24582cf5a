"""The verbs of the scripts that are about contracts, as commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jackalope.core.commands import AnyCommand
from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from tests.scenarios.language import Order
from tests.scenarios.phrases import DEFAULT

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


def declare(stage: Stage, order: Order) -> AnyCommand:
    """Declare what a task takes, in JSON: `takes=path:string,width:integer?`."""
    name, worker = order.word("a name"), order.word("a worker")
    contract: dict[str, object] = {
        "parameters": [_parameter(each) for each in order.list("takes")],
        "version": order.text("version"),
        "content": "json",
    }
    return DeclareContracts(
        session=stage.session(worker),
        queues=order.list("queues"),
        contracts={name: contract},
        by=worker,
        namespace=order.text("namespace", DEFAULT),
    )


def _parameter(text: str) -> dict[str, Any]:
    name, _, kind = text.partition(":")
    schema = {"schema": {"type": kind.rstrip("?")}} if kind.rstrip("?") else {}
    return {"name": name, "required": not kind.endswith("?"), **schema}


def delete(stage: Stage, order: Order) -> AnyCommand:
    name, queue = order.word("a name"), order.word("a queue")
    return DeleteContract(session=stage.client(order), queue=queue, name=name, by=order.text("by"))


CONTRACTING = {"contract": declare, "delete-contract": delete}
