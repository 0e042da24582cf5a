"""Words of RabbitMQ's management API: virtual hosts, nodes, keys of bindings, refusals.

Owns how what is ours is called there. RabbitMQ's `/` is the namespace `default`; every other
virtual host is the namespace of its name.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from litestar import Request, Response

from jackalope.broker.queries import Refused
from jackalope.core.command import DEFAULT_NAMESPACE
from jackalope.core.refusals import Code
from jackalope.core.topology import Binding
from jackalope.core.values import shape_problem

#: The version that we speak like.
SPOKEN_VERSION = "3.10.8"

NODE = "jackalope@localhost"

DEFAULT_VHOST = "/"

#: How the default exchange, whose name is empty, is called in paths.
DEFAULT_EXCHANGE_IN_PATHS = "amq.default"

#: How the core says where something is.
_NAMESPACE = re.compile(r"in namespace '([^']*)'")

_JSON = "application/json"
_encode = msgspec.json.Encoder().encode

Asked = Request[Any, Any, Any]
Answer = Response[bytes]
Nothing = Response[None]


class Problem(Exception):
    """A request that cannot be answered, in RabbitMQ's words."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error


def answer(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Answer with JSON."""
    return Response(_encode(body), status_code=status, media_type=_JSON, headers=headers)


def nothing(status: int = 204, headers: dict[str, str] | None = None) -> Nothing:
    """Answer that it is done, and that there is nothing to say."""
    return Response(None, status_code=status, headers=headers)


def not_found() -> Problem:
    """Say that what the path names is not there."""
    return Problem(404, "Object Not Found", "Not Found")


def bad(reason: str) -> Problem:
    """Say what is wrong with a request."""
    return Problem(400, "bad_request", reason)


def problem_of(refused: Refused) -> Problem:
    """Say a refusal of the core in RabbitMQ's words."""
    code = refused.refusal.code
    message = _NAMESPACE.sub(
        lambda found: f"in vhost '{vhost_of(found[1])}'", refused.refusal.message
    )
    if code in (Code.UNKNOWN_QUEUE, Code.UNKNOWN_EXCHANGE):
        return Problem(404, "not_found", message)
    if code in (Code.FORBIDDEN, Code.LOCKED):
        return Problem(401, "not_authorised", message)
    if code is Code.INTERNAL:
        return Problem(500, "internal_error", message)
    if code in (Code.STORAGE_FAILED, Code.OVERLOADED):
        return Problem(503, "unavailable", message)
    return bad(message)


def namespace_of(vhost: str) -> str:
    """Return the namespace of a virtual host."""
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def vhost_of(namespace: str) -> str:
    """Return the virtual host of a namespace."""
    return DEFAULT_VHOST if namespace == DEFAULT_NAMESPACE else namespace


def named(segment: str) -> str:
    """Return the name that a part of a path stands for."""
    return unquote(segment)


def exchange_named(segment: str) -> str:
    """Return the exchange that a part of a path stands for."""
    name = named(segment)
    return "" if name == DEFAULT_EXCHANGE_IN_PATHS else name


def key_of(binding: Binding) -> str:
    """Return what names a binding among those between the same two ends."""
    if not binding.arguments:
        return quote(binding.key, safe="") or "~"
    digest = hashlib.sha256(msgspec.json.encode(binding.arguments, order="deterministic")).digest()
    return f"{quote(binding.key, safe='')}~{urlsafe_b64encode(digest)[:8].decode()}"


async def read_json(request: Asked) -> dict[str, Any]:
    """Read the body of a request, which is an object whatever its type says.

    Raises:
        Problem: it is no JSON, or no object.
    """
    body = await request.body()
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad("not_json") from None
    if not isinstance(found, dict):
        raise bad("not_json")
    if problem := shape_problem(found):
        raise bad(problem)
    return found


def require(body: dict[str, Any], *keys: str) -> None:
    """Check that a body has all of these.

    Raises:
        Problem: some are missing.
    """
    missing = [key for key in keys if key not in body]
    if missing:
        raise bad("[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")


def flag(body: dict[str, Any], key: str, default: bool) -> bool:
    """Return a yes or no of a body, which RabbitMQ also takes as text.

    Raises:
        Problem: it is neither.
    """
    value = body.get(key, default)
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise Problem(400, "bad_request", f"not_boolean: {value}")
    return value


def table(body: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object of a body; none is an empty one.

    Raises:
        Problem: it is something else.
    """
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise bad(f"{key}: must be an object, got {type(value).__name__}")
    return value


def text(body: dict[str, Any], key: str, default: str = "") -> str:
    """Return a text of a body.

    Raises:
        Problem: it is something else.
    """
    value = body.get(key, default)
    if not isinstance(value, str):
        raise bad(f"{key}: must be a string, got {type(value).__name__}")
    return value


def number(body: dict[str, Any], key: str, default: int = 0) -> int:
    """Return a whole number of a body, which may be written as text.

    Raises:
        Problem: it is something else.
    """
    value = body.get(key, default)
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad(f"not_integer: {key}")
    return value
