"""The names of pools over AMQP: osrdyne's, so that its clients and workers find what they know.

Owns the names and what they stand for. A pool is one queue with a lane for each key; over AMQP it
looks like an exchange for requests with a queue for each key behind it, an exchange for reports of
workers, and some that osrdyne itself would use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jackalope.core.routing import Kind

if TYPE_CHECKING:
    from jackalope.core.queue import Queue
    from jackalope.core.task import Letter

_BEFORE_KEY = "-req-"

QUEUE_NAME_BYTES_MAX = 255

#: Exchanges that lead to nothing but what others bind to them.
_ORPHANS = "-orphan-xchg"

#: Queues that are osrdyne's alone: whoever opens them takes himself for another manager.
_OWN_QUEUES = ("-orphan", "-dl", "-deadletter", "-activity", "-poison")


def requests_exchange(pool: str) -> str:
    """Name the exchange that takes requests; the routing key is the key."""
    return f"{pool}-req-xchg"


def activity_exchange(pool: str) -> str:
    """Name the exchange that takes reports of workers; the routing key is the key."""
    return f"{pool}-activity-xchg"


def requests_queue(pool: str, key: str) -> str:
    """Name the queue that the workers of a key consume."""
    return f"{pool}{_BEFORE_KEY}{key}"


def can_be_queue(pool: str, key: str) -> bool:
    """Return whether workers can consume the requests of a key: AMQP's names are short strings."""
    return len(requests_queue(pool, key).encode()) <= QUEUE_NAME_BYTES_MAX


def dead_letter_exchange(pool: str) -> str:
    """Name the exchange to which requests go that nobody could answer."""
    return f"{pool}-dl-xchg"


def second_dead_letter_exchange(pool: str) -> str:
    """Name the exchange to which they go on: osrdyne's design says `dl`, its code `deadletter`."""
    return f"{pool}-deadletter-xchg"


def exchanges_of(pool: str) -> dict[str, Kind]:
    """Return all exchanges of a pool."""
    return {
        requests_exchange(pool): Kind.DIRECT,
        activity_exchange(pool): Kind.FANOUT,
        f"{pool}{_ORPHANS}": Kind.FANOUT,
        second_dead_letter_exchange(pool): Kind.FANOUT,
        dead_letter_exchange(pool): Kind.FANOUT,
    }


def own_queues(pool: str) -> tuple[str, ...]:
    """Name the queues that nobody but the broker would have."""
    return tuple(f"{pool}{suffix}" for suffix in _OWN_QUEUES)


def lane_of(queues: Mapping[str, Queue], name: str) -> tuple[str, str] | None:
    """Return the pool and the key whose requests a queue of this name stands for, if it does.

    Names are not quoted, so that one may be read in several ways; the shortest pool wins.
    """
    at = name.find(_BEFORE_KEY)
    while at >= 0:
        queue = queues.get(name[:at])
        if queue is not None and queue.pool is not None:
            return name[:at], name[at + len(_BEFORE_KEY) :]
        at = name.find(_BEFORE_KEY, at + 1)
    return None


def is_request(queue: str, letter: Letter | None) -> bool:
    """Tell whether a task of a queue came as a request to its pool, which is always answered."""
    return letter is not None and letter.exchange == requests_exchange(queue)
