"""Definitions: what is durable about the topology of a namespace.

Owns the rule of which bindings are volatile, and how definitions get into a namespace and out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jackalope.core.changes import DefinitionRow
from jackalope.core.topology import GIVEN_NAMES, Binding, Exchange, Rule

if TYPE_CHECKING:
    from jackalope.core.queue import Namespace


def definitions_of(world: Namespace) -> Iterable[DefinitionRow]:
    """Yield what is durable about the topology of a namespace, in an order of its own."""
    topology = world.topology
    for name, exchange in sorted(topology.exchanges.items()):
        if exchange.durable and (name not in GIVEN_NAMES or exchange.rule):
            yield DefinitionRow(world.name, "exchange", name, exchange)
    for name, binding in sorted(topology.bindings.items()):
        if not is_volatile_binding(world, binding):
            yield DefinitionRow(world.name, "binding", name, binding)
    for name, rule in sorted(topology.rules.items()):
        yield DefinitionRow(world.name, "rule", name, rule)


def is_volatile_binding(world: Namespace, binding: Binding) -> bool:
    """Tell whether a binding goes at a restart because one of its ends does."""
    exchanges = world.topology.exchanges
    if not exchanges[binding.source].durable:
        return True
    if binding.is_to_exchange:
        return not exchanges[binding.to].durable
    return world.queues[binding.to].is_volatile()


def in_order(rows: Iterable[DefinitionRow]) -> list[DefinitionRow]:
    """Return rows so that what others refer to comes before them."""
    kinds = ("exchange", "binding", "rule")
    return sorted(rows, key=lambda row: kinds.index(row.kind))


def define(world: Namespace, definition: Exchange | Binding | Rule | None) -> None:
    """Put an exchange, a binding or a rule into a namespace."""
    if isinstance(definition, Exchange):
        world.topology.put_exchange(definition)
    elif isinstance(definition, Binding):
        world.topology.bind(definition)
    elif definition is not None:
        world.topology.rules[definition.name] = definition
