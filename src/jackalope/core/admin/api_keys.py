"""Commands about API keys: making and revoking them.

Owns which keys are accepted. Nothing here compares a token: the doors do that, with the keys that
the book holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jackalope.core.api_key import ApiKey, api_key_problems, is_lasting_admin
from jackalope.core.commands import CreateApiKey, RevokeApiKey
from jackalope.core.context import Context
from jackalope.core.effects import Accepted
from jackalope.core.limits import API_KEYS_MAX
from jackalope.core.namespaces import exceeded
from jackalope.core.records import ApiKeyCreated, ApiKeyRevoked
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.namespace import Quota


def create_api_key(ctx: Context, command: CreateApiKey) -> Accepted | Refusal:
    """Create a key. Creating the same key again succeeds, so that the command can be repeated."""
    key = msgspec.structs.replace(command.key, created_us=ctx.now_us, by=command.by)
    known = ctx.book.api_keys.get(key.id)
    if known is not None:
        is_same = msgspec.structs.replace(key, created_us=known.created_us, by=known.by) == known
        message = f"an API key with the id {key.id!r} exists; use another id"
        return Accepted() if is_same else Refusal(Code.ID_CONFLICT, message)
    problems = api_key_problems(key)
    if 0 < key.expires_us <= ctx.now_us:
        problems.append("expires_us: must be in the future")
    if problems:
        return Refusal(Code.INVALID, "API key: " + "; ".join(problems))
    if len(ctx.book.api_keys) >= API_KEYS_MAX:
        message = f"there are {API_KEYS_MAX} API keys; revoke one first"
        return Refusal(Code.TOO_MANY, message)
    namespace = ctx.book.namespaces.get(key.namespace) if key.namespace else None
    if namespace is not None and namespace.settings.api_keys:
        there = sum(1 for each in ctx.book.api_keys.values() if each.namespace == key.namespace)
        if there >= namespace.settings.api_keys:
            return exceeded(namespace, Quota.API_KEYS, there)
    if not (is_lasting_admin(key) or _has_admin(ctx, ctx.book.api_keys.values())):
        message = (
            "the first API key must permit admin, in all queues and namespaces and without "
            "expiry, or no further key could be created; create one with --permission admin"
        )
        return Refusal(Code.INVALID, message)
    ctx.record(ApiKeyCreated(ctx.now_us, key))
    return Accepted()


def revoke_api_key(ctx: Context, command: RevokeApiKey) -> Accepted | Refusal:
    known = ctx.book.api_keys.get(command.key)
    if known is None or command.within not in ("", known.namespace):
        message = f"no API key with the id {command.key!r}; list the keys"
        return Refusal(Code.UNKNOWN_API_KEY, message)
    left = [key for key in ctx.book.api_keys.values() if key.id != command.key]
    was_admin = is_lasting_admin(ctx.book.api_keys[command.key])
    if was_admin and left and not _has_admin(ctx, left):
        message = (
            f"API key {command.key} is the last one that permits admin everywhere and does not "
            "expire; revoke the others first, or create another such key"
        )
        return Refusal(Code.WRONG_STATE, message)
    ctx.record(ApiKeyRevoked(ctx.now_us, command.key, command.by))
    return Accepted()


def _has_admin(ctx: Context, keys: Iterable[ApiKey]) -> bool:
    return ctx.has_admin or any(map(is_lasting_admin, keys))
