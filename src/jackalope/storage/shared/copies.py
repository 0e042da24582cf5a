"""Copies: every copy of a shared log, read to its end and held against the others.

Owns what is wrong with a copy: messages that it lacks and others have, and such that are damaged.
Reads only, and not from the copy that decides alone, because that may be the one that is damaged.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from time import sleep
from typing import NamedTuple

from jackalope.storage.entry import decode
from jackalope.storage.faults import OutOfReach
from jackalope.storage.shared.chunks import is_chunk, place_of
from jackalope.storage.shared.log import Copied, LogEngine

#: How many messages are read at a time.
_MESSAGES = 1_000

#: How long a copy that seems to have ended, or does not answer, is given to catch up.
_LAG_S = 0.5

#: How often a copy that does not answer is asked: its server may have started just now.
_TRIES = 3

_DAMAGED = b""


class CopyView(NamedTuple):
    """A copy of the log, as it was read."""

    name: str
    messages: int
    problem: str = ""
    trouble: str = ""  # why it was not read to its end, which says nothing of what it has


def compare_copies(engine: LogEngine) -> list[CopyView]:
    """Read every copy of the log as far as it goes now; none if the engine shows no copies.

    Raises:
        OutOfReach: the log does not answer.
    """
    if not isinstance(engine, Copied):
        return []
    state = engine.state()
    names = [each.name for each in state.replicas]
    read: dict[str, dict[int, bytes]] = {}
    troubles: dict[str, str] = {}
    for name in names:
        try:
            read[name] = _read(engine, name, names, range(state.start, state.end + 1))
        except OutOfReach as fault:
            troubles[name] = str(fault)
    begin = engine.start()  # What was cut off meanwhile is missing where it was read later.
    right = _agreed(read, range(begin, state.end + 1))
    return [
        CopyView(name, 0, trouble=troubles[name])
        if name in troubles
        else CopyView(name, len(read[name]), _problem(read[name], right))
        for name in names
    ]


def _read(engine: Copied, name: str, names: list[str], wanted: range) -> dict[int, bytes]:
    """Return the digest of each message that a copy has."""
    others, found, after = set(names) - {name}, dict[int, bytes](), wanted.start - 1
    while after < wanted.stop - 1:
        messages = _next(engine, others, after, min(_MESSAGES, wanted.stop - 1 - after))
        if not messages:
            sleep(_LAG_S)  # It may only lag a little.
            messages = _next(engine, others, after, 1)
        if not messages:
            break
        for position, message in messages:
            is_sound = place_of(message) is not None and (
                is_chunk(message) or decode(message) is not None
            )
            found[position] = blake2b(message).digest() if is_sound else _DAMAGED
            after = position
    return found


def _next(engine: Copied, but: set[str], after: int, count: int) -> list[tuple[int, bytes]]:
    tries = 1
    while True:
        try:
            answer = engine.read_copy(but, after, count)
        except OutOfReach:
            if tries == _TRIES:
                raise
            tries += 1
            sleep(_LAG_S)
            continue
        if answer is None:
            raise OutOfReach("no server lets it be read")
        return answer[1]


def _agreed(read: dict[str, dict[int, bytes]], positions: range) -> dict[int, bytes]:
    """Return what most copies have at each position, of what is not damaged."""
    right = {}
    for position in positions:
        told = Counter(copy[position] for copy in read.values() if copy.get(position))
        if told:
            right[position] = told.most_common(1)[0][0]
    return right


def _problem(copy: dict[int, bytes], right: dict[int, bytes]) -> str:
    lacking = [position for position in right if position not in copy]
    wrong = [each for each, digest in right.items() if copy.get(each, digest) != digest]
    said = []
    if lacking:
        said.append(f"it lacks {len(lacking)} messages from {lacking[0]} on")
    if wrong:
        said.append(f"{len(wrong)} messages from {wrong[0]} on are damaged")
    return " and ".join(said)
