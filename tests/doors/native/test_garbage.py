"""Garbage: bytes, frames and values by chance. Whoever sends them is told; nobody else notices."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackalope.broker.queries import About
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Answer,
    AnswerSignal,
    ClaimTasks,
    DeclareQueue,
    DeleteQueue,
    DrainWorker,
    Fail,
    Finish,
    Held,
    JoinWorker,
    LeaveWorker,
    LimitTag,
    ReportProgress,
    SubmitTasks,
)
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.limits import DEPTH_MAX
from jackalope.core.policy import Policy
from jackalope.core.task import BlobRef, Error, Options, Retry
from jackalope.task_ids import new_task_id
from jackalope.wire.frames import Kind, frame
from jackalope.wire.messages import (
    TO_BROKER,
    AnyMessage,
    Hello,
    Manage,
    Nack,
    Notice,
    Query,
    Result,
    Subscribe,
    Welcome,
    fields_of,
)
from tests.docs.protocol import EXAMPLES
from tests.doors.harness import Closed, Peer, codec, open_house, run, spec
from tests.profiles import examples
from tests.wire.shapes import DEPTHS, Shapes, anything, nested_msgpack


async def _send_and_see(peer: Peer, data: bytes) -> list[AnyMessage]:
    """Send bytes and the end of the stream, and return what the broker said."""
    try:
        await peer.send_bytes(data)
        peer.sock.shutdown(1)
    except OSError:
        pass
    heard = await peer.wait_closed()
    peer.close()
    return heard


@pytest.mark.parametrize("is_greeted", [False, True], ids=["stranger", "acquaintance"])
def test_random_bytes(tmp_path: Path, is_greeted: bool) -> None:
    async def test() -> None:
        chance = random.Random(7420)
        async with open_house(tmp_path) as house:
            bystander = await house.peer()
            for _ in range(80):
                peer = await (house.peer() if is_greeted else house.connect())
                heard = await _send_and_see(peer, chance.randbytes(chance.randint(1, 5_000)))
                notices = [message for message in heard if isinstance(message, Notice)]
                assert all(notice.what in ("error", "refused") for notice in notices)
                await bystander.submit(spec())
            await house.until(lambda: len(house.door.connections) == 1)

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"AMQP\x00\x00\x09\x01",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00" * 100,
        b"\xff" * 100,
    ],
    ids=["http", "tls", "amqp", "ssh", "zeros", "ones"],
)
def test_other_protocols(garbage: bytes) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            heard = await _send_and_see(await house.connect(), garbage)
            assert [type(message) for message in heard] in ([Notice], [])

    run(test())


def test_random_frames(tmp_path: Path) -> None:
    """Thousands of whole frames: any kind, with a body of chance."""

    async def test() -> None:
        chance = random.Random(7421)
        async with open_house(tmp_path) as house:
            bystander = await house.peer()
            for _ in range(300):
                frames = [
                    frame(
                        chance.choice(list(Kind)), chance.randbytes(chance.choice((0, 1, 9, 300)))
                    )
                    for _ in range(10)
                ]
                await _send_and_see(await house.peer(), b"".join(frames))
            await bystander.submit(spec())
            await house.until(lambda: len(house.door.connections) == 1)

    run(test())


def test_damaged_frames(tmp_path: Path) -> None:
    """Frames that were good but for a few bytes, many to a connection."""

    async def test() -> None:
        chance = random.Random(7422)
        good = [codec.encode(message) for message in _good_messages()]
        async with open_house(tmp_path) as house:
            bystander = await house.peer()
            for _ in range(100):
                data = bytearray(b"".join(chance.choices(good, k=15)))
                for _ in range(chance.randint(1, 3)):
                    # Not a byte with the highest bit, which begins a large number: see below.
                    data[chance.randrange(len(data))] = chance.randrange(128)
                await _send_and_see(await house.peer(), bytes(data))
                await bystander.submit(spec())

    run(test())


def _good_messages() -> list[AnyMessage]:
    return [
        SubmitTasks(1, [spec(payload=b"payload"), spec("other", key="k", name="resize")]),
        JoinWorker(2, "w1", ("q",), slots=3, labels={"gpu": "yes"}),
        Query(3, "tasks", {"queue": "q", "states": ["ready"], "limit": 10}),
        Query(4, "stats"),
        Manage(5, "declare_queue", {"queue": "q", "changes": {"retries": 3}}),
        Manage(6, "limit_tag", {"tag": "gpu", "limit": 3}),
    ]


def test_endless_depth() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            body = b"\x93\x01\xa5stats\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"
            await peer.send_raw(Kind.QUERY, body)
            assert (await peer.expect(Nack)).ref == 1
            await peer.ask_ok(Query(0, "stats"))
            house.faults.clear()

    run(test())


# Wrong types: every field of every message, with everything that does not belong there.

_WRONG: list[Any] = [None, True, -1, 2**63, 1.5, "text", b"bytes", [[1]], {"a": 1}, {1: 2}]


def _examples_of(shape: type[AnyMessage]) -> list[AnyMessage]:
    """Return messages of a shape: those of the page on the protocol, and the good ones above."""
    known = [
        *EXAMPLES.values(),
        *_good_messages(),
        Subscribe(1, "q", IDS[0]),
        ReportProgress(1, IDS[0], 1, 0.5, "note"),
        AnswerSignal(1, IDS[0], 1, Answer.DELIVERED, "detail"),
        SubmitTasks(1, [spec(options=Options("a", {"h": 1}, ("t",), retry=Retry(1, 2, 3.0, 4)))]),
    ]
    found = [message for message in known if type(message) is shape]
    assert found, f"no example of {shape.__name__}"
    return found


def _plain(message: AnyMessage) -> list[Any]:
    fields = [getattr(message, name) for name in fields_of(type(message))]
    plain: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(fields))
    return plain


def _wrong_bodies(shape: type[AnyMessage]) -> Iterator[bytes]:
    """Make bodies of a message in which one value, however deep, is of a wrong type."""
    for whole in map(_plain, _examples_of(shape)):
        for path in list(_paths(whole[1:])):
            for wrong in _WRONG:
                yield msgspec.msgpack.encode([7, *_replaced(whole[1:], path, wrong)])


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    places = enumerate(value) if isinstance(value, list) else value.items()
    for at, inner in places:
        yield (at,)
        if isinstance(inner, list | dict):
            yield from ((at, *path) for path in _paths(inner))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


REQUESTS = {shape: kind for kind, shape in TO_BROKER.items() if shape not in (Hello, LeaveWorker)}


@pytest.mark.parametrize("shape", REQUESTS, ids=lambda shape: shape.__name__)
def test_wrong_type_in_any_field_is_refused_and_no_more(
    tmp_path: Path, shape: type[AnyMessage]
) -> None:
    """Each is answered under its reference, and the connection goes on."""

    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.join(slots=0)
            for body in _wrong_bodies(shape):
                await peer.send_raw(REQUESTS[shape], body)
                await peer.ask_ok(Query(2**40, "stats"))
                assert not [one for one in peer.heard if isinstance(one, Notice)], body
                if shape is not ClaimTasks:  # A claim may wait for as long as it says.
                    await peer.answer(7)
                peer.heard.clear()

    run(test())


@pytest.mark.parametrize(
    "body",
    [b"\x91\x07", b"\x93\x07\xa1x", b"\x92\x07" + b"\x91" * 5_000, b"\xdc\x00\x02\xcc\x07\xc1"],
    ids=["short", "cut", "deep", "no MessagePack"],
)
def test_damaged_body_is_answered(body: bytes) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.send_raw(Kind.SUBMIT, body)
            refusal = await peer.expect(Nack)
            assert (refusal.ref, refusal.code) == (7, "invalid")
            await peer.submit(spec())

    run(test())


def test_damaged_body_without_reference() -> None:
    """Who asked for no answer gets a notice; who may wait for one must not wait for ever."""

    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.send_raw(Kind.START, b"\x92\x00\xa1x")
            assert (await peer.expect(Notice)).what == "refused"
            await peer.submit(spec())
            await peer.send_raw(Kind.START, b"\x92\xa1x\x90")
            (notice,) = await peer.wait_closed()
            assert isinstance(notice, Notice)
            assert notice.what == "error"

    run(test())


@settings(max_examples=examples(8))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["submit", "query", "manage"]),
            st.sampled_from(DEPTHS),
            st.sampled_from(["list", "map"]),
        ),
        min_size=5,
        max_size=10,
    )
)
def test_nested_values(frames: list[tuple[str, int, str]]) -> None:
    """Values at and past every depth: what is acknowledged is there after a restart."""
    run(_nest(frames))


async def _nest(frames: list[tuple[str, int, str]]) -> None:
    accepted = []
    with TemporaryDirectory() as folder:
        data, killed = Path(folder) / "data", Path(folder) / "killed"
        async with open_house(data) as house:
            bystander = await house.peer()
            for what, depth, bracket in frames:
                peer, task_id = await house.peer(), new_task_id()
                await peer.send_bytes(_nested_frame(what, task_id, nested_msgpack(depth, bracket)))
                try:
                    answer = await peer.answer(7)
                except Closed:
                    assert depth > DEPTH_MAX - 1
                else:
                    refused = isinstance(answer, Nack) or answer.body["refused"]
                    is_task = what == "submit"
                    assert bool(refused) is (depth > DEPTH_MAX - 1 or not is_task)
                    accepted += [task_id] if is_task and not refused else []
                peer.close()
                await bystander.submit(spec())
            shutil.copytree(data, killed)
        async with open_house(killed) as again:
            peer = await again.peer()
            for task_id in accepted:
                assert await peer.state_of(task_id) == "ready"


def _nested_frame(what: str, task_id: TaskId, value: bytes) -> bytes:
    """Return a frame with a value in it, where anything may stand."""
    about = b"\x81\xa1h" + value
    if what == "submit":
        options = b"\x92\xa0" + about
        task = b"\x97\xc4\x10" + task_id + b"\xa1q\xa0\xa0\xcc\x96\xc4\x00" + options
        return frame(Kind.SUBMIT, b"\x92\x07\x91" + task)
    kind, name = (Kind.QUERY, b"\xa5tasks") if what == "query" else (Kind.MANAGE, b"\xa5nope!")
    return frame(kind, b"\x93\x07" + name + about)


# Values: well-formed messages that say strange things about things that exist.

IDS = [TaskId(bytes([1] * 6 + [0x70] + [number] * 9)) for number in range(4)]
#: Larger ones come one by one below.
_numbers = st.integers(-3, 5) | st.integers(-(2**60), 2**60)
_texts = st.sampled_from(["q", "other", "w1", "gpu", "", "\0", "é" * 300]) | st.text(max_size=8)
_ids = st.sampled_from(IDS) | st.binary(max_size=20)


def _asking(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[AnyMessage]:
    """Draw requests of every kind."""
    # A named blob is another matter: see the tests of bodies.
    shapes = Shapes(numbers, _texts, _ids, never=(BlobRef,))

    def about(*structs: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
        fields = {f.name: f.type for struct in structs for f in msgspec.structs.fields(struct)}
        for inner in ("session", "ref", "namespace", "by"):
            fields.pop(inner, None)
        known = {name: shapes.of(kind) for name, kind in fields.items() if name != "changes"}
        if "changes" in fields:
            policy = {f.name: shapes.of(f.type) for f in msgspec.structs.fields(Policy)}
            known["changes"] = st.fixed_dictionaries({}, optional=policy)
        return st.fixed_dictionaries({}, optional=known) | st.dictionaries(
            _texts, anything, max_size=2
        )

    what = ["task", "tasks", "history", "explain", "queues", "workers", "limits", "batches"]
    queries = st.builds(Query, numbers, st.sampled_from(what), about(About))
    queues = ["declare_queue", "delete_queue", "pause_queue", "resume_queue"]
    managements = st.one_of(
        st.builds(
            Manage, numbers, st.sampled_from(queues), about(DeleteQueue) | about(DeclareQueue)
        ),
        st.builds(Manage, numbers, st.just("limit_tag"), about(LimitTag)),
        st.builds(Manage, numbers, st.just("drain_worker"), about(DrainWorker)),
    )
    kinds = [shape for shape in TO_BROKER.values() if shape is not Hello]
    return st.one_of(*map(shapes.of, kinds), queries, managements)


async def _say(messages: list[AnyMessage]) -> None:
    """Let a worker that runs something say all this, and see that the broker goes on."""
    with TemporaryDirectory() as folder:
        async with open_house(Path(folder)) as house:
            peer, bystander = await house.peer(), await house.peer()
            await peer.submit(*(spec(id=each) for each in IDS[:3]))
            await peer.join(slots=2)
            await peer.take(2)
            for message in messages:
                try:
                    await peer.send(message)
                    await peer.ask(Query(2**40, "stats"))
                except (Closed, OSError):
                    peer = await house.peer()
            async with asyncio.timeout(2):
                await bystander.ask_ok(Query(0, "tasks", {"limit": 1}))


@settings(max_examples=examples(6))
@given(st.lists(_asking(_numbers), min_size=20, max_size=60))
def test_strange_values(messages: list[AnyMessage]) -> None:
    run(_say(messages))


LATE = 2**64 - 1
ENORMOUS: dict[str, list[AnyMessage]] = {
    "a retry": [Result(1, failed=[Fail(IDS[0], 1, Error("E"), retry_after_us=LATE)])],
    "a time to live": [
        Manage(1, "declare_queue", {"queue": "x", "changes": {"time_to_live_us": 2**63}}),
        SubmitTasks(2, [spec("x", options=Options(run_at_us=2**63))]),
    ],
    "a timeout": [
        SubmitTasks(1, [spec(priority=255, options=Options(timeout_us=LATE))]),
        Result(2, [Finish(IDS[0], 1)]),
    ],
    "a limit": [Manage(1, "limit_tag", {"tag": "gpu", "limit": LATE})],
    "a fence": [Result(1, [Finish(IDS[0], LATE)], released=[Held(IDS[1], -(2**63))])],
    "a claim": [ClaimTasks(LATE, 1, LATE), ClaimTasks(-(2**63), LATE, LATE)],
    "a worker": [JoinWorker(1, "w1", ("q",), slots=LATE, lease_us=LATE), LeaveWorker(LATE)],
}


@pytest.mark.parametrize("messages", ENORMOUS.values(), ids=ENORMOUS.keys())
def test_enormous_numbers(messages: list[AnyMessage]) -> None:
    run(_say(messages))


@pytest.mark.parametrize(
    "wanted",
    [Filter(older_than_us=LATE), Filter(queue="q", batch=LATE)],
    ids=["older_than_us", "batch"],
)
def test_filter_with_enormous_numbers(wanted: Filter) -> None:
    run(_say([ActOnTasks(1, Action.PURGE, filter=wanted)]))


@pytest.mark.parametrize(
    ("what", "about"),
    [("tasks", {"older_than_us": LATE}), ("batches", {"queue": "q", "before": LATE})],
)
def test_question_about_enormous_numbers(tmp_path: Path, what: str, about: dict[str, Any]) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(spec())
            async with asyncio.timeout(0.5):
                await peer.ask(Query(0, what, about))

    run(test())


def test_endless_name() -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.connect()
            await peer.send(Hello(name="n" * 1_000_000))
            welcome = await peer.wait_for(lambda _: True)
            assert not isinstance(welcome, Welcome)

    run(test())
