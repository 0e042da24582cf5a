"""What the broker shows of itself: every QUERY, asked over the wire."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope import __version__
from jackalope.core.commands import (
    Action,
    ActOnTasks,
    Fail,
    Heartbeat,
    ReportProgress,
    StartAttempts,
    Verdict,
)
from jackalope.core.ids import TaskId
from jackalope.core.policy import Policy
from jackalope.core.shapes.needs import ONE, Needs
from jackalope.core.task import Error, Options
from jackalope.wire import views
from jackalope.wire.messages import Manage, Query, Result
from tests.doors.harness import Peer, held, open_house, run, spec


async def _ask(peer: Peer, what: str, shape: Any, **about: Any) -> Any:
    """Ask, and read the answer as the view that it must be."""
    return msgspec.convert(await peer.ask_ok(Query(0, what, about)), shape)


def test_task(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            client, worker = await house.peer("lena"), await house.peer()
            options = Options(alias="cat", tags=("gpu",), headers={"trace": {"id": 7}})
            (task,) = await client.submit(
                spec(payload=b"pay", name="resize", key="k", priority=201, options=options)
            )
            await worker.join()
            (assignment,) = await worker.take()
            await worker.ask_ok(StartAttempts(0, [held(assignment)]))
            await worker.ask_ok(ReportProgress(0, task, assignment.fence, 40.0, "tiles"))
            await client.ask_ok(ActOnTasks(0, Action.PAUSE, (task,)))
            view = await _ask(client, "task", views.TaskView, id=task)
            assert (view.id, view.namespace, view.queue, view.state) == (
                task,
                "default",
                "q",
                "running",
            )
            assert (view.name, view.key, view.alias, view.priority) == ("resize", "k", "cat", 201)
            assert (view.tags, view.headers, view.by) == (("gpu",), {"trace": {"id": 7}}, "lena")
            assert (view.worker, view.fence, view.attempts) == ("w1", assignment.fence, 1)
            assert (view.progress.percent, view.progress.note) == (40.0, "tiles")
            assert (view.request.signal, view.request.stage, view.request.by) == (
                "pause",
                "requested",
                "lena",
            )
            assert (view.payload_size, view.payload, view.result) == (3, None, None)
            await worker.finish(assignment, result=b"out")
            view = await _ask(client, "task", views.TaskView, alias="cat", bodies=True)
            assert (view.id, view.state, view.payload, view.result) == (
                task,
                "succeeded",
                b"pay",
                b"out",
            )

    run(test())


def test_failed_task(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.join()
            (task,) = await peer.submit(spec())
            (assignment,) = await peer.take()
            failed = Fail(task, assignment.fence, Error("E", "why", "where"), Verdict.DEAD)
            await peer.ask_ok(Result(0, failed=[failed]))
            view = await _ask(peer, "task", views.TaskView, id=task)
            assert (view.state, view.reason, view.failures) == ("dead", "failed", 1)
            assert view.error == views.ErrorView("E", "why", "where")

    run(test())


def test_tasks_in_pages(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            ids = await peer.submit(*(spec(name=f"n{number}") for number in range(7)))
            await peer.submit(spec("other"))
            found: list[TaskId] = []
            cursor = ""
            for count in (3, 3, 1):
                page = await _ask(
                    peer,
                    "tasks",
                    views.TaskPage,
                    queue="q",
                    states=["ready"],
                    sort="created",
                    limit=3,
                    cursor=cursor,
                )
                assert len(page.tasks) == count
                found += [view.id for view in page.tasks]
                cursor = page.cursor
            assert found == ids
            assert cursor == ""
            page = await _ask(peer, "tasks", views.TaskPage, text="N5")
            assert [view.name for view in page.tasks] == ["n5"]

    run(test())


def test_list_is_never_stale(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            for count in range(1, 20):
                await peer.submit(spec())
                page = await _ask(peer, "tasks", views.TaskPage)
                assert len(page.tasks) == count

    run(test())


def test_history_and_explanation(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer("lena")
            (task,) = await peer.submit(spec())
            await peer.ask_ok(ActOnTasks(0, Action.HOLD, (task,)))
            happened = await _ask(peer, "history", list[views.HistoryEntryView], id=task)
            assert [(h.what, h.by) for h in happened] == [("submit", "lena"), ("hold", "lena")]
            explained = await _ask(peer, "explain", views.ExplanationView, id=task)
            assert (explained.task, explained.state) == (task, "held")
            assert explained.causes
            later = Options(run_at_us=4_102_444_800_000_000)
            (task,) = await peer.submit(spec(options=later))
            explained = await _ask(peer, "explain", views.ExplanationView, id=task)
            assert explained.causes[0].text == "is due to start at 2100-01-01T00:00:00Z"

    run(test())


def test_queues(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(spec("b"), spec("a"), spec("a", options=Options(held=True)))
            await peer.join(queues=("b",), slots=0)
            a, b = await _ask(peer, "queues", list[views.QueueView])
            assert (a.queue, a.counts, a.depth, a.workers) == ("a", {"held": 1, "ready": 1}, 2, 0)
            assert (b.queue, b.counts, b.depth, b.workers) == ("b", {"ready": 1}, 1, 1)
            assert a.policy == Policy()
            assert await _ask(peer, "queues", list[views.QueueView], queue="b") == [b]

    run(test())


def test_workers(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            busy, idle, away, gone = [await house.peer() for _ in range(4)]
            await busy.submit(spec())
            await busy.join("busy", keys=("k", ""), slots=2, labels={"gpu": "yes"})
            await busy.take()
            await busy.ask_ok(Heartbeat(0, {"cpu": 0.5}))
            await idle.join("idle")
            await away.join("away")
            away.close()
            await gone.join("gone", grace_us=0)
            gone.close()
            await house.until(lambda: len(house.door.connections) == 2)
            shown = await _ask(idle, "workers", list[views.WorkerView])
            assert [(view.worker, view.state) for view in shown] == [
                ("away", "away"),
                ("busy", "active"),
                ("idle", "idle"),
                ("gone", "gone"),
            ]
            view = shown[1]
            assert (view.queues, view.keys, view.slots, view.load) == (("q",), ("k", ""), 2, 1)
            assert (view.labels, view.stats) == ({"gpu": "yes"}, {"cpu": 0.5})
            assert shown[3].why_gone == "closed"

    run(test())


def test_what_workers_have_and_tasks_need(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            needs = Needs(
                (("cpu", 500), ("mem", 8 * 2**30 * ONE)),
                (("arch", ("amd64", "arm64")),),
                (("zone", ("a",)),),
                (("tier", ("spot",)),),
                "user-1",
            )
            await peer.submit(spec(options=Options(needs=needs)), spec(queue="other"))
            await peer.join(
                slots=2,
                labels={"arch": "arm64"},
                resources={"cpu": 2 * ONE, "mem": 64 * 2**30 * ONE, "gpu": ONE},
            )
            await peer.take()
            [worker] = await _ask(peer, "workers", list[views.WorkerView])
            assert worker.resources == {"cpu": 2, "mem": 64 * 2**30, "gpu": 1}
            assert worker.used == {"cpu": 0.5, "mem": 8 * 2**30}
            page = await _ask(peer, "tasks", views.TaskPage)
            plain, view = sorted(page.tasks, key=lambda view: view.sticky)
            assert (plain.needs, plain.prefer, plain.avoid, plain.sticky) == ({}, {}, {}, "")
            assert view.needs == {"cpu": 0.5, "mem": 8 * 2**30, "arch": ("amd64", "arm64")}
            assert (view.prefer, view.avoid) == ({"zone": ("a",)}, {"tier": ("spot",)})
            assert view.sticky == "user-1"

    run(test())


def test_limits(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.ask_ok(Manage(0, "limit_tag", {"tag": "gpu", "limit": 1}))
            await peer.join(slots=2)
            await peer.submit(*(spec(options=Options(tags=("gpu",))) for _ in range(2)))
            await peer.take()
            shown = await _ask(peer, "limits", list[views.LimitView])
            assert shown == [views.LimitView("gpu", 1, 1, 1)]

    run(test())


def test_batches(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            declared = {"queue": "q", "changes": {"batch_size": 2}}
            await peer.ask_ok(Manage(0, "declare_queue", declared))
            await peer.submit(*(spec() for _ in range(5)))
            shown = await _ask(peer, "batches", list[views.BatchView], queue="q")
            assert [(view.number, view.counts, view.is_full) for view in shown] == [
                (3, {"ready": 1}, False),
                (2, {"ready": 2}, True),
                (1, {"ready": 2}, True),
            ]
            shown = await _ask(peer, "batches", list[views.BatchView], queue="q", before=3, limit=1)
            assert [view.number for view in shown] == [2]

    run(test())


def test_stats(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(*(spec(priority=priority) for priority in (10, 100, 150, 255)))
            (dead,) = await peer.submit(spec())
            await peer.ask_ok(ActOnTasks(0, Action.KILL, (dead,)))
            stats = await _ask(peer, "stats", views.StatsView)
            assert (stats.counts["ready"], stats.ended) == (4, {"killed": 1})
            assert stats.depth_by_tier == {"high": 1, "normal": 2, "low": 1}
            assert (stats.workers, stats.sessions) == (0, 1)
            assert (stats.durability, stats.version) == ("fsync", __version__)
            assert stats.started_us <= stats.now_us
            assert stats.sequence > 0

    run(test())


@pytest.mark.parametrize(
    ("what", "about", "code"),
    [
        ("weather", {}, "invalid"),
        ("task", {}, "unknown_task"),
        ("task", {"id": b"\x01" * 16}, "unknown_task"),
        ("task", {"id": b"short"}, "unknown_task"),
        ("task", {"id": 7}, "invalid"),
        ("task", {"alias": "nobody"}, "unknown_task"),
        ("task", {"colour": "blue"}, "invalid"),
        ("history", {"id": b"\x01" * 16}, "unknown_task"),
        ("explain", {"id": b"\x01" * 16}, "unknown_task"),
        ("tasks", {"states": ["happy"]}, "invalid"),
        ("tasks", {"sort": "colour"}, "invalid"),
        ("tasks", {"cursor": "made up"}, "invalid"),
        ("tasks", {"cursor": "é"}, "invalid"),
        ("batches", {}, "unknown_queue"),
        ("batches", {"queue": "none"}, "unknown_queue"),
    ],
)
def test_question_refused(what: str, about: dict[str, Any], code: str) -> None:
    async def test() -> None:
        async with open_house(None) as house:
            peer = await house.peer()
            await peer.submit(spec())
            assert (await peer.ask_no(Query(0, what, about))).code == code

    run(test())


def test_page_has_a_limit(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_house(tmp_path) as house:
            peer = await house.peer()
            await peer.submit(*(spec() for _ in range(1_200)))
            for asked, got in ((10_000, 1_000), (0, 1), (-7, 1)):
                page = await _ask(peer, "tasks", views.TaskPage, limit=asked)
                assert len(page.tasks) == got

    run(test())
