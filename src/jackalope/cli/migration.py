"""The command that shows what of a code base becomes what."""

from pathlib import Path
from typing import Annotated

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.terminal import in_line


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
    import msgspec

    from jackalope.contrib.celery_survey import survey

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
