"""Values of every kind where a user can pass one: they work, or the call that has them fails.

Against a real broker. Whatever one call is given, others of the same application go on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope import (
    Callback,
    ConfigError,
    Debounce,
    EncodeFailed,
    Jackalope,
    JackalopeError,
    Rejected,
    Replace,
    Throttle,
)
from jackalope.client.submit_options import Choices, SubmitChoices
from jackalope.client.task import TaskChoices
from jackalope.core.commands import SubmitTasks
from jackalope.core.task import Options, Retry, TaskSpec
from jackalope.errors import Timeout
from jackalope.task_ids import new_task_id
from jackalope.wire.messages import AnyMessage, Notice
from tests.client.harness import open_house, run
from tests.client.peer import ScriptedBroker
from tests.profiles import examples


class Colour(str, Enum):  # noqa: UP042  such as there are in user code
    RED = "red"


class Level(IntEnum):
    HIGH = 200


class OddText(str):  # noqa: SLOT000
    pass


class Odd:
    """Something that no encoding knows."""


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("not shown")


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    5,
    5.0,
    2**31,
    2**63,
    2**70,
    10**5000,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e300,
    "",
    "5",
    "text",
    "\ud800",
    "a" * 257,
    "\0",
    b"",
    b"bytes",
    bytearray(b"x"),
    Colour.RED,
    Level.HIGH,
    OddText("odd"),
    Decimal("1.5"),
    timedelta.max,
    timedelta.min,
    timedelta(seconds=1),
    datetime(2030, 1, 1),  # noqa: DTZ001
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    uuid.uuid4(),
    [],
    [1],
    ["\ud800"],
    ["x"] * 40,
    ("a", "b"),
    {"a"},
    {"a": 1},
    {1: 2},
    {"a": object()},
    {"a": 2**70},
    {"a": "x" * 20_000},
    {"a": {(1, 2): [3]}},
    deep(2_000),
    object(),
    Odd(),
    Unshowable(),
    Odd,
    print,
    range(3),
    iter(["a"]),
]

strange = st.sampled_from(STRANGE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def names_of(shape: type) -> list[str]:
    return sorted(get_type_hints(shape))


async def fails_alone(call: Callable[[], Awaitable[Any]]) -> None:
    """Make a call that may fail, with an error of ours alone."""
    with suppress(JackalopeError):
        await call()


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_any_option_works_or_is_refused(data: st.DataObject) -> None:
    drawn = [(data.draw(st.sampled_from(names_of(Choices))), data.draw(strange)) for _ in range(12)]

    async def test() -> None:
        async with open_house() as house, house.app(timeout=5) as app:

            @app.task
            def noop(number: int) -> None: ...

            for name, value in drawn:
                choices: Any = {"submit_timeout": 5, name: value}

                async def by_task(choices: Any = choices) -> None:
                    task = noop.options(**choices)
                    await task.submit(1)
                    await task.submit_many([(1,), (2,)])
                    await task.send_request(2)

                async def by_app(choices: Any = choices) -> None:
                    await app.submit(**{"queue": "default", **choices})

                async def by_decorator(choices: Any = choices) -> None:
                    await app.task(**choices)(lambda: None).submit()

                for call in (by_task, by_app, by_decorator):
                    await fails_alone(call)
                await noop.options(submit_timeout=5).submit(1)

    run(test())


@pytest.mark.parametrize("name", names_of(TaskChoices))
def test_every_option_of_a_task_takes_or_refuses_everything(name: str) -> None:
    app = Jackalope("jackalope://nowhere")
    for value in STRANGE:
        choices: Any = {name: value}
        with suppress(ConfigError):
            _ = app.task(**choices)(lambda: None).plan


@pytest.mark.parametrize("name", names_of(SubmitChoices))
def test_every_option_takes_what_it_says(name: str) -> None:
    """The checks refuse nothing that the options allow."""
    good: dict[str, list[Any]] = {
        "priority": [0, 255, Level.HIGH],
        "key": ["", "k", Colour.RED, OddText("k")],
        "tags": [(), ["a"], {"a", "b"}, iter(["a"]), None],
        "keys": [(), {}, {"a": 1}],
        "needs": [{}, {"gpu": 1, "mem": "8GiB", "arch": ["a", "b"]}],
        "prefer": [{"zone": "a"}],
        "avoid": [{"zone": ["a", "b"]}],
        "sticky": ["user"],
        "alias": ["a"],
        "headers": [{}, {"a": [1, None, b"x", datetime.now(UTC)]}, None],
        "delay": [0, 1, 0.5, timedelta(days=400)],
        "run_at": [datetime.now(UTC)],
        "expires": [60, timedelta(seconds=1), datetime.now(UTC)],
        "timeout": [0, 3.5],
        "retries": [0, 10**9],
        "retry_delay": [1],
        "retry_factor": [1, 2.5, 100],
        "retry_delay_max": [timedelta(hours=1)],
        "depends_on": [(), [new_task_id()], {uuid.uuid4()}, None],
        "on_dependency": ["dead", "run"],
        "parent": [None, new_task_id(), uuid.uuid4().hex],
        "held": [True, False],
        "same": ["run", "unique", "cached", "refresh"],
        "version": ["1"],
        "pace": [Debounce(quiet=1, key="k"), Throttle(per=timedelta(hours=1)), Replace()],
        "callback": ["https://example.org", Callback("https://example.org"), ["http://a"]],
        "id": [None, new_task_id(), uuid.uuid4()],
        "wait_for_room": [True],
        "submit_timeout": [None, 1, 2.5, timedelta(seconds=1)],
        "result_timeout": [None, 0, 2.5, timedelta(seconds=1)],
    }
    task = Jackalope("jackalope://nowhere").task(lambda user=None: None)
    for value in good[name]:
        choices: Any = {name: value}
        _ = task.options(**choices).plan


def test_list_that_is_read_once_is_kept() -> None:
    app = Jackalope("jackalope://nowhere")
    task = app.task(tags=iter(["a"]))(lambda: None).options(priority=3).options(key="k")
    assert task.plan.options == Options(tags=("a",))


def test_headers_that_change_later_do_not_change_what_is_sent() -> None:
    inner: list[Any] = [1]
    task = Jackalope("jackalope://nowhere").task(lambda: None).options(headers={"a": inner})
    plan = task.plan
    inner.append(object())
    assert plan.options == Options(headers={"a": [1]})


async def _soon(work: Awaitable[Any]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(work, 0.05)


async def _listen(app: Jackalope, queue: Any) -> None:
    async with app.events(queue=queue):
        pass


async def _connect(app: Jackalope, **settings: Any) -> None:
    async with Jackalope(f"jackalope://127.0.0.1:{app.address.port}", **settings):
        pass


async def _nowhere(address: Any) -> None:
    Jackalope(address)


#: Calls of the public API with one value each.
CALLS: dict[str, Callable[[Jackalope, Any], Awaitable[Any]]] = {
    "find": lambda app, value: app.find(value),
    "find by alias": lambda app, value: app.find(alias=value),
    "page": lambda app, value: app.page(value),
    "page sorted": lambda app, value: app.page(sort=value),
    "page of a queue": lambda app, value: app.page(queue=value),
    "page of a parent": lambda app, value: app.page(parent=value),
    "tasks": lambda app, value: anext(app.tasks(value), None),
    "act": lambda app, value: app.act(value, [new_task_id()]),
    "act on tasks": lambda app, value: app.act("kill", value),
    "act on a filter": lambda app, value: app.act("kill", matching=value),
    "act with terms": lambda app, value: app.act("retry", [new_task_id()], terms=value),
    "declare_queue": lambda app, value: app.declare_queue(value),
    "declare_queue changes": lambda app, value: app.declare_queue("q", changes=value),
    "declare_queue setting": lambda app, value: app.declare_queue("q", changes={"retries": value}),
    "pause_queue": lambda app, value: app.pause_queue(value),
    "batches": lambda app, value: app.batches("q", limit=value),
    "limit_tag": lambda app, value: app.limit_tag("t", value),
    "limit_tag named": lambda app, value: app.limit_tag(value, 1),
    "drain_worker": lambda app, value: app.drain_worker(value),
    "pools": lambda app, value: app.pools(value),
    "declare_pool": lambda app, value: app.declare_pool("p", value),
    "answers": lambda app, value: app.answers(limit=value),
    "find_request": lambda app, value: app.find_request(value),
    "act_on_answers": lambda app, value: app.act_on_answers(value),
    "rpc": lambda app, value: app.rpc(value, timeout=0.1),
    "rpc for a time": lambda app, value: _soon(app.rpc("nobody", timeout=value)),
    "rpc of a value": lambda app, value: app.rpc("nobody", value),
    "rpc_subscribe": lambda app, value: app.rpc_subscribe(value, print),
    "broadcast": lambda app, value: app.broadcast(value),
    "broadcast about": lambda app, value: app.broadcast(subject=value),
    "broadcast by": lambda app, value: app.broadcast(sender=value),
    "call": lambda app, value: app.call(value, "k", timeout=0.01),
    "call a key": lambda app, value: app.call("p", value, timeout=0.01),
    "call for a time": lambda app, value: _soon(app.call("p", "k", timeout=value)),
    "result": lambda app, value: _soon(app.handle(new_task_id()).result(value)),
    "submit payload": lambda app, value: app.submit("q", value),
    "submit content": lambda app, value: app.submit("q", content=value),
    "submit name": lambda app, value: app.submit("q", name=value),
    "handle": lambda app, value: app.handle(value).status(),
    "events": _listen,
    "a timeout": lambda app, value: _connect(app, timeout=value),
    "a namespace": lambda app, value: _connect(app, namespace=value),
    "a name": lambda app, value: _connect(app, name=value),
    "a token": lambda app, value: _connect(app, token=value),
    "an address": lambda _, value: _nowhere(value),
}


@pytest.mark.parametrize("call", CALLS)
def test_any_value_of_any_call_works_or_is_refused(call: str) -> None:
    async def test() -> None:
        async with open_house() as house, house.app(timeout=5) as app:
            for value in STRANGE:
                await fails_alone(lambda value=value: CALLS[call](app, value))  # type: ignore[misc]
            assert (await app.submit("others")).id

    run(test())


@pytest.mark.parametrize("value", ["5", object(), float("nan"), True])
def test_sync_with_a_wrong_timeout(value: Any) -> None:
    app = Jackalope("jackalope://nowhere")
    with pytest.raises(ConfigError):
        app.sync(asyncio.sleep(0), timeout=value)


def test_sync_that_takes_too_long() -> None:
    app = Jackalope("jackalope://nowhere")
    try:
        with pytest.raises(Timeout):
            app.sync(asyncio.sleep(60), timeout=0.01)
    finally:
        app.sync.close()


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"key": 5}, "key: must be text, not int"),
        ({"tags": [1]}, "tags: must be text, not int"),
        ({"alias": 5}, "alias: must be text, not int"),
        ({"queue": 5}, "queue: must be text, not int"),
        ({"priority": 5.0}, "priority: must be a whole number, not float"),
        ({"headers": {1: 2}}, "headers: must map text to plain values"),
        ({"headers": {"a": object()}}, "headers: must map text to plain values"),
        ({"retries": 2.0}, "retries: must be a whole number, not float"),
        ({"retries": 2**70}, "retries: 0 to 1000000000, got 1180591620717411303424"),
        ({"key": "\ud800"}, "key: .* half a surrogate pair"),
        ({"delay": float("nan")}, "delay: must be at most"),
        ({"delay": float("inf")}, "delay: must be at most"),
        ({"version": 2}, "version: must be text, not int"),
        ({"timeout": "5"}, "timeout: must be seconds or a timedelta, not str"),
        ({"held": 1}, "held: must be True or False, not int"),
        ({"priority": True}, "priority: must be a whole number, not bool"),
        ({"depends_on": 5}, "depends_on: several tasks, not one: a list, not int"),
        ({"run_at": datetime.min.replace(tzinfo=UTC)}, "run_at: .* is before 1970"),
        ({"queue": ""}, "queue: must have 1 to 256 characters, not 0"),
    ],
)
def test_what_an_option_must_be_is_said_at_the_call(choices: Any, why: str) -> None:
    app = Jackalope("jackalope://nowhere")
    with pytest.raises(ConfigError, match=why):
        app.task(lambda: None).options(**choices)
    with pytest.raises(ConfigError, match=why):
        app.task(**choices)(lambda: None)
    with pytest.raises(ConfigError, match=why):
        run(app.submit(**{"queue": "q", **choices}))


def test_payload_must_be_bytes() -> None:
    async def test() -> None:
        payload: Any = "text"
        with pytest.raises(EncodeFailed):
            await Jackalope("jackalope://nowhere").submit("q", payload)

    run(test())


# Past the checks: what the library would send if they missed something.

WRONG: list[Any] = [None, True, -1, 2**63, 2**70, 1.5, "\ud800", b"bytes", [[1]], {1: 2}, Odd()]
FIELDS = [
    *((TaskSpec, field) for field in TaskSpec.__struct_fields__),
    *((Options, field) for field in Options.__struct_fields__),
    *((Retry, field) for field in Retry.__struct_fields__),
]


def wrong_spec(shape: type, field: str, value: Any) -> TaskSpec:
    retry = Retry(1, 2, 3.0, 4)
    if shape is Retry:
        retry = msgspec.structs.replace(retry, **{field: value})
    options = Options(retry=retry)
    if shape is Options:
        options = msgspec.structs.replace(options, **{field: value})
    spec = TaskSpec(new_task_id(), "q", options=options)
    return msgspec.structs.replace(spec, **{field: value}) if shape is TaskSpec else spec


@pytest.mark.parametrize(
    ("shape", "field"), FIELDS, ids=lambda each: getattr(each, "__name__", each)
)
def test_wrong_type_in_a_task_fails_that_task_alone(shape: type, field: str) -> None:
    """In one parcel with good tasks, before and behind it; and one of many in bulk."""

    async def test() -> None:
        async with open_house() as house, house.app(timeout=5) as app:
            session = app.session()
            for value in [b"", b"bytes"] if field == "id" else WRONG:
                bad = wrong_spec(shape, field, value)
                specs = [TaskSpec(new_task_id(), "q") for _ in range(4)]
                first, _, *rest = await asyncio.gather(
                    *(
                        session.submit(spec, timeout_s=5)
                        for spec in (specs[0], bad, specs[1], specs[2])
                    ),
                    return_exceptions=True,
                )
                assert [first, *rest] == [None, None, None], (value, first, rest)
                with suppress(ConfigError):  # What has no size is refused before the first parcel.
                    bulk = [TaskSpec(new_task_id(), "q"), bad, TaskSpec(new_task_id(), "q")]
                    refused = await session.submit_many(bulk, timeout_s=5)
                    assert set(refused) <= {1}
            await app.stats()

    run(test())


def closes_on(is_bad: Callable[[AnyMessage], bool]) -> ScriptedBroker:
    """Make a broker as they were: one that closes a connection on which it cannot read a frame."""

    def script(message: AnyMessage) -> list[AnyMessage] | None:
        if not is_bad(message):
            return None
        broker.push(Notice("error", "protocol error: invalid body in a frame of kind 1"))
        broker.close_soon()
        return []

    broker = ScriptedBroker(script)
    return broker


@pytest.mark.parametrize("count", [1, 2, 7])
def test_broker_that_closes_instead_of_refusing(count: int) -> None:
    """Whatever else was under way is accepted; the one that it cannot read fails."""
    bad = TaskSpec(new_task_id(), "bad")

    async def test() -> None:
        async with (
            closes_on(
                lambda message: (
                    isinstance(message, SubmitTasks)
                    and any(spec.queue == "bad" for spec in message.tasks)
                )
            ) as broker,
            broker.app(timeout=30) as app,
        ):
            session = app.session()
            good = [
                session.submit(TaskSpec(new_task_id(), "q"), timeout_s=20) for _ in range(count)
            ]
            outcomes = await asyncio.gather(
                *good, session.submit(bad, timeout_s=20), return_exceptions=True
            )
            assert outcomes[:-1] == [None] * count
            assert isinstance(outcomes[-1], Rejected)
            assert outcomes[-1].code == "invalid"
            await session.submit(TaskSpec(new_task_id(), "q"), timeout_s=5)
            hellos = broker.hellos
            await session.submit(TaskSpec(new_task_id(), "q"), timeout_s=5)
            assert broker.hellos == hellos

    run(test())
