"""Run `jackalope` with marks: `python -m bench.latency.marked ROLE FOLDER serve ...`.

The marks are written into the folder when the process ends.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

from bench.latency.marks import Marks


def main() -> None:
    """Place the marks, and become the command."""
    role, folder, *arguments = sys.argv[1:]
    marks = Marks()
    marks.place(role)
    atexit.register(marks.write, Path(folder), role)
    sys.argv[1:] = arguments
    from jackalope.cli import main as command  # noqa: PLC0415  after the marks are placed

    command()


if __name__ == "__main__":
    main()
