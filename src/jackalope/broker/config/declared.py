"""What the configuration declares at the start: queues, limits and pools of namespaces."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy


class QueueConfig(msgspec.Struct, frozen=True):
    """The policy of a queue: a preset, and what differs from it."""

    preset: str = ""
    changes: dict[str, Any] = {}

    def policy(self) -> Policy:
        return msgspec.structs.replace(PRESETS.get(self.preset, DEFAULT_POLICY), **self.changes)


class PoolConfig(msgspec.Struct, frozen=True):
    """The settings of a pool: what differs from the defaults."""

    changes: dict[str, Any] = {}


class KeyLimitConfig(msgspec.Struct, frozen=True):
    """A limit by key: what differs from the defaults."""

    changes: dict[str, Any] = {}


class NamespaceConfig(msgspec.Struct, frozen=True):
    """The queues, limits and pools of a namespace to declare at the start."""

    queues: dict[str, QueueConfig] = {}
    limits: dict[str, Annotated[int, Meta(ge=0)]] = {}  # of tags
    key_limits: dict[str, KeyLimitConfig] = {}
    pools: dict[str, PoolConfig] = {}
