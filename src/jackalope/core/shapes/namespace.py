"""Namespaces as objects: their settings, their quotas, and what is stored of one.

Owns the fields with their bounds, and the arithmetic of the rate of submits. Knows neither tasks
nor commands.

The rate of submits is a token bucket in whole numbers. A token has a million parts, so that a rate
of one a second adds one part in a microsecond, and nothing is ever rounded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from jackalope.core.durations import SECOND
from jackalope.core.limits import BYTES_MAX, DESCRIPTION_CHARS_MAX, WEIGHT_MAX
from jackalope.core.settings import Bounds, Count


class Quota(StrEnum):
    """What a namespace may have, or do, so much of."""

    TASKS_QUEUED = "tasks_queued"
    BYTES_STORED = "bytes_stored"
    SUBMITS_PER_SECOND = "submits_per_second"
    WORKERS = "workers"
    API_KEYS = "api_keys"
    CONCURRENT_ATTEMPTS = "concurrent_attempts"


class NamespaceSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The settings of a namespace. A quota of 0 is none."""

    description: Annotated[str, Bounds(0, DESCRIPTION_CHARS_MAX)] = ""  # for people
    # its share of workers that serve several namespaces, in proportion to the others
    weight: Annotated[int, Bounds(1, WEIGHT_MAX)] = 1
    tasks_queued: Count = 0  # tasks that wait: ready, scheduled, held, paused, for others
    bytes_stored: Annotated[int, Bounds(0, BYTES_MAX)] = 0  # payloads of unfinished tasks
    submits_per_second: Count = 0  # tasks accepted a second, in the long run
    submits_burst: Count = 0  # tasks accepted at once; 0 for as many as in a second
    workers: Count = 0  # workers that are connected, or may come back
    api_keys: Count = 0  # API keys of the namespace
    concurrent_attempts: Count = 0  # tasks that are with workers; more wait, and are not refused

    def quotas(self) -> dict[Quota, int]:
        """Return the quotas that are set."""
        limits = {quota: getattr(self, quota) for quota in Quota}
        return {quota: limit for quota, limit in limits.items() if limit}

    def burst(self) -> int:
        return self.submits_burst or self.submits_per_second


DEFAULT_SETTINGS = NamespaceSettings()

#: What only those may change who administer the broker: a tenant does not set its own bounds.
OF_THE_BROKER = frozenset(NamespaceSettings.__struct_fields__) - {"description"}


class Bucket(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How empty a token bucket was at a time: a million parts are one token."""

    at_us: int = 0
    lacking: int = 0

    def lacks(self, per_second: int, now_us: int) -> int:
        """Return what is lacking now. A clock that was set back finds the bucket full."""
        return max(0, self.lacking - (now_us - self.at_us) * per_second) * (now_us >= self.at_us)

    def tokens(self, settings: NamespaceSettings, now_us: int) -> int:
        """Return how many submits are allowed now."""
        lacking = self.lacks(settings.submits_per_second, now_us)
        return max(0, settings.burst() - -(-lacking // SECOND))

    def without(self, count: int, settings: NamespaceSettings, now_us: int) -> Bucket:
        """Return the bucket after so many tokens were taken; it is never emptier than empty."""
        lacking = self.lacks(settings.submits_per_second, now_us) + count * SECOND
        return Bucket(now_us, min(lacking, settings.burst() * SECOND))

    def wait_us(self, settings: NamespaceSettings, now_us: int, count: int = 1) -> int:
        """Return after what time so many submits are allowed; 0 if they never are."""
        per_second, burst = settings.submits_per_second, settings.burst()
        parts = self.lacks(per_second, now_us) - (burst - count) * SECOND
        return max(0, -(-parts // per_second)) if count <= burst else 0


FULL = Bucket()


class NamespaceRow(msgspec.Struct, array_like=True):
    """What is durable of a namespace that was created, beside what is in it."""

    settings: NamespaceSettings
    created_us: int = 0
    by: str = ""
    bucket: Bucket = FULL  # of the rate of submits
