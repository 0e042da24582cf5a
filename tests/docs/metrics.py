"""What the page on metrics says, made from the code."""

from __future__ import annotations

from collections import Counter

from jackalope.broker.cluster.standing import Standing
from jackalope.broker.config.schema import Names
from jackalope.broker.telemetry.gauges import Census
from jackalope.broker.telemetry.meter import Machine
from jackalope.doors.http.prometheus import Exposition, Numbers, Traffic
from jackalope.wire.peer import StandbyHealth
from tests.docs.blocks import Table
from tests.docs.wording import code

_CENSUS = Census({}, 0, 0, {}, Counter(), 0, 0, 0, 0, 0, 0, "", "")
#: Those of a cluster and of a standby are among them.
_STANDING = Standing("standby", 0, "", 0, standby=StandbyHealth("", "", True, 0, 0, 0, 0))
_NOTHING = Numbers(0, 0, "", Machine(), {}, _CENSUS, Traffic(), standing=_STANDING)


def metrics(prefix: str, names: Names = Names.JACKALOPE) -> Table:
    """List every metric with its kind, its labels and what it counts."""
    rows = [
        (code(name), kind, ", ".join(code(label) for label in labels) or "none", about)
        for name, kind, labels, about in described(names)
        if name.startswith(prefix)
    ]
    return Table(("metric", "kind", "labels", "meaning"), rows)


def described(names: Names = Names.JACKALOPE) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return name, kind, labels and meaning of every metric."""
    return [
        (
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            tuple(getattr(family, "_labelnames", ())),
            family.documentation,
        )
        for family in Exposition(_NOTHING, names).collect()
    ]
