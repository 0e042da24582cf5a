"""Schedules on a real disk: three days over changes of the clock and fifty restarts.

Time is virtual; journal and history are files, once with the journal in SQLite. A restart opens the
folder again: after a clean stop, after one that left history behind, or after a turn that was
decided and never written.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jackalope.broker.engine import Engine
from jackalope.calendar import CronCalendar
from jackalope.core.commands import AnyCommand, JoinWorker, Recover, Tick
from jackalope.core.commands.schedules import DeclareSchedule
from jackalope.core.durations import DAY, SECOND
from jackalope.core.effects import ScheduleSet
from jackalope.core.invariants import check
from jackalope.core.records import ScheduleFired, SlotsMissed, TaskSubmitted, decode_batch
from jackalope.core.shapes.schedule import run_id
from jackalope.storage import Level, Storage
from jackalope.storage.journals import JournalKind

RESTARTS = 50

SCHEDULES = {
    "berlin": ("30 2 * * *", "Europe/Berlin"),
    "berlin-hourly": ("15 * * * *", "Europe/Berlin"),
    "beirut": ("30 0 * * *", "Asia/Beirut"),
    "lord-howe": ("0 45 1 * * *", "Australia/Lord_Howe"),
    "lord-howe-often": ("*/10 1-2 * * *", "Australia/Lord_Howe"),
    "auckland": ("30 2 * * *", "Pacific/Auckland"),
    "seconds": ("30 */30 * * * *", "UTC"),
}

#: When three days begin, and the zones whose clocks change in them, at different moments.
WINDOWS = {
    "2026-03-28T06:00": ("Europe/Berlin", "Asia/Beirut"),  # forward
    "2026-10-24T06:00": ("Europe/Berlin", "Asia/Beirut"),  # back
    "2026-04-03T18:00": ("Australia/Lord_Howe", "Pacific/Auckland"),  # back, by half an hour
}


class Disk:
    """A broker's engine on a folder, on virtual time."""

    def __init__(self, folder: Path, now_us: int, kind: JournalKind) -> None:
        self._folder, self._kind = folder, kind
        self.now_us = now_us
        self.records: list[object] = []
        self._open()

    def _open(self) -> None:
        self._storage = Storage.open(self._folder, Level.FSYNC, kind=self._kind)
        storage = self._storage
        self.engine = Engine(storage.journal, storage.history, storage.blobs)
        self.turn(Recover())

    def turn(self, command: AnyCommand) -> object:
        command.ref = 1
        turn = self.engine.decide(self.now_us, [command])
        self.engine.store(turn)
        self.records += decode_batch(turn.body) if turn.body else []
        effects = self.engine.settle(turn)
        return getattr(effects[-1], "body", None) if effects else None

    def advance(self, until_us: int) -> None:
        """Let time pass, with a tick at each deadline."""
        while True:
            deadline_us = self.engine.core.next_deadline_us()
            if deadline_us is None or deadline_us > until_us:
                break
            self.now_us = max(self.now_us, deadline_us)
            self.turn(Tick())
        self.now_us = until_us

    def restart(self, how: int) -> None:
        """Stop in one of three ways, and open the folder again."""
        if how == 0:
            flush = self.engine.begin_flush(self.now_us)
            if flush is not None:
                self.engine.write_flush(flush)
                self.engine.end_flush(flush)
        elif how == 1:
            # It decides about the next slot, and is gone before that is written.
            deadline_us = self.engine.core.next_deadline_us()
            self.engine.decide(deadline_us or self.now_us, [Tick()])
        check(self.engine.core)
        self._storage.close()
        self._open()

    def close(self) -> None:
        self._storage.close()


def changes_of(zone: str, begin_us: int) -> list[int]:
    """Return the hours, of three days, in which the clock of a zone changes."""
    hours = [begin_us + number * 3600 * SECOND for number in range(73)]
    offsets = [datetime.fromtimestamp(us / SECOND, ZoneInfo(zone)).utcoffset() for us in hours]
    return [us for us, one, other in zip(hours, offsets, offsets[1:], strict=False) if one != other]


@pytest.mark.parametrize("kind", JournalKind)
@pytest.mark.parametrize("begin", WINDOWS)
def test_each_slot_fires_once_over_three_days_and_fifty_restarts(
    tmp_path: Path, begin: str, kind: JournalKind
) -> None:
    begin_us = round(datetime.fromisoformat(begin + "+00:00").timestamp() * SECOND)
    changes = [changes_of(zone, begin_us) for zone in WINDOWS[begin]]
    assert [len(each) for each in changes] == [1, 1], "two clocks change in these days"
    disk = Disk(tmp_path, begin_us, kind)
    for name, (cron, zone) in SCHEDULES.items():
        changed: dict[str, object] = {"queue": "q", "task": name, "cron": cron, "zone": zone}
        assert isinstance(disk.turn(DeclareSchedule(name=name, changes=changed)), ScheduleSet)
    disk.turn(JoinWorker(ref=1, worker="w", queues=("q",), session=1, slots=3, lease_us=DAY))
    for number in range(1, RESTARTS + 1):
        disk.advance(begin_us + number * 3 * DAY // (RESTARTS + 1))
        disk.restart(number % 3)
    disk.advance(begin_us + 3 * DAY)
    disk.close()

    fired = [record for record in disk.records if isinstance(record, ScheduleFired)]
    submitted = Counter(each.spec.id for each in disk.records if isinstance(each, TaskSubmitted))
    assert not [record for record in disk.records if isinstance(record, SlotsMissed)]
    assert submitted == Counter(record.task for record in fired)
    assert set(submitted.values()) == {1}
    calendar = CronCalendar()
    for name, (cron, zone) in SCHEDULES.items():
        expected, slot_us = [], calendar.next_us(cron, zone, begin_us)
        while slot_us <= begin_us + 3 * DAY:
            expected.append(slot_us)
            slot_us = calendar.next_us(cron, zone, slot_us)
        mine = [record for record in fired if record.name == name]
        assert [record.slot_us for record in mine] == expected
        assert [record.task for record in mine] == [
            run_id("default", name, slot_us) for slot_us in expected
        ]
        assert len(expected) >= 2
