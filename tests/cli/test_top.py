"""The live view, on a terminal that is emulated and with a broker that is real."""

from __future__ import annotations

import os
import re
import signal
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from jackalope.cli.base import Format
from jackalope.cli.output import SafeConsole, Screen
from jackalope.cli.top.drawing import HELP, KEYS, draw
from jackalope.cli.top.model import Look, Model, Panel
from jackalope.core.lifecycle import State
from jackalope.core.policy import DEFAULT_POLICY
from jackalope.task_ids import new_task_id
from jackalope.terminal import is_safe
from jackalope.transport.address import Address
from jackalope.wire.views import ErrorView, QueueView, StatsView, TaskView, WorkerView
from tests.cli.conftest import Cli
from tests.cli.emulator import Emulator
from tests.cli.stub_worker import working

UP, DOWN, TAB, ESCAPE, ENTER = "\x1b[A", "\x1b[B", "\t", "\x1b", "\r"


@pytest.fixture
def running(cli: Cli, address: Address) -> Iterator[str]:
    """Have a worker with a task that runs, one that died, and a queue that no worker serves."""
    with working(address, "w1", "images"):
        task = cli("submit", "-q", "images", "--name", "stay").out.strip()
        failed = cli("submit", "-q", "images", "--name", "fail", "--retries", "0").out.strip()
        cli("wait", failed)
        cli("submit", "-q", "unserved", "--name", "waits")
        yield task


@pytest.fixture
def top(address: Address) -> Iterator[Emulator]:
    with Emulator("-b", str(address), "top", "--every", "200ms") as terminal:
        yield terminal


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def is_restored(terminal: Emulator) -> bool:
    """Return whether a terminal is as it was: its modes, its cursor, and its own screen."""
    left = terminal.raw.rpartition(b"\x1b[?1049l")
    return (
        termios.tcgetattr(terminal.theirs) == terminal.settings
        and terminal.raw.count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l") == 1
        and b"\x1b[?25h" in left[0][-20:]
    )


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_everything_is_on_one_screen(
    address: Address, running: str, columns: int, lines: int
) -> None:
    where = ("-b", str(address))
    with Emulator(*where, "top", columns=columns, lines=lines) as terminal:
        text = terminal.until(
            lambda text: "ValueError: no" in text and "stay" in text and KEYS in text
        )
        for words in ("queues 2", "workers 1", "slowest 1", "failing 1", "no worker", "1/4"):
            assert words in text
        assert "ready 1" in text
        assert re.search(r"succeeded [\d.-]+/s", text)
        assert running[:13] in text
        assert text.splitlines()[-1] == KEYS
        # A terminal that does not block loses a part of what is written to it at once.
        assert os.get_blocking(terminal.theirs)
        assert ("queues 2" in text.splitlines()[3]) == ("slowest 1" not in text.splitlines()[3])
        side_by_side = re.search(r"queues 2.*workers 1", text)
        assert bool(side_by_side) == (columns == 200)


@pytest.mark.usefixtures("running")
def test_keys_filter_explain_and_help(top: Emulator) -> None:
    top.until(lambda text: "slowest 1" in text)
    top.type("/")
    top.until(lambda text: "filter _" in text)
    top.type("unser")
    text = top.until(lambda text: "queues 1" in text)
    assert "images" not in text
    top.type(ENTER + "e")
    assert "no worker serves it" in top.until(lambda text: "queue unserved" in text)
    top.type(ESCAPE)
    top.until(lambda text: "queues 1" in text)
    top.type(ESCAPE)
    top.until(lambda text: "queues 2" in text)
    top.type(TAB + "e")
    assert "1 of 4 slots" in top.until(lambda text: "worker w1 is active" in text)
    top.type(ESCAPE + TAB + "e")
    assert "runs on worker 'w1'" in top.until(lambda text: "stay" in text and "is running" in text)
    top.type(ESCAPE + TAB + "e")
    assert "Traceback: in resize" in top.until(lambda text: "is dead" in text)
    top.type("?")
    top.until(lambda text: HELP.splitlines()[0].rstrip() in text)
    top.type("q")
    assert top.wait() == 0
    assert is_restored(top)


def test_keys_pause_kill_and_retry(cli: Cli, top: Emulator, running: str) -> None:
    def paused() -> list[str]:
        return [each["queue"] for each in cli("queues", "-f", "json").json if each["paused_by"]]

    def state() -> str:
        return str(cli("status", running, "-f", "json").json["state"])

    top.until(lambda text: "slowest 1" in text)
    top.type("p")
    top.until(lambda text: "paused by" in text)
    eventually(lambda: paused() == ["images"])
    top.type("p")
    eventually(lambda: not paused())
    top.until(lambda text: "queue images is resumed" in text)
    top.type("k")
    top.until(lambda text: "that works on tasks" in text)
    top.type(TAB + TAB + "k")
    top.until(lambda text: "kill stay" in text and "[y/n]" in text)
    top.type("n")
    top.until(lambda text: "nothing was changed" in text)
    assert state() == "running"
    top.type("ky")
    eventually(lambda: state() == "killed")
    top.until(lambda text: "slowest\n" in text or "slowest " in text)
    failed = cli("list", "--state", "dead", "-f", "json").json[0]
    top.until(lambda text: "failing 1" in text)
    top.type(TAB + "r")
    top.until(lambda text: "retry: done" in text)
    again = cli("status", failed["id"], "-f", "json").json
    assert again["attempts"] > failed["attempts"] or again["state"] != "dead"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_terminal_is_given_back(top: Emulator, number: signal.Signals, code: int) -> None:
    top.until(lambda text: "queues" in text)
    assert termios.tcgetattr(top.theirs) != top.settings
    top.process.send_signal(number)
    assert top.wait() == code
    assert is_restored(top)


@pytest.mark.usefixtures("running")
def test_a_new_size_is_drawn(top: Emulator) -> None:
    top.until(lambda text: "slowest 1" in text)
    top.resize(150, 40)
    top.process.send_signal(signal.SIGWINCH)
    top.until(lambda text: re.search(r"queues 2.*workers 1", text))


@pytest.mark.usefixtures("running")
def test_only_what_changes_is_sent(top: Emulator) -> None:
    top.until(lambda text: "slowest 1" in text)
    first = len(top.raw)
    clock = re.compile(r"\d\d:\d\d:\d\d")
    seen = {clock.findall(top.text())[0]}
    while len(seen) < 4:
        top.until(lambda text: clock.findall(text)[0] not in seen)
        seen.add(clock.findall(top.text())[0])
    # Some fifteen looks: each sends the line with the time, and the ages that have changed.
    assert len(top.raw) - first < 15 * 600


@pytest.mark.usefixtures("address")
def test_it_needs_a_terminal(cli: Cli) -> None:
    for flags in ((), ("-f", "json")):
        ran = cli("top", *flags)
        assert ran.code == 2
        assert "needs a terminal: use `jackalope stats --watch" in ran.err


# Drawing, without a terminal.


def model(names: int = 30, evil: str = "") -> Model:
    stats = StatsView(
        {State.READY: 5}, {}, {State.SUCCEEDED: 9}, 1, 1, 1, 9_000_000, "fsync", "1", 7
    )
    queues = [
        QueueView(f"q{n}{evil}", {State.READY: n}, n, 0, DEFAULT_POLICY, f"ann{evil}")
        for n in range(names)
    ]
    workers = [WorkerView(f"w{n}{evil}", "idle", (f"q{evil}",)) for n in range(names)]
    tasks = [
        TaskView(
            new_task_id(),
            "default",
            f"q{evil}",
            State.DEAD,
            f"n{evil}",
            worker=f"w{evil}",
            error=ErrorView(f"E{evil}", f"m{evil}", f"t{evil}"),
            started_us=n + 1,
            ended_us=n + 1,
        )
        for n in range(names)
    ]
    made = Model("here")
    made.update(Look(stats, queues, workers, tasks, tasks), 9_000_000)
    return made


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (40, 10), (139, 24), (20, 5)])
@pytest.mark.parametrize("names", [0, 1, 30])
@pytest.mark.parametrize("overlay", [("", ""), ("Keys", HELP), ("long", "x" * 5_000)])
def test_it_fills_the_screen_exactly(
    columns: int, lines: int, names: int, overlay: tuple[str, str]
) -> None:
    shown = model(names)
    shown.overlay = overlay
    console = Console(width=columns, height=lines, file=None)
    with console.capture() as captured:
        console.print(draw(shown, columns, lines, 9_000_000), end="")
    text = captured.get().rstrip("\n").split("\n")
    assert len(text) == max(lines, 5)
    assert max(map(len, text)) <= columns


def test_no_name_controls_the_terminal() -> None:
    shown = model(3, "\x1b[31mred\x07\u202e")
    screen = Screen(Format.TABLE, SafeConsole(stderr=False), SafeConsole(stderr=True))
    for panel in Panel:
        shown.panel = panel
        assert all(is_safe(line) for line in screen.lines_of(draw(shown, 80, 24, 9_000_000)))


def test_the_selection_stays_within_the_rows() -> None:
    shown = model(30)
    shown.move(100)
    assert shown.at[Panel.QUEUES] == 29
    shown.narrow("q1")
    assert shown.at[Panel.QUEUES] == len(shown.rows(Panel.QUEUES)) - 1 == 10
    shown.narrow("nothing")
    assert shown.selected() is None
    shown.move(-1)
    shown.narrow("")
    assert shown.selected().queue == "q29"
    shown.turn(-1)
    assert shown.panel is Panel.FAILING
