"""Tallies: what each worker has done, by its name.

Owns the two counts and how many are remembered. Durable: the records that end attempts name the
worker, so that the counts outlive its sessions and the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jackalope.core.limits import TALLIES_PER_NAMESPACE_MAX

if TYPE_CHECKING:
    from jackalope.core.state.queue import Namespace


class Tally(msgspec.Struct, gc=False):
    """How many attempts of a worker succeeded and failed, and when the last of them ended."""

    succeeded: int = 0
    failed: int = 0
    at_us: int = 0


NO_TALLY = Tally()


def make_room(namespace: Namespace) -> str:
    """Forget the worker that ended nothing for longest, if there is no room for one more.

    Returns:
        Its name, or nothing.
    """
    tallies = namespace.tallies
    if len(tallies) < TALLIES_PER_NAMESPACE_MAX:
        return ""
    oldest = min(tallies, key=lambda worker: (tallies[worker].at_us, worker))
    del tallies[oldest]
    return oldest
