"""Bodies: what a task brings and leaves, and the error if it leaves none.

Owns their shapes alone, so that what refers to them need not know the task.
"""

from __future__ import annotations

import msgspec


class BlobRef(msgspec.Struct, frozen=True, array_like=True):
    """A payload or result that is stored in the blob store because of its size."""

    blob: str  # its name there
    size: int  # how many bytes it has
    digest: str = ""  # what tells its content from any other; empty if the store does not say


Body = bytes | BlobRef


class Error(msgspec.Struct, frozen=True, array_like=True):
    """An error reported by a worker."""

    type: str
    message: str = ""
    trace: str = ""
