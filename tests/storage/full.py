"""Stores that have no room left, and have some again, while a broker has them open."""

import errno
import os
from typing import Any

from jackalope.storage.segments.journal import SegmentJournal


def fill(kept: Any) -> None:
    """Leave a journal, or a history, no room beyond what its files have now."""
    if isinstance(kept, SegmentJournal):
        kept._size = kept._offset
        vars(kept)["_begin"] = _no_room
    else:
        (pages,) = kept._db._writer.execute("PRAGMA page_count").fetchone()
        kept._db._writer.execute(f"PRAGMA max_page_count = {pages}")


def free(kept: Any) -> None:
    """Give it room again."""
    if isinstance(kept, SegmentJournal):
        vars(kept).pop("_begin")
    else:
        kept._db._writer.execute("PRAGMA max_page_count = 1000000")


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
