"""One run of one system, in a process of its own: `python -m bench.fairness.child REQUEST`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from bench.children import answer_to
from bench.fairness.base import Figures, Plan, measure
from bench.peers.place import Place

#: The module of each system, and the class in it.
SYSTEMS = {
    "jackalope": "jackalope:JackalopeFair",
    "jackalope_in_order": "jackalope:JackalopeInOrder",
    "celery_redis": "celery:CeleryInOrder",
}


def _run(system: type, place: Place, plan: dict[str, Any], folder: Path) -> Figures:
    return asyncio.run(measure(system(place), Plan(**plan), folder))


if __name__ == "__main__":
    sys.exit(answer_to(Path(sys.argv[1]), "bench.fairness", SYSTEMS, _run))
