"""Views of contracts: what tasks take, and how many workers know them."""

from __future__ import annotations

from collections.abc import Callable

from jackalope.core import Core
from jackalope.core.shapes.contract import arguments_schema, signature
from jackalope.core.state.contracts import KnownTask
from jackalope.core.state.queue import Queue
from jackalope.wire.views import ContractView


def contract_views(
    core: Core, namespace: str, sees: Callable[[str], bool], *, queue: str, name: str, text: str
) -> list[ContractView]:
    """List the contracts of a namespace by queue and name; of one queue, or one name."""
    there = core.book.namespaces.get(namespace)
    queues = {} if there is None else there.queues
    return [
        _view(core, queues[each], known)
        for each in sorted(queues)
        if queue in ("", each) and sees(each)
        for _, known in sorted(queues[each].contracts.items())
        if name in ("", known.name) and text in known.name
    ]


def _view(core: Core, queue: Queue, known: KnownTask) -> ContractView:
    contract = known.versions[-1]
    crews = core.roster.crews(queue.namespace.name, queue.name)
    return ContractView(
        queue=queue.name,
        name=known.name,
        signature=signature(known.name, contract),
        doc=contract.doc,
        version=contract.version,
        versions=tuple(each.version for each in known.versions),
        content=contract.content,
        parameters=contract.parameters,
        arguments=arguments_schema(contract),
        returns=contract.returns,
        workers=sum(len(crew.members) for crew in crews if crew.knows(known.name)),
        declared_by=known.by,
        declared_us=known.at_us,
    )
