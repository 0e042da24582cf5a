"""Whether new tasks are taken in, at each limit and one past it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackalope.broker.inbox import INBOX_ITEMS_MAX, UNWRITTEN_TASKS_MAX, Admission
from jackalope.core.durations import SECOND
from jackalope.core.refusals import Code
from jackalope.storage import Level, Storage

LEAST = 50_000


@pytest.mark.parametrize(
    ("room", "is_taken"), [(LEAST, True), (LEAST - 1, False), (0, False), (None, True)]
)
def test_some_of_the_disk_stays_free(room: int | None, is_taken: bool) -> None:
    admission = Admission(lambda: room, LEAST)
    refusal = admission.refuse(SECOND, 1, 0)
    assert (refusal is None) is is_taken
    assert bool(admission.lack(SECOND)) is not is_taken
    if refusal is not None:
        assert refusal.code is Code.OVERLOADED
        assert refusal.message.startswith(f"free disk space is {room} bytes, less than {LEAST}")


def test_no_limit_looks_at_no_disk() -> None:
    def room() -> int:
        raise AssertionError("nobody asked for that")

    assert Admission(room, 0).refuse(SECOND, 1, 0) is None


def test_the_disk_is_looked_at_once_a_second() -> None:
    looks: list[int] = []

    def room() -> int:
        looks.append(1)
        return LEAST - 1 if len(looks) == 1 else LEAST

    admission = Admission(room, LEAST)
    for now_us in (SECOND, SECOND + 1, 2 * SECOND - 1):
        assert admission.refuse(now_us, 1, 0) is not None
    assert admission.refuse(2 * SECOND, 1, 0) is None
    assert len(looks) == 2


def test_what_waits_has_its_limits() -> None:
    admission = Admission(lambda: None, 0)
    assert admission.refuse(0, INBOX_ITEMS_MAX, UNWRITTEN_TASKS_MAX) is None
    assert admission.refuse(0, INBOX_ITEMS_MAX + 1, 0) is not None
    assert admission.refuse(0, 0, UNWRITTEN_TASKS_MAX + 1) is not None


def test_room_is_what_the_disk_and_the_files_have(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path / "data")
    try:
        journal = storage.journal
        journal.claim()
        spare = journal.spare_bytes()
        for _ in range(50):
            journal.append(b"x" * 10_000)
        assert spare - 520_000 < journal.spare_bytes() <= spare - 500_000
        for _ in range(150):
            journal.append(b"x" * 10_000)
        used = journal.spare_bytes()
        journal.trim(200)
        assert journal.spare_bytes() >= used + 1_000_000  # What is trimmed is written over.
        room = storage.room_bytes()
        assert room is not None
        assert room >= journal.spare_bytes()
    finally:
        storage.close()
    assert Storage.open(None, Level.MEMORY).room_bytes() is None
