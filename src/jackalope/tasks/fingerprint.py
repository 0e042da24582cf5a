"""Fingerprints: telling one version of a function from another by its source.

Owns what counts as a change: every character from `def` on, but for how far it is indented and for
blanks at the ends of lines. Decorators do not count, and neither does what the function calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from hashlib import sha256
from itertools import dropwhile
from textwrap import dedent
from typing import Any

FINGERPRINT_CHARS = 16


def fingerprint_of(function: Callable[..., Any]) -> str:
    """Return the fingerprint of a function; empty if its source cannot be had."""
    try:
        source = dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    lines = (line.rstrip() for line in source.split("\n"))
    body = dropwhile(lambda line: not line.startswith(("def ", "async def ")), lines)
    text = "\n".join(body).strip("\n")
    return sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS] if text else ""
