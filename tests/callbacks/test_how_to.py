"""The verification that the how-to shows, as a receiver would run it, with keys that change."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackalope.broker.config.callbacks import (
    SECRET_CHARS_MIN,
    SIGNING_KEYS_MAX,
    CallbacksConfig,
    allowed_targets,
    callback_settings_problems,
    signing_keys,
)
from jackalope.callbacks.signature import sign

PAGE = Path(__file__).parents[2] / "docs/how-to/callbacks.md"

OLD, NEW = "2030-01:" + "o" * SECRET_CHARS_MIN, "2030-02:" + "n" * SECRET_CHARS_MIN


def shown() -> Callable[[dict[str, str], bytes, dict[str, str]], bool]:
    """Return the function of the page."""
    (code,) = re.findall(r"```python\n(import hmac.*?)```", PAGE.read_text(), re.DOTALL)
    there: dict[str, Any] = {}
    exec(code, there)  # noqa: S102  it is ours
    found: Callable[[dict[str, str], bytes, dict[str, str]], bool] = there["is_genuine"]
    return found


def test_keys_change_without_a_moment_at_which_both_ends_must() -> None:
    is_genuine, body = shown(), b'{"a": 1}'
    old, new = dict([OLD.split(":")]), dict([NEW.split(":")])
    for keys, receivers in (
        ((OLD,), (old, old | new)),
        ((NEW, OLD), (old, new, old | new)),
        ((NEW,), (new, old | new)),
    ):
        headers = sign(signing_keys(CallbacksConfig(keys=keys)), int(time.time()), body)
        for receiver in receivers:
            assert is_genuine(headers, body, receiver)
            assert not is_genuine(headers, body + b" ", receiver)
    headers = sign(signing_keys(CallbacksConfig(keys=(NEW,))), int(time.time()), body)
    assert not is_genuine(headers, body, old)
    assert not is_genuine(headers, body, {"2030-02": "another secret of theirs"})


def test_an_old_request_is_not_genuine() -> None:
    key = signing_keys(CallbacksConfig(keys=(NEW,)))
    headers = sign(key, int(time.time()) - 600, b"")
    assert not shown()(headers, b"", dict([NEW.split(":")]))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (CallbacksConfig(allow=("10.0.0.0/99",)), "callbacks.allow[0]"),
        (CallbacksConfig(allow=("10.0.0.0/8", "a b")), "callbacks.allow[1]"),
        (CallbacksConfig(keys=("short:secret",)), "callbacks.keys[0]"),
        (CallbacksConfig(keys=("x" * 30,)), "callbacks.keys[0]"),
        (CallbacksConfig(keys=(NEW, NEW)), "a name of its own"),
        (CallbacksConfig(keys=(NEW,) * (SIGNING_KEYS_MAX + 1)), "at most 5"),
        (CallbacksConfig(ca="/nowhere.pem"), "callbacks.ca"),
    ],
)
def test_settings_that_cannot_be(config: CallbacksConfig, problem: str) -> None:
    problems = "; ".join(callback_settings_problems(config))
    assert problem in problems
    assert "nnnn" not in problems


def test_settings_that_can_be() -> None:
    config = CallbacksConfig(allow=("10.0.0.1/8", "::1", "Hooks.example."), keys=(NEW, OLD))
    assert callback_settings_problems(config) == []
    allowed = allowed_targets(config)
    assert [str(each) for each in allowed.networks] == ["10.0.0.0/8", "::1/128"]
    assert allowed.hosts == ("hooks.example",)
