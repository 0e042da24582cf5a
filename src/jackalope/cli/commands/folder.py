"""The commands about a data folder: its journal, whether it is damaged, and copies of it."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, arg, need_posix, opt
from jackalope.cli.formatting import brief, size, utc

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.backup_file import Backup
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
    need_posix("what reads a data folder")
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
            "records": [
                {"record": each.__struct_config__.tag, **to_plain(each, is_raw=True)}
                for each in made
            ],
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
    folder: Annotated[
        str, arg("FOLDER", "The data folder of a broker that is stopped, or a backup.")
    ],
) -> int:
    """Look for damage in a data folder or a backup, without changing anything.

    Reads every batch of the journal, every task of the history and every blob as at a start, has
    SQLite check its files, and compares their positions. Of a backup it compares all digests.

    Exits with 0 if all is sound, 3 if something is damaged or missing, 4 if a broker uses the
    folder.

    Examples:
        jackalope check jackalope-data
        jackalope check /var/lib/jackalope --format json
        jackalope check monday.tar
    """
    need_posix("what reads a data folder")
    if Path(folder).is_file():
        return _check_backup(screen, Path(folder))
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


def _check_backup(screen: "Screen", path: Path) -> int:
    from jackalope.broker.backup_file import read_backup
    from jackalope.storage import StorageFault

    try:
        found = read_backup(path)
    except StorageFault as fault:
        raise Failure(str(fault), code=Exit.STORAGE) from None
    screen.show(_plain(found) | {"file": str(path)}, f"{path} is whole: {_about(found)}")
    return Exit.DONE


# Copies.

DataFolder = Annotated[str, opt("--data FOLDER", "The data folder.")]


def backup(
    screen: "Screen",
    file: Annotated[str, arg("FILE", "Where to write it; a name that is free.")],
    data: DataFolder = "jackalope-data",
    no_blobs: Annotated[bool, opt("--no-blobs", "Leave out large payloads and results.")] = False,
) -> None:
    """Write everything in the data folder of a broker to one file, while it runs.

    Run it on the broker's machine, as its user. All that was acknowledged before it began is in
    the file. There is a file of that name only when it is whole and was read again. For a cluster
    use `jackalope cluster backup`.

    Exits with 3 if the folder is damaged or the file cannot be written.

    Examples:
        jackalope backup monday.tar
        jackalope backup /backups/monday.tar --data /var/lib/jackalope
    """
    need_posix("what reads a data folder")
    from jackalope.broker.folder_backup import write_folder_backup
    from jackalope.storage import StorageFault

    try:
        made = write_folder_backup(Path(data), Path(file).absolute(), has_blobs=not no_blobs)
    except StorageFault as fault:
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None
    screen.show(_plain(made) | {"file": file}, f"wrote {file}: {_about(made)}")


def restore(
    screen: "Screen",
    file: Annotated[str, arg("FILE", "A backup.")],
    data: Annotated[str, opt("--data FOLDER", "The data folder to make of it.")] = "jackalope-data",
) -> None:
    """Make a data folder of a backup, with which a broker goes on.

    The folder is there only when all of it was written and checked. Never let a broker run with it
    beside the one that was copied: both would run the same tasks.

    Exits with 3 if the backup is damaged or not whole, or the folder is there.

    Examples:
        jackalope restore monday.tar --data /var/lib/jackalope
    """
    need_posix("what reads a data folder")
    from jackalope.broker.folder_backup import restore_folder
    from jackalope.storage import StorageFault

    try:
        found = restore_folder(Path(file), Path(data).absolute())
    except StorageFault as fault:
        raise Failure(str(fault), "nothing was written", Exit.STORAGE) from None
    told = f"restored {_about(found)} to {data}; start it: jackalope serve --data {data}"
    screen.show(_plain(found) | {"data": data}, told)


def _plain(found: "Backup") -> dict[str, Any]:
    return {"batch": max(found.sequence, found.last), "blobs": found.blobs}


def _about(found: "Backup") -> str:
    return f"everything through batch {max(found.sequence, found.last)}, {found.blobs} blobs"
