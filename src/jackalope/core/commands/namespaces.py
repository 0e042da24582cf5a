"""Commands about namespaces.

Owns their shapes. Who administers a namespace changes what concerns no other one; its quotas and
its share, and whether it exists at all, are the matter of who administers the broker.
"""

from __future__ import annotations

import msgspec

from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.audit import Act
from jackalope.core.commands.base import Command, Scope, Signed


class OfNamespace(Signed):
    """A command about a namespace as a whole, whichever the session is in."""

    needs = (Permission.ADMIN,)

    name: str
    within: str = ""  # the namespace that the sender is limited to; empty for none

    @property
    def namespace(self) -> str:
        """Return the namespace that an API key must cover."""
        return self.name

    def narrow(self, key: ApiKey) -> None:
        self.within = key.namespace


class DeclareNamespace(OfNamespace):
    """Create a namespace, or change its settings. Fields that are not given stay.

    If `within` is set, only what a tenant may decide about is changed.
    """

    scope = Scope.NAMESPACE

    changes: dict[str, object] = msgspec.field(default_factory=dict)


class DeleteNamespace(OfNamespace):
    """Delete a namespace with all that is in it: queues, schedules, limits, API keys, history.

    It must have neither unfinished tasks nor workers, unless `force` is set: then the tasks are
    killed, and the workers are told to finish.
    """

    scope = Scope.BROKER

    force: bool = False


class NoteAct(Command):
    """Note an administrative act, and do it if it is a command. Only the broker itself sends it."""

    act: Act
    command: Command | None = None


AnyNamespace = DeclareNamespace | DeleteNamespace | NoteAct
