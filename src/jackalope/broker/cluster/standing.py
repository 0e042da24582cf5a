"""A node's standing: what it tells of itself, for health and metrics.

Plain values, read from the node at one moment. Knows no other node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jackalope.broker.cluster.leadership import Role
from jackalope.wire.peer import StandbyHealth


class Standing(NamedTuple):
    """What a node is, and how far."""

    role: str  # as `leadership` has it
    epoch: int
    leader: str  # empty if none is known
    members: int
    lag_batches: int = 0  # entries of the log that it has not applied
    lag_s: float = 0.0  # for how long
    has_quorum: bool = True  # the log was heard of recently
    is_ready: bool = True  # it leads, or has caught up with a leader
    takeovers: int = 0  # how often it became the leader
    chain_errors: int = 0  # how often the log did not continue what it had applied
    why: str = ""  # it never acknowledges anything again; empty if it may
    standby: StandbyHealth | None = None  # if it is one
    wrong_copies: Mapping[str, int] = {}  # how often each copy of the log was found damaged
    divergences: int = 0  # how often its state was found to differ from the leader's


class Status(NamedTuple):
    """What a node tells of itself."""

    role: Role
    epoch: int
    leader: str
    applied: int  # the last batch
    why: str
    wrong: dict[str, int]  # the copies of the log that were found damaged, and how often
    diverged: int = 0  # how often its state was found to differ from the leader's
