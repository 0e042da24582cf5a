"""The command that moves tasks from an outbox to the broker."""

import asyncio
import signal
from typing import Annotated

from jackalope.cli.base import Common, Exit, Failure, arg, load_structlog, opt, run_loop


def relay(
    common: Common,
    *,
    database: Annotated[
        str,
        arg("DATABASE", "sqlite:///path, or postgresql://user@host/name.", envvar="DATABASE_URL"),
    ],
    once: Annotated[bool, opt("--once", "Exit when the table is empty.")] = False,
) -> int:
    """Move tasks from the outbox table of a database to the broker.

    Runs until SIGTERM or Ctrl-C. A task is deleted from the table when the broker has stored it;
    one that is submitted again after a failure is the same task, by its id. Several relays may run
    on one database.

    Examples:
        jackalope relay postgresql://shop@db/shop
        jackalope relay sqlite:////var/lib/shop/shop.db --once
    """
    load_structlog()
    from jackalope.client.app import Jackalope
    from jackalope.contrib.relay import Relay, open_table
    from jackalope.errors import ConfigError
    from jackalope.log_setup import set_up

    set_up("info", "auto")
    app = Jackalope(common.address(), name="relay")

    async def run() -> int:
        relay = Relay(app, lambda: open_table(database))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, relay.stopped.set)
        try:
            await relay.run(once=once)
        except ConfigError as error:
            raise Failure(str(error), code=Exit.USAGE) from None
        finally:
            await app.close()
        return Exit.FAILED if relay.refused else Exit.DONE

    return int(run_loop(run()))
