"""Schedules over gRPC: what messages say about them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from jackalope.core.durations import DAY, HOUR, SECOND
from jackalope.core.settings import keys_of
from jackalope.core.shapes.request import Same
from jackalope.core.shapes.schedule import DEFAULT_SCHEDULE, CatchUp, Overlap, ScheduleSettings
from jackalope.core.task import Retry
from jackalope.doors.grpc.schedules import changes_of, settings_shown
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import open_grpc, refused
from tests.doors.harness import run

FULL = ScheduleSettings(
    queue="q",
    task="report",
    key="eu",
    priority=7,
    payload=b"p",
    headers={"team": "blue", "count": 3},
    tags=("gpu", "big"),
    timeout_us=HOUR,
    time_to_live_us=DAY,
    retry=Retry(3, SECOND, 2.0, HOUR),
    same=Same.UNIQUE,
    version="2",
    cron="0 3 * * *",
    zone="Europe/Berlin",
    every_us=HOUR,
    times=(1_900_000_000_000_000, 1_900_000_000_000_001),
    start=1_800_000_000_000_000,
    end=2_000_000_000_000_000,
    jitter_us=SECOND,
    overlap=Overlap.WAIT,
    catch_up=CatchUp.ALL,
    catch_up_within_us=HOUR,
)


def test_every_setting_has_a_field() -> None:
    fields = {field.name for field in pb.ScheduleSettings.DESCRIPTOR.fields}
    assert fields == set(keys_of(ScheduleSettings))


@pytest.mark.parametrize("settings", [FULL, DEFAULT_SCHEDULE])
def test_settings_come_back_as_they_were(settings: ScheduleSettings) -> None:
    sent = pb.ScheduleSettings.FromString(settings_shown(settings).SerializeToString())
    changes: dict[str, Any] = changes_of(sent)
    assert ScheduleSettings(**changes) == settings


def test_what_is_not_set_stays_and_what_is_empty_is_cleared() -> None:
    assert changes_of(pb.ScheduleSettings()) == {}
    none = pb.ScheduleSettings(
        tags=pb.Tags(),
        times=pb.Moments(),
        start=Timestamp(),
        same=pb.SAME_REQUEST_UNSPECIFIED,
        cron="",
        every=timedelta(0),
    )
    assert changes_of(none) == {
        "tags": (),
        "times": (),
        "start": 0,
        "same": None,
        "cron": "",
        "every_us": 0,
    }


def test_a_value_that_cannot_be_meant_is_named_by_its_path() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            declare = house.client.schedules.DeclareSchedule
            wrong = [
                (pb.ScheduleSettings(every=timedelta(seconds=-1)), "settings.every"),
                (
                    pb.ScheduleSettings(times=pb.Moments(moments=[Timestamp(nanos=-1)])),
                    "settings.times.moments[0]",
                ),
                (pb.ScheduleSettings(start=Timestamp(nanos=-1)), "settings.start"),
            ]
            unknown = pb.ScheduleSettings()
            unknown.overlap = 99  # type: ignore[assignment]
            wrong.append((unknown, "settings.overlap"))
            for settings, path in wrong:
                told = await refused(
                    declare(pb.DeclareScheduleRequest(name="s", settings=settings))
                )
                assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
                assert told.fields == [path]
            listed = await house.client.schedules.ListSchedules(pb.ListSchedulesRequest())
            assert not listed.schedules
            backfill = house.client.schedules.BackfillSchedule
            told = await refused(backfill(pb.BackfillScheduleRequest(name="s")))
            assert told.fields == ["since"]

    run(check())


def test_a_schedule_is_shown_with_all_that_is_known() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            schedules = house.client.schedules
            settings = pb.ScheduleSettings(
                queue="q", task="report", payload=b"p", cron="0 3 * * *", zone="Europe/Berlin"
            )
            request = pb.DeclareScheduleRequest(name="nightly", settings=settings)
            shown = (await schedules.DeclareSchedule(request)).schedule
            assert (shown.state, shown.declared_by) == (pb.SCHEDULE_STATE_ACTIVE, "grpc")
            assert shown.settings.catch_up == pb.CATCH_UP_LAST
            assert len(shown.upcoming) == 10
            at = datetime.fromtimestamp(shown.next_at.seconds, UTC)
            assert (at.hour in (1, 2), at.minute) == (True, 0)
            paused = await schedules.PauseSchedule(pb.PauseScheduleRequest(name="nightly"))
            assert paused.schedule.paused_by == "grpc"
            trigger = pb.TriggerScheduleRequest(name="nightly")
            task_id = (await schedules.TriggerSchedule(trigger)).task_id
            (run_,) = (
                await schedules.GetSchedule(pb.GetScheduleRequest(name="nightly"))
            ).schedule.runs
            assert (run_.task_id, run_.how) == (task_id, pb.RUN_KIND_TRIGGER)
            assert run_.state == pb.TASK_STATE_READY
            task = await house.client.get(task_id, include_payload=True)
            assert (task.name, task.payload) == ("report", b"p")
            assert task.headers["jackalope-schedule"] == "nightly"

    run(check())
