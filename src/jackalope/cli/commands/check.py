"""The command that looks at a data folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jackalope.cli.base import Exit, Failure, arg

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.broker.inspection import Finding
    from jackalope.cli.output import Screen


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
    screen.show(data, lambda: _draw(findings))
    return Exit.STORAGE if any(each.problems for each in findings) else Exit.DONE


def _draw(findings: "list[Finding]") -> "RenderableType":
    from jackalope.cli.output import table

    drawn = table("what", "count", "problems")
    for each in findings:
        drawn.add_row(each.what, str(each.count), "\n".join(each.problems) or "none")
    return drawn
