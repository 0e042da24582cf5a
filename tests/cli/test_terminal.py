"""What comes from outside cannot speak to the operator's terminal."""

import io
import json
import logging

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jackalope.log_setup import set_up
from jackalope.terminal import in_json, in_line, is_safe, visible
from jackalope.transport.address import Address
from tests.cli.conftest import Cli
from tests.cli.stub_worker import working

#: A title, a colour, a cleared line; C1's short form of ESC [; a bell; text written backwards.
EVIL = "a\x1b]0;owned\x07\x1b[31mred\x1b[2K\x9b1mb\x7f\u202egpj.exe\u2066c"

SHOWN = r"a\x1b]0;owned\x07"


@given(st.text())
def test_escaped_text_is_safe_and_safe_text_is_left_alone(text: str) -> None:
    assert is_safe(visible(text))
    assert visible(visible(text)) == visible(text)
    assert "\n" not in in_line(text)
    if is_safe(text):
        assert visible(text) == text


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same(value: object) -> None:
    text = in_json(json.dumps(value, ensure_ascii=False))
    assert is_safe(text)
    assert json.loads(text) == value


COMMANDS = [
    ("list",),
    ("status", "{open}"),
    ("status", "{failed}"),
    ("explain", "{open}"),
    ("explain", "{failed}"),
    ("history", "{open}"),
    ("history", "{failed}"),
    ("wait", "{failed}"),
    ("queues",),
    ("queues", "show", EVIL),
    ("queues", "pause", EVIL),
    ("queues", "resume", EVIL),
    ("queues", "set", EVIL, "retries=4"),
    ("workers",),
    ("limits",),
    ("limits", "set", EVIL, "1"),
    ("limits", "set", EVIL, "--queue", EVIL, "--task", EVIL, "--concurrency", "1"),
    ("limits", "show", EVIL),
    ("limits", "show", "nobody" + EVIL),
    ("batches", EVIL),
    ("queue-depth",),
    ("stats",),
    ("hold", "{open}"),
    ("play", "{open}"),
    ("purge", "--state", "dead", "--dry-run"),
    ("status", EVIL),
    ("status", "nobody" + EVIL),
    ("drain", "nobody" + EVIL),
    ("kill", "nobody" + EVIL),
    ("cache", "list"),
    ("cache", "show", "nothing" + EVIL),
]


def test_no_command_lets_anything_through(cli: Cli, address: Address) -> None:
    with working(address, "w" + EVIL, "busy" + EVIL):
        made = {
            "open": ("-q", EVIL, "--name", EVIL, "--alias", EVIL, "--key", EVIL, "--tag", EVIL),
            "failed": ("-q", "busy" + EVIL, "--name", "fail", "--retries", "0"),
        }
        ids = {
            which: cli("submit", *options, "--payload", EVIL).out.strip()
            for which, options in made.items()
        }
        assert cli("wait", ids["failed"]).code == 1
        for command in COMMANDS:
            words = [
                word.format(**ids) if word in ("{open}", "{failed}") else word for word in command
            ]
            for form in ("table", "json", "yaml"):
                ran = cli(*words, "--format", form)
                assert is_safe(ran.out), (words, form, ran.out)
                assert is_safe(ran.err), (words, form, ran.err)
        assert SHOWN in cli("status", ids["open"]).out
        assert SHOWN in cli("status", ids["failed"]).out
        assert SHOWN in cli("queues").out
        for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            seen = read(cli("status", ids["open"], "-f", form).out)
            assert (seen["queue"], seen["alias"], seen["payload"]) == (EVIL, EVIL, EVIL)


def test_a_line_of_the_log_on_a_terminal_is_one_line() -> None:
    stream = io.StringIO()
    close = set_up("info", "console", stream=stream)
    log = structlog.get_logger(component="broker")
    message = "dead\n" + EVIL
    log.warning(message, queue=EVIL, error=message)
    logging.getLogger("library").warning(EVIL)
    try:
        int(EVIL)
    except ValueError:
        log.exception("bug")
    close()
    assert is_safe(stream.getvalue())
    assert stream.getvalue().count("dead") == 2
    assert len(stream.getvalue().partition("bug")[0].splitlines()) <= 3


@pytest.mark.parametrize("end", ["\n", "\t"])
def test_ends_of_lines_stay_where_they_belong(end: str) -> None:
    assert visible(f"a{end}b") == f"a{end}b"
    assert end not in in_line(f"a{end}b")
