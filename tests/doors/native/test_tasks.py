"""What a client asks: submit, act, watch, manage, subscribe."""

from pathlib import Path
from typing import Any

import pytest

from jackalope.core.commands import Action, ActOnTasks, SubmitTasks, WatchTasks
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.limits import ITEMS_PER_COMMAND_MAX
from jackalope.core.task import Options
from jackalope.task_ids import new_task_id
from jackalope.wire.messages import Ack, Ended, Events, Happened, Manage, Query, Subscribe
from tests.doors.harness import Peer, open_house, run, spec

NOBODY = TaskId(b"\x01" * 16)


def _refusals(body: Any) -> list[tuple[Any, str]]:
    return [(index, refusal["code"]) for index, refusal in body["refused"]]


# SUBMIT.


def test_each_task_is_accepted_or_refused_on_its_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            good, also_good = spec(), spec(name="resize", priority=200, payload=b"cat")
            body = await peer.ask_ok(
                SubmitTasks(
                    0,
                    [
                        good,
                        spec(queue=""),
                        spec(id=TaskId(b"short")),
                        also_good,
                        spec(options=Options(depends_on=(NOBODY,))),
                        spec(options=Options(parent=NOBODY)),
                    ],
                )
            )
            assert body["count"] == 2
            assert _refusals(body) == [
                (1, "invalid"),
                (2, "invalid"),
                (4, "unknown_dependency"),
                (5, "unknown_task"),
            ]
            refusal = body["refused"][0][1]
            assert set(refusal) == {"type", "code", "message", "retry_after_us"}
            assert "queue: must not be empty" in refusal["message"]
            assert await peer.state_of(also_good.id) == "ready"

    run(test())


def test_submit_again_is_harmless(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer, again = await house.peer(), await house.peer()
            task = spec(payload=b"same")
            for each in (peer, peer, again):
                await each.submit(task)
            other = spec(id=task.id, payload=b"other")
            assert _refusals(await peer.ask_ok(SubmitTasks(0, [other]))) == [(0, "id_conflict")]
            assert len((await peer.ask_ok(Query(0, "tasks")))["tasks"]) == 1

    run(test())


def test_alias_is_unique(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(spec(options=Options(alias="cat")))
            body = await peer.ask_ok(SubmitTasks(0, [spec(options=Options(alias="cat"))]))
            assert _refusals(body) == [(0, "duplicate_alias")]

    run(test())


@pytest.mark.feature("D6")
def test_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            changes = {"queue": "q", "changes": {"depth_limit": 2}}
            await peer.ask_ok(Manage(0, "declare_queue", changes))
            body = await peer.ask_ok(SubmitTasks(0, [spec(), spec(), spec()]))
            assert body["count"] == 2
            assert _refusals(body) == [(2, "queue_full")]
            assert body["refused"][0][1]["retry_after_us"] > 0

    run(test())


def test_tasks_a_frame_at_the_limit_and_one_past(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            many = [spec() for _ in range(ITEMS_PER_COMMAND_MAX + 1)]
            refusal = await peer.ask_no(SubmitTasks(0, many))
            assert refusal.code == "too_many"
            assert await peer.ask_ok(Query(0, "queues")) == []
            body = await peer.ask_ok(SubmitTasks(0, many[:-1]))
            assert body == {"count": ITEMS_PER_COMMAND_MAX, "refused": []}

    run(test())


def test_nobody_asked_for_an_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            task = spec()
            await peer.send(SubmitTasks(0, [task]), SubmitTasks(0, [spec(queue="")]))
            assert await peer.state_of(task.id) == "ready"
            assert peer.heard == []

    run(test())


def test_child_needs_the_fence_of_its_parent(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.join()
            await peer.submit(spec())
            (parent,) = await peer.take()
            child = spec("other", options=Options(parent=parent.task))
            body = await peer.ask_ok(SubmitTasks(0, [child], fence=parent.fence + 1))
            assert _refusals(body) == [(0, "stale_fence")]
            body = await peer.ask_ok(SubmitTasks(0, [child], fence=parent.fence))
            assert body["count"] == 1
            await peer.finish(parent)
            orphan = spec("other", options=Options(parent=parent.task))
            assert _refusals(await peer.ask_ok(SubmitTasks(0, [orphan]))) == [(0, "parent_ended")]

    run(test())


# ACT.


def test_every_action(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            (task,) = await peer.submit(spec())
            for action, state in (
                (Action.HOLD, "held"),
                (Action.PLAY, "ready"),
                (Action.PAUSE, "paused"),
                (Action.KILL, "killed"),
                (Action.RETRY, "ready"),
                (Action.KILL, "killed"),
            ):
                body = await peer.ask_ok(ActOnTasks(0, action, (task,)))
                assert body == {"changed": 1, "requested": 0, "refused": [], "more": False}
                assert await peer.state_of(task) == state
            assert (await peer.ask_ok(ActOnTasks(0, Action.PURGE, (task,))))["changed"] == 1
            assert (await peer.ask_no(Query(0, "task", {"id": task}))).code == "unknown_task"

    run(test())


def test_action_says_of_each_task_why_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            (task,) = await peer.submit(spec())
            body = await peer.ask_ok(ActOnTasks(0, Action.PURGE, (task, NOBODY)))
            assert body["changed"] == 0
            assert sorted(_refusals(body)) == [(NOBODY, "unknown_task"), (task, "wrong_state")]

    run(test())


def test_action_by_filter(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(*(spec(name="old") for _ in range(3)), spec(name="new"))
            wanted = Filter(queue="q", name="old")
            body = await peer.ask_ok(ActOnTasks(0, Action.HOLD, filter=wanted, dry_run=True))
            assert body == {"changed": 3, "requested": 0, "refused": [], "more": False}
            assert (await peer.ask_ok(ActOnTasks(0, Action.HOLD, filter=wanted)))["changed"] == 3
            (view,) = await peer.ask_ok(Query(0, "queues"))
            assert view["counts"] == {"held": 3, "ready": 1}

    run(test())


# WATCH and ENDED.


def test_watched_tasks_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer(), await house.peer()
            await worker.join(slots=2)
            done, killed = await client.submit(spec(), spec("other"))
            body = await client.ask_ok(WatchTasks(0, (done, NOBODY, killed)))
            assert body["count"] == 2
            assert _refusals(body) == [(1, "unknown_task")]
            await worker.finish(*await worker.take(), result=b"cat")
            (ended,) = (await client.expect(Ended)).tasks
            assert (ended.task, ended.state, ended.result) == (done, "succeeded", b"cat")
            assert (ended.reason, ended.error) == (None, None)
            await client.ask_ok(ActOnTasks(0, Action.KILL, (killed,)))
            (ended,) = (await client.expect(Ended)).tasks
            assert (ended.task, ended.state) == (killed, "killed")
            # Told once, and at once when asked again.
            await client.ask_ok(Query(0, "stats"))
            assert client.heard == []
            await client.ask_ok(WatchTasks(0, (done, killed)))
            assert {one.task for one in (await client.expect(Ended)).tasks} == {done, killed}

    run(test())


def test_watch_of_a_purged_task_is_not_forgotten_by_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            one, other = await house.peer(), await house.peer()
            (task,) = await one.submit(spec())
            for peer in (one, other):
                await peer.ask_ok(WatchTasks(0, (task,)))
            one.close()
            await house.until(lambda: len(house.door.connections) == 1)
            await other.ask_ok(ActOnTasks(0, Action.KILL, (task,)))
            assert (await other.expect(Ended)).tasks[0].state == "killed"

    run(test())


# MANAGE.


def test_queue_is_declared_changed_paused_and_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer(name="lena")

            async def manage(what: str, **about: Any) -> Any:
                return await peer.ask_ok(Manage(0, what, about))

            body = await manage("declare_queue", queue="q", preset="rpc", changes={"retries": 7})
            assert (body["policy"]["retries"], body["policy"]["crash_limit"]) == (7, 3)
            body = await manage("declare_queue", queue="q", changes={"held": True})
            assert (body["policy"]["retries"], body["policy"]["held"]) == (7, True)
            yes = {"count": 1, "refused": []}
            assert await manage("pause_queue", queue="q") == yes
            (view,) = await peer.ask_ok(Query(0, "queues"))
            assert view["paused_by"] == "lena"
            assert await manage("resume_queue", queue="q") == yes
            (view,) = await peer.ask_ok(Query(0, "queues"))
            assert view["paused_by"] == ""
            assert await manage("limit_tag", tag="gpu", limit=2) == yes
            assert await peer.ask_ok(Query(0, "limits")) == [
                {"tag": "gpu", "limit": 2, "in_flight": 0, "waiting": 0}
            ]
            assert await manage("limit_tag", tag="gpu", limit=-1) == yes
            assert await peer.ask_ok(Query(0, "limits")) == []
            assert await manage("delete_queue", queue="q") == yes
            assert await peer.ask_ok(Query(0, "queues")) == []

    run(test())


@pytest.mark.parametrize(
    ("what", "about", "code", "text"),
    [
        ("dance", {}, "invalid", "use declare_queue, delete_queue"),
        ("pause_queue", {"queue": "none"}, "unknown_queue", "no queue 'none'"),
        ("delete_queue", {"queue": "full"}, "queue_not_empty", "1 unfinished"),
        ("pause_queue", {}, "invalid", "queue"),
        ("pause_queue", {"queue": 7}, "invalid", "Expected `str`"),
        ("pause_queue", {"queue": "q", "colour": "red"}, "invalid", "unknown colour"),
        ("pause_queue", {"queue": "q", "by": "somebody"}, "invalid", "unknown by"),
        ("pause_queue", {"queue": "q", "namespace": "x"}, "invalid", "unknown namespace"),
        ("declare_queue", {"queue": "q", "preset": "none"}, "invalid", "unknown preset 'none'"),
        ("declare_queue", {"queue": "q", "changes": {"retries": -1}}, "invalid", "must be 0 to"),
        ("declare_queue", {"queue": "q", "changes": {"tries": 1}}, "invalid", "tries: unknown"),
        ("declare_queue", {"queue": "q", "changes": {"result_becomes": "q"}}, "policy_cycle", "q"),
        ("declare_queue", {"queue": ""}, "invalid", "1 to 256 characters"),
        ("limit_tag", {"tag": "", "limit": 1}, "invalid", "1 to 128"),
        ("drain_worker", {"worker": "none"}, "unknown_worker", "no worker 'none'"),
    ],
)
def test_management_refused(what: str, about: dict[str, Any], code: str, text: str) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.submit(spec("full"))
            refusal = await peer.ask_no(Manage(0, what, about))
            assert refusal.code == code
            assert text in refusal.message

    run(test())


# SUBSCRIBE and EVENTS.


async def _events(peer: Peer, count: int) -> list[tuple[str, TaskId, str, str]]:
    return [(e.what, e.task, e.queue, e.state) for e in await events_of(peer, count)]


async def events_of(peer: Peer, count: int) -> list[Happened]:
    got: list[Happened] = []
    while len(got) < count:
        message = await peer.expect(Events)
        assert message.missed == 0
        got += message.events
    return got


def test_events_of_everything_a_queue_or_a_task(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer("lena"), await house.peer()
            every, one_queue, one_task = [await house.peer() for _ in range(3)]
            elsewhere = await house.peer(namespace="elsewhere")
            mine, other = spec(), spec("other")
            assert await every.ask(Subscribe(5)) == Ack(5)
            await elsewhere.ask_ok(Subscribe(0))
            await one_queue.ask_ok(Subscribe(0, queue="other"))
            await one_task.ask_ok(Subscribe(0, task=mine.id))
            await client.submit(mine, other)
            await worker.join()
            (assignment,) = await worker.take()
            await worker.finish(assignment, result=b"r")
            life = [
                ("submit", mine.id, "q", "ready"),
                ("assign", mine.id, "q", "assigned"),
                ("finish", mine.id, "q", "succeeded"),
            ]
            submitted = ("submit", other.id, "other", "ready")
            assert await _events(one_task, 3) == life
            assert await _events(one_queue, 1) == [submitted]
            assert sorted(await _events(every, 4)) == sorted([*life, submitted])
            # A later subscription takes the place of the earlier one.
            await one_queue.ask_ok(Subscribe(0, queue="third"))
            await client.submit(spec("other"), spec("third"))
            assert [queue for _, _, queue, _ in await _events(one_queue, 1)] == ["third"]
            await elsewhere.ask_ok(Query(0, "stats"))
            assert elsewhere.heard == []

    run(test())


def test_event_says_when_and_by_whom(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, watcher = await house.peer("lena"), await house.peer()
            await watcher.ask_ok(Subscribe(0))
            before_us = house.broker.now_us()
            (task,) = await client.submit(spec())
            await client.ask_ok(ActOnTasks(0, Action.KILL, (task,)))
            (submitted,) = (await watcher.expect(Events)).events
            assert before_us <= submitted.at_us <= house.broker.now_us()
            assert (submitted.what, submitted.by, submitted.state) == ("submit", "lena", "ready")
            (killed,) = (await watcher.expect(Events)).events
            assert (killed.what, killed.by, killed.state) == ("kill", "lena", "killed")

    run(test())


@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "in history"])
def test_event_tells_what_was_purged(tmp_path: Path, is_stored: bool) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, watcher = await house.peer("lena"), await house.peer()
            await watcher.ask_ok(Subscribe(0, queue="other"))
            (task, _) = await client.submit(spec("other"), spec("q"))
            await client.ask_ok(ActOnTasks(0, Action.KILL, (task,)))
            if is_stored:
                await house.broker.flush()
                assert task not in house.broker.engine.core.book.tasks
            await client.ask_ok(ActOnTasks(0, Action.PURGE, (task,)))
            told = [(event.what, event.state) for event in (await events_of(watcher, 3))]
            assert told == [("submit", "ready"), ("kill", "killed"), ("purge", "killed")]

    run(test())


def test_ids_that_are_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            ids = (TaskId(b""), TaskId(b"x"), TaskId(b"y" * 17), new_task_id())
            assert len((await peer.ask_ok(ActOnTasks(0, Action.KILL, ids)))["refused"]) == 4
            assert len((await peer.ask_ok(WatchTasks(0, ids)))["refused"]) == 4
            bad = [spec(id=each) for each in ids[1:3]]
            bad += [spec(options=Options(parent=ids[1])), spec(options=Options(depends_on=ids[:3]))]
            assert (await peer.ask_ok(SubmitTasks(0, bad)))["count"] == 0

    run(test())
