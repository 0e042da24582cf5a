"""The application: tasks, their names and options, the sync facade, events, and what is public."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import pytest

import jackalope
from jackalope import ConfigError, Jackalope, JackalopeError, Rejected, State, Timeout
from jackalope.core.commands import ActOnTasks, SubmitTasks, WatchTasks
from jackalope.core.effects import TaskEnded
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.policy import Policy
from jackalope.task_ids import new_task_id
from jackalope.tasks.serialization import encode_value
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Ended,
    Events,
    Happened,
    Hello,
    Manage,
    Query,
    Subscribe,
)
from jackalope.wire.views import TaskPage, TaskView
from tests.client.peer import ScriptedBroker, refuse, run, until

app = Jackalope()


@app.task
async def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"


@app.task(queue="sums", name="sums.add", content="json", priority=7, soft_timeout=5, timeout=9)
def add(a: int, b: int = 1) -> int:
    return a + b


# Tasks.


def test_task_is_still_the_function() -> None:
    assert asyncio.run(greet("you")) == "hello you"
    assert add(1, b=2) == 3
    assert greet.__doc__ == "Say hello."
    assert vars(greet)["__name__"] == "greet"
    assert repr(greet) == "<Task tests.client.test_app.greet>"


def test_worker_finds_the_functions() -> None:
    assert set(app.functions) == {"tests.client.test_app.greet", "sums.add"}
    definition = app.functions["sums.add"]
    assert definition.queue == "sums"
    assert definition.timeout_us == 9_000_000
    assert definition.soft_timeout_us == 5_000_000
    assert definition.call(b"[[1],{}]") == 2


def test_name_belongs_to_one_function() -> None:
    other = Jackalope()

    def one() -> None: ...
    def two() -> None: ...

    other.task(name="same")(one)
    other.task(name="same")(one)
    with pytest.raises(ConfigError, match="two functions are called same"):
        other.task(name="same")(two)


def test_bad_choice_shows_where_the_task_is_defined() -> None:
    with pytest.raises(ConfigError, match=r"cannot be a task: priority: 0 to 255"):
        Jackalope().task(priority=1000)(lambda: None)
    with pytest.raises(ConfigError, match=r"cannot be a task: isolation: one of"):
        Jackalope().task(isolation="vm")(lambda: None)  # type: ignore[call-overload]


def test_options_make_another_task_of_the_same_function() -> None:
    urgent = add.options(priority=200, tags=["x"])
    assert urgent(1) == 2
    assert (urgent.plan.priority, add.plan.priority) == (200, 7)
    later = urgent.options(delay=5)
    assert later.plan.delay_us == 5_000_000
    assert later.plan.options is not None
    assert later.plan.options.tags == ("x",)
    with pytest.raises(ConfigError, match="priority"):
        add.options(priority=-1)
    with pytest.raises(ConfigError, match="colour: unknown"):
        add.options(colour="red")  # type: ignore[call-arg]


def test_content_is_a_header_unless_it_is_the_usual_one() -> None:
    assert add.plan.options is not None
    assert add.plan.options.headers == {"content": "json"}
    assert greet.plan.options is None


def test_arguments_are_checked_before_anything_is_sent() -> None:
    async def test() -> None:
        with pytest.raises(TypeError, match="missing a required argument"):
            await greet.submit()  # type: ignore[call-arg]
        with pytest.raises(JackalopeError, match="cannot be sent"):
            await greet.submit(object())  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="each call is a tuple"):
            await greet.submit_many(["you"])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="name one task"):
            await greet.options(alias="a").submit_many([("you",)])
        await app.close()

    run(test())


def test_calls_of_a_bulk_submit_may_have_keywords() -> None:
    async def test() -> None:
        async with ScriptedBroker() as broker:
            other = broker.app()
            task = other.task(name="f")(lambda a, b=0: None)
            await task.submit_many([(1,), task.call(2, b=3)])
            payloads = [spec.payload for spec in broker.of(SubmitTasks)[0].tasks]
            assert payloads == [
                encode_value("msgpack", ([1], {})),
                encode_value("msgpack", ([2], {"b": 3})),
            ]
            await other.close()

    run(test())


# The raw API.


def test_raw_submit_sends_what_it_is_given() -> None:
    async def test() -> None:
        async with ScriptedBroker() as broker:
            other = broker.app()
            task_id = new_task_id()
            handle = await other.submit(
                "q", b"raw", name="f", key="k", id=task_id, parent=None, submit_timeout=None
            )
            assert handle.id == task_id
            spec = broker.of(SubmitTasks)[0].tasks[0]
            assert (spec.queue, spec.name, spec.key, spec.payload) == ("q", "f", "k", b"raw")
            assert spec.options is None
            await other.close()

    run(test())


def answering(body: Any) -> Any:
    return lambda m: [Ack(m.ref, body)] if isinstance(m, Query | Manage | ActOnTasks) else None


def test_orders_and_questions_use_the_words_of_the_wire() -> None:
    async def test() -> None:
        async with ScriptedBroker(answering([])) as broker:
            other = broker.app()
            assert await other.queues() == []
            assert await other.workers() == []
            assert await other.limits() == []
            assert await other.batches("q", limit=5) == []
            await other.pause_queue("q")
            await other.resume_queue("q")
            await other.delete_queue("q")
            await other.limit_tag("t", 3)
            await other.limit_tag("t", None)
            await other.drain_worker("w")
            broker.script = answering({"policy": {"retries": 9}})
            policy = await other.declare_queue("q", preset="rpc", changes={"retries": 9})
            assert policy == Policy(retries=9)
            asked = [(query.what, query.about) for query in broker.of(Query)]
            assert asked == [
                ("queues", {}),
                ("workers", {}),
                ("limits", {}),
                ("batches", {"queue": "q", "limit": 5, "before": 0}),
            ]
            ordered = [(order.what, order.about) for order in broker.of(Manage)]
            assert ordered == [
                ("pause_queue", {"queue": "q"}),
                ("resume_queue", {"queue": "q"}),
                ("delete_queue", {"queue": "q"}),
                ("limit_tag", {"tag": "t", "limit": 3}),
                ("limit_tag", {"tag": "t", "limit": -1}),
                ("drain_worker", {"worker": "w"}),
                ("declare_queue", {"queue": "q", "preset": "rpc", "changes": {"retries": 9}}),
            ]
            await other.close()

    run(test())


def view(**fields: Any) -> TaskView:
    return TaskView(
        **{"id": TaskId(bytes(16)), "namespace": "n", "queue": "q", "state": State.READY, **fields}
    )


def test_lists_are_read_page_by_page() -> None:
    async def test() -> None:
        pages = iter(
            [TaskPage([view()] * 500, "more"), TaskPage([view()] * 20), TaskPage([view()] * 3)]
        )
        async with ScriptedBroker(
            lambda m: [Ack(m.ref, next(pages))] if isinstance(m, Query) else None
        ) as broker:
            other = broker.app()
            found = [task async for task in other.tasks(queue="q", parent=bytes(16).hex())]
            assert len(found) == 520
            assert [query.about["cursor"] for query in broker.of(Query)] == ["", "more"]
            assert broker.of(Query)[0].about["parent"] == bytes(16)
            assert len([task async for task in other.tasks(3)]) == 3
            assert broker.of(Query)[2].about["limit"] == 3
            await other.close()

    run(test())


def test_actions_on_one_task_and_on_many() -> None:
    async def test() -> None:
        acted = {"changed": 1, "requested": 0, "refused": [], "more": False}
        async with ScriptedBroker(answering(acted)) as broker:
            other = broker.app()
            handle = other.handle(bytes(16))
            for action in ("kill", "pause", "play", "hold", "retry", "purge"):
                assert await getattr(handle, action)() is True
            assert [act.action for act in broker.of(ActOnTasks)] == [
                "kill", "pause", "play", "hold", "retry", "purge",
            ]  # fmt: skip
            many = await other.act("kill", [new_task_id() for _ in range(5_000)])
            assert many.changed == 3
            assert [len(act.tasks) for act in broker.of(ActOnTasks)[6:]] == [2_000, 2_000, 1_000]
            await other.act("purge", matching=Filter(queue="q"), dry_run=True)
            assert broker.of(ActOnTasks)[-1].filter == Filter(queue="q")
            with pytest.raises(ConfigError, match="one of the two"):
                await other.act("purge")
            broker.script = answering({**acted, "changed": 0, "requested": 1})
            assert await handle.kill() is False
            refusal = {"code": "wrong_state", "message": "has ended", "retry_after_us": 0}
            broker.script = answering({**acted, "refused": [[bytes(16), refusal]]})
            with pytest.raises(Rejected, match="has ended"):
                await handle.kill()
            await other.close()

    run(test())


# Events.


def happened(number: int) -> Happened:
    return Happened(number, "submit", TaskId(bytes(16)), "q", "ready")


def test_events_come_over_their_own_connection_and_come_back() -> None:
    async def test() -> None:
        async with ScriptedBroker() as broker:
            other = broker.app(name="reader")
            async with other.events(queue="q", task=bytes(16)) as events:
                assert broker.of(Subscribe)[0].queue == "q"
                broker.push(Events([happened(1), happened(2)]))
                assert [(await anext(events)).at_us for _ in range(2)] == [1, 2]
                broker.push(Events([happened(3)], missed=7))
                assert (await anext(events)).at_us == 3
                assert events.missed == 7
                broker.drop()
                waiting = asyncio.ensure_future(anext(events))
                await until(lambda: len(broker.of(Subscribe)) == 2)
                broker.push(Events([happened(4)]))
                assert (await waiting).at_us == 4
                assert events.gaps == 1
            await until(lambda: not broker.connections)
            assert {hello.name for hello in broker.of(Hello)} == {"reader"}

    run(test())


def test_slow_reader_of_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("jackalope.client.messages.EVENTS_MAX", 10)
        async with ScriptedBroker() as broker, broker.app().events() as events:
            broker.push(Events([happened(n) for n in range(25)]))
            await until(lambda: events.missed == 15)
            assert [(await anext(events)).at_us for _ in range(10)] == list(range(10))

    run(test())


def test_events_that_are_refused() -> None:
    async def test() -> None:
        async with ScriptedBroker(refuse(Subscribe, "forbidden")) as broker:
            with pytest.raises(Rejected, match="said no"):
                await anext(broker.app().events())
            await until(lambda: not broker.connections)

    run(test())


# Code without an event loop.


@contextmanager
def broker_in_a_thread() -> Iterator[ScriptedBroker]:
    """A scripted broker on a loop of its own."""

    def script(message: AnyMessage) -> list[AnyMessage] | None:
        if isinstance(message, WatchTasks):
            ends = [
                TaskEnded(task, State.SUCCEEDED, encode_value("msgpack", "done"))
                for task in message.tasks
            ]
            return [Ack(message.ref, {"count": 1, "refused": []}), Ended(ends)]
        return None

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = ScriptedBroker(script)
    asyncio.run_coroutine_threadsafe(broker.start(), loop).result(10)
    yield broker
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.feature("D30")
def test_sync_runs_the_async_client_from_any_thread() -> None:
    before = set(threading.enumerate())
    with broker_in_a_thread() as broker:
        other = broker.app()
        task = other.task(name="f")(lambda n=0: "")

        def work(number: int) -> str:
            handle = other.sync(task.submit(number))
            return other.sync(handle.result(timeout=10))

        with other.sync as sync, concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(100))) == ["done"] * 100
            assert sync(task.run(1)) == "done"
            assert sync is other.sync
        assert broker.hellos == 1
        assert work(1) == "done"
        other.sync.close()
        other.sync.close()
        begun = set(threading.enumerate()) - before
        assert not [t for t in begun if t.name == "jackalope-sync"]


def test_loop_that_ends_without_close_leaves_no_socket() -> None:
    with broker_in_a_thread() as broker:
        other = broker.app()
        task = other.task(name="f")(lambda: "")
        for _ in range(3):
            # A socket left open would be a ResourceWarning, which is an error here.
            asyncio.run(task.run())
        assert broker.hellos == 3
        assert len(other._sessions) == 1


def test_a_block_that_cannot_connect_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    nobody = Jackalope("jackalope://127.0.0.1:1", timeout=0.05)
    with pytest.raises(Timeout), nobody.sync:
        pass
    assert set(threading.enumerate()) == before

    async def test() -> None:
        with pytest.raises(Timeout):
            async with nobody:
                pass
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test())


def test_sync_iterates() -> None:
    with broker_in_a_thread() as broker:
        other = broker.app()
        task = other.task(name="f")(lambda n: "")
        with other.sync as sync:
            assert list(sync.iterate(task.map([1, 2, 3]))) == ["done"] * 3
            endless = sync.iterate(_count())
            assert [next(endless), next(endless)] == [0, 1]
            endless.close()  # type: ignore[attr-defined]


async def _count() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_sync_brings_errors_and_stops_waiting() -> None:
    with broker_in_a_thread() as broker:
        broker.script = lambda m: [] if isinstance(m, WatchTasks) else None
        other = broker.app()
        with other.sync as sync:
            handle = other.handle(bytes(16))
            with pytest.raises(Timeout, match="did not end"):
                sync(handle.result(timeout=0.01))
            with pytest.raises(TimeoutError):
                sync(handle.result(), timeout=0.01)

            async def inner() -> Any:
                return sync(handle.result())

            with pytest.raises(JackalopeError, match="use await there"):
                sync(inner())


def test_sync_takes_the_callers_context_along_and_cancels_what_it_gives_up() -> None:
    caller: ContextVar[str] = ContextVar("caller")
    cancelled = threading.Event()

    async def who() -> str:
        return caller.get()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def cancel_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    sync = Jackalope("jackalope://127.0.0.1:1").sync
    caller.set("me")
    try:
        assert sync(who()) == "me"
        with pytest.raises(Timeout, match=r"not done within 0\.01 s"):
            sync(endless(), timeout=0.01)
        assert cancelled.wait(10)
        with pytest.raises(concurrent.futures.CancelledError):
            sync(cancel_itself())
        with pytest.raises(TypeError, match="coroutines, not Future"):
            sync(cast("Any", concurrent.futures.Future()))
    finally:
        sync.close()


FORKING = """
import os
from jackalope import Jackalope

app = Jackalope.embedded()

@app.task
def double(number: int) -> int:
    return 2 * number

app.work()
assert app.sync(double.run(1)) == 2
child = os.fork()
if not child:
    ran = app.sync(double.run(2))
    app.sync.close()
    os._exit(ran)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), app.sync(double.run(4)))
app.sync.close()
app.stop()
"""


def test_sync_goes_on_in_a_process_that_was_forked_off() -> None:
    command = [sys.executable, "-c", FORKING]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "4 8\n"


# What is public.


PUBLIC = [
    "INJECTED",
    "Acted",
    "Answer",
    "Asked",
    "BroadcastMessage",
    "CallExpired",
    "CallFailed",
    "CallRejected",
    "Callback",
    "Cancelled",
    "ConfigError",
    "ConnectionLost",
    "DeadLetter",
    "Debounce",
    "DecodeFailed",
    "DeliveryLimit",
    "Depends",
    "EncodeFailed",
    "Filter",
    "Flow",
    "FlowHandle",
    "Group",
    "Handle",
    "ItemError",
    "Jackalope",
    "JackalopeError",
    "Limit",
    "MaxLength",
    "Middleware",
    "NodeError",
    "PartlyRejected",
    "ProtocolError",
    "Reason",
    "Reject",
    "Rejected",
    "Replace",
    "RetryLater",
    "SoftTimeout",
    "State",
    "Step",
    "StepRefused",
    "Stream",
    "Submission",
    "Suspension",
    "Task",
    "TaskContext",
    "TaskFailed",
    "Throttle",
    "Throttled",
    "Timeout",
    "Uploaded",
    "__version__",
    "as_completed",
    "chain",
    "current",
    "gather",
    "group",
]


def test_public_names_change_only_on_purpose() -> None:
    assert jackalope.__all__ == PUBLIC
    assert dir(jackalope) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(jackalope, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Jackal'"):
        _ = jackalope.Jackal


def test_broker_does_not_load_the_client() -> None:
    program = (
        "import sys, jackalope.doors.native, jackalope.core;"
        "outside = ('jackalope.client', 'jackalope.worker');"
        "loaded = [name for name in sys.modules if name.startswith(outside)];"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
