"""Topology: exchanges, bindings and rules of a namespace, and the way of a message through them.

Owns the indexes over them. Only `apply` changes them. A message that is published to an exchange
goes to the queues that the bindings lead to, through other exchanges if need be, and to each queue
once; the exchange of a pool leads to the pool, where its routing key is the key.

The exchanges that every namespace has are not stored: they always exist; nor are those of a pool,
which come and go with it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from jackalope.core.shapes.exchange import (
    BEFORE_KEY,
    DEFAULT_EXCHANGE,
    GIVEN,
    Binding,
    Exchange,
    Rule,
    activity_exchange,
    dead_letter_exchange,
    exchanges_of,
    own_queues,
    requests_exchange,
    second_dead_letter_exchange,
)
from jackalope.core.state.routing import ROUTERS, Headers, Router

if TYPE_CHECKING:
    from jackalope.core.state.queue import Queue

#: A destination: the name of a queue, or of an exchange.
Destination = tuple[bool, str]


#: Where a message becomes a task: a queue, and the key of the task there.
Place = tuple[str, str]


class Topology:
    """The exchanges, bindings and rules of a namespace."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}  # all of them, by name
        self.rules: dict[str, Rule] = {}  # all of them, by name
        self.bindings: dict[str, Binding] = {}  # all of them, by their own names
        # the pools, by the exchange that takes requests for each
        self.requests: dict[str, str] = {}
        # the pools, by the exchange that takes reports of the workers of each
        self.activities: dict[str, str] = {}
        # the pools, by each exchange and queue that is theirs alone
        self.reserved: dict[str, str] = {}
        self._routers: dict[str, Router[Destination]] = {}
        self._by_source: dict[str, dict[str, Binding]] = {}
        self._by_target: dict[Destination, dict[str, Binding]] = {}
        for exchange in GIVEN:
            self.put_exchange(exchange)

    # For `apply` alone.

    def put_exchange(self, exchange: Exchange) -> None:
        """Add an exchange, or change what rules set for it."""
        self.exchanges[exchange.name] = exchange
        if exchange.name not in self._routers:
            self._routers[exchange.name] = ROUTERS[exchange.kind]()

    def drop_exchange(self, name: str) -> None:
        """Remove an exchange without bindings."""
        del self.exchanges[name]
        del self._routers[name]

    def put_pool(self, pool: str) -> None:
        """Add the implicit exchanges of a pool; safe to repeat."""
        self.requests[requests_exchange(pool)] = pool
        self.activities[activity_exchange(pool)] = pool
        for name, kind in exchanges_of(pool).items():
            self.reserved[name] = pool
            if name not in self.exchanges:
                self.put_exchange(Exchange(name, kind, durable=False))
                if name == dead_letter_exchange(pool):
                    on = (True, second_dead_letter_exchange(pool))
                    self._routers[name].bind("", {}, on)
        self.reserved.update(dict.fromkeys(own_queues(pool), pool))

    def drop_pool(self, pool: str) -> None:
        """Remove the implicit exchanges of a pool, which have no bindings any more."""
        del self.requests[requests_exchange(pool)]
        del self.activities[activity_exchange(pool)]
        for name in exchanges_of(pool):
            if not self.exchanges[name].durable:
                self.drop_exchange(name)
        self.reserved = {name: each for name, each in self.reserved.items() if each != pool}

    def bind(self, binding: Binding) -> None:
        name, to = binding.name(), (binding.is_to_exchange, binding.to)
        self.bindings[name] = binding
        self._by_source.setdefault(binding.source, {})[name] = binding
        self._by_target.setdefault(to, {})[name] = binding
        self._routers[binding.source].bind(binding.key, binding.arguments, to)

    def unbind(self, binding: Binding) -> None:
        name, to = binding.name(), (binding.is_to_exchange, binding.to)
        del self.bindings[name]
        leading_away = self._by_source[binding.source]
        del leading_away[name]
        if not leading_away:
            del self._by_source[binding.source]
        leading_there = self._by_target[to]
        del leading_there[name]
        if not leading_there:
            del self._by_target[to]
        self._routers[binding.source].unbind(binding.key, binding.arguments, to)

    # Reading.

    def from_source(self, exchange: str) -> Iterator[Binding]:
        """Yield the bindings whose source is this exchange."""
        yield from list(self._by_source.get(exchange, {}).values())

    def to_target(self, name: str, *, is_exchange: bool) -> Iterator[Binding]:
        """Yield the bindings whose destination is this queue or exchange."""
        yield from list(self._by_target.get((is_exchange, name), {}).values())

    def route(
        self, exchange: str, key: str, headers: Headers, known: Container[str]
    ) -> dict[Place, None]:
        """Return the destinations of a message.

        `known` are the existing queues: the default exchange routes to each by its name.
        """
        places: dict[Place, None] = {}
        seen = {exchange}
        open_exchanges = [exchange]
        while open_exchanges:
            name = open_exchanges.pop()
            found = self.exchanges.get(name)
            if found is None:
                continue
            pool = self.requests.get(name)
            leads_on = pool is not None
            if pool is not None:
                places[pool, key] = None
            for is_exchange, to in self._matching(name, key, headers, known):
                leads_on = True
                if not is_exchange:
                    places[to, ""] = None
                elif to not in seen:
                    seen.add(to)
                    open_exchanges.append(to)
            if not leads_on and found.alternate is not None and found.alternate not in seen:
                seen.add(found.alternate)
                open_exchanges.append(found.alternate)
        return places

    def _matching(
        self, exchange: str, key: str, headers: Headers, known: Container[str]
    ) -> Iterable[Destination]:
        if exchange == DEFAULT_EXCHANGE:
            return ((False, key),) if key in known else ()
        return self._routers[exchange].match(key, headers)


def lane_of(queues: Mapping[str, Queue], name: str) -> tuple[str, str] | None:
    """Return the pool and the key whose requests a queue name stands for, if any.

    Names are not quoted, so one may be read in several ways; the shortest pool wins.
    """
    at = name.find(BEFORE_KEY)
    while at >= 0:
        queue = queues.get(name[:at])
        if queue is not None and queue.pool is not None:
            return name[:at], name[at + len(BEFORE_KEY) :]
        at = name.find(BEFORE_KEY, at + 1)
    return None
