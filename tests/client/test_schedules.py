"""Schedules of an application, with a real broker and a real worker in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jackalope import Jackalope, Rejected, State
from jackalope.wire.views import ScheduleView


async def until(app: Jackalope, name: str, is_so: Callable[[ScheduleView], object]) -> ScheduleView:
    """Look at the schedules until there is one that is as it should be."""
    async with asyncio.timeout(30):
        while True:
            async for view in app.schedules():
                if view.name == name and is_so(view):
                    return await app.schedule_of(name)
            await asyncio.sleep(0.02)


def test_a_worker_declares_the_schedules_of_its_application(tmp_path: Path) -> None:
    app, ran = Jackalope.embedded(tmp_path), threading.Event()
    try:

        @app.schedule(every=1, name="beat", jitter=0)
        @app.schedule("@daily", name="daily")
        @app.task(queue="q", name="work")
        def work() -> None:
            ran.set()

        app.work(concurrency=1)
        daily = app.sync(until(app, "daily", bool))
        assert (daily.settings.cron, daily.settings.task, daily.app != "") == (
            "@daily",
            "work",
            True,
        )
        assert ran.wait(30)
        names = [view.name for view in app.sync.iterate(app.schedules())]
        assert names == ["beat", "daily"]
    finally:
        app.stop()
        app.sync.close()


def test_what_an_application_leaves_out_is_orphaned(tmp_path: Path) -> None:
    first = Jackalope.embedded(tmp_path)
    try:

        @first.schedule("@daily", name="old")
        @first.task(queue="q", name="work")
        def work() -> None: ...

        first.work(concurrency=1)
        assert not first.sync(until(first, "old", bool)).orphaned_us
        first.planned.clear()
        first.work(concurrency=1)  # Another worker, of a version without the schedule.
        view = first.sync(until(first, "old", lambda view: view.orphaned_us))
        assert (view.state, view.next_us > 0) == ("active", True)
    finally:
        first.stop()
        first.sync.close()


def test_a_client_declares_triggers_backfills_and_deletes() -> None:
    app = Jackalope.embedded()
    try:
        settings = app.sync(
            app.declare_schedule(
                "nightly",
                queue="q",
                task="work",
                cron="0 3 * * *",
                zone="Europe/Berlin",
                catch_up_within=timedelta(hours=2),
            )
        )
        assert settings.catch_up_within_us == 2 * 3_600 * 1_000_000
        task = app.sync(app.trigger_schedule("nightly"))
        assert app.sync(app.find(task)).state is State.READY
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        done = app.sync(app.backfill_schedule("nightly", begin, begin + timedelta(days=3)))
        assert (len(done.tasks), done.known, done.refused) == (3, 0, None)
        app.sync(app.pause_schedule("nightly"))
        assert app.sync(app.schedule_of("nightly")).state == "paused"
        app.sync(app.resume_schedule("nightly"))
        view = app.sync(app.schedule_of("nightly"))
        assert (view.state, len(view.upcoming), len(view.runs)) == ("active", 10, 4)
        with pytest.raises(Rejected, match=r"bad hour.*no time zone"):
            app.sync(app.declare_schedule("nightly", cron="0 99 * * *", zone="Mars"))
        app.sync(app.delete_schedule("nightly"))
        with pytest.raises(Rejected, match="no schedule 'nightly'"):
            app.sync(app.schedule_of("nightly"))
    finally:
        app.stop()
        app.sync.close()
