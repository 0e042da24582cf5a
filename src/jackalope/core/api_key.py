"""Access: what an API key is, and what it permits.

Owns the shapes. A key is named by its id. A client proves that it has the token by sending it; here
and in everything that is stored is only the token's hash, from which the token cannot be recovered.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Permission(StrEnum):
    """What the bearer of a key may do."""

    SUBMIT_TASKS = "submit_tasks"
    READ_TASKS = "read_tasks"
    CANCEL_TASKS = "cancel_tasks"
    WORK = "work"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True):
    """A key, without its token."""

    id: str  # names the key; part of its token, and no secret
    hash: str  # SHA-256 of the token, in hex
    name: str  # who has it, for people and for histories
    permissions: tuple[Permission, ...]  # what it permits; `admin` includes all others
    queues: tuple[str, ...] = ()  # the queues that it is limited to; none means all
    namespace: str = ""  # the namespace that it is limited to; empty means all
    expires_us: int = 0  # from when on it permits nothing; 0 for never
    created_us: int = 0  # when it was made
    by: str = ""  # who made it
