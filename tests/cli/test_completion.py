"""Completion offers what the live broker has, and is silent without one."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from jackalope.cli.completion import ASK_S_MAX, Shell
from jackalope.transport.address import Address
from tests.cli.conftest import JACKALOPE, Cli, clean_environment
from tests.cli.stub_worker import working


def completed(words: str, shell: str = "bash", **more: str) -> tuple[list[str], str]:
    """Ask as the script of a shell does; return the words that are offered."""
    environment = clean_environment() | {
        "_JACKALOPE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": f"jackalope {words}",
        "COMP_CWORD": str(len(f"{words}x".split())),
        **more,
    }
    ran = subprocess.run([JACKALOPE], env=environment, capture_output=True, text=True, check=True)
    return WORDS[shell].findall(ran.stdout), ran.stderr


#: A word as it is answered to each shell: with its kind, and except to bash what it means.
WORDS = {
    "bash": re.compile(r"^plain,(.+)$", re.MULTILINE),
    "zsh": re.compile(r"^plain\n(.+)\n.+$", re.MULTILINE),
    "fish": re.compile(r"^plain,(.+)\t.+$", re.MULTILINE),
}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("queue", ["queue-depth", "queues"]),
        ("queues pa", ["pause"]),
        ("limits ", ["delete", "list", "remove", "set", "show"]),
        ("list --sta", ["--state"]),
        ("list --state p", ["paused", "pending"]),
        ("list --format ", ["json", "table", "yaml"]),
        ("--format j", ["json"]),
        ("submit --same c", ["cached"]),
    ],
)
def test_what_is_always_there_is_offered(words: str, offered: list[str]) -> None:
    found, errors = completed(words)
    assert (sorted(found), errors) == (offered, "")


@pytest.mark.parametrize("shell", list(Shell))
def test_each_shell_is_given_a_script_and_answered(cli: Cli, shell: Shell) -> None:
    script = cli("completion", shell.value).out
    assert f"_JACKALOPE_COMPLETE={shell}_complete" in script
    # fish sends the word itself in place of its number.
    number = {"COMP_CWORD": "queue"} if shell is Shell.FISH else {}
    assert completed("queue", shell.value, **number)[0] == ["queue-depth", "queues"]


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    typed = """
        source <(jackalope completion bash) && complete -p jackalope
        COMP_WORDS=(jackalope keys cr) COMP_CWORD=2
        _jackalope_completion jackalope cr keys; echo "${COMPREPLY[@]}"
    """
    path = f"{Path(JACKALOPE).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", typed],
        cwd=tmp_path,
        env=clean_environment() | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [
        "complete -o nosort -F _jackalope_completion jackalope",
        "create",
    ]
    assert ran.stderr == ""


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
