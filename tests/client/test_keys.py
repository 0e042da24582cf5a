"""Keys of tasks: what a user may write, and what is sent of a call."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from jackalope import ConfigError, Jackalope
from jackalope.core.task import NO_OPTIONS

app = Jackalope("jackalope://nowhere.invalid")


@dataclass
class Account:
    tenant: str


@app.task(queue="mail", keys=("user_id", "account.tenant", "host"))
def send(user_id: Any, account: Account, host: str = "a.example") -> None:
    raise NotImplementedError


@app.task(queue="mail", keys={"region": "eu", "shard": 4})
def sweep() -> None:
    raise NotImplementedError


def _keys(task: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    keys: dict[str, str] = (task.prepare(*args, **kwargs).options or NO_OPTIONS).keys
    return keys


def test_arguments_become_keys_by_place_and_by_name() -> None:
    named = {"user_id": "7", "account.tenant": "acme", "host": "a.example"}
    assert _keys(send, 7, Account("acme")) == named
    assert _keys(send, account=Account("acme"), user_id="7") == named
    assert _keys(send, 7, {"tenant": "acme"}, host="b") == {**named, "host": "b"}


def test_an_argument_that_is_none_gives_no_key() -> None:
    assert "user_id" not in _keys(send, None, Account("acme"))


def test_values_are_sent_as_other_languages_send_them() -> None:
    user = uuid.UUID(int=5)
    assert _keys(send, user, Account("a"))["user_id"] == str(user)


def test_keys_can_be_given_with_their_values() -> None:
    assert _keys(sweep) == {"region": "eu", "shard": "4"}
    assert _keys(sweep.options(keys={"region": "us"})) == {"region": "us"}


def test_requests_have_keys_too() -> None:
    assert _keys(send.options(same="cached"), 7, Account("acme"))["user_id"] == "7"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("user_id", "nobody"), "no argument 'nobody'"),
        ({"": "x"}, "1 to 128 characters"),
        ({"x" * 129: "x"}, "1 to 128 characters"),
        ([""], "keys: "),
        (5, "keys: "),
        ({f"k{number}": "v" for number in range(17)}, "more than 16"),
        ({"k": "a\0"}, "none NUL"),
    ],
)
def test_bad_keys_are_refused(keys: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        send.options(keys=keys).prepare(7, Account("acme"))


def test_no_arguments_are_known_of_bytes() -> None:
    with pytest.raises(ConfigError, match="where no arguments are known"):
        asyncio.run(app.submit("mail", b"", keys=("user_id",)))
