"""Limits: how many tasks with the same keys run at once, and how many start in a span of time.

Owns the shape of a limit, what is wrong with one by itself, and the arithmetic of its bucket. What
a limit does to tasks is the matter of `state.gates`.

A bucket holds tokens, up to `burst`, and gets `rate` of them in each period. It counts in whole
numbers only, so that every node finds the same: a token is as many units as the period has
microseconds, and each microsecond brings `rate` units.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from jackalope.core.durations import DAY, SECOND
from jackalope.core.limits import COUNT_MAX, KEYS_PER_LIMIT_MAX, NAME_CHARS_MAX, RATE_MAX
from jackalope.core.settings import Bounds
from jackalope.core.shapes.keys import key_name_problem

_Name = Annotated[str, Bounds(0, NAME_CHARS_MAX)]
_Tokens = Annotated[int, Bounds(0, RATE_MAX)]

#: The longest period, so that a bucket fits into 64 bits.
PERIOD_US_MAX = 31 * DAY

#: Who cancels a task because a limit is full, as records have it: this, and the limit's name.
BY_LIMIT = "limit "

#: What has no bound on how many run at once.
UNBOUNDED = -1


class OnFull(StrEnum):
    """What happens to tasks while as many run as may."""

    WAIT = "wait"  # they wait
    CANCEL_NEWEST = "cancel_newest"  # what comes is killed
    CANCEL_OLDEST = "cancel_oldest"  # what comes takes the place of the one that waits
    CANCEL_RUNNING = "cancel_running"  # what comes takes the place of the one that runs


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The settings of a limit. Every default is defined here and nowhere else."""

    queue: _Name = ""  # the queue whose tasks it is for; empty for all
    task: _Name = ""  # the name of the tasks; empty for any
    # the keys that tell tasks apart: those with equal values share the bounds. Empty for one bound
    # for all. Tasks that lack one of the keys are not limited.
    keys: tuple[str, ...] = ()
    # how many may run at once; -1 for any number
    concurrency: Annotated[int, Bounds(UNBOUNDED, COUNT_MAX)] = UNBOUNDED
    rate: _Tokens = 0  # how many tokens come in each period; 0 for no limit of the rate
    per_us: Annotated[int, Bounds(1, PERIOD_US_MAX)] = SECOND  # the period of the rate
    burst: _Tokens = 0  # how many tokens there are at most; 0 for the rate
    cost: Annotated[int, Bounds(1, RATE_MAX)] = 1  # how many tokens a task takes
    # the key whose value is how many tokens a task takes; empty for `cost`
    cost_key: _Name = ""
    on_full: OnFull = OnFull.WAIT  # what happens to tasks while as many run as may

    @property
    def tokens_max(self) -> int:
        """How many tokens a full bucket has."""
        return self.burst or self.rate

    def scope(self) -> tuple[object, ...]:
        """Return what decides which tasks are limited, and by what."""
        return (self.queue, self.task, self.keys, self.cost, self.cost_key)


class Limit(msgspec.Struct, frozen=True, gc=False):
    """A limit of a namespace."""

    name: str
    settings: LimitSettings


class Bucket(msgspec.Struct, array_like=True, gc=False):
    """What is durable of a gate: its tokens at a time, and until when a worker had it closed."""

    units: int  # one token is as many as the period has microseconds; less than 0 is owed
    at_us: int
    until_us: int = 0

    def refill(self, settings: LimitSettings, at_us: int) -> None:
        """Add what has come in since the last time."""
        if at_us > self.at_us:
            full = settings.tokens_max * settings.per_us
            self.units = min(full, self.units + settings.rate * (at_us - self.at_us))
            self.at_us = at_us

    def has_us(self, tokens: int, settings: LimitSettings) -> int:
        """Return when the bucket has so many tokens: at its own time, or later."""
        missing = min(tokens, settings.tokens_max) * settings.per_us - self.units
        return self.at_us + max(0, -(-missing // settings.rate))


def full_bucket(settings: LimitSettings, at_us: int) -> Bucket:
    return Bucket(settings.tokens_max * settings.per_us, at_us)


def limit_problems(name: str, settings: LimitSettings) -> list[str]:
    """List what is wrong with a limit."""
    problems = []
    if not 0 < len(name) <= NAME_CHARS_MAX or "\0" in name:
        problems.append(f"name: must have 1 to {NAME_CHARS_MAX} characters, none of them NUL")
    if len(settings.keys) > KEYS_PER_LIMIT_MAX:
        problems.append(f"keys: at most {KEYS_PER_LIMIT_MAX}, got {len(settings.keys)}")
    if len(set(settings.keys)) < len(settings.keys):
        problems.append("keys: one comes twice")
    problems += [
        f"{field}: {problem}"
        for field, name in [("keys", each) for each in settings.keys]
        + ([("cost_key", settings.cost_key)] if settings.cost_key else [])
        if (problem := key_name_problem(name))
    ]
    if not settings.rate:
        others = {"burst": 0, "cost": 1, "cost_key": ""}
        given = [each for each, default in others.items() if getattr(settings, each) != default]
        problems += [f"{each}: is for a limit with a rate" for each in given]
    elif settings.cost > settings.tokens_max:
        problems.append(
            f"cost: {settings.cost} is more than a full bucket has, {settings.tokens_max}: no task "
            "could ever run; raise burst"
        )
    if settings.on_full is not OnFull.WAIT and (settings.rate or settings.concurrency < 1):
        problems.append(
            f"on_full: {settings.on_full} is for a limit of concurrency, of at least 1, and "
            "without a rate"
        )
    if not (problems or settings.keys or settings.rate) and settings.concurrency == UNBOUNDED:
        # With keys it is of use: a worker can close the gate of a value.
        problems.append("give concurrency, rate, or both")
    return problems
