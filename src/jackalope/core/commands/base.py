"""The command: what every request to the core has in common.

Owns how a command declares who may send it: the permission, and how far that permission reaches.
`broker.access` compares the declaration with an API key, once, before the core sees the command. A
command that declares nothing is for the broker alone.

A command that a peer of the native protocol can send is the body of its frame: an array with `ref`
at its beginning and what the peer must not say, `HIDDEN`, at its end, where `wire.messages` cuts it
off. The order of such a command's fields is protocol.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import ClassVar

import msgspec

from jackalope.core.api_key import ApiKey, Permission

DEFAULT_NAMESPACE = "default"

#: The fields of a command that a door sets, whatever a peer sends.
HIDDEN = frozenset({"session", "namespace", "by", "only", "token", "within"})


class Scope(Enum):
    """How far a command reaches, which determines the limits of an API key that apply."""

    BROKER = auto()  # the whole broker: only for keys without any limit
    NAMESPACE = auto()  # everything in a namespace: only for keys of all its queues
    QUEUES = auto()  # the queues that `touches` returns: a key must cover each of them
    NARROWED = auto()  # the core decides, within what `narrow` has set
    SESSION = auto()  # what the session itself holds; session and fence are the proof


class Command(msgspec.Struct, kw_only=True, gc=False):
    """A request to the core, and where its reply goes."""

    #: Any one of these permits it; `admin` always does. None: no API key does.
    needs: ClassVar[tuple[Permission, ...]] = ()
    scope: ClassVar[Scope] = Scope.BROKER
    #: The field whose items are limited in number, if there is one.
    counted: ClassVar[str] = ""

    session: int = 0
    ref: int = 0

    def touches(self) -> Iterable[str]:
        """Return the queues that the command reads or changes, if its scope is QUEUES."""
        queue = getattr(self, "queue", "")
        return (queue,) if queue else ()

    def narrow(self, key: ApiKey) -> None:
        """Restrict the command to what a key covers; the core enforces it."""


class Signed(Command, kw_only=True):
    """A command whose sender is stored in histories."""

    by: str = ""


class Namespaced(Signed, kw_only=True):
    """A command for one namespace."""

    namespace: str = DEFAULT_NAMESPACE


class Limited(Namespaced, kw_only=True):
    """A command that treats everything in other queues than `only`, if set, as nonexistent."""

    only: tuple[str, ...] = ()

    def narrow(self, key: ApiKey) -> None:
        self.only = key.queues


class Report(Command):
    """A report of a worker about what its session holds."""

    needs = (Permission.WORK,)
    scope = Scope.SESSION


def permits(key: ApiKey, *permissions: Permission) -> bool:
    held = key.permissions
    return Permission.ADMIN in held or any(permission in held for permission in permissions)
