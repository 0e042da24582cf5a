"""The language of the scripts: how a line reads, and what a script says really happens.

Owns the text. Knows nothing of the core; `stage` gives the verbs their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, NEVER, SECOND

#: Greatest first: the order in which a time is told.
UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": 1}

_DURATION = re.compile(r"(-?)((?:\d+(?:us|ms|s|m|h|d))+)")
_PART = re.compile(r"(\d+)(us|ms|s|m|h|d)")
_RANGE = re.compile(r"(.*?)(\d+)\.\.\1(\d+)")
_REPEATED = re.compile(r"(.)\*(\d+)$")


class ScriptError(Exception):
    """A script that cannot be read, or asks for what cannot be done."""


def perform(text: str, act: Callable[[str], list[str]]) -> str:
    """Return the script with what really happens below each of its commands.

    Raises:
        ScriptError: naming the line that cannot be read or run.
    """
    lines: list[str] = []
    is_below_command = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(">"):
            is_below_command = True
            try:
                lines += [line, *act(line[1:].strip())]
            except Exception as error:
                raise ScriptError(f"line {number}, {line}: {error}") from error
        elif not line.strip() or line.startswith("#"):
            is_below_command = False
            lines.append(line)
        elif not is_below_command:
            raise ScriptError(f"line {number}: {line!r} is no comment and stands below no command")
    return "\n".join(lines) + "\n"


class Order:
    """One command line, taken apart: the verb, its words, and its options.

    What is taken is gone, so that `finish` can tell what nobody understood. What stands after `and`
    is a further order with the same verb.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.is_quiet = False
        self.further: Order | None = None
        self._words: list[str] = []
        self._options: dict[str, str] = {}
        if "and" in tokens:
            end = tokens.index("and")
            self.further = Order([tokens[0], *tokens[end + 1 :]])
            tokens = tokens[:end]
        for token in tokens:
            name, equals, value = token.partition("=")
            if not equals:
                self._words.append(token)
            elif name in self._options:
                raise ScriptError(f"{name} is given twice")
            else:
                self._options[name] = value
        if self._words[:1] == ["quietly"]:
            self.is_quiet = True
            del self._words[0]
        self.verb = self.word("a verb")

    def word(self, what: str) -> str:
        """Take the next word, which must be there."""
        if not self._words:
            raise ScriptError(f"needs {what}")
        return _repeat(self._words.pop(0))

    def has_words(self) -> bool:
        """Tell whether there is another word."""
        return bool(self._words)

    def names(self, what: str) -> list[str]:
        """Take the next word as a list of names: `t1,t3` or `t1..t5`."""
        return expand(self.word(what))

    def flag(self, name: str) -> bool:
        """Take a word that may be there."""
        if name not in self._words:
            return False
        self._words.remove(name)
        return True

    def text(self, name: str, default: str = "") -> str:
        """Take an option as text; `x*300` is 300 times x."""
        return _repeat(self._options.pop(name, default))

    def number(self, name: str, default: int = 0) -> int:
        """Take an option as a whole number."""
        return int(self._options.pop(name, default))

    def duration_us(self, name: str, default_us: int = 0) -> int:
        """Take an option as a duration."""
        value = self._options.pop(name, None)
        return default_us if value is None else parse_duration_us(value)

    def list(self, name: str) -> tuple[str, ...]:
        """Take an option as a list of texts."""
        return tuple(expand(self._options.pop(name, "")))

    def rest(self) -> dict[str, str]:
        """Take all options that are left."""
        rest, self._options = self._options, {}
        return rest

    def finish(self) -> None:
        """Make sure that everything was understood."""
        left = [*self._words, *(f"{name}={value}" for name, value in self._options.items())]
        left += ["and"] if self.further else []
        if left:
            raise ScriptError(f"{self.verb} does not understand {' '.join(left)}")


def expand(text: str) -> list[str]:
    """Read a list of names; `t2..t4` is `t2,t3,t4`."""
    names: list[str] = []
    for name in filter(None, text.split(",")):
        if span := _RANGE.fullmatch(name):
            names += [f"{span[1]}{n}" for n in range(int(span[2]), int(span[3]) + 1)]
        else:
            names.append(_repeat(name))
    return names


def _repeat(text: str) -> str:
    """Write out `x*300`, wherever it stands at the end of a text."""
    return _REPEATED.sub(lambda found: found[1] * int(found[2]), text)


def parse_duration_us(text: str) -> int:
    """Read a duration such as `5s`, `1h30m` or `-2h`; `0` and `forever` are durations as well."""
    if text == "0":
        return 0
    if text == "forever":
        return NEVER
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is not a duration; write 5s, 1h30m or 250ms")
    span_us = sum(int(count) * UNITS[unit] for count, unit in _PART.findall(found[2]))
    return -span_us if found[1] else span_us


def tell_duration(span_us: int) -> str:
    """Write a duration as `parse_duration_us` reads it."""
    if span_us >= NEVER:
        return "forever"
    if span_us <= 0:
        return "0" if not span_us else "-" + tell_duration(-span_us)
    parts = []
    for unit, unit_us in UNITS.items():
        count, span_us = divmod(span_us, unit_us)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
