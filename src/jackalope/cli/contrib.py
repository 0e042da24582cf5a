"""Commands of what is in `jackalope.contrib`: the relay of an outbox, and the survey of Celery."""

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
    import asyncio
    import signal

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


def migrate(
    source: Annotated[str, arg("FROM", "What the code base uses: celery.")],
    path: Annotated[str, arg("PATH", "A folder or a file.")],
    *,
    json: Annotated[bool, opt("--json", "Print one JSON object for each place.")] = False,
) -> int:
    """Show what of a code base that uses Celery becomes what.

    Reads Python files, and neither imports nor changes them. Each line is a place, what it is, and
    what it becomes; `by hand` marks what has no counterpart to put in its place. Exits with 1 if a
    file could not be read.

    Examples:
        jackalope migrate celery src
        jackalope migrate celery src --json > places.jsonl
    """
    from pathlib import Path

    import msgspec

    from jackalope.contrib.celery_survey import survey
    from jackalope.terminal import in_line

    if source != "celery":
        raise Failure(f"from {source!r}: there is celery only", code=Exit.USAGE)
    if not Path(path).exists():
        raise Failure(f"{path}: no such file or folder", code=Exit.USAGE)
    findings, unread = survey(Path(path))
    for each in findings:
        if json:
            print(msgspec.json.encode(each).decode())
        else:
            print(in_line(f"{each.file}:{each.line}: {each.what} -> {each.becomes}"))
    for line in unread:
        print(in_line(f"not read: {line}"))
    if not json:
        by_hand = sum(each.is_by_hand for each in findings)
        files = len({each.file for each in findings})
        print(f"{len(findings)} places in {files} files, {by_hand} of them by hand")
    return Exit.FAILED if unread else Exit.DONE
