"""Addresses: where a broker is, and in which namespace to act there.

An address is written `jackalope://[token@]host[:port][/namespace]`, or `jackalopes://…` where the
connection is to be encrypted. Owns parsing and printing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.errors import ConfigError

SCHEME = "jackalope"
TLS_SCHEME = "jackalopes"
DEFAULT_PORT = 7420

_FORM = f"{SCHEME}://[token@]host[:port][/namespace], or {TLS_SCHEME}://… for TLS"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is. Printed without its token."""

    host: str  # its name or number
    port: int = DEFAULT_PORT  # of its native door
    # what proves who we are, if the broker asks for that
    token: str = field(default="", repr=False)
    namespace: str = DEFAULT_NAMESPACE  # where to act
    tls: bool = False  # whether the connection is encrypted
    # the authorities that may vouch for the broker; empty for those of the system
    ca_file: str = ""
    # whether the broker must prove its identity. Without that, encryption does not protect against
    # a man in the middle.
    verify: bool = True

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        text = f"{TLS_SCHEME if self.tls else SCHEME}://{host}:{self.port}"
        if self.namespace != DEFAULT_NAMESPACE:
            text += "/" + quote(self.namespace, safe="")
        return text

    def __repr__(self) -> str:
        return f"<Address {self}>"


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        ConfigError: it is none; the message has what is wrong with it.
    """
    if "://" not in text:
        raise _bad(text, f"it does not begin with {SCHEME}://")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad(text, str(error)) from None
    if parts.scheme not in (SCHEME, TLS_SCHEME):
        raise _bad(text, f"it begins with {parts.scheme}://, not {SCHEME}:// or {TLS_SCHEME}://")
    if not parts.hostname:
        raise _bad(text, "it names no host")
    if port == 0:
        raise _bad(text, "port 0 cannot be connected to")
    if parts.password is not None:
        raise _bad(text, "a token has no colon in it; write it as %3A")
    if parts.query or parts.fragment:
        raise _bad(text, "nothing may follow the namespace")
    return Address(
        host=parts.hostname,
        port=DEFAULT_PORT if port is None else port,
        token=unquote(parts.username or ""),
        namespace=_namespace(text, parts.path),
        tls=parts.scheme == TLS_SCHEME,
    )


def _namespace(text: str, path: str) -> str:
    namespace = path.removeprefix("/").removesuffix("/")
    if "/" in namespace:
        raise _bad(text, "a namespace has no slash in it; write it as %2F")
    if len(namespace) > NAME_CHARS_MAX:
        raise _bad(text, f"the namespace is longer than {NAME_CHARS_MAX} characters")
    return unquote(namespace) or DEFAULT_NAMESPACE


def _bad(text: str, why: str) -> ConfigError:
    # A token must not end up in a log because the rest of the address was wrong.
    shown = text.rpartition("@")[2]
    return ConfigError(f"{shown!r} is no address of a broker: {why}; the form is {_FORM}")
