"""`manage.py jackalope_relay`: move tasks from the outbox of a backend to the broker."""

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections, transaction

from jackalope.contrib.django.api import task_backends
from jackalope.contrib.outbox import TABLE
from jackalope.contrib.relay import ROWS_MAX, Relay, Row
from jackalope.log_setup import set_up


class DjangoTable:
    """An outbox, over a connection of Django in the thread that uses it."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def rows(self) -> list[Row]:
        """Return the first rows that wait."""
        with connections[self._alias].cursor() as cursor:
            select = f"SELECT seq, body FROM {TABLE} WHERE error = '' ORDER BY seq LIMIT {ROWS_MAX}"  # noqa: S608  constants
            cursor.execute(select)
            return [(seq, bytes(body)) for seq, body in cursor.fetchall()]

    def settle(self, moved: Sequence[int], refused: Sequence[tuple[str, int]]) -> None:
        """Delete the rows that were moved, and note why others are refused."""
        with transaction.atomic(self._alias), connections[self._alias].cursor() as cursor:
            cursor.executemany(f"DELETE FROM {TABLE} WHERE seq = %s", [(seq,) for seq in moved])  # noqa: S608
            if refused:
                cursor.executemany(f"UPDATE {TABLE} SET error = %s WHERE seq = %s", refused)  # noqa: S608

    def close(self) -> None:
        """Leave the connections to their threads."""


class Command(BaseCommand):
    """Runs a relay."""

    help = "Move tasks from the outbox of a backend to the broker."

    def add_arguments(self, parser: Any) -> None:
        """Take the options."""
        parser.add_argument("--backend", default="default", help="the alias in TASKS")
        parser.add_argument("--once", action="store_true", help="exit when the table is empty")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run it."""
        backend = task_backends[options["backend"]]
        alias = getattr(backend, "outbox", None)
        if alias is None:
            raise CommandError(f"{options['backend']} has no OUTBOX among its OPTIONS")
        set_up("info", "auto")

        async def run() -> None:
            relay = Relay(backend.app, lambda: DjangoTable(alias))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, relay.stopped.set)
            try:
                await relay.run(once=options["once"])
            finally:
                await backend.app.close()

        asyncio.run(run())
