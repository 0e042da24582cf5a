"""The likeness of a task: whether two workers mean the same by the same name.

Owner and helper must run the same code on the items that they hand each other. The likeness covers
the name, the signature with its types, where the function runs, and its source: not what that
calls, and not the data that it reads.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from hashlib import blake2b

from jackalope.tasks.definition import TaskDefinition
from jackalope.tasks.fingerprint import fingerprint_of


# Finding the source takes as long as some items; each `map` of a fan-out asks for it.
@lru_cache(maxsize=1_000)
def likeness_of(definition: TaskDefinition) -> bytes:
    """Return 16 bytes that differ where the code or its types do."""
    parts = (
        definition.name,
        str(inspect.signature(definition.function)),
        definition.isolation,
        fingerprint_of(definition.function),
    )
    return blake2b("\0".join(parts).encode(), digest_size=16).digest()
