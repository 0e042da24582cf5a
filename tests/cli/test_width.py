"""Lists on a terminal of 80 columns: short ids, task names, relative times; all with `--wide`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from jackalope.cli.formatting import SHORT_ID_CHARS, age, id_text, short_ids
from jackalope.task_ids import new_task_id
from jackalope.transport.address import Address
from tests.cli.conftest import Cli
from tests.cli.emulator import Emulator
from tests.cli.stub_worker import working

pytestmark = pytest.mark.usefixtures("address")

LONG = "shop.orders.fulfilment.reserve_stock_in_every_warehouse"
QUEUE = "a-queue-with-quite-a-long-name-for-a-queue"
WORKER = "worker-of-the-third-rack-in-the-second-room-7"


@pytest.fixture
def filled(cli: Cli, address: Address) -> Iterator[list[str]]:
    """Have a worker that holds a task, and tasks that no worker serves."""
    with working(address, WORKER, QUEUE):
        ids = []
        for queue, name, alias in (
            (QUEUE, "stay", ""),
            ("unserved", LONG, "alias-of-the-first-of-them"),
            ("unserved", LONG, ""),
        ):
            options = ("-q", queue, "--name", name, "--alias", alias)
            ids.append(cli("submit", *options).out.strip())
        yield ids


def shown(address: Address, *arguments: str, columns: int = 80) -> str:
    with Emulator("-b", str(address), *arguments, columns=columns, lines=40) as terminal:
        assert terminal.wait() == 0
        return terminal.text()


def test_a_list_fits_80_columns(cli: Cli, address: Address, filled: list[str]) -> None:
    text = shown(address, "list")
    rows = [row for row in text.splitlines() if row.startswith(filled[0][:8])]
    assert len(rows) == 3  # One line each: nothing is wrapped.
    short = [row.split()[0] for row in rows]
    for prefix, task in zip(short, reversed(filled), strict=True):
        assert task.startswith(prefix)
        assert len(prefix) < 20
        for command in ("status", "explain", "history"):
            ran = cli(command, prefix, "-f", "json")
            assert ran.code == 0, ran.err
        assert cli("status", prefix, "-f", "json").json["id"] == task
    assert "shop." in rows[0]
    assert "stay" in rows[2]
    assert re.search(r"\b\d+s$", rows[0])


def test_wide_shows_whole_ids_and_names(address: Address, filled: list[str]) -> None:
    text = shown(address, "list", "--wide", columns=170)
    assert all(task in text for task in filled)
    # A narrow terminal wraps it, and nothing is left out.
    unwrapped = shown(address, "list", "--wide").replace("\n", "")
    assert all(task in unwrapped for task in filled)


def test_a_pipe_gets_whole_ids(cli: Cli, filled: list[str]) -> None:
    assert [row.split()[0] for row in cli("list").out.splitlines()[2:]] == filled[::-1]


@pytest.mark.usefixtures("filled")
def test_workers_fit_80_columns(address: Address) -> None:
    text = shown(address, "workers")
    [row] = [row for row in text.splitlines() if row.startswith("worker-of")]
    assert "active" in row
    assert "1/4" in row
    assert re.search(r" \d+s +\d+s", row)
    wide = shown(address, "workers", "--wide", columns=170)
    assert QUEUE[:39] in wide


@pytest.mark.parametrize("is_wide", [False, True])
def test_events_fit_80_columns(cli: Cli, address: Address, is_wide: bool) -> None:
    flags = ["--wide"] if is_wide else []
    with Emulator("-b", str(address), "tail", "-l", "1", *flags, columns=80) as terminal:
        terminal.until(lambda text: "listening" in text)
        while terminal.process.poll() is None:
            cli("submit", "-q", QUEUE, "--name", LONG, "--key", "paris")
        assert terminal.wait() == 0
        text = terminal.text()
    lines = [line for line in text.splitlines() if line.strip() and "listening" not in line]
    assert len(lines) == 1 + is_wide
    if is_wide:
        assert QUEUE in text.replace("\n", "")
    else:
        head = r"\d\d:\d\d:\d\d [0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3} submit +ready"
        assert re.match(head, lines[0])
        assert "shop.orders" in lines[0]


def test_short_ids_tell_these_apart() -> None:
    ids = [new_task_id() for _ in range(500)]
    short = short_ids(ids)
    assert len(set(short.values())) == len(ids)
    for task_id, text in short.items():
        whole = id_text(task_id)
        assert whole.startswith(text)
        assert SHORT_ID_CHARS <= len(text) < len(whole)
        assert not text.endswith("-")
        assert sum(id_text(each).startswith(text) for each in ids) == 1
    assert short_ids([ids[0]]) == {ids[0]: id_text(ids[0])[:SHORT_ID_CHARS]}
    assert short_ids([]) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m"), (3_600, "1h"), (86_400 * 9, "9d")],
)
def test_age(seconds: int, text: str) -> None:
    base_us = 1_800_000_000_000_000
    assert age(base_us - seconds * 1_000_000, base_us) == text
    assert age(0, base_us) == ""
