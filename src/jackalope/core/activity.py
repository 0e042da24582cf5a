"""Activity: what the workers of a pool report over AMQP, in osrdyne's manner.

Owns what a report means. It names the key of the worker, the event in the header `x-event`, and who
it is in `x-worker-id`; one that does not say is taken for the first launch of the key of which no
worker is known. What comes over the same connection later is the same worker's.

`started` is a worker that has come up and still loads, `ready` one that has loaded, and every
report of a group that is up, `request-received` above all, keeps it up. A report starts nothing:
only requests do. What is not understood changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core import properties
from jackalope.core.pools import stir, unclaimed
from jackalope.core.properties import BadProperties

if TYPE_CHECKING:
    from jackalope.core.broker import Core
    from jackalope.core.messaging import Publication
    from jackalope.core.queue import Namespace

STARTED, READY = "started", "ready"


def hear(core: Core, world: Namespace, message: Publication, session: int) -> None:
    """Take a report that was published over a session."""
    pool = core.pools.by_name.get((world.name, world.topology.activities[message.exchange]))
    if pool is None:
        return
    try:
        headers = properties.headers_of(properties.split(message.properties))
        event, worker = (_text(headers.get(name)) for name in ("x-event", "x-worker-id"))
    except BadProperties:
        return
    group = pool.groups.get(message.key)
    launch = core.pools.launches.get((world.name, worker))
    if launch is None and group is not None and not worker:
        launch = unclaimed(group, session, core.pools)
    if launch is not None and launch.group.pool is pool and event in (STARTED, READY):
        launch.has_joined = True
        launch.is_loaded = event == READY
        if session:
            core.pools.speakers[session] = (launch, bool(worker))
    if group is not None:
        stir(core, group)


def _text(field: bytes | None) -> str:
    value = b"" if field is None else properties.value(field)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
