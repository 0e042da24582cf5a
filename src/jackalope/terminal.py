"""Text that is safe on a terminal.

Owns which characters may not reach one as they are: those that move the cursor, change colours or
titles, ring, or turn the direction of writing, and so let the name of a task, an error or a payload
pretend to be something else. Everything that came from outside passes here before it is shown to
people; programs get it unchanged.
"""

from __future__ import annotations

import re

# C0 but for tab and newline, DEL, C1, marks and overrides of direction, separators of lines.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def is_safe(text: str) -> bool:
    """Return whether nothing in a text needs to be escaped."""
    return _UNSAFE.search(text) is None


def visible(text: str) -> str:
    """Return the text with every unsafe character as the escape that Python would write."""
    return text if is_safe(text) else _UNSAFE.sub(_escape, text)


def in_line(text: str) -> str:
    """Return the same on one line: ends of lines and tabs are escaped as well."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def in_json(text: str) -> str:
    """Return a JSON text that means the same and has no unsafe character."""
    return text if is_safe(text) else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
