"""What holds for all tests: how hard Hypothesis tries, which files begin, what is stored."""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from jackalope.broker.engine import Engine, Turn
from jackalope.core.records import decode_batch, encode_batch, level_of
from tests import profiles

profiles.load()

# A shell starts what runs in the background with interrupts ignored, and every program that a test
# starts would inherit that: none of them could be ended as by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Their files take longest: begun last, one of them would run on alone at the end. (A file is never
#: shared by two processes; that of the fan-outs alone takes minutes on a busy machine.)
_FIRST = [Path(__file__).parent / name for name in ("aiida", "simulation", "acceptance", "worker")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(item.path.is_relative_to(folder) for folder in _FIRST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was skipped and why, so that a green run on a bare machine does not deceive."""
    lines = skipped_lines(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("skipped, and why")
        for line in lines:
            terminalreporter.line(line)


def skipped_lines(reports: Iterable[pytest.CollectReport | pytest.TestReport]) -> list[str]:
    """Return each reason once, with how many tests were skipped for it, the most first."""
    reasons: Counter[str] = Counter()
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    return [f"{count:5}  {reason}" for reason, count in reasons.most_common()]


@pytest.fixture(autouse=True, scope="session")
def _every_batch_is_decoded_before_it_is_acknowledged() -> Iterator[None]:
    """Let every broker of this process read a batch as a start would, before it stores it."""
    store = Engine.store

    def store_what_can_be_read(engine: Engine, turn: Turn) -> None:
        if body := turn.body:
            assert encode_batch(decode_batch(body), level_of(body)) == body
        store(engine, turn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "store", store_what_can_be_read)
        yield
