"""One measurement of one system, in a process of its own: `python -m bench.flows.child REQUEST`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from bench.children import answer_to
from bench.flows.base import Figures, Plan, measure
from bench.peers.place import Place

#: The module of each system, and the class in it.
SYSTEMS = {
    "jackalope": "jackalope:JackalopeFlows",
    "celery_redis": "celery:CeleryFlows",
    "dbos_sqlite": "dbos:DbosFlows",
}


def _run(system: type, place: Place, plan: dict[str, Any], _: Path) -> Figures:
    return asyncio.run(measure(system(place), Plan(**plan)))


if __name__ == "__main__":
    sys.exit(answer_to(Path(sys.argv[1]), "bench.flows", SYSTEMS, _run))
