"""A disk that fills up: who publishes is told and waits, who consumes goes on, nothing is lost.

The broker has a disk of its own, a small one, and a file beside its own takes the room away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.doors.amqp.harness import PATIENCE_S, Serving

MEBIBYTE = 1024 * 1024
DISK_BYTES = 96 * MEBIBYTE
FREE_BYTES_MIN = 48 * MEBIBYTE
#: The least that a disk gives out.
_BLOCK_BYTES = 4096

#: Enough to notice a broker that is never done, not so little that a slow machine fails.
LONG_S = 3 * PATIENCE_S

#: A command on a disk of its own: the words are the folder, then the command.
OWN_DISK = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    f'mkdir -p "$0" && mount -t tmpfs -o size={DISK_BYTES} none "$0" && exec "$@"',
)


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*OWN_DISK, str(folder / "probe"), "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


class SmallDisk:
    """A broker on a small disk, and what takes the room away."""

    def __init__(self, folder: Path, free_bytes_min: int) -> None:
        config = folder / "jackalope.yaml"
        config.write_text(json.dumps({"data": {"free_bytes_min": free_bytes_min}}))
        self.serving = Serving(
            folder, "--config", str(config), within=(*OWN_DISK, str(folder / "data"))
        )
        # The disk is the broker's alone; this is the way to it from outside.
        self._data = Path(f"/proc/{self.serving.pid}/root{folder}/data")

    def fill(self, left_bytes: int) -> None:
        """Leave so much room; with nothing to be left, whoever writes beside this finds none."""
        with (self._data / "ballast").open("wb") as ballast:
            size, step = 0, MEBIBYTE
            while step >= _BLOCK_BYTES:
                disk = os.statvfs(self._data)
                if disk.f_bavail * disk.f_frsize - step < left_bytes:
                    step //= 2
                    continue
                with suppress(OSError):
                    os.posix_fallocate(ballast.fileno(), size, step)
                    size += step

    def clear(self) -> None:
        (self._data / "ballast").unlink()

    def connect(self) -> pika.BlockingConnection:
        port = self.serving.broker.port
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    if not _can_mount(tmp_path):
        pytest.skip("no disk of its own can be mounted here")
    made: list[SmallDisk] = []

    def make(free_bytes_min: int) -> SmallDisk:
        made.append(SmallDisk(tmp_path, free_bytes_min))
        return made[-1]

    yield make
    for each in made:
        with suppress(FileNotFoundError):
            each.clear()
        each.serving.stop()


class Publisher(threading.Thread):
    """Publishes one message after the other, until it is told to stop; counts what is confirmed."""

    def __init__(self, disk: SmallDisk) -> None:
        super().__init__(daemon=True)
        self.blocked, self.unblocked = threading.Event(), threading.Event()
        self.has_some, self.is_over = threading.Event(), threading.Event()
        self.reasons: list[str] = []
        self.confirmed: list[bytes] = []
        self.error = ""
        self._body = b""
        self._channel: Any = None
        parameters = pika.ConnectionParameters("127.0.0.1", disk.serving.broker.port)
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._declare),
            on_close_callback=self._on_closed,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(lambda *_: self.unblocked.set())

    def run(self) -> None:
        self._connection.ioloop.start()
        self._connection.ioloop.close()

    def _declare(self, channel: Any) -> None:
        self._channel = channel
        channel.queue_declare("work", durable=True, callback=self._begin)

    def _begin(self, _: Any) -> None:
        self._channel.confirm_delivery(self._on_confirmed, callback=lambda _: self._publish())

    def _publish(self) -> None:
        self._body = b"%d " % len(self.confirmed) + b"x" * 1_000
        persistent = pika.BasicProperties(delivery_mode=2)
        self._channel.basic_publish("", "work", self._body, persistent)

    def _on_confirmed(self, frame: Any) -> None:
        assert frame.method.NAME == "Basic.Ack"
        self.confirmed.append(self._body)
        if len(self.confirmed) >= 10:
            self.has_some.set()
        if self.is_over.is_set():
            self._connection.close()
        else:
            self._publish()

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self.reasons.append(frame.method.reason)
        self.blocked.set()

    def _on_closed(self, connection: Any, why: Exception) -> None:
        if not self.is_over.is_set():
            self.error = str(why)
        connection.ioloop.stop()


def _drain(disk: SmallDisk) -> list[bytes]:
    """Take out and acknowledge all that is there."""
    got = []
    with disk.connect() as connection:
        channel = connection.channel()
        while (taken := channel.basic_get("work"))[0] is not None:
            channel.basic_ack(taken[0].delivery_tag)
            got.append(taken[2])
        assert channel.queue_declare("work", passive=True).method.message_count == 0
    return got


def test_who_publishes_waits_for_room_and_who_consumes_goes_on(
    small_disk: Callable[[int], SmallDisk],
) -> None:
    disk = small_disk(FREE_BYTES_MIN)
    publisher = Publisher(disk)
    publisher.start()
    assert publisher.has_some.wait(LONG_S)
    # Enough is left for all that is published before the broker looks at the disk again.
    disk.fill(FREE_BYTES_MIN - MEBIBYTE)
    assert publisher.blocked.wait(LONG_S), publisher.error
    assert "free disk space is" in publisher.reasons[0]
    confirmed = list(publisher.confirmed)
    assert _drain(disk) == confirmed
    assert publisher.confirmed == confirmed
    assert not publisher.unblocked.is_set()
    publisher.is_over.set()
    disk.clear()
    assert publisher.unblocked.wait(LONG_S)
    publisher.join(LONG_S)
    assert not publisher.error
    # What waited when it was blocked was taken after all, and only once.
    assert len(publisher.confirmed) == len(confirmed) + 1
    assert _drain(disk) == publisher.confirmed[-1:]


def test_a_disk_without_any_room_loses_nothing_that_was_confirmed(
    small_disk: Callable[[int], SmallDisk],
) -> None:
    disk = small_disk(0)
    publisher = Publisher(disk)
    publisher.start()
    assert publisher.has_some.wait(LONG_S)
    disk.fill(0)
    publisher.join(LONG_S)
    assert publisher.error
    # Whoever comes back is let in and told to wait, and nothing is refused.
    again = Publisher(disk)
    again.start()
    assert again.blocked.wait(LONG_S)
    assert "no space left" in again.reasons[0]
    disk.clear()
    assert again.unblocked.wait(LONG_S)
    assert again.has_some.wait(LONG_S)
    again.is_over.set()
    again.join(LONG_S)
    assert not again.error
    got = _drain(disk)
    # One more may be there whose confirmation the end of the connection has kept back.
    assert got[: len(publisher.confirmed)] == publisher.confirmed
    assert len(got) - len(publisher.confirmed) - len(again.confirmed) in (0, 1)
    assert got[-len(again.confirmed) :] == again.confirmed
