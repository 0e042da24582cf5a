"""What a data folder says about itself where there is a standby: that it is one, or was replaced.

Owns the files `standby`, `promoted` and `fenced`. The first makes a folder the copy of another
broker's: no broker decides with it until it is promoted, by which the file becomes the second. The
third stops a broker for good, because its standby was promoted: both would acknowledge tasks that
the other does not know.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from jackalope.storage.disk import sync_folder
from jackalope.storage.entry import NO_DIGEST
from jackalope.storage.faults import Corrupt, naming_faults
from jackalope.storage.journals import JournalKind, JournalPlace
from jackalope.storage.ports import Level
from jackalope.storage.snapshots import StateMark, install

STANDBY = "standby"
PROMOTED = "promoted"
FENCED = "fenced"

T = TypeVar("T")


class StandbyMark(msgspec.Struct, frozen=True):
    """How far a standby has come with the broker that it follows."""

    primary: str = ""  # what identifies that broker; empty if it was never reached
    sequence: int = 0  # through which batch the folder certainly has what that broker had
    digest: bytes = NO_DIGEST  # of that broker's journal through the last entry received
    last: int = 0  # that broker's last batch, as it was last told
    heard_us: int = 0  # when
    level_us: int = 0  # when all that it had was last here; 0 for never
    fenced: int = -1  # its last batch for good, once it is fenced


class Fence(msgspec.Struct, frozen=True):
    """What replaced a broker, and when."""

    by: str  # where the promoted one is
    sequence: int  # the last batch of the one that was replaced
    at_us: int


def read_standby(folder: Path) -> StandbyMark | None:
    """Return how far a standby has come; None if the folder is none."""
    return _read(folder / STANDBY, StandbyMark)


def read_fence(folder: Path) -> Fence | None:
    """Return what replaced the broker of a folder; None if nothing did."""
    return _read(folder / FENCED, Fence)


def write_standby(folder: Path, mark: StandbyMark) -> None:
    _write(folder / STANDBY, mark)


def write_fence(folder: Path, fence: Fence) -> None:
    _write(folder / FENCED, fence)


def end_standby(folder: Path) -> None:
    """Let the folder be a broker's; durable when this returns."""
    with naming_faults(folder):
        (folder / STANDBY).rename(folder / PROMOTED)
        sync_folder(folder)


def was_promoted(folder: Path) -> bool:
    """Return whether the folder is that of a standby that leads by now."""
    return (folder / PROMOTED).exists()


def finish_copy(folder: Path) -> None:
    """Install a copy of the primary's state that was received before a crash."""
    install(folder, _begin_journal)


def _begin_journal(folder: Path, mark: StateMark) -> None:
    place = JournalPlace(folder)
    journal = place.open(place.kind or JournalKind.SEGMENTS, Level.FSYNC)
    try:
        journal.claim()
        if journal.last() < mark.sequence:
            journal.restart(mark.sequence)
    finally:
        journal.close()


def why_fenced(fence: Fence, what: str) -> str:
    """Return why a broker or a node of a cluster must not be started."""
    return (
        f"the standby of this {what} was promoted and is at {fence.by}. What this one would "
        f"acknowledge, that one would not know. Follow it from a new data folder; the file "
        f"{FENCED} says when it was"
    )


def refusal_of(folder: Path, *, follows: bool, is_new: bool) -> str:
    """Return why a broker must not be started with a folder; nothing if it may."""
    fence = read_fence(folder)
    if fence is not None:
        return f"{folder}: {why_fenced(fence, 'broker')}"
    is_standby = read_standby(folder) is not None
    if is_standby and not follows:
        return f"{folder}: the copy of another broker; start it with --follow, or promote it"
    if follows and not is_standby and not is_new:
        return f"{folder}: has data of its own; a standby begins with an empty folder"
    return ""


def _read(path: Path, shape: type[T]) -> T | None:
    with naming_faults(path):
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=shape)
        except msgspec.DecodeError as error:
            raise Corrupt(f"{path}: {error}") from error


def _write(path: Path, value: msgspec.Struct) -> None:
    """Replace a file, so that a crash leaves the old one or the new one."""
    unfinished = path.with_suffix(".new")
    with naming_faults(path):
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(value))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        sync_folder(path.parent)
