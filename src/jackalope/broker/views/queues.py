"""Views of queues: depth, counts, workers and shares."""

from __future__ import annotations

from jackalope.broker.telemetry.gauges import oldest_ready_us
from jackalope.core import Core
from jackalope.core.limits import FAIR_SHARES_SHOWN_MAX
from jackalope.core.state.queue import Queue
from jackalope.wire.views import QueueView, ShareView


def queue_view(core: Core, queue: Queue, *, has_shares: bool) -> QueueView:
    """Return a queue as it is shown, with its largest shares if these are wanted."""
    crews, fair = core.roster.crews(queue.namespace.name, queue.name), queue.line.fair
    deepest = fair.deepest(FAIR_SHARES_SHOWN_MAX) if has_shares and fair is not None else ()
    return QueueView(
        queue=queue.name,
        counts={state: number for state, number in queue.counts.items() if number},
        depth=queue.depth,
        workers=sum(len(crew.members) for crew in crews),
        policy=queue.policy,
        paused_by=queue.paused_by,
        oldest_ready_us=oldest_ready_us(queue, core),
        share_count=0 if fair is None else fair.count,
        shares=tuple(ShareView(each.value, each.size, each.weight) for each in deepest),
    )
