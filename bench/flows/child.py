"""One measurement of one system, in a process of its own: `python -m bench.flows.child REQUEST`."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from pathlib import Path

from bench.flows.base import Figures, Plan, measure
from bench.peers.place import Place

#: The module of each system, and the class in it.
SYSTEMS = {
    "jackalope": "jackalope:JackalopeFlows",
    "celery_redis": "celery:CeleryFlows",
    "dbos_sqlite": "dbos:DbosFlows",
}


def main() -> int:
    """Measure what the request asks for, and write the figures or the reason why not."""
    file = Path(sys.argv[1])
    request = json.loads(file.read_text())
    place = Place.new(request["name"], file.parent, "everysec", "classic")
    place.export()
    answer: Figures
    try:
        module, _, system = SYSTEMS[place.name].partition(":")
        make = getattr(import_module(f"bench.flows.{module}"), system)
        answer = asyncio.run(measure(make(place), Plan(**request["plan"])))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the reason is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    file.with_name("answer.json").write_text(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
