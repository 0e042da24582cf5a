"""Tokens, principals, and where a broker may listen."""

import pytest

from jackalope.broker.access import (
    ANYONE,
    Access,
    Principal,
    acting,
    hash_of,
    id_of,
    is_token_of,
    new_token,
    sees,
)
from jackalope.broker.config.exposure import exposure_problems, is_loopback, may_be_open
from jackalope.broker.config.schema import AuthConfig, Config, HttpConfig, NativeConfig, TlsConfig
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.book import Book

EVERYWHERE = "0.0.0.0"  # noqa: S104


def make_key(token: str, **fields: object) -> ApiKey:
    return ApiKey(id_of(token), hash_of(token), "ada", (Permission.WORK,), **fields)  # type: ignore[arg-type]


# Tokens.


def test_no_two_tokens_are_alike() -> None:
    tokens = {new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert len({id_of(token) for token in tokens}) == 1_000
    assert len({hash_of(token) for token in tokens}) == 1_000


def test_a_token_has_256_random_bits_and_names_its_key() -> None:
    token = new_token()
    prefix, key_id, secret = token.split("_", 2)
    assert (prefix, id_of(token), len(secret)) == ("jk", key_id, 43)
    assert is_token_of(token, hash_of(token))
    assert not is_token_of(token + "x", hash_of(token))
    assert not is_token_of("", hash_of(token))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "password",
        "jk_",
        "jk_a1_",
        "jk_a1_" + "x" * 42,
        "jk_a1_" + "x" * 44,
        "jk__" + "x" * 43,
        "jk_XY_" + "x" * 43,
        "jk_a1_" + "ä" * 43,
        "jk_a1_" + "x" * 43 + "\n",
        "jk_" + "a" * 33 + "_" + "x" * 43,
        "jk_a1_" + "x" * 1_000_000,
    ],
)
def test_what_is_no_token_is_of_no_key(text: str) -> None:
    assert id_of(text) == ""


# Who is let in.


def test_keys_of_the_book_are_followed() -> None:
    access, book, token = Access(), Book(), new_token()
    key = make_key(token)
    told: list[bool] = []
    access.changed.append(lambda: told.append(access.is_open))
    access.follow(book)
    book.keep_api_key(key)
    access.follow(book)
    access.follow(book)
    principal = access.admit(token, 1)
    assert isinstance(principal, Principal)
    assert access.is_current(principal, 1)
    assert not access.is_current(ANYONE, 1)
    book.drop_api_key(key.id)
    access.follow(book)
    assert not access.is_current(principal, 1)
    assert (told[0], told[-2:]) == (True, [False, True])


def test_a_key_made_again_under_its_id_is_another_key() -> None:
    access, book, token = Access(may_be_open=False), Book(), new_token()
    book.keep_api_key(make_key(token))
    access.follow(book)
    principal = access.admit(token, 1)
    assert isinstance(principal, Principal)
    book.drop_api_key(id_of(token))
    book.keep_api_key(make_key(token))
    access.follow(book)
    assert not access.is_current(principal, 1)


def test_a_key_ends_at_its_time() -> None:
    token = new_token()
    access = Access([make_key(token, expires_us=100)])
    principal = access.admit(token, 99)
    assert isinstance(principal, Principal)
    assert access.is_current(principal, 99)
    assert not access.is_current(principal, 100)
    late = access.admit(token, 100)
    assert isinstance(late, Refusal)
    assert late.code is Code.UNAUTHORISED


def test_admin_includes_everything() -> None:
    token = new_token()
    admin = Principal(ApiKey(id_of(token), hash_of(token), "ada", (Permission.ADMIN,)))
    assert all(admin.may(permission) for permission in Permission)
    worker = Principal(make_key(token))
    assert [p for p in Permission if worker.may(p)] == [Permission.WORK]
    assert all(ANYONE.may(permission) for permission in Permission)


def test_who_acts_sees_its_queues() -> None:
    assert sees("images")
    before = acting.set(Principal(make_key(new_token(), queues=("images",))))
    try:
        assert sees("images")
        assert not sees("sounds")
    finally:
        acting.reset(before)


# Where it may listen.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "broker.lan", "", "localhost.x"])
def test_everything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


TLS = TlsConfig("cert.pem", "key.pem")
NATIVE, HTTP = NativeConfig(host=EVERYWHERE), HttpConfig(host=EVERYWHERE)


@pytest.mark.parametrize(
    ("config", "has_keys", "missing"),
    [
        (Config(), False, []),
        (Config(native=NATIVE), False, ["native", "native", "or"]),
        (Config(native=NATIVE), True, ["native", "or"]),
        (Config(native=NATIVE, tls=TLS), False, ["native", "or"]),
        (Config(native=NATIVE, tls=TLS), True, []),
        (Config(http=HTTP, tls=TLS), True, []),
        (Config(http=HTTP), True, ["http", "or"]),
        (Config(native=NATIVE, http=HTTP), True, ["native", "http", "or"]),
        (Config(http=HttpConfig(host=EVERYWHERE, enabled=False)), False, []),
        (Config(http=HttpConfig(host=EVERYWHERE, tls=False), tls=TLS), True, ["http", "or"]),
        (Config(native=NATIVE, http=HTTP, auth=AuthConfig(insecure=True)), False, []),
    ],
)
def test_beyond_this_machine_keys_and_tls_are_needed(
    config: Config, has_keys: bool, missing: list[str]
) -> None:
    problems = exposure_problems(config, has_keys=has_keys)
    assert [problem.split(".")[0].split()[0] for problem in problems] == missing


def test_only_who_is_alone_or_says_so_may_be_open() -> None:
    assert may_be_open(Config())
    assert not may_be_open(Config(native=NATIVE, tls=TLS))
    assert may_be_open(Config(native=NATIVE, auth=AuthConfig(insecure=True)))
