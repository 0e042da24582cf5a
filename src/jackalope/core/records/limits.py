"""Records about limits by key and their gates."""

from __future__ import annotations

from jackalope.core.records.base import Record
from jackalope.core.shapes.limit import LimitSettings


class LimitSet(Record, tag="keylimit"):
    """A limit exists and has these settings."""

    namespace: str
    name: str
    settings: LimitSettings
    by: str = ""


class LimitDeleted(Record, tag="unkeylimit"):
    """A limit was deleted."""

    namespace: str
    name: str
    by: str = ""


class GatesClosed(Record, tag="shut"):
    """A worker found that no task may start at these gates until then."""

    namespace: str
    gates: tuple[str, ...]  # see `state.gates.gate_text`
    until_us: int
    by: str = ""


class BucketsFilled(Record, tag="filled"):
    """The buckets of these gates are full, and no worker has them closed."""

    namespace: str
    gates: tuple[str, ...]
