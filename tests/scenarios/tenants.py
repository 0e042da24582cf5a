"""Namespaces with settings, as scripts write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.commands.namespaces import DeclareNamespace, DeleteNamespace
from tests.scenarios.language import Order

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

_NUMBERS = (
    *("weight", "tasks_queued", "bytes_stored", "submits_per_second", "submits_burst"),
    *("workers", "api_keys", "concurrent_attempts"),
)


def declare_namespace(stage: Stage, order: Order) -> list[str]:
    name = order.word("a namespace")
    changes: dict[str, object] = {}
    for field in _NUMBERS:
        if text := order.text(field):
            changes[field] = int(text)
    if text := order.text("description"):
        changes["description"] = text
    within, session = order.text("within"), stage.client(order)
    command = DeclareNamespace(name=name, changes=changes, within=within, session=session)
    return stage.send(command)


def delete_namespace(stage: Stage, order: Order) -> list[str]:
    name = order.word("a namespace")
    force, session = order.flag("force"), stage.client(order)
    return stage.send(DeleteNamespace(name=name, force=force, session=session))


TENANTS = {"declare-namespace": declare_namespace, "delete-namespace": delete_namespace}
