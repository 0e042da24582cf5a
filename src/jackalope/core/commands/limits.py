"""Commands about limits by key. Owns their shapes."""

from __future__ import annotations

import msgspec

from jackalope.core.api_key import Permission
from jackalope.core.commands.base import Namespaced, Scope


class DeclareLimits(Namespaced):
    """Create limits or change their settings: all of them, or none. What is not given stays."""

    counted = "limits"
    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    limits: dict[str, dict[str, object]] = msgspec.field(default_factory=dict)


class DeleteLimit(Namespaced):
    """Delete a limit. What waits for it alone can start."""

    needs = (Permission.ADMIN,)
    scope = Scope.NAMESPACE

    name: str
