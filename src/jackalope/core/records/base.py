"""What all records have."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, array_like=True, gc=False):
    """A fact. `at_us` is when it happened."""

    at_us: int
