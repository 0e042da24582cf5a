"""API keys: what a key is, and what it permits.

Owns the shapes. A key is named by its id. A client proves that it has the token by sending it; here
and in everything that is stored is only the token's hash, from which the token cannot be recovered.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jackalope.core.limits import NAME_CHARS_MAX, QUEUES_PER_API_KEY_MAX, TIME_US_MAX

_ID_CHARS_MAX = 32
_HASH_CHARS = 64
_HEX = frozenset("0123456789abcdef")


class Permission(StrEnum):
    """The operations that a key permits."""

    SUBMIT_TASKS = "submit_tasks"
    READ_TASKS = "read_tasks"
    CANCEL_TASKS = "cancel_tasks"
    WORK = "work"
    ADMIN = "admin"


class Role(StrEnum):
    """What the bearer of a key is to a namespace, or to the broker: a set of permissions."""

    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    OPERATE = "operate"
    ADMIN = "admin"


#: What each role permits. A key stores the permissions, so that a role can change for later keys.
ROLES: dict[Role, tuple[Permission, ...]] = {
    Role.READ: (Permission.READ_TASKS,),
    Role.SUBMIT: (Permission.SUBMIT_TASKS, Permission.READ_TASKS),
    # Tasks submit others, and wait for them.
    Role.WORK: (Permission.SUBMIT_TASKS, Permission.READ_TASKS, Permission.WORK),
    Role.OPERATE: (Permission.SUBMIT_TASKS, Permission.READ_TASKS, Permission.CANCEL_TASKS),
    Role.ADMIN: (Permission.ADMIN,),
}


class ApiKey(msgspec.Struct, frozen=True):
    """An API key, without its token."""

    id: str  # names the key; part of its token, and no secret
    hash: str  # SHA-256 of the token, in hex
    name: str  # who has it, for people and for histories
    permissions: tuple[Permission, ...]  # what it permits; `admin` includes all others
    queues: tuple[str, ...] = ()  # the queues that it is limited to; none means all
    namespace: str = ""  # the namespace that it is limited to; empty means all
    expires_us: int = 0  # from when on it permits nothing; 0 for never
    created_us: int = 0  # when it was made
    by: str = ""  # who made it


def role_of(key: ApiKey) -> str:
    """Return the role that has just the permissions of a key; empty if none does."""
    held = frozenset(key.permissions)
    return next((str(role) for role, each in ROLES.items() if held == frozenset(each)), "")


def is_unlimited_admin(key: ApiKey) -> bool:
    return Permission.ADMIN in key.permissions and not key.queues


def is_lasting_admin(key: ApiKey) -> bool:
    """Return whether a key can always create and revoke keys."""
    return is_unlimited_admin(key) and not key.namespace and not key.expires_us


def api_key_problems(key: ApiKey) -> list[str]:
    """List everything that is invalid in a key by itself."""
    problems = []
    if not 0 < len(key.id) <= _ID_CHARS_MAX or not _HEX.issuperset(key.id):
        problems.append(f"id: must be 1 to {_ID_CHARS_MAX} digits of hex, got {key.id!r}")
    if len(key.hash) != _HASH_CHARS or not _HEX.issuperset(key.hash):
        problems.append(f"hash: must be {_HASH_CHARS} digits of hex, a SHA-256")
    if not 0 < len(key.name) <= NAME_CHARS_MAX:
        problems.append(f"name: must have 1 to {NAME_CHARS_MAX} characters, got {len(key.name)}")
    if not key.permissions:
        problems.append("permissions: must name at least one")
    if len(key.queues) > QUEUES_PER_API_KEY_MAX:
        problems.append(f"queues: at most {QUEUES_PER_API_KEY_MAX}, got {len(key.queues)}")
    if not all(0 < len(queue) <= NAME_CHARS_MAX for queue in key.queues):
        problems.append(f"queues: each must have 1 to {NAME_CHARS_MAX} characters")
    if len(key.namespace) > NAME_CHARS_MAX:
        problems.append(f"namespace: must have at most {NAME_CHARS_MAX} characters")
    if not 0 <= key.expires_us <= TIME_US_MAX:
        problems.append(f"expires_us: must be 0 to {TIME_US_MAX}, got {key.expires_us}")
    return problems
