"""The environment of workers: what one is told when it is started.

Owns the variables and their values. The first five are those of osrdyne, so that a worker that was
written for it finds what it looks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from jackalope.core.command import DEFAULT_NAMESPACE
from jackalope.core.effects import StartOrder
from jackalope.core.pool_names import activity_exchange, requests_queue
from jackalope.pools.ports import Scope

#: The password where none is needed.
_ANY = "guest"


@dataclass(frozen=True)
class Reach:
    """How workers reach the broker.

    Attributes:
        address: of the native door.
        amqp: of the AMQP door, such as `amqp://127.0.0.1:5672`; empty if there is none.
        message_bytes_max: the largest message of that door.
    """

    address: str
    amqp: str = ""
    message_bytes_max: int = 0

    def amqp_uri(self, worker: str, namespace: str) -> str:
        """Return where a worker connects over AMQP: its user says which worker it is."""
        parts = urlsplit(self.amqp)
        _, _, place = parts.netloc.rpartition("@")
        user = f"{quote(worker, safe='')}:{parts.password or _ANY}"
        vhost = "/" if namespace == DEFAULT_NAMESPACE else namespace
        return f"{parts.scheme}://{user}@{place}/{quote(vhost, safe='')}"


def environment_of(order: StartOrder, reach: Reach, scope: Scope) -> dict[str, str]:
    """Return the variables of a worker."""
    variables = {
        "WORKER_ID": order.launch,
        "WORKER_KEY": order.key,
        "WORKER_POOL": order.queue,
        "WORKER_REQUESTS_QUEUE": requests_queue(order.queue, order.key),
        "WORKER_ACTIVITY_EXCHANGE": activity_exchange(order.queue),
        "WORKER_VERSION": order.version,
        "JACKALOPE_BROKER": reach.address,
        "JACKALOPE_NAMESPACE": order.namespace,
    }
    if reach.amqp:
        variables["WORKER_AMQP_URI"] = reach.amqp_uri(order.launch, order.namespace)
        variables["WORKER_MAX_MSG_SIZE"] = str(reach.message_bytes_max)
    if scope is Scope.GROUP:
        # Several workers come of one start: each goes by the name of its own host.
        variables["WORKER_ID_USE_HOSTNAME"] = "true"
    return variables
