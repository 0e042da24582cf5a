"""A disk that fills up while the broker runs: writes are refused, reads go on, space brings back.

The journal has no more segments, or history is real SQLite with a limit on the size of its file.
"""

import asyncio
from pathlib import Path

import pytest

from jackalope.core.commands import Action, ActOnTasks, Finish, JoinWorker, SubmitTasks, WatchTasks
from jackalope.core.ids import TaskId
from jackalope.storage import DiskFull
from jackalope.wire.messages import Ack, Ended, Manage, Nack, Notice, Query, Result
from tests.doors.harness import Closed, House, Peer, held, open_house, run, spec
from tests.storage.full import fill, free

GOODBYE = Notice("goodbye", "the disk is full; connect again")


async def _until_refused(peer: Peer, size: int = 30_000) -> Nack:
    """Submit until there is no room, as the last page has some left."""
    for _ in range(1_000):
        answer = await peer.ask(SubmitTasks(0, [spec(payload=b"x" * size)]))
        if isinstance(answer, Nack):
            return answer
    raise AssertionError("the disk did not fill up")


async def _full_house(house: House, peer: Peer) -> TaskId:
    """Fill the journal's disk, and return a task from before."""
    (task,) = await peer.submit(spec(payload=b"before"))
    fill(house.storage.journal)
    refusal = await _until_refused(peer)
    assert refusal.code == "storage_failed"
    assert "journal: no space left" in refusal.message
    return task


async def _brimful_house(house: House) -> tuple[Peer, TaskId]:
    """Fill the journal's disk to its last byte, and return a peer that came after that."""
    task, size = await _full_house(house, await house.peer()), 3_000
    while True:
        peer = await house.peer()
        refusal = await _until_refused(peer, size)
        try:
            await peer.ask_ok(Query(0, "stats"))
        except Closed:
            size //= 10  # There was room for the attempt to write, and a little more.
        else:
            assert refusal.code == "storage_failed"
            return peer, task


def test_everybody_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, other = await house.peer(), await house.peer()
            await _full_house(house, peer)
            # The sessions are over: what they watched or held must be said again.
            assert await peer.wait_closed() == [GOODBYE]
            assert await other.wait_closed() == [GOODBYE]
            free(house.storage.journal)

    run(test())


def test_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, task = await _brimful_house(house)
            for message in (
                SubmitTasks(0, [spec()]),
                ActOnTasks(0, Action.KILL, (task,)),
                Manage(0, "pause_queue", {"queue": "q"}),
                JoinWorker(0, "w1", ("q",)),
                WatchTasks(0, (task,)),
            ):
                assert (await peer.ask_no(message)).code == "storage_failed"
            view = await peer.ask_ok(Query(0, "task", {"id": task, "bodies": True}))
            assert view["payload"] == b"before"
            for what in ("tasks", "queues", "workers", "limits", "stats"):
                await peer.ask_ok(Query(0, what))
            assert len(await peer.ask_ok(Query(0, "history", {"id": task}))) >= 1
            assert peer.heard == []
            free(house.storage.journal)
            await peer.submit(spec())

    run(test())


def test_space_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            task = await _full_house(house, await house.peer())
            peer = await house.peer()
            free(house.storage.journal)
            again = await peer.submit(spec())
            assert await peer.state_of(task) == "ready"
            assert await peer.state_of(again[0]) == "ready"
            page = await peer.ask_ok(Query(0, "tasks"))
            assert {task, *again} <= {view["id"] for view in page["tasks"]}
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            assert await peer.state_of(again[0]) == "ready"

    run(test())


def test_space_comes_back_while_nobody_asks(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            await _full_house(house, await house.peer())
            assert house.broker.engine.fault is not None
            free(house.storage.journal)
            await house.until(lambda: house.broker.engine.fault is None)

    run(test())


def test_refused_is_not_done(tmp_path: Path) -> None:
    """What was refused has left no trace, and may be said again."""

    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(spec())
            fill(house.storage.journal)
            large = spec(payload=b"x" * 60_000)
            while isinstance(await peer.ask(SubmitTasks(0, [large])), Ack):
                large = spec(payload=b"x" * 60_000)
            peer = await house.peer()
            assert (await peer.ask_no(Query(0, "task", {"id": large.id}))).code == "unknown_task"
            free(house.storage.journal)
            await peer.submit(large)

    run(test())


def test_worker_resumes(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join()
            await client.submit(spec())
            (assignment,) = await worker.take()
            fill(house.storage.journal)
            await _until_refused(client)
            assert await worker.wait_closed() == [GOODBYE]
            worker = await house.peer()
            free(house.storage.journal)
            body = await worker.join(holding=[held(assignment)], generation=2)
            assert body == {"resumed": [[assignment.task, assignment.fence]], "drop": []}
            await worker.finish(assignment)
            view = await worker.ask_ok(Query(0, "task", {"id": assignment.task}))
            assert (view["state"], view["attempts"]) == ("succeeded", 1)

    run(test())


def test_result_is_refused_and_said_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join(slots=40)
            await client.submit(*(spec() for _ in range(40)))
            taken = await worker.take(40)
            fill(house.storage.journal)
            rest = list(taken)
            while rest:
                finish = Finish(rest[0].task, rest[0].fence, b"x" * 30_000)
                if isinstance(await worker.ask(Result(0, [finish])), Nack):
                    break
                rest.pop(0)
            assert rest
            free(house.storage.journal)
            worker = await house.peer()
            body = await worker.join(slots=40, holding=[held(each) for each in rest])
            assert len(body["resumed"]) == len(rest)
            await worker.finish(*rest)
            stats = await worker.ask_ok(Query(0, "stats"))
            assert stats["counts"].get("running", 0) == stats["counts"].get("assigned", 0) == 0

    run(test())


def test_no_room_for_history(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, other = await house.peer(), await house.peer()
            (task,) = await client.submit(spec())
            await client.ask_ok(Query(0, "tasks"))
            await client.ask_ok(WatchTasks(0, (task,)))
            fill(house.storage.history)
            await other.submit(*(spec("other", payload=b"x" * 60_000) for _ in range(20)))
            await house.until(lambda: house.broker.engine.fault is not None)
            free(house.storage.history)
            await house.until(lambda: house.broker.engine.fault is None)
            # Either the client is told that its session is over, or its watch still holds.
            other = await house.peer()
            await other.ask_ok(ActOnTasks(0, Action.KILL, (task,)))
            async with asyncio.timeout(0.5):
                await client.wait_for(lambda message: isinstance(message, Ended | Notice))

    run(test())


# What is wrong today.


def test_no_room_for_a_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()

            def begin() -> None:
                raise DiskFull("blobs: no space left")

            monkeypatch.setattr(house.storage.blobs, "begin", begin)
            async with asyncio.timeout(0.5):
                refusal = await peer.ask_no(SubmitTasks(0, [spec(payload=b"x" * 100_000)]))
            assert refusal.code == "storage_failed"
            await peer.submit(spec())

    run(test())
