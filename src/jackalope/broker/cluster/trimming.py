"""Trimming: how much of the shared log no node needs any more.

Pure. The leader cuts the log through what every member has for good: in its history and in its
mirror, both safe from a power failure. A member that is gone is waited for as long as the log stays
small; when it comes back later, it is restored from the state of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jackalope.core.durations import DAY


class Keep(NamedTuple):
    """How much of the log is kept for members that are behind or gone."""

    bytes_max: int = 1024**3
    gone_us: int = DAY  # after how long a member that does not answer is not waited for


class Need(NamedTuple):
    """What a member has, as far as the leader knows."""

    through: int  # the last batch that it has for good; 0 if that is not known
    silent_us: int = 0  # for how long it has not answered; 0 if it does
    is_restoring: bool = False  # the copy that it takes over needs what follows it in the log


def cut_through(own: int, others: Iterable[Need], size: int, keep: Keep) -> int:
    """Return the batch through which the log may be cut.

    Args:
        own: what the leader has for good: never more than that is cut.
        others: every other member.
        size: of the log, in bytes.
        keep: how much to keep.
    """
    if size > 2 * keep.bytes_max:
        return own
    waited_for = [
        each
        for each in others
        if not each.silent_us or (size <= keep.bytes_max and each.silent_us <= keep.gone_us)
    ]
    if any(each.is_restoring and not each.silent_us for each in waited_for):
        return 0
    return min([own, *(each.through for each in waited_for)])
