"""Reading task logs: what is asked for in words becomes a page of lines."""

from __future__ import annotations

from typing import Any

import msgspec

from jackalope.broker.logs.keeper import LogKeeper
from jackalope.core.ids import TaskId
from jackalope.core.limits import COUNT_MAX, LOG_LINES_READ_MAX, NAME_CHARS_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import (
    AttemptLogView,
    LogLevel,
    LogLineView,
    LogPage,
    position_of,
)
from jackalope.storage.sqlite.task_logs import Wanted


def wanted_lines(asked: Any) -> Wanted | Refusal:
    """Return which lines a question (`queries.About`) means, or why that cannot be said."""
    attempt, level, text = asked.attempt, asked.level, asked.text
    after, before = asked.after_line, asked.before_line
    problems = []
    positions = {"after": position_of(after), "before": position_of(before)}
    for name, given in (("after", after), ("before", before)):
        if given and positions[name] is None:
            problems.append(f"{name}: {given[:40]!r} is not the id of a line")
    if level and level not in list(LogLevel):
        problems.append(f"level: must be {', '.join(LogLevel)}, got {level[:40]!r}")
    if not 0 <= attempt <= COUNT_MAX:
        problems.append(f"attempt: must be 0 to {COUNT_MAX}")
    if len(text) > NAME_CHARS_MAX:
        problems.append(f"text: at most {NAME_CHARS_MAX} characters")
    if problems:
        return Refusal(Code.INVALID, f"logs: {'; '.join(problems)}")
    return Wanted(
        attempt=attempt,
        after=positions["after"],
        before=positions["before"],
        level=LogLevel(level) if level else LogLevel.TRACE,
        text=text,
        since_us=asked.since_us,
        limit=min(max(asked.limit, 1), LOG_LINES_READ_MAX) + 1,
        is_tail=asked.is_tail,
    )


async def read_page(keeper: LogKeeper, task: TaskId, wanted: Wanted, *, is_ended: bool) -> LogPage:
    """Return the lines of a task that are wanted, one more of which was asked for."""
    attempts, lines = await keeper.read(task, wanted)
    page = page_of(task, wanted, attempts, lines, is_ended=is_ended)
    missing = keeper.missing(attempts)
    return msgspec.structs.replace(page, missing=missing) if missing else page


def page_of(
    task: TaskId,
    wanted: Wanted,
    attempts: list[AttemptLogView],
    lines: list[LogLineView],
    *,
    is_ended: bool,
) -> LogPage:
    """Make a page of what was read."""
    has_more = len(lines) == wanted.limit
    if has_more:
        lines = lines[1:] if wanted.is_tail else lines[:-1]
    return LogPage(task=task, lines=lines, attempts=attempts, has_more=has_more, ended=is_ended)
