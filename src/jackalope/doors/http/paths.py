"""Names in paths: whatever a name holds, it is one segment of a path.

Owns the way from the bytes of a path to the names in it. A client encodes a name, so that a slash
in it is `%2F`; but servers hand on paths that are decoded already, in which it has become two
segments. So routes are found in a path whose segments are decoded, except for `/` and `%`, which
stay encoded until the names are taken out of it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def routable(raw_path: bytes) -> str:
    """Return a path in which routes are found: decoded, but for slashes in its segments."""
    segments = raw_path.decode("latin-1").split("/")
    return "/".join(unquote(each).replace("%", "%25").replace("/", "%2F") for each in segments)


def names_in(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that a route found in such a path, decoded."""
    return {
        name: unquote(value) if isinstance(value, str) and "%" in value else value
        for name, value in parameters.items()
    }
