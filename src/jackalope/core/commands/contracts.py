"""Commands about contracts: what the tasks of a queue take and return.

Owns their shapes. Who works on a queue says what its tasks take; an administrator can delete what
no worker says any more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.commands.base import Namespaced, Scope


class DeclareContracts(Namespaced):
    """Declare what tasks take, by their names, in the queues that a worker serves.

    A version that no connected worker declares any more is dropped once there is another.
    """

    counted = "contracts"
    needs = (Permission.WORK,)
    scope = Scope.QUEUES

    queues: tuple[str, ...] = ()
    contracts: dict[str, dict[str, object]] = msgspec.field(default_factory=dict)

    def touches(self) -> Iterable[str]:
        return self.queues


class DeleteContract(Namespaced):
    """Delete the contracts of a task in a queue. Workers that join later declare theirs again."""

    needs = (Permission.ADMIN,)
    scope = Scope.QUEUES

    queue: str
    name: str


AnyContract = DeclareContracts | DeleteContract
