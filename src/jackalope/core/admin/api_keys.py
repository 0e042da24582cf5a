"""Commands about API keys: making and revoking them.

Owns which keys are accepted. Nothing here compares a token: the doors do that, with the keys that
the book holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from jackalope.core.api_key import ApiKey
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.commands.base import is_unlimited_admin
from jackalope.core.effects import Accepted
from jackalope.core.limits import API_KEYS_MAX, NAME_CHARS_MAX, QUEUES_PER_API_KEY_MAX, TIME_US_MAX
from jackalope.core.records import ApiKeyCreated, ApiKeyRevoked
from jackalope.core.refusals import Code, Refusal

if TYPE_CHECKING:
    from jackalope.core.core import Core

_ID_CHARS_MAX = 32
_HASH_CHARS = 64
_HEX = frozenset("0123456789abcdef")


def create_api_key(core: Core, command: CreateApiKey) -> None:
    """Make a key. The same one once more is accepted, so that the command can be repeated."""
    key = msgspec.structs.replace(command.key, created_us=core.now_us, by=command.by)
    known = core.book.api_keys.get(key.id)
    if known is not None:
        is_same = msgspec.structs.replace(key, created_us=known.created_us, by=known.by) == known
        message = f"there is another API key with the id {key.id!r}; make one with a new id"
        core.reply(command, Accepted() if is_same else Refusal(Code.ID_CONFLICT, message))
        return
    problems = api_key_problems(key)
    if 0 < key.expires_us <= core.now_us:
        problems.append("expires_us: is over already")
    if problems:
        core.reply(command, Refusal(Code.INVALID, "API key: " + "; ".join(problems)))
    elif len(core.book.api_keys) >= API_KEYS_MAX:
        message = f"there are {API_KEYS_MAX} API keys; revoke one first"
        core.reply(command, Refusal(Code.TOO_MANY, message))
    elif not (is_lasting_admin(key) or _has_admin(core, core.book.api_keys.values())):
        message = (
            "the first API key must permit admin, in all queues and namespaces and for good, or "
            "nobody could make another; make one with --permission admin"
        )
        core.reply(command, Refusal(Code.INVALID, message))
    else:
        core.record(ApiKeyCreated(core.now_us, key))
        core.reply(command, Accepted())


def revoke_api_key(core: Core, command: RevokeApiKey) -> None:
    """Let a key permit nothing any more."""
    if command.key not in core.book.api_keys:
        message = f"no API key has the id {command.key!r}; list them to see their ids"
        core.reply(command, Refusal(Code.UNKNOWN_API_KEY, message))
        return
    left = [key for key in core.book.api_keys.values() if key.id != command.key]
    was_admin = is_lasting_admin(core.book.api_keys[command.key])
    if was_admin and left and not _has_admin(core, left):
        message = (
            f"API key {command.key} is the last that permits admin in everything and for good; "
            "revoke the others first, or make another such key"
        )
        core.reply(command, Refusal(Code.WRONG_STATE, message))
        return
    core.record(ApiKeyRevoked(core.now_us, command.key, command.by))
    core.reply(command, Accepted())


def _has_admin(core: Core, keys: Iterable[ApiKey]) -> bool:
    return core.has_admin or any(map(is_lasting_admin, keys))


def is_lasting_admin(key: ApiKey) -> bool:
    """Return whether a key can always make and revoke others."""
    return is_unlimited_admin(key) and not key.namespace and not key.expires_us


def api_key_problems(key: ApiKey) -> list[str]:
    """Return everything that is wrong with a key in itself."""
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
