"""Large payloads and results: through the blob store, unseen by both ends, in order."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope.broker import blobs as manager
from jackalope.broker.access import THE_BROKER
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Fail,
    Finish,
    Heartbeat,
    JoinWorker,
    LeaveWorker,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.effects import SignalAsked
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.task import BlobRef, Error, Options, TaskSpec
from jackalope.doors.native import connection
from jackalope.storage import OutOfReach
from jackalope.task_ids import new_task_id
from jackalope.wire.messages import Ack, Assign, Ended, Hello, Manage, Nack, Notice, Query, Result
from tests.doors.harness import House, open_house, run, spec

MIB = 1024 * 1024
LARGE = bytes(range(256)) * (MIB // 256)


def _blobs(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def test_a_mebibyte_both_ways(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            (task,) = await client.submit(spec(payload=LARGE))
            await client.ask_ok(WatchTasks(0, (task,)))
            (assignment,) = await worker.take()
            assert assignment.payload == LARGE
            assert len(_blobs(tmp_path)) == 1
            await worker.finish(assignment, result=LARGE[::-1])
            (ended,) = (await client.expect(Ended)).tasks
            assert ended.result == LARGE[::-1]
            assert len(_blobs(tmp_path)) == 2
            view = await client.ask_ok(Query(0, "task", {"id": task, "bodies": True}))
            assert (view["payload"], view["result"]) == (LARGE, LARGE[::-1])
            assert (view["payload_size"], view["result_size"]) == (MIB, MIB)
            await client.ask_ok(ActOnTasks(0, Action.PURGE, (task,)))
            await client.ask_ok(Query(0, "tasks"))
            await house.until(lambda: not _blobs(tmp_path))

    run(test())


@pytest.mark.parametrize("extra", [0, 1])
def test_inline_limit(tmp_path: Path, extra: int) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            body = b"x" * (INLINE_BYTES_MAX + extra)
            (task,) = await client.submit(spec(payload=body))
            await client.ask_ok(WatchTasks(0, (task,)))
            (assignment,) = await worker.take()
            assert assignment.payload == body
            await worker.finish(assignment, result=body)
            assert (await client.expect(Ended)).tasks[0].result == body
            assert len(_blobs(tmp_path)) == 2 * extra

    run(test())


def test_order_is_kept(tmp_path: Path) -> None:
    """What follows a large body is acted on after it, although writing it takes longer."""

    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            large, larger = spec(payload=LARGE), spec(payload=LARGE * 4)
            after = spec(options=Options(depends_on=(large.id,)))
            last = spec(options=Options(depends_on=(larger.id, after.id)))
            await peer.send(
                SubmitTasks(1, [large]),
                SubmitTasks(2, [after]),
                Heartbeat(),
                SubmitTasks(3, [spec(), larger, spec()]),
                SubmitTasks(4, [last]),
                ActOnTasks(5, Action.KILL, (large.id,)),
                Query(6, "task", {"id": larger.id}),
            )
            answers = [await peer.wait_for(lambda m: isinstance(m, Ack)) for _ in range(6)]
            assert [answer.ref for answer in answers if isinstance(answer, Ack)] == [*range(1, 7)]
            assert [await peer.state_of(each.id) for each in (large, after, larger, last)] == [
                "killed",
                "dead",
                "ready",
                "dead",
            ]

    run(test())


def test_large_result_before_leaving(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join(slots=3)
            await client.submit(spec(), spec(), spec())
            a, b, c = await worker.take(3)
            await worker.send(
                Result(
                    1,
                    [Finish(a.task, a.fence, LARGE), Finish(b.task, b.fence, b"small")],
                    [Fail(c.task, c.fence, Error("E"))],
                ),
                LeaveWorker(2),
            )
            assert await worker.answer(1) == Ack(1, {"count": 3, "refused": []})
            assert isinstance(await worker.answer(2), Ack)
            states = [await client.state_of(each.task) for each in (a, b, c)]
            assert states == ["succeeded", "succeeded", "scheduled"]

    run(test())


def test_gone_while_its_body_is_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            for _ in range(5):
                peer = await house.peer()
                await peer.send(SubmitTasks(1, [spec(payload=LARGE)]), SubmitTasks(2, [spec()]))
                peer.close()
            await house.until(lambda: not house.door.connections)

    run(test())


def test_others_do_not_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            heavy, light = await house.peer(), await house.peer()

            async def carry() -> None:
                for _ in range(5):
                    await heavy.submit(spec(payload=LARGE * 4))

            carrying = asyncio.create_task(carry())
            slowest = 0.0
            while not carrying.done():
                begin = asyncio.get_running_loop().time()
                await light.submit(spec())
                slowest = max(slowest, asyncio.get_running_loop().time() - begin)
            await carrying
            assert slowest < 2.0

    run(test())


def test_large_submit_again_is_harmless(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            task = spec(payload=LARGE)
            await client.submit(task)
            await client.submit(task)

    run(test())


def test_refused_task_leaves_no_blob(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client = await house.peer()
            declared = {"queue": "q", "changes": {"depth_limit": 1}}
            await client.ask_ok(Manage(0, "declare_queue", declared))
            await client.submit(spec())
            body = await client.ask_ok(SubmitTasks(0, [spec(payload=LARGE)]))
            assert body["count"] == 0
            await house.until(lambda: not _blobs(tmp_path))

    run(test())


# What is wrong today.


def test_peer_cannot_name_a_blob(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            blob = BlobRef("0" * 32 + "-" + "0" * 8, 70_000)
            named = TaskSpec(new_task_id(), "q", payload=blob)
            refused = await peer.ask(SubmitTasks(0, [named]))
            assert isinstance(refused, Nack)
            assert refused.code == "unknown_blob"
            await peer.join()
            await peer.submit(spec())
            (a,) = await peer.take()
            refused = await peer.ask(Result(0, [Finish(a.task, a.fence, blob)]))
            assert isinstance(refused, Nack)
            assert refused.code == "unknown_blob"

    run(test())


def test_what_is_accepted_can_be_delivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            body = await client.ask_ok(SubmitTasks(0, [spec(payload=LARGE * 9)]))
            if body["count"]:
                (assignment,) = await worker.take()
                assert assignment.payload == LARGE * 9

    run(test())


def test_no_frame_is_larger_than_agreed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            for _ in range(4):
                await client.submit(*(spec(payload=LARGE[:60_000]) for _ in range(75)))
            await worker.send(JoinWorker(1, "w1", ("q",), slots=300))
            assert len(await worker.take(300)) == 300

    run(test())


def test_no_answer_is_larger_than_agreed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            (task,) = await client.submit(spec(payload=LARGE * 9))
            await worker.finish(*await worker.take(), result=LARGE * 9)
            await client.ask(Query(0, "task", {"id": task, "bodies": True}))

    run(test())


def test_signal_comes_after_its_large_assignment(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            task = spec(payload=LARGE * 4)
            await client.send(SubmitTasks(1, [task]), ActOnTasks(2, Action.KILL, (task.id,)))
            heard = [
                await worker.wait_for(lambda m: isinstance(m, Assign | SignalAsked)) for _ in "12"
            ]
            assert [type(message) for message in heard] == [Assign, SignalAsked]

    run(test())


def test_error_behind_a_large_body(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.send(SubmitTasks(1, [spec(payload=LARGE)]), Hello())
            async with asyncio.timeout(1):
                *_, last = await peer.wait_closed()
            assert isinstance(last, Notice)
            assert last.what == "error"

    run(test())


class Away:
    """A store that cannot be read for a while."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.is_away = True
        self._read = house.storage.blobs.read
        for module in (connection, manager):
            monkeypatch.setattr(module, "STORE_AWAY_US", 50_000)
        monkeypatch.setattr(house.storage.blobs, "read", self.read)

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.asked += 1
        if self.is_away:
            raise OutOfReach("s3://x: does not answer")
        return self._read(ref, offset, length)


def test_payload_out_of_reach_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            away = Away(house, monkeypatch)
            await worker.join()
            (large,) = await client.submit(spec(payload=LARGE))
            await house.until(lambda: away.asked >= 3)
            (small,) = await client.submit(spec(payload=b"small"))
            (given,) = await worker.take()
            assert given.task == small
            await worker.finish(given)
            away.is_away = False
            (given,) = await worker.take()
            assert (given.task, given.payload) == (large, LARGE)
            view = await client.ask_ok(Query(0, "task", {"id": large}))
            assert not {"failures", "crashes"} & view.keys()

    run(test())


def test_result_out_of_reach_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            (task,) = await client.submit(spec())
            await client.ask_ok(WatchTasks(0, (task,)))
            (given,) = await worker.take()
            away = Away(house, monkeypatch)
            await worker.finish(given, result=LARGE)
            await house.until(lambda: away.asked >= 2)
            away.is_away = False
            (ended,) = (await client.expect(Ended)).tasks
            assert ended.result == LARGE

    run(test())


def test_payload_of_another_door_that_fits_into_no_frame(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path, frame_bytes_max=MIB) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            blobs = house.broker.blobs
            task = spec()
            task.payload = blobs.write([LARGE * 2])
            house.broker.post(SubmitTasks(ref=0, tasks=[task]), THE_BROKER)
            await client.ask_ok(Manage(0, "declare_queue", {"queue": "q", "changes": {}}))

            async def failure() -> Any:
                view = await client.ask_ok(Query(0, "task", {"id": task.id}))
                return view.get("error")

            async with asyncio.timeout(10):
                while (error := await failure()) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert error["type"] == "PayloadTooLarge"
            assert "unless it fetches them" in error["message"]

    run(test())
