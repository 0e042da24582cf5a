"""Routing: which destinations a message goes to, by its key or its headers.

Owns the four ways of matching. Knows nothing of queues, exchanges or records: a destination is
whatever the caller binds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from jackalope.core.assertions import must
from jackalope.core.shapes.exchange import Kind

To = TypeVar("To", bound=Hashable)

Headers = Callable[[], dict[str, Any]]


#: How a headers exchange may compare.
MATCHES = ("all", "any", "all-with-x", "any-with-x")


class Router(Protocol[To]):
    """The bindings of one exchange, indexed for its type."""

    def bind(self, key: str, arguments: dict[str, Any], to: To) -> None:
        """Add a binding that does not exist yet."""

    def unbind(self, key: str, arguments: dict[str, Any], to: To) -> None:
        """Remove an existing binding."""

    def match(self, key: str, headers: Headers) -> Iterable[To]:
        """Return the destinations of a message; one may occur several times."""


def _count_up(ways: dict[To, int], to: To) -> None:
    ways[to] = ways.get(to, 0) + 1


def _count_down(ways: dict[To, int], to: To) -> None:
    ways[to] -= 1
    if not ways[to]:
        del ways[to]


class Direct(Generic[To]):
    """The key must be equal."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[To, int]] = {}

    def bind(self, key: str, _: dict[str, Any], to: To) -> None:
        _count_up(self._by_key.setdefault(key, {}), to)

    def unbind(self, key: str, _: dict[str, Any], to: To) -> None:
        found = self._by_key[key]
        _count_down(found, to)
        if not found:
            del self._by_key[key]

    def match(self, key: str, _: Headers) -> Iterable[To]:
        return self._by_key.get(key, ())


class Fanout(Generic[To]):
    """Everything matches."""

    def __init__(self) -> None:
        self._all: dict[To, int] = {}

    def bind(self, _: str, __: dict[str, Any], to: To) -> None:
        """Add a binding; the same destination may be bound with several keys."""
        _count_up(self._all, to)

    def unbind(self, _: str, __: dict[str, Any], to: To) -> None:
        _count_down(self._all, to)

    def match(self, _: str, __: Headers) -> Iterable[To]:
        return self._all


class _Node(Generic[To]):
    """A word of topic patterns, and what may follow it."""

    __slots__ = ("below", "here", "is_hash")

    def __init__(self, word: str = "") -> None:
        self.is_hash = word == "#"
        self.below: dict[str, _Node[To]] = {}
        self.here: dict[To, int] = {}


class Topic(Generic[To]):
    """Words separated by dots; in a pattern `*` is any one word and `#` any number of them."""

    def __init__(self) -> None:
        self._root: _Node[To] = _Node()

    def bind(self, key: str, _: dict[str, Any], to: To) -> None:
        node = self._root
        for word in words_of(key):
            child = node.below.get(word)
            if child is None:
                child = node.below[word] = _Node(word)
            node = child
        _count_up(node.here, to)

    def unbind(self, key: str, _: dict[str, Any], to: To) -> None:
        """Remove a binding, and the words that no other binding uses."""
        path, node = [], self._root
        for word in words_of(key):
            path.append((node, word))
            node = node.below[word]
        _count_down(node.here, to)
        for parent, word in reversed(path):
            child = parent.below[word]
            if child.here or child.below:
                return
            del parent.below[word]

    def match(self, key: str, _: Headers) -> Iterable[To]:
        """Return the destinations whose pattern matches the key.

        All positions in the patterns that the words so far may have led to are followed at once, so
        the work is bounded by the words times the patterns, however many `#` they have.
        """
        nodes = _with_hashes([self._root])
        for word in words_of(key):
            following = []
            for node in nodes:
                if node.is_hash:
                    following.append(node)
                below = node.below
                following += [below[each] for each in {word, "*"} if each in below]
            nodes = _with_hashes(following)
        return [to for node in nodes for to in node.here]


def words_of(key: str) -> list[str]:
    """Split a key or pattern into words; an empty one has none."""
    return key.split(".") if key else []


def _with_hashes(nodes: list[_Node[To]]) -> list[_Node[To]]:
    """Return each node once, with those that a `#` of no word leads to."""
    found: dict[int, _Node[To]] = {}
    while nodes:
        node = nodes.pop()
        if id(node) not in found:
            found[id(node)] = node
            if (below := node.below.get("#")) is not None:
                nodes.append(below)
    return list(found.values())


class ByHeaders(Generic[To]):
    """The headers of the binding must be present: all of them, or any."""

    def __init__(self) -> None:
        self._bindings: list[tuple[dict[str, Any], To]] = []

    def bind(self, _: str, arguments: dict[str, Any], to: To) -> None:
        self._bindings.append((arguments, to))

    def unbind(self, _: str, arguments: dict[str, Any], to: To) -> None:
        must((arguments, to) in self._bindings, "only what is bound is unbound", to)
        self._bindings.remove((arguments, to))

    def match(self, _: str, headers: Headers) -> Iterator[To]:
        present = headers() if self._bindings else {}
        for arguments, to in self._bindings:
            if fits(arguments, present):
                yield to


def fits(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Return whether headers match the arguments of a binding.

    Names that begin with `x-` are ignored, unless `x-match` includes them; no value means any.
    """
    how = arguments.get("x-match", "all")
    with_x = str(how).endswith("-with-x")
    wanted = [
        name in headers and (value is None or _is_same(headers[name], value))
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    return any(wanted) if str(how).startswith("any") else all(wanted)


def _is_same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


ROUTERS: dict[Kind, Callable[[], Router[Any]]] = {
    Kind.DIRECT: Direct,
    Kind.FANOUT: Fanout,
    Kind.TOPIC: Topic,
    Kind.HEADERS: ByHeaders,
}
