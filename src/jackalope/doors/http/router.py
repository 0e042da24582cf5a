"""Routes: what a path and a method lead to, what that needs, and what it takes and answers.

Owns the declaration of routes, and how the one of a path is found: in a tree of segments, in which
a name goes before a parameter, and the search goes back where a name leads nowhere. A path may have
doubled slashes, and one at its end.

Whatever a name holds, it is one segment of a path: a client encodes it, so that a slash in it is
`%2F`. But servers hand on paths that are decoded already, in which it has become two segments. So
routes are found in a path whose segments are decoded, except for `/` and `%`, which stay encoded
until the names are taken out of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from jackalope.core.api_key import Permission
from jackalope.doors.http.asgi import WEBSOCKET, Response

Handler = Callable[..., Awaitable[Response | None]]
OnError = Callable[[Any, Exception], Response]
H = TypeVar("H", bound=Handler)

#: Paths that were found lately are remembered; clients repeat themselves.
_PATHS_REMEMBERED = 1024

_PARAMETER = re.compile(r"\{(\w+)\}")


class Spec(msgspec.Struct, frozen=True):
    """What a route takes and answers, for the description of the API."""

    answer: Any = None  # the shape of a good answer; bytes for raw bytes; None for an empty one
    status: int = 200  # the status of that
    body: Any = None  # the shape of the body that it takes; bytes for raw bytes
    query: type[msgspec.Struct] | None = None  # the shape of its parameters
    errors: tuple[int, ...] = ()  # statuses of errors beside those that every route has
    # other answers that are no errors, and what they mean; from 400 on of the same shape
    also: dict[int, str] = {}
    needs_body: bool = True  # whether it can do without one
    media_type: str = "application/octet-stream"
    other_types: tuple[str, ...] = ()  # in which a good answer comes as well, if asked for


class Route(msgspec.Struct, frozen=True):
    """A way to answer requests."""

    method: str  # or `WEBSOCKET`
    path: str  # its parameters in braces
    handler: Handler  # takes the request, and the parameters of the path by name
    needs: Permission | None  # None if no API key is needed
    spec: Spec | None  # None leaves it out of the description
    has_namespace: bool  # whether a request names a namespace
    on_error: OnError | None  # answers errors in other words than the application

    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)


class Routes(list[Route]):
    """Routes, which enter themselves by decorators."""

    def __init__(
        self, prefix: str = "", *, has_namespace: bool = False, on_error: OnError | None = None
    ) -> None:
        super().__init__()
        self._prefix = prefix
        self._has_namespace = has_namespace
        self._on_error = on_error

    def get(self, path: str, needs: str, spec: Spec | None = None) -> Callable[[H], H]:
        """Answer GET. `needs` names a permission; it is empty if no API key is needed."""
        return self._on(("GET",), path, needs, spec)

    def read(self, path: str, needs: str, spec: Spec | None = None) -> Callable[[H], H]:
        return self._on(("GET", "HEAD"), path, needs, spec)

    def post(self, path: str, needs: str, spec: Spec | None = None) -> Callable[[H], H]:
        return self._on(("POST",), path, needs, spec)

    def put(self, path: str, needs: str, spec: Spec | None = None) -> Callable[[H], H]:
        return self._on(("PUT",), path, needs, spec)

    def delete(self, path: str, needs: str, spec: Spec | None = None) -> Callable[[H], H]:
        return self._on(("DELETE",), path, needs, spec)

    def websocket(self, path: str, needs: str) -> Callable[[H], H]:
        """Accept WebSockets."""
        return self._on((WEBSOCKET,), path, needs, None)

    def _on(
        self, methods: Iterable[str], path: str, needs: str, spec: Spec | None
    ) -> Callable[[H], H]:
        def enter(handler: H) -> H:
            permission = Permission(needs) if needs else None
            for method in methods:
                whole = self._prefix + path
                terms = (permission, spec, self._has_namespace, self._on_error)
                self.append(Route(method, whole, handler, *terms))
            return handler

        return enter


class _Node:
    """A place in the tree: what can follow, and the routes that end here, by method."""

    __slots__ = ("any", "names", "routes")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, Route] = {}


#: The routes of a path by method, and the values of its parameters.
Found = tuple[dict[str, Route], tuple[str, ...]]


class Router:
    """Finds the routes of a path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in _segments(route.path):
                if not _PARAMETER.fullmatch(segment):
                    node = node.names.setdefault(segment, _Node())
                    continue
                if node.any is None:
                    node.any = _Node()
                node = node.any
            node.routes[route.method] = route
        self.find = lru_cache(_PATHS_REMEMBERED)(self._find)

    def _find(self, path: str) -> Found | None:
        return _search(self._root, _segments(path), ())


def _search(node: _Node, segments: list[str], values: tuple[str, ...]) -> Found | None:
    if not segments:
        return (node.routes, values) if node.routes else None
    segment, rest = segments[0], segments[1:]
    named = node.names.get(segment)
    found = _search(named, rest, values) if named is not None else None
    if found is None and node.any is not None:
        found = _search(node.any, rest, (*values, unquote(segment)))
    return found


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


def routable(raw_path: bytes) -> str:
    """Return a path in which routes are found: decoded, but for slashes in its segments."""
    segments = raw_path.decode("latin-1").split("/")
    return "/".join(unquote(each).replace("%", "%25").replace("/", "%2F") for each in segments)
