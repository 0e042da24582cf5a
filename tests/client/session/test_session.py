"""A session: group commit, reconnecting, what is repeated and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jackalope import Jackalope, PartlyRejected, Rejected, TaskFailed, Timeout, as_completed, gather
from jackalope.client.session import outbox
from jackalope.client.session.session import Session
from jackalope.core.commands import ActOnTasks, SubmitTasks, WatchTasks
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.task import BlobRef, Error
from jackalope.errors import ConnectionLost, ProtocolError
from jackalope.tasks.serialization import encode_value
from jackalope.wire.messages import Ack, AnyMessage, Ended, Hello, Listen, Manage, Nack, Query
from tests.client.peer import ScriptedBroker, refuse, refuse_tasks, run, until

Test = Callable[[ScriptedBroker, Jackalope], Any]


def with_app(test: Test, **settings: Any) -> None:
    async def whole() -> None:
        async with ScriptedBroker() as broker:
            app = broker.app(name="tester", **settings)
            try:
                await test(broker, app)
            finally:
                await app.close()

    run(whole())


def task_of(app: Jackalope, **choices: Any) -> Any:
    @app.task(**{"name": "app.f", "queue": "q", **choices})
    async def function(x: int = 0) -> int:
        return x

    return function


def submitted(broker: ScriptedBroker) -> list[TaskId]:
    return [spec.id for frame in broker.of(SubmitTasks) for spec in frame.tasks]


def ended(task: TaskId, result: object = None) -> Ended:
    return Ended([TaskEnded(task, State.SUCCEEDED, encode_value("msgpack", result))])


def no_answer_to(*kinds: type[AnyMessage]) -> Callable[[AnyMessage], list[AnyMessage] | None]:
    return lambda message: [] if isinstance(message, kinds) else None


def acked(message: SubmitTasks) -> list[AnyMessage]:
    return [Ack(message.ref, {"count": len(message.tasks), "refused": []})]


# Connecting.


def test_nothing_is_connected_before_it_is_used() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        function = task_of(app)
        assert broker.hellos == 0
        await function.submit(1)
        await function.submit(2)
        assert broker.hellos == 1
        assert broker.of(Hello)[0].name == "tester"

    with_app(test)


def test_hello_carries_namespace_and_token() -> None:
    async def test() -> None:
        async with ScriptedBroker() as broker:
            address = f"jackalope://s3cret@127.0.0.1:{broker.port}/lab"
            async with Jackalope(address), Jackalope(address, namespace="x", token="t"):  # noqa: S106
                hellos = [(hello.namespace, hello.token) for hello in broker.of(Hello)]
                assert hellos == [("lab", "s3cret"), ("x", "t")]

    run(test())


def test_refused_hello_fails_everybody_at_once() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = refuse(Hello, "forbidden")
        waiting = [
            asyncio.create_task(task_of(app).submit(1)),
            asyncio.create_task(app.handle(bytes(16)).result()),
            asyncio.create_task(app.stats()),
            asyncio.create_task(task_of(app).submit_many([(1,)] * 3000)),
        ]
        for task in waiting:
            with pytest.raises(Rejected, match="said no"):
                await task
        broker.script = None
        await task_of(app).submit(1)

    with_app(test)


def test_something_else_that_listens_is_told_at_once() -> None:
    async def test() -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example.org ESMTP\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        app = Jackalope(f"jackalope://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(ProtocolError):
            await app.connect()
        await app.close()
        server.close()

    run(test())


def test_full_broker_is_asked_again() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        def script(message: AnyMessage) -> list[AnyMessage] | None:
            is_first = isinstance(message, Hello) and broker.hellos == 1
            return [Nack(0, "too_many", "10000 connections are open")] if is_first else None

        broker.script = script
        await task_of(app).submit(1)
        assert broker.hellos == 2

    with_app(test)


def test_unreachable_broker_is_named_when_the_time_is_over() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        await broker.stop()
        with pytest.raises(Timeout, match=r"no answer from .* within 0\.1 s") as raised:
            await app.connect()
        assert "Connection refused" in str(raised.value)

    with_app(test, timeout=0.1)


def test_close_returns_when_no_more_calls_can_come() -> None:
    """The broker confirms that nothing is registered; it may notice the end later than a call."""

    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        await app.rpc_subscribe("clerk", lambda value: value)
        broker.script = no_answer_to(Listen)
        closing = asyncio.create_task(app.close())
        await until(lambda: not broker.of(Listen)[-1].begin or closing.done())
        left = broker.of(Listen)[-1]
        assert (left.recipients, left.begin) == (("clerk",), False)
        assert broker.connections == 1
        broker.push(Ack(left.ref))
        await closing

    with_app(test)


def test_closed_client_says_so() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(SubmitTasks, Query, WatchTasks)
        session = app.session()
        waiting = [
            asyncio.create_task(task_of(app).submit(1)),
            asyncio.create_task(app.handle(bytes(16)).result()),
            asyncio.create_task(app.stats()),
        ]
        await until(lambda: broker.of(SubmitTasks) and broker.of(Query))
        await app.close()
        for task in waiting:
            with pytest.raises(ConnectionLost, match="closed"):
                await task
        with pytest.raises(ConnectionLost, match="is closed"):
            await session.watch(TaskId(bytes(16)))
        await app.close()

    with_app(test)


def test_one_app_serves_several_loops() -> None:
    app = Jackalope()
    function = task_of(app)

    async def test() -> None:
        async with ScriptedBroker() as broker:
            app.address = broker.app().address
            await function.submit(1)
            await app.close()

    run(test())
    run(test())
    assert app._sessions == {}


# Group commit.


def test_submits_of_one_turn_travel_together() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        function = task_of(app)
        await function.submit(0)
        handles = await asyncio.gather(*[function.submit(n) for n in range(10_000)])
        assert len(broker.of(SubmitTasks)) == 1 + 10_000 / outbox.PARCEL_TASKS_MAX
        assert submitted(broker)[1:] == [handle.id for handle in handles]

    with_app(test)


def test_each_submit_hears_its_own_answer() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        refusal = {"code": "queue_full", "message": "full", "retry_after_us": 5}

        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, SubmitTasks):
                return None
            return [Ack(message.ref, {"count": 2, "refused": [[1, refusal]]})]

        broker.script = script
        function = task_of(app)
        answers = await asyncio.gather(
            *[function.submit(n) for n in range(3)], return_exceptions=True
        )
        assert isinstance(answers[1], Rejected)
        assert answers[1].retry_after_us == 5
        assert not isinstance(answers[0], Exception)
        assert not isinstance(answers[2], Exception)

    with_app(test)


def test_large_tasks_do_not_share_a_frame() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        payload = bytes(600 * 1024)
        await asyncio.gather(*[app.submit("q", payload) for _ in range(3)])
        assert [len(frame.tasks) for frame in broker.of(SubmitTasks)] == [1, 1, 1]
        broker.heard.clear()
        await task_of(app).submit_many([(bytes(300 * 1024),)] * 7)
        assert [len(frame.tasks) for frame in broker.of(SubmitTasks)] == [3, 3, 1]
        broker.heard.clear()
        await asyncio.gather(*[app.submit("q", headers={"h": "x" * 15_000}) for _ in range(200)])
        assert len(broker.of(SubmitTasks)) == 3

    with_app(test)


def test_broker_that_takes_small_frames_only() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.frame_bytes_max = 10_000
        refusal = {"code": "invalid", "message": "bad one", "retry_after_us": 0}

        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, SubmitTasks):
                return None
            bad = [at for at, spec in enumerate(message.tasks) if spec.payload == b"!!"]
            return [Ack(message.ref, {"count": 1, "refused": [[at, refusal] for at in bad]})]

        broker.script = script
        function, raw = task_of(app), app.task(name="raw", content="bytes")(lambda data: None)
        with pytest.raises(PartlyRejected) as raised:
            await raw.submit_many([(b"!!" if n == 777 else bytes(100),) for n in range(1_000)])
        assert list(raised.value.refused) == [777]
        assert submitted(broker) == sorted(submitted(broker))
        assert len(submitted(broker)) == 1_000
        await asyncio.gather(*[function.submit("x" * 100) for _ in range(300)])
        assert len(set(submitted(broker))) == 1_300
        working = [asyncio.create_task(function.run("x" * 1_000)) for _ in range(30)]
        await until(lambda: sum(len(watch.tasks) for watch in broker.of(WatchTasks)) == 30)
        for task in submitted(broker)[1_300:]:
            broker.push(ended(task, 1))
        assert await asyncio.gather(*working) == [1] * 30
        answers = await asyncio.gather(
            function.submit("x"), function.submit("x" * 20_000), return_exceptions=True
        )
        assert isinstance(answers[1], Rejected)
        assert answers[1].code == "too_large"
        assert not isinstance(answers[0], Exception)

    with_app(test)


def test_window_bounds_what_is_under_way() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(SubmitTasks)
        function = task_of(app)
        work = asyncio.create_task(function.submit_many((n,) for n in range(30_000)))
        await until(lambda: len(submitted(broker)) >= outbox.WINDOW_TASKS)
        await asyncio.sleep(0.02)
        assert len(submitted(broker)) == outbox.WINDOW_TASKS
        singles = [asyncio.create_task(function.submit(n)) for n in range(5)]
        await asyncio.sleep(0)
        broker.script = None
        for frame in broker.of(SubmitTasks):
            broker.push(acked(frame)[0])
        assert len(await work) == 30_000
        await asyncio.gather(*singles)
        assert len(set(submitted(broker))) == len(submitted(broker)) == 30_005

    with_app(test)


def test_bulk_takes_calls_as_the_broker_keeps_up() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(SubmitTasks)
        taken = 0

        def calls() -> Any:
            nonlocal taken
            for taken in range(1, 100_001):
                yield (taken,)

        work = asyncio.create_task(task_of(app).submit_many(calls()))
        await until(lambda: len(submitted(broker)) >= outbox.WINDOW_TASKS)
        await asyncio.sleep(0.02)
        assert taken <= 20_000
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with_app(test)


@pytest.mark.feature("D30")
def test_bulk_tells_which_were_refused() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        refusal = {"code": "invalid", "message": "bad one", "retry_after_us": 0}

        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, SubmitTasks):
                return None
            refused = [[7, refusal]] if len(broker.of(SubmitTasks)) == 2 else []
            return [Ack(message.ref, {"count": 1, "refused": refused})]

        broker.script = script
        with pytest.raises(PartlyRejected, match="1 of 2500 tasks were not accepted") as raised:
            await task_of(app).submit_many((n,) for n in range(2500))
        assert list(raised.value.refused) == [1007]
        assert [at for at, handle in enumerate(raised.value.handles) if handle is None] == [1007]

    with_app(test)


def test_bulk_that_is_refused_as_a_whole() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = refuse(SubmitTasks, "overloaded", retry_after_us=500_000)
        with pytest.raises(PartlyRejected) as raised:
            await task_of(app).submit_many([(1,), (2,)])
        assert raised.value.code == "overloaded"
        assert raised.value.retry_after_us == 500_000
        assert len(raised.value.refused) == 2
        with pytest.raises(Rejected, match="said no"):
            await task_of(app).submit(1)

    with_app(test)


def test_wait_for_room_submits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackalope.client.session.session._STORAGE_WAIT_S", 0.01)

    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        function = task_of(app, wait_for_room=True)
        for code in ("queue_full", "overloaded", "storage_failed"):
            broker.script = refuse_tasks(code, retry_after_us=code != "storage_failed", times=2)
            before = len(broker.of(SubmitTasks))
            handle = await function.submit(1)
            assert submitted(broker)[before:] == [handle.id] * 3
        broker.script = refuse_tasks("queue_full", retry_after_us=1_000, times=2)
        assert len(await function.submit_many([(1,), (2,)])) == 2
        broker.script = refuse_tasks("queue_full", retry_after_us=1_000, times=1)
        work = asyncio.create_task(function.run(5))
        before = len(broker.of(WatchTasks))
        await until(lambda: len(broker.of(WatchTasks)) == before + 2)
        broker.push(ended(submitted(broker)[-1], 5))
        assert await work == 5

    with_app(test)


def test_wait_for_room_gives_up_when_the_time_is_over() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = refuse_tasks("queue_full", retry_after_us=1_000)
        function = task_of(app, wait_for_room=True, submit_timeout=0.05)
        with pytest.raises(Timeout, match="no answer"):
            await function.submit(1)
        with pytest.raises(Timeout, match="no answer"):
            await function.submit_many([(1,)])

    with_app(test)


def test_other_refusals_are_not_waited_for() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = refuse_tasks("invalid")
        with pytest.raises(Rejected, match="invalid"):
            await task_of(app, wait_for_room=True).submit(1)
        assert len(broker.of(SubmitTasks)) == 1

    with_app(test)


# Lost connections.


@pytest.mark.feature("D30")
def test_unanswered_submits_are_sent_again_with_the_same_ids_in_order() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(SubmitTasks)
        function = task_of(app)
        first = asyncio.create_task(function.submit(1))
        await until(lambda: len(broker.of(SubmitTasks)) == 1)
        bulk = asyncio.create_task(function.submit_many((n,) for n in range(3000)))
        await until(lambda: len(submitted(broker)) == 3001)
        sent = submitted(broker)
        specs = [spec for frame in broker.of(SubmitTasks) for spec in frame.tasks]
        broker.script = None
        broker.heard.clear()
        broker.drop()
        handles = [await first, *await bulk]
        assert submitted(broker) == sent == [handle.id for handle in handles]
        assert [spec for frame in broker.of(SubmitTasks) for spec in frame.tasks] == specs

    with_app(test)


def test_work_submitted_while_the_broker_is_away_waits_for_it() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        function = task_of(app)
        await function.submit(0)
        await broker.stop()
        waiting = [asyncio.create_task(function.submit(n)) for n in range(100)]
        waiting.append(asyncio.create_task(function.submit_many([(n,) for n in range(100)])))
        await asyncio.sleep(0.02)
        await broker.start()
        await asyncio.gather(*waiting)
        ids = submitted(broker)
        assert len(ids) == len(set(ids)) == 201

    with_app(test)


def test_submit_that_was_given_up_is_not_sent_later() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        function = task_of(app)
        await function.submit(0)
        await broker.stop()
        with pytest.raises(Timeout):
            await function.options(submit_timeout=0.02).submit(1)
        with pytest.raises(Timeout):
            await function.options(submit_timeout=0.02).submit_many([(1,)])
        kept = asyncio.create_task(function.submit(2))
        given_up = asyncio.create_task(function.submit(3))
        await asyncio.sleep(0)
        given_up.cancel()
        await broker.start()
        handle = await kept
        assert submitted(broker)[1:] == [handle.id]

    with_app(test)


def test_idle_client_does_not_knock() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        await task_of(app).submit(1)
        broker.drop()
        await asyncio.sleep(0.1)
        assert broker.hellos == 1
        await task_of(app).submit(2)
        assert broker.hellos == 2

    with_app(test)


def test_idle_session_that_stays_connected_reconnects_after_every_loss() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        session = app.session()
        session.stays_connected = True
        losses: list[ConnectionLost] = []
        session.on_lost = losses.append
        await session.open(10)
        for number in (1, 2, 3):
            assert session.is_idle
            broker.drop()
            await until(lambda: broker.hellos == number + 1)  # noqa: B023  it is called in here
            await until(lambda: session.is_connected)
            assert len(losses) == number

    with_app(test)


def test_broker_that_keeps_hanging_up_is_not_hammered() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if isinstance(message, SubmitTasks):
                broker.drop()
                return []
            return None

        broker.script = script
        with pytest.raises(Timeout):
            await task_of(app, submit_timeout=0.3).submit(1)
        assert 2 <= broker.hellos <= 8

    with_app(test)


def test_watches_are_registered_again() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handles = await task_of(app).submit_many([(n,) for n in range(3)])
        results = [asyncio.create_task(handle.result()) for handle in handles]
        await until(lambda: broker.of(WatchTasks))
        broker.push(ended(handles[0].id, 0))
        assert await results[0] == 0
        broker.drop()
        await until(lambda: len(broker.of(WatchTasks)) == 2)
        assert set(broker.of(WatchTasks)[1].tasks) == {handles[1].id, handles[2].id}
        broker.push(ended(handles[1].id, 1))
        broker.push(ended(handles[2].id, 2))
        assert [await result for result in results[1:]] == [1, 2]

    with_app(test)


def test_task_is_not_watched_before_it_is_submitted() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(SubmitTasks)
        function = task_of(app)
        work = asyncio.create_task(function.run(1))
        await until(lambda: broker.of(WatchTasks))
        broker.heard.clear()
        broker.script = None
        broker.drop()
        await until(lambda: broker.of(WatchTasks))
        kinds = [type(message) for message in broker.heard]
        assert kinds == [Hello, SubmitTasks, WatchTasks]
        broker.push(ended(submitted(broker)[0], 1))
        assert await work == 1

    with_app(test)


def test_questions_are_asked_again() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(Query, Manage, ActOnTasks)
        task = bytes(16)
        acted = {"changed": 1, "requested": 0, "refused": [], "more": False}
        waiting = [
            asyncio.create_task(app.query("limits", {}, list[Any])),
            asyncio.create_task(app.pause_queue("q")),
            asyncio.create_task(app.act("kill", [task])),
            asyncio.create_task(app.act("retry", [task], dry_run=True)),
        ]
        await until(lambda: len(broker.of(ActOnTasks)) == 2)
        broker.drop()
        broker.script = lambda m: (
            [Ack(m.ref, [] if isinstance(m, Query) else acted)]
            if isinstance(m, Query | Manage | ActOnTasks)
            else None
        )
        await asyncio.gather(*waiting)

    with_app(test)


@pytest.mark.parametrize("action", ["play", "retry", "purge"])
def test_what_must_not_be_done_twice_is_not_repeated(action: Any) -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        broker.script = no_answer_to(ActOnTasks)
        work = asyncio.create_task(app.act(action, [bytes(16)]))
        await until(lambda: broker.of(ActOnTasks))
        broker.drop()
        with pytest.raises(ConnectionLost, match="not known whether act took effect"):
            await work
        assert len(broker.of(ActOnTasks)) == 1
        assert broker.hellos == 1

    with_app(test)


def test_what_was_never_sent_can_wait() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        await app.connect()
        await broker.stop()
        await until(lambda: app.session()._connection is None)
        work = asyncio.create_task(app.delete_queue("q"))
        await asyncio.sleep(0.02)
        await broker.start()
        await work
        assert [order.what for order in broker.of(Manage)] == ["delete_queue"]

    with_app(test)


# Results.


@pytest.mark.feature("D23")
def test_result_is_pushed() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handle = await task_of(app).submit(5)
        work = asyncio.create_task(handle.result(timeout=5))
        await until(lambda: broker.of(WatchTasks))
        broker.push(ended(handle.id, 5))
        assert await work == 5
        assert await handle.result() == 5
        assert await handle.wait() is State.SUCCEEDED
        assert len(broker.of(WatchTasks)) == 1

    with_app(test)


def test_results_of_one_turn_are_asked_for_together() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handles = await task_of(app).submit_many([(n,) for n in range(100)])
        work = asyncio.gather(*[handle.result() for handle in handles])
        await until(lambda: broker.of(WatchTasks))
        for number, handle in enumerate(handles):
            broker.push(ended(handle.id, number))
        assert await work == list(range(100))
        assert len(broker.of(WatchTasks)) == 1

    with_app(test)


def test_two_may_wait_for_one_task() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handle = await task_of(app).submit(5)
        impatient = asyncio.create_task(handle.result(timeout=0.02))
        patient = asyncio.create_task(app.handle(str(handle), returns=int).result())
        with pytest.raises(Timeout, match=rf"task {handle} did not end within 0\.02 s"):
            await impatient
        broker.push(ended(handle.id, 5))
        assert await patient == 5
        assert app.session()._watches.is_empty

    with_app(test)


@pytest.mark.feature("J11")
def test_failure_brings_type_message_and_trace() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handle = await task_of(app).submit(5)
        work = asyncio.create_task(handle.result())
        await until(lambda: broker.of(WatchTasks))
        error = Error("ValueError", "bad", "Traceback ...")
        end = TaskEnded(handle.id, State.DEAD, b"", Reason.FAILED, error)
        broker.push(Ended([end]))
        with pytest.raises(TaskFailed, match=r"is dead \(failed\): ValueError: bad") as raised:
            await work
        assert raised.value.error == error
        assert raised.value.reason is Reason.FAILED
        assert await handle.wait() is State.DEAD

    with_app(test)


def test_result_too_large_to_send_says_so() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handle = await task_of(app).submit(5)
        work = asyncio.create_task(handle.result())
        await until(lambda: broker.of(WatchTasks))
        broker.push(Ended([TaskEnded(handle.id, State.SUCCEEDED, BlobRef("b", 10**8))]))
        with pytest.raises(Rejected, match="does not support uploads in parts"):
            await work

    with_app(test)


def test_unknown_task_is_no_pending_task() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        refusal = {"code": "unknown_task", "message": "no task", "retry_after_us": 0}
        broker.script = lambda m: (
            [Ack(m.ref, {"count": 0, "refused": [[0, refusal]]})]
            if isinstance(m, WatchTasks)
            else None
        )
        with pytest.raises(Rejected, match="no task"):
            await app.handle(bytes(16)).result()
        broker.script = refuse(WatchTasks, "too_many")
        with pytest.raises(Rejected, match="said no"):
            await app.handle(bytes(16)).result()

    with_app(test)


def test_run_asks_for_the_end_together_with_the_submit() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, WatchTasks):
                return None
            return [Ack(message.ref, {"count": 1, "refused": []}), ended(message.tasks[0], 7)]

        broker.script = script
        assert await task_of(app).run(7) == 7
        kinds = [type(message) for message in broker.heard]
        assert kinds == [Hello, SubmitTasks, WatchTasks]

    with_app(test)


def test_run_that_is_refused_leaves_nothing_behind() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        refusal = {"code": "invalid", "message": "no", "retry_after_us": 0}
        broker.script = lambda m: (
            [Ack(m.ref, {"count": 0, "refused": [[0, refusal]]})]
            if isinstance(m, SubmitTasks | WatchTasks)
            else None
        )
        with pytest.raises(Rejected, match="no"):
            await task_of(app).run(7)
        assert app.session()._watches.is_empty

    with_app(test)


# Several tasks.


def test_handles_come_as_their_tasks_end() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handles = await task_of(app).submit_many([(n,) for n in range(4)])
        handles[3].end = TaskEnded(handles[3].id, State.KILLED)
        order = []
        async for handle in as_completed(handles, timeout=5):
            order.append(handles.index(handle))
            for number in {3: (2, 0, 1)}.get(order[-1], ()):
                broker.push(ended(handles[number].id, number))
        assert order == [3, 2, 0, 1]
        assert app.session()._watches.is_empty

    with_app(test)


def test_gather_returns_in_order_and_fails_early() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        handles = await task_of(app).submit_many([(n,) for n in range(3)])
        work = asyncio.create_task(gather(handles))
        await until(lambda: broker.of(WatchTasks))
        for number in (2, 0, 1):
            broker.push(ended(handles[number].id, number))
        assert await work == [0, 1, 2]
        others = await task_of(app).submit_many([(n,) for n in range(3)])
        work = asyncio.create_task(gather(others))
        await until(lambda: len(broker.of(WatchTasks)) == 2)
        broker.push(Ended([TaskEnded(others[1].id, State.KILLED)]))
        with pytest.raises(TaskFailed, match="is killed"):
            await work
        with pytest.raises(Timeout, match="2 of 3 tasks did not end"):
            await gather(others[:1] + others[2:] + handles[:1], timeout=0.01)
        assert await gather([]) == []

    with_app(test)


def test_map_yields_in_the_order_of_the_items() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        def script(message: AnyMessage) -> list[AnyMessage] | None:
            if not isinstance(message, WatchTasks):
                return None
            ends = [ended(task, number) for number, task in enumerate(message.tasks)]
            return [*reversed(ends), Ack(message.ref, {"count": 3, "refused": []})]

        broker.script = script
        results = [result async for result in task_of(app).map(["a", "b", "c"])]
        assert results == [0, 1, 2]

    with_app(test)


def test_session_belongs_to_its_loop() -> None:
    async def test(broker: ScriptedBroker, app: Jackalope) -> None:
        session = app.session()
        assert isinstance(session, Session)
        assert app.session() is session

    with_app(test)
