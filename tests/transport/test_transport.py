"""Addresses, ids, waits and errors."""

import pickle
import random
import traceback
from uuid import UUID, uuid4

import pytest

from jackalope.core.assertions import BrokenInvariant
from jackalope.core.ids import TaskId, is_time_ordered
from jackalope.core.lifecycle import Reason, State
from jackalope.core.task import Error
from jackalope.errors import (
    ConfigError,
    ConnectionLost,
    JackalopeError,
    PartlyRejected,
    ProtocolError,
    Rejected,
    TaskFailed,
    Timeout,
    refusals,
)
from jackalope.task_ids import IdMaker, new_task_id, to_task_id
from jackalope.transport.address import Address, parse_address
from jackalope.transport.connector import Backoff

# Addresses.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("jackalope://localhost", Address("localhost", 7420)),
        ("jackalope://localhost/", Address("localhost", 7420)),
        ("jackalope://localhost:7", Address("localhost", 7)),
        ("jackalope://s3cret@broker:7420/lab", Address("broker", 7420, "s3cret", "lab")),
        ("jackalope://a%3Ab@broker/a%2Fb/", Address("broker", 7420, "a:b", "a/b")),
        ("jackalope://[::1]:7421", Address("::1", 7421)),
        ("jackalope://a@b@broker", Address("broker", 7420, "a@b")),
        (
            "jackalope://s3cret@a:1,b,[::1]:2,[fe80::1],a:1/lab",
            Address("a", 1, "s3cret", "lab", others=(("b", 7420), ("::1", 2), ("fe80::1", 7420))),
        ),
        ("jackalopes://[::1]:1, b:2", Address("::1", 1, tls=True, others=(("b", 2),))),
    ],
)
def test_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("localhost:7420", "must begin with jackalope://"),
        ("", "must begin with jackalope://"),
        ("http://localhost", "begins with http://"),
        ("jackalope://", "the host is missing"),
        ("jackalope://:7420", "the host is missing"),
        ("jackalope://host:port", "port"),
        ("jackalope://host:70000", "ort out of range"),
        ("jackalope://host:0", "port 0"),
        ("jackalope://user:word@host", "a colon in the token"),
        ("jackalope://a,,b", "missing before or after a comma"),
        ("jackalope://a,", "missing before or after a comma"),
        ("jackalope://,a/lab", "missing before or after a comma"),
        ("jackalope://a,:7420", "the host is missing"),
        ("jackalope://a:1,b:0", "port 0"),
        ("jackalope://a,b:port", "port"),
        ("jackalope://a,[::1", "Invalid IPv6"),
        ("jackalope://one@a,two@b", "one token stands before all hosts"),
        ("jackalope://a,two@b", "one token stands before all hosts"),
        ("jackalope://a,jackalope://b", "stands once"),
        ("jackalope://host/a/b", "a slash in the namespace"),
        ("jackalope://host/a?b=c", "nothing may follow"),
        ("jackalope://host/" + "n" * 257, "longer than 256"),
    ],
)
def test_bad_address_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_address(text)
    assert "jackalope://[token@]host[:port][/namespace]" in str(raised.value)


def test_token_is_not_shown() -> None:
    address = parse_address("jackalope://s3cret@broker/lab")
    assert str(address) == "jackalope://broker:7420/lab"
    assert "s3cret" not in repr(address)
    with pytest.raises(ConfigError) as raised:
        parse_address("jackalope://s3cret@broker:bad")
    assert "s3cret" not in str(raised.value)

    with pytest.raises(ConfigError) as raised:
        parse_address("jackalope://s3cret@a,s3cret@b")
    assert "s3cret" not in str(raised.value)


def test_address_with_six_byte_groups_is_printed_as_it_is_read() -> None:
    assert parse_address(str(Address("::1", 5))) == Address("::1", 5)


def test_members_have_all_in_common_but_their_place() -> None:
    address = parse_address("jackalopes://s3cret@a,[::1]:2/lab")
    assert address.members == (
        Address("a", 7420, "s3cret", "lab", tls=True),
        Address("::1", 2, "s3cret", "lab", tls=True),
    )
    assert str(address) == "jackalopes://a:7420,[::1]:2/lab"
    assert parse_address(str(address)).members[1].host == "::1"
    assert address.at("[::2]:3") == Address("::2", 3, "s3cret", "lab", tls=True)


# Ids.


def test_ids_are_uuids_of_version_7_that_only_grow() -> None:
    made = [new_task_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert all(is_time_ordered(task_id) for task_id in made)
    uuids = [UUID(bytes=task_id) for task_id in made[:100]]
    assert {(uuid.version, uuid.variant) for uuid in uuids} == {(7, "specified in RFC 4122")}


def test_ids_grow_though_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times_ms = iter([1_000, 1_001, 900, 900, 1_001, 1_002])
    monkeypatch.setattr("jackalope.task_ids.time.time_ns", lambda: next(times_ms) * 1_000_000)
    maker = IdMaker()
    made = [maker.next() for _ in range(6)]
    assert made == sorted(set(made))
    assert int.from_bytes(made[0][:6], "big") == 1_000
    assert int.from_bytes(made[-1][:6], "big") == 1_002


def test_ids_borrow_from_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackalope.task_ids.time.time_ns", lambda: 5_000_000)
    maker = IdMaker()
    made = [maker.next() for _ in range(4097)]
    assert made == sorted(set(made))
    assert made[4095][:6] == (5).to_bytes(6, "big")
    assert made[4096][:6] == (6).to_bytes(6, "big")


def test_forked_child_draws_other_chance() -> None:
    maker = IdMaker()
    maker.next()
    pool = list(maker._tails)
    maker.forget()
    maker.next()
    assert not set(pool) & set(maker._tails)


def test_task_id_is_understood_however_it_is_written() -> None:
    uuid = uuid4()

    class Named:
        id = TaskId(uuid.bytes)

    for way in (uuid, uuid.bytes, uuid.hex, str(uuid), Named()):
        assert to_task_id(way) == uuid.bytes


@pytest.mark.parametrize("value", ["", "abc", b"short", None, 5, "z" * 32])
def test_what_is_no_task_id_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="is not a task id"):
        to_task_id(value)


# Waits.


def test_waits_grow_to_the_cap_and_begin_again() -> None:
    random.seed(1)
    backoff = Backoff(base_s=1, factor=2, cap_s=4)
    waits = [backoff.next_s() for _ in range(5)]
    for wait_s, most in zip(waits, (1, 2, 4, 4, 4), strict=True):
        assert most / 2 <= wait_s <= most
    backoff.reset()
    assert backoff.next_s() <= 1


def test_backoff_must_grow() -> None:
    with pytest.raises(BrokenInvariant):
        Backoff(base_s=2, cap_s=1)


# Errors.


def test_errors_are_one_tree_and_what_python_programmers_catch() -> None:
    for kind, base in (
        (ConfigError, ValueError),
        (ConnectionLost, ConnectionError),
        (Timeout, TimeoutError),
        (ProtocolError, JackalopeError),
        (Rejected, JackalopeError),
        (TaskFailed, JackalopeError),
        (PartlyRejected, Rejected),
    ):
        assert issubclass(kind, JackalopeError)
        assert issubclass(kind, base)


def test_rejection_says_what_and_when_to_try_again() -> None:
    error = Rejected("queue_full", "queue 'images' is full", 1_500_000)
    assert str(error) == "queue 'images' is full (queue_full)"
    assert error.retry_after_s == 1.5


def test_refusals_of_an_answer_are_found_by_index() -> None:
    body = {"count": 1, "refused": [[3, {"code": "invalid", "message": "no", "type": "refused"}]]}
    assert refusals(body)[3].code == "invalid"
    assert refusals({"count": 1, "refused": []}) == {}
    assert refusals({"count": 1}) == {}


def test_failed_task_prints_its_remote_traceback() -> None:
    error = Error("app.Bad", "width is 0", "Traceback:\n  in resize\napp.Bad: width is 0\n")
    failed = TaskFailed(TaskId(bytes(16)), State.DEAD, Reason.FAILED, error)
    assert str(failed) == f"task {'00' * 16} is dead (failed): app.Bad: width is 0"
    printed = "".join(traceback.format_exception(failed))
    assert "In the worker:\nTraceback:\n  in resize\n" in printed


def test_killed_task_needs_no_error() -> None:
    assert str(TaskFailed(TaskId(bytes(16)), State.KILLED)).endswith("is killed")


def test_errors_survive_the_way_to_another_process() -> None:
    for error in (
        Rejected("queue_full", "full", 5),
        TaskFailed(TaskId(bytes(16)), State.DEAD, Reason.CRASHED),
        PartlyRejected({1: Rejected("invalid", "no")}, [None, None]),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
        assert str(copy) == str(error)
