"""A worker as a process of its own: `python -m tests.worker.process '{"name": ...}'`."""

import sys

import msgspec

from jackalope.transport.address import Address
from jackalope.worker.executors.processes import Recycling
from jackalope.worker.runtime import run_worker
from jackalope.worker.settings import WorkerSettings

if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1])
    first, *others = (("127.0.0.1", port) for port in (told.pop("port"), *told.pop("others", ())))
    settings = msgspec.convert({"application": "tests.worker.application:app", **told}, dict)
    settings["recycling"] = Recycling(**settings.get("recycling", {}))
    settings["queues"] = tuple(settings.get("queues", ()))
    address = Address(*first, others=tuple(others))
    sys.exit(run_worker(WorkerSettings(address=address, **settings)))
