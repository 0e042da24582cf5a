"""A room is added with its own module and one line: nothing of the core is edited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from jackalope.core.commands import AnyCommand, CloseSession, Tick
from jackalope.core.commands.base import Command
from jackalope.core.context import Context, Deadline, Ending, Room, Rooms, each
from jackalope.core.core import ROOMS, Core
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, LeaseLost, Reply, SendToSession
from jackalope.core.ids import TaskId
from jackalope.core.records import TagLimited
from jackalope.core.refusals import Code, Refusal
from jackalope.core.state.roster import Worker
from jackalope.core.state.timers import Timers
from tests.core.driving import NOW_US, Driver, task_id


class Ring(Command):
    """Let a bell ring once, after a while."""

    after_us: int = 0


class Polish(Command):
    """What only a worker may ask for."""


class Bells:
    """The volatile state of the room."""

    def __init__(self) -> None:
        self.timers: Timers[int] = Timers()
        self.ended: list[TaskId] = []


def ring(ctx: Context, command: Ring) -> Accepted | Refusal:
    if command.after_us < 0:
        return Refusal(Code.INVALID, "after_us: must not be negative")
    ctx.own(Bells).timers.set(command.session, ctx.now_us + command.after_us)
    return Accepted()


def polish(_: Context, __: Polish, worker: Worker) -> Accepted:
    worker.labels["bell"] = "shines"
    return Accepted()


def strike(ctx: Context, session: int) -> None:
    ctx.agenda.add(strike, session)


def settle(ctx: Context) -> None:
    for session in ctx.agenda.take(strike):
        ctx.record(TagLimited(ctx.now_us, "default", "bell", session))
        ctx.send(session, LeaseLost())


def count(ctx: Context, endings: Sequence[Ending]) -> None:
    for task, _, attempt in endings:
        assert attempt is not None
        ctx.own(Bells).ended.append(task.id)


BELLS = Room(
    handlers={Ring: ring},
    reports={Polish: polish},
    deadlines=(Deadline(lambda ctx: ctx.own(Bells).timers, each(strike)),),
    settle=settle,
    tasks_ended=count,
    session_ended=lambda ctx, session: ctx.own(Bells).timers.cancel(session),
)


def handle(core: Core, at_us: int, command: Command) -> tuple[list[object], list[object]]:
    records, effects = core.handle(at_us, cast("AnyCommand", command))
    return list(records), list(effects)


def test_deadlines_are_as_many_as_the_architecture_says() -> None:
    page = Path(__file__).parents[2] / "docs/explanation/architecture.md"
    assert len(ROOMS.deadlines) == 15
    assert "There are fifteen kinds, " in page.read_text()


def driver_with_bells() -> Driver:
    driver = Driver()
    driver.core = Core(Rooms(*ROOMS.all, BELLS))
    return driver


def test_a_command_is_handled_and_answered_by_its_room() -> None:
    core = Core(Rooms(*ROOMS.all, BELLS))
    assert handle(core, NOW_US, Ring(session=1, ref=7)) == ([], [Reply(1, 7, Accepted())])
    refusal = Refusal(Code.INVALID, "after_us: must not be negative")
    assert handle(core, NOW_US, Ring(ref=8, after_us=-1)) == ([], [Reply(0, 8, refusal)])


def test_a_deadline_leads_to_a_record_and_a_message() -> None:
    core = Core(Rooms(*ROOMS.all, BELLS))
    handle(core, NOW_US, Ring(session=1, after_us=SECOND))
    assert core.next_deadline_us() == NOW_US + SECOND
    assert handle(core, NOW_US + SECOND, Tick()) == (
        [TagLimited(NOW_US + SECOND, "default", "bell", 1)],
        [SendToSession(1, LeaseLost())],
    )
    assert core.book.namespaces["default"].gates.tags == {"bell": 1}
    assert core.next_deadline_us() is None


def test_a_room_is_told_of_a_session_that_ends() -> None:
    core = Core(Rooms(*ROOMS.all, BELLS))
    handle(core, NOW_US, Ring(session=1, after_us=SECOND))
    handle(core, NOW_US, CloseSession(session=1))
    assert core.next_deadline_us() is None


def test_a_room_is_told_of_a_task_that_ends() -> None:
    driver = driver_with_bells()
    driver.join("w", 1, slots=1)
    driver.submit(1)
    driver.finish(1)
    assert driver.core.own(Bells).ended == [task_id(1)]


def test_a_command_of_workers_is_given_the_worker() -> None:
    driver = driver_with_bells()
    _, effects = handle(driver.core, NOW_US, Polish(session=99, ref=1))
    assert isinstance(effects[0], Reply)
    assert isinstance(effects[0].body, Refusal)
    driver.join("w", 1)
    worker = next(iter(driver.core.roster.workers.values()))
    assert handle(driver.core, NOW_US, Polish(session=worker.session, ref=1))[1] == [
        Reply(worker.session, 1, Accepted())
    ]
    assert worker.labels == {"bell": "shines"}
