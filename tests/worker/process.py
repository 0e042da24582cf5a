"""A worker as a process of its own: `python -m tests.worker.process '{"name": ...}'`."""

import sys

import msgspec

from jackalope.log_setup import set_up
from jackalope.transport.address import Address
from jackalope.worker.context import name_task
from jackalope.worker.executors.processes import Recycling
from jackalope.worker.logs.capture import TaskLogs
from jackalope.worker.runtime import run_worker
from jackalope.worker.settings import WorkerSettings

if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1])
    if told.pop("sets_up_log", False):
        set_up("debug", "json", about=name_task)
    first, *others = (("127.0.0.1", port) for port in (told.pop("port"), *told.pop("others", ())))
    settings = msgspec.convert({"application": "tests.worker.application:app", **told}, dict)
    settings["recycling"] = Recycling(**settings.get("recycling", {}))
    settings["task_logs"] = TaskLogs(settings.get("task_logs", TaskLogs.BOTH))
    settings["queues"] = tuple(settings.get("queues", ()))
    address = Address(*first, others=tuple(others))
    sys.exit(run_worker(WorkerSettings(address=address, **settings)))
