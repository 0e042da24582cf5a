"""`manage.py jackalope_worker`: run the tasks of a backend, until SIGTERM or Ctrl-C."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jackalope.contrib.django.api import task_backends
from jackalope.contrib.django.backend import serve_as
from jackalope.contrib.django.worker import BACKEND_VARIABLE
from jackalope.log_setup import set_up
from jackalope.worker import run_worker
from jackalope.worker.context import name_task
from jackalope.worker.settings import WorkerSettings


class Command(BaseCommand):
    """Runs a worker."""

    help = "Run the tasks of a backend, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: Any) -> None:
        """Take the options."""
        parser.add_argument("--backend", default="default", help="the alias in TASKS")
        parser.add_argument("--queues", default="", help="those of the backend if not given")
        parser.add_argument("--concurrency", type=int, default=0, help="one per core if not given")
        parser.add_argument("--tasks", type=int, default=0, help="exit after this many")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run it."""
        alias = options["backend"]
        backend = task_backends[alias]
        if not hasattr(backend, "outbox"):
            raise CommandError(f"{alias} is no backend of Jackalope")
        os.environ[BACKEND_VARIABLE] = alias
        queues = options["queues"].split(",") if options["queues"] else sorted(backend.queues)
        set_up("info", "auto", about=name_task)
        settings = WorkerSettings(
            application="jackalope.contrib.django.worker:app",
            queues=tuple(queues),
            concurrency=options["concurrency"],
            tasks=options["tasks"],
        )
        serve_as(settings.name)
        code = run_worker(settings)
        if code:
            sys.exit(code)
