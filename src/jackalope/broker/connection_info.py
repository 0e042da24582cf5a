"""Connection details: what a door reports about its open connections.

Owns the shapes alone, so that one door can show what another knows. Nothing here is kept.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class LinkConsumer(msgspec.Struct, frozen=True):
    """A consumer on a channel."""

    tag: str
    queue: str
    is_acknowledging: bool = True
    is_exclusive: bool = False
    is_active: bool = True
    prefetch: int = 0
    arguments: dict[str, Any] = {}


class LinkChannel(msgspec.Struct, frozen=True):
    """A channel of a connection."""

    number: int
    prefetch: int = 0  # how many deliveries each new consumer may hold; 0 for any number
    prefetch_of_all: int = 0  # how many all of its consumers may hold together; 0 for any number
    unanswered: int = 0  # deliveries that the peer has not answered
    is_confirming: bool = False  # whether publishes are confirmed
    is_transactional: bool = False  # whether publishes wait for a commit
    consumers: tuple[LinkConsumer, ...] = ()


class Link(msgspec.Struct, frozen=True):
    """A connection."""

    name: str  # what distinguishes it from every other: both of its ends
    namespace: str
    user: str
    peer: tuple[str, int]
    here: tuple[str, int]
    protocol: str
    is_encrypted: bool
    properties: dict[str, Any]  # what the peer reports about itself
    since_us: int  # when it was opened
    heartbeat_s: int
    frame_bytes_max: int
    channel_max: int
    channels: tuple[LinkChannel, ...] = ()


class Links(Protocol):
    """The connections of a door."""

    def all(self) -> list[Link]:
        """Return every open connection."""

    def close(self, name: str, why: str) -> bool:
        """Close a connection, and return whether there was one of this name."""
