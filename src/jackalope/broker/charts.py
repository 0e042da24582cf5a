"""Charts: the series as points that somebody can look at.

Owns how a span of time is cut into points. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jackalope.broker.reading import Reading, Spread
from jackalope.broker.series import COARSE_S, FINE_S, KEPT_S
from jackalope.core.durations import SECOND
from jackalope.wire.views import PointView, SeriesView, SpreadView

if TYPE_CHECKING:
    from jackalope.broker.service import Broker

SPAN_S_DEFAULT = 3_600


class BadSpan(ValueError):
    """No points can be made of this."""


async def chart(
    broker: Broker,
    namespace: str,
    queue: str,
    *,
    since_us: int,
    until_us: int,
    step_s: int,
    sees: Callable[[str], bool],
) -> SeriesView:
    """Show the series of a namespace, or of one of its queues.

    Without a beginning it is the last hour, without an end it ends now, without a step it takes the
    shortest that reaches back so far. The number of points is limited by what is kept.

    Raises:
        BadSpan: the step is none, or shorter than what is kept.
    """
    now_s = broker.now_us() // SECOND
    until_s = min(-(-until_us // SECOND), now_s + FINE_S) if until_us else now_s + FINE_S
    since_s = since_us // SECOND if since_us else until_s - SPAN_S_DEFAULT
    if not step_s:
        step_s = FINE_S if since_s >= now_s - KEPT_S[FINE_S] else COARSE_S
    if step_s % FINE_S or step_s <= 0:
        raise BadSpan(f"a step of {step_s} s; it must be a multiple of {FINE_S} s")
    if since_s < now_s - KEPT_S[FINE_S] and step_s % COARSE_S:
        raise BadSpan(
            f"a step of {step_s} s; what is older than {KEPT_S[FINE_S]} s is kept in steps of "
            f"{COARSE_S} s, so ask for a multiple of that"
        )
    first_s = max(since_s, now_s - KEPT_S[COARSE_S]) // step_s * step_s
    found = await broker.off_loop(
        lambda: broker.series.between(namespace, queue, first_s, until_s, step_s=step_s, sees=sees)
    )
    return SeriesView(step_s, [_point(at_s, step_s, reading) for at_s, reading in found])


def _point(at_s: int, step_s: int, reading: Reading) -> PointView:
    return PointView(
        at_us=at_s * SECOND,
        submitted=reading.submitted,
        succeeded=reading.succeeded,
        dead=reading.dead,
        killed=reading.killed,
        failures=reading.failures,
        crashes=reading.crashes,
        interruptions=reading.interruptions,
        retries=reading.retries,
        depth=reading.depth,
        leased=reading.leased,
        workers=reading.workers,
        per_second=reading.succeeded / step_s,
        queued=_spread(reading.queued),
        assigned=_spread(reading.assigned),
        started=_spread(reading.started),
        finished=_spread(reading.finished),
    )


def _spread(spread: Spread) -> SpreadView | None:
    number = spread.number()
    if not number:
        return None
    return SpreadView(
        number,
        spread.mean() / SECOND,
        spread.quantile(0.5) / SECOND,
        spread.quantile(0.95) / SECOND,
        spread.quantile(0.99) / SECOND,
    )
