"""Completion offers what the live broker has, and is silent without one."""

from __future__ import annotations

import socket
import subprocess
import time

import pytest

from jackalope.cli.completion import ASK_S_MAX
from jackalope.transport.address import Address
from tests.cli.conftest import JACKALOPE, Cli, clean_environment
from tests.cli.stub_worker import working


def completed(words: str, **more: str) -> tuple[list[str], str]:
    environment = clean_environment() | {
        "_JACKALOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"jackalope {words}",
        "COMP_CWORD": str(len(f"{words}x".split())),
        **more,
    }
    ran = subprocess.run([JACKALOPE], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.split(), ran.stderr


def patiently(words: str, **more: str) -> tuple[list[str], str]:
    """Ask again while nothing is offered: a busy machine may not answer within the time."""
    deadline = time.monotonic() + 20
    while not (found := completed(words, **more))[0] and not words.endswith("drain x"):
        assert time.monotonic() < deadline, "nothing was offered"
    return found


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("list --queue ", ["images", "mail"]),
        ("list --queue im", ["images"]),
        ("submit -q ma", ["mail"]),
        ("queues pause ", ["images", "mail"]),
        ("tail --queue i", ["images"]),
        ("drain ", ["w1"]),
        ("submit --name ", ["app.report", "app.resize", "app.send"]),
        ("list --queue mail --name ", ["app.report", "app.send"]),
        ("kill --name app.res", ["app.resize"]),
        ("schedules show ", ["nightly"]),
        ("schedules pause n", ["nightly"]),
        ("limits show ", ["gpu", "per-user"]),
        ("limits set p", ["per-user"]),
        ("limits remove ", ["gpu"]),
        ("drain x", []),
    ],
)
def test_the_broker_is_asked(cli: Cli, address: Address, words: str, offered: list[str]) -> None:
    cli("submit", "-q", "images", "--name", "app.resize", "--held")
    cli("submit", "-q", "mail", "--name", "app.send", "--held")
    cli("schedules", "set", "nightly", "queue=mail", "task=app.report", "cron=0 3 * * *")
    cli("limits", "set", "gpu", "4")
    cli("limits", "set", "per-user", "--key", "user", "--concurrency", "2")
    with working(address, "w1", "images"):
        assert patiently(words, JACKALOPE_BROKER=str(address)) == (offered, "")
        assert patiently(f"-b {address} {words}") == (offered, "")


def test_without_a_broker_it_is_silent() -> None:
    assert completed("list --queue ", JACKALOPE_BROKER="127.0.0.1:1") == ([], "")
    assert completed("list --queue ", JACKALOPE_BROKER="not an address") == ([], "")


def test_a_broker_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        begin = time.monotonic()
        assert completed("drain ", JACKALOPE_BROKER=f"127.0.0.1:{deaf.getsockname()[1]}") == (
            [],
            "",
        )
        # Besides the wait itself there is the start of a process, on a machine that may be busy.
        assert time.monotonic() - begin < ASK_S_MAX + 8
