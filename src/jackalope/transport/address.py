"""Addresses: where a broker is, and in which namespace to act there.

An address is written `jackalope://[token@]host[:port][,host[:port]...][/namespace]`, or
`jackalopes://…` where the connection is to be encrypted. Several hosts are members of one cluster:
token, namespace and encryption are the same for all. Owns parsing and printing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote, urlsplit

from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.errors import ConfigError

SCHEME = "jackalope"
TLS_SCHEME = "jackalopes"
DEFAULT_PORT = 7420

_FORM = (
    f"{SCHEME}://[token@]host[:port][/namespace], several hosts with commas between, "
    f"or {TLS_SCHEME}://… for TLS"
)
_END_OF_HOSTS = re.compile("[/?#]|$")


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
    others: tuple[tuple[str, int], ...] = ()  # host and port of further members of its cluster

    def __str__(self) -> str:
        text = f"{TLS_SCHEME if self.tls else SCHEME}://{self.hosts}"
        if self.namespace != DEFAULT_NAMESPACE:
            text += "/" + quote(self.namespace, safe="")
        return text

    def __repr__(self) -> str:
        return f"<Address {self}>"

    @property
    def hosts(self) -> str:
        """The `host:port` of each member, with commas between."""
        places = ((self.host, self.port), *self.others)
        return ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in places)

    @property
    def members(self) -> tuple[Address, ...]:
        """The addresses of the single members, in the order in which they are tried."""
        return tuple(
            replace(self, host=host, port=port, others=())
            for host, port in ((self.host, self.port), *self.others)
        )

    def at(self, place: str) -> Address:
        """Return the same address at another `host:port`."""
        host, port = _host_and_port(place, place)
        return replace(self, host=host, port=port, others=())


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        ConfigError: it is none; the message has what is wrong with it.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _bad(text, f"it must begin with {SCHEME}://")
    if scheme not in (SCHEME, TLS_SCHEME):
        raise _bad(text, f"it begins with {scheme}://, not {SCHEME}:// or {TLS_SCHEME}://")
    if "://" in rest:
        raise _bad(text, f"{scheme}:// stands once, before the first host")
    end = _END_OF_HOSTS.search(rest)
    hosts, path = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    token, _, hosts = hosts.rpartition("@")
    if "," in token:
        raise _bad(text, "one token stands before all hosts; a comma in it is written as %2C")
    if ":" in token:
        raise _bad(text, "a colon in the token must be written as %3A")
    if "?" in path or "#" in path:
        raise _bad(text, "nothing may follow the namespace")
    members = [member.strip() for member in hosts.split(",")]
    if len(members) > 1 and not all(members):
        raise _bad(text, "a host is missing before or after a comma")
    first, *others = dict.fromkeys(_host_and_port(text, member) for member in members)
    return Address(
        host=first[0],
        port=first[1],
        token=unquote(token),
        namespace=_namespace(text, path),
        tls=scheme == TLS_SCHEME,
        others=tuple(others),
    )


def _host_and_port(text: str, member: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{member}")
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise _bad(text, str(error)) from None
    if not parts.hostname:
        raise _bad(text, "the host is missing")
    if port == 0:
        raise _bad(text, "port 0 cannot be connected to")
    return parts.hostname, port


def _namespace(text: str, path: str) -> str:
    namespace = path.removeprefix("/").removesuffix("/")
    if "/" in namespace:
        raise _bad(text, "a slash in the namespace must be written as %2F")
    if len(namespace) > NAME_CHARS_MAX:
        raise _bad(text, f"the namespace is longer than {NAME_CHARS_MAX} characters")
    return unquote(namespace) or DEFAULT_NAMESPACE


def _bad(text: str, why: str) -> ConfigError:
    # A token must not end up in a log because the rest of the address was wrong.
    shown = text.rpartition("@")[2]
    return ConfigError(f"{shown!r} is not a broker address: {why}; the form is {_FORM}")
