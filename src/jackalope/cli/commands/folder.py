"""The commands that look into a data folder: its journal, and whether it is damaged."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import brief, size, utc

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.inspection import Finding
    from jackalope.cli.output import Screen


def show(
    screen: "Screen",
    folder: Annotated[str, arg("FOLDER", "The data folder of a broker, stopped or running.")],
    *,
    after: Annotated[int, opt("--after BATCH", "Only later batches.", min=0)] = 0,
    limit: Annotated[int, opt("--limit", "How many batches, the earliest first.", min=1)] = 100,
    records: Annotated[bool, opt("--records", "Show every record of the batches.")] = False,
) -> None:
    """Show what a journal contains: the batches that were written, and the records in them.

    The journal has what happened since history was last brought up to date; what is older is in
    `tasks.db`. Nothing is changed.

    Examples:
        jackalope journal show jackalope-data
        jackalope journal show jackalope-data --after 1200 --records
        jackalope journal show /var/lib/jackalope --limit 5 --format json
    """
    import sqlite3

    from jackalope.storage import StorageFault

    try:
        batches = list(islice(_batches(Path(folder), after), limit))
    except (StorageFault, sqlite3.DatabaseError) as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    if records:
        screen.show(batches, lambda: _draw_records(batches))
        return
    for batch in batches:
        batch["records"] = dict(Counter(each["record"] for each in batch["records"]))
    screen.show(batches, lambda: _draw(batches))


def _batches(folder: Path, after: int) -> Iterator[dict[str, Any]]:
    """Yield every batch behind a sequence, with its records."""
    from jackalope.broker.inspection import batches_of
    from jackalope.cli.formatting import to_plain
    from jackalope.core.records import decode_batch
    from jackalope.storage import StorageFault
    from jackalope.storage.journals import JournalPlace

    place = JournalPlace(folder)
    if place.kind is None:
        raise StorageFault(f"{folder}: not a data folder")
    for sequence, body, is_sound in batches_of(place, after):
        made = decode_batch(body) if is_sound else []
        yield {
            "batch": sequence,
            "at": utc(made[0].at_us) if made else "",
            "bytes": len(body),
            "is_damaged": not is_sound,
            "records": [{"record": each.__struct_config__.tag, **to_plain(each)} for each in made],
        }


def _draw(batches: list[dict[str, Any]]) -> "RenderableType":
    from jackalope.cli.output import table

    drawn = table("batch", "at", "size", "records")
    for batch in batches:
        counts = ", ".join(f"{name} {count}" for name, count in batch["records"].items())
        text = "missing or damaged" if batch["is_damaged"] else counts
        drawn.add_row(str(batch["batch"]), batch["at"], size(batch["bytes"]), text)
    return drawn


def _draw_records(batches: list[dict[str, Any]]) -> "RenderableType":
    from jackalope.cli.output import table

    drawn = table("batch", "record", "with")
    for batch in batches:
        for record in batch["records"]:
            facts = [f"{key}={brief(value, 40)}" for key, value in record.items() if value]
            drawn.add_row(str(batch["batch"]), record["record"], brief("  ".join(facts[2:]), 80))
    return drawn


# Looking for damage.


def check(
    screen: "Screen",
    folder: Annotated[str, arg("FOLDER", "The data folder of a broker that is stopped.")],
) -> int:
    """Look for damage in a data folder, without changing anything.

    Reads every batch of the journal and every task of the history as at a start, has SQLite check
    its files, and compares their positions.

    Exits with 0 if all is sound, 3 if something is damaged or missing, 4 if a broker uses the
    folder.

    Examples:
        jackalope check jackalope-data
        jackalope check /var/lib/jackalope --format json
    """
    from jackalope.broker.inspection import inspect_folder
    from jackalope.storage import FolderBusy, StorageFault

    try:
        findings = inspect_folder(Path(folder))
    except FolderBusy as fault:
        raise Failure(str(fault), code=Exit.BUSY) from None
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    data = [
        {"what": each.what, "count": each.count, "problems": each.problems} for each in findings
    ]
    screen.show(data, lambda: _draw_findings(findings))
    return Exit.STORAGE if any(each.problems for each in findings) else Exit.DONE


def _draw_findings(findings: "list[Finding]") -> "RenderableType":
    from jackalope.cli.output import table

    drawn = table("what", "count", "problems")
    for each in findings:
        drawn.add_row(each.what, str(each.count), "\n".join(each.problems) or "none")
    return drawn
