"""The environment of workers: what one is told when it is started.

Owns the variables and their values. The first five are those of osrdyne, so that a worker that was
written for it finds what it looks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackalope.core.effects import StartOrder
from jackalope.pools.ports import Scope


@dataclass(frozen=True)
class Reach:
    """How workers reach the broker.

    Attributes:
        address: of the native door.
        amqp: of the AMQP door; empty if there is none.
    """

    address: str
    amqp: str = ""


def environment_of(order: StartOrder, reach: Reach, scope: Scope) -> dict[str, str]:
    """Return the variables of a worker."""
    variables = {
        "WORKER_ID": order.launch,
        "WORKER_KEY": order.key,
        "WORKER_POOL": order.queue,
        "WORKER_REQUESTS_QUEUE": f"{order.queue}-req-{order.key}",
        "WORKER_ACTIVITY_EXCHANGE": f"{order.queue}-activity-xchg",
        "WORKER_VERSION": order.version,
        "JACKALOPE_BROKER": reach.address,
        "JACKALOPE_NAMESPACE": order.namespace,
    }
    if reach.amqp:
        variables["WORKER_AMQP_URI"] = reach.amqp
    if scope is Scope.GROUP:
        # Several workers come of one start: each goes by the name of its own host.
        variables["WORKER_ID_USE_HOSTNAME"] = "true"
    return variables
