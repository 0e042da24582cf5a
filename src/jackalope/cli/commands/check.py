"""The command that looks at a data folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jackalope.cli.base import Exit, Failure, local

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.inspection import Finding
    from jackalope.cli.output import Screen


def register(app: typer.Typer, panel: str) -> None:
    """Add this command."""
    app.command("check", rich_help_panel=panel)(local(check))


def check(
    screen: "Screen",
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The data folder of a broker that is stopped.")
    ],
) -> int:
    """Look for damage in a data folder, without changing anything.

    Reads every batch of the journal and every task of the history as a start does, has SQLite check
    its files, and compares how far they have come.

    Ends with 0 if all is sound, 3 if something is damaged or missing, 4 if a broker has the folder.

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
    screen.show(data, lambda: _draw(findings))
    return Exit.STORAGE if any(each.problems for each in findings) else Exit.DONE


def _draw(findings: "list[Finding]") -> "RenderableType":
    from jackalope.cli.output import table

    drawn = table("what", "count", "problems")
    for each in findings:
        drawn.add_row(each.what, str(each.count), "\n".join(each.problems) or "none")
    return drawn
