"""Commands that show tasks: status, list, wait, explain, history, logs, tail."""

from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli import completion
from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import (
    age,
    ago,
    brief,
    clock,
    id_text,
    needs_text,
    plural,
    short_ids,
    size,
    span,
    utc,
)
from jackalope.cli.options import (
    SORTS,
    Every,
    Task,
    Tasks,
    Watch,
    Which,
    Wide,
    duration_us,
    every_s,
    find,
    find_all,
    moment_us,
)
from jackalope.terminal import in_line, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.effects import TaskEnded
    from jackalope.core.ids import TaskId
    from jackalope.core.shapes.task_log import LogLineView, LogPage
    from jackalope.wire.messages import Happened
    from jackalope.wire.views import (
        CallbackView,
        ExplanationView,
        HistoryEntryView,
        PaceView,
        TaskView,
    )

_TEXT_CHARS_MAX = 2_000


# One task.


async def status(
    client: "Jackalope", screen: "Screen", task: Task, watch: Watch = False, every: Every = "1s"
) -> None:
    """Show everything about one task.

    Its state, worker, errors, payload and result.

    Examples:
        jackalope status 0193b5c2-7d1e-7c3a-9f00-2b1c3d4e5f60
        jackalope status nightly-report --watch
        jackalope status nightly-report --format json | jq .result
    """
    task_id = await find(client, task)
    await screen.watch(lambda: _with_bodies(client, task_id), draw_task, every_s(watch, every))


async def _with_bodies(client: "Jackalope", task_id: "TaskId") -> "TaskView":
    """Return a task; without its bodies if they fit into no frame."""
    from jackalope.errors import Rejected

    try:
        return await client.find(task_id, with_bodies=True)
    except Rejected as error:
        if error.code != "too_large":
            raise
        return await client.find(task_id)


def draw_task(view: "TaskView") -> "RenderableType":
    """Draw one task."""
    from rich.console import Group

    from jackalope.cli.commands.cache import answer_text
    from jackalope.cli.formatting import content_of, decode_body
    from jackalope.cli.output import dim, facts, state

    head = state(view.state)
    if view.reason is not None:
        head.append(f" ({view.reason})", style="red")
    if view.request is not None:
        head.append(f"  {view.request.signal} {view.request.stage}", style="yellow")
        head.append(f" by {view.request.by}" if view.request.by else "", style="yellow")
    tries = [plural(view.attempts, "attempt")] if view.attempts else []
    for count, noun in (
        (view.failures, "failure"),
        (view.crashes, "crash"),
        (view.interruptions, "interruption"),
    ):
        if count:
            tries.append(plural(count, noun).replace("crashs", "crashes"))
    content = content_of(view.headers, view.name)
    bodies = []
    for title, body, length in (
        ("payload", view.payload, view.payload_size),
        ("result", view.result, view.result_size),
    ):
        if length:
            shown = brief(decode_body(body or b"", content), 400)
            bodies.append((title, dim(f"{size(length)}  ") + shown))
    rows: list[tuple[str, Any]] = [
        ("task", id_text(view.id)),
        ("state", head),
        ("alias", in_line(view.alias)),
        ("queue", in_line(view.queue)),
        ("name", in_line(view.name)),
        ("key", in_line(view.key)),
        ("tags", in_line(", ".join(view.tags))),
        ("priority", str(view.priority)),
        ("batch", str(view.batch) if view.batch else ""),
        ("parent", id_text(view.parent) if view.parent else ""),
        ("depends on", "\n".join(id_text(each) for each in view.depends_on)),
        ("waits for", "\n".join(id_text(each) for each in view.waiting_for)),
        ("worker", in_line(view.worker) + (f"  (fence {view.fence})" if view.fence else "")),
        ("tries", ", ".join(tries)),
        ("progress", _progress(view)),
        ("request", view.how or ""),
        ("callbacks", "\n".join(map(_callback, view.callbacks))),
        ("pace", _pace(view.pace) if view.pace else ""),
        *_needs(view),
        ("answer", answer_text(view.answer) if view.answer else ""),
        *_times(view),
        *bodies,
        *_error(view),
    ]
    drawn: list[RenderableType] = [facts(rows)]
    if view.steps or view.waits_for or view.events:
        drawn.append(_steps(view))
    return Group(*drawn)


def _steps(view: "TaskView") -> "Table":
    """Draw the steps of a task: what is done, what it waits for, and what it was sent."""
    from jackalope.cli.output import table
    from jackalope.core.limits import TIME_US_MAX

    drawn = table(">step", "~name", "at", ">took", ">size", "")
    for number, step in enumerate(view.steps, 1):
        note = "not in time" if step.is_late else ""
        took = span(step.took_us) if step.took_us else ""
        drawn.add_row(
            str(number), in_line(step.name), clock(step.at_us), took, size(step.size), note
        )
    if view.waits_for:
        until = f"until {clock(view.due_us)}" if 0 < view.due_us < TIME_US_MAX else "without end"
        waits = f"waits for {in_line(view.waits_for)}"
        drawn.add_row(str(len(view.steps) + 1), waits, "", "", "", until)
    for event in view.events:
        by = f"by {in_line(event.by)}, " if event.by else ""
        sent = (f"event {in_line(event.event)}", clock(event.at_us), "", size(event.size))
        drawn.add_row("", *sent, f"{by}not asked for yet")
    return drawn


def _callback(view: "CallbackView") -> str:
    from jackalope.core.ids import id_text

    ends = f" ({', '.join(view.on)})" if view.on else ""
    return in_line(view.url) + ends + (f"  task {id_text(view.task)}" if view.task else "")


def _pace(view: "PaceView") -> str:
    words = [view.how.value]
    if view.span_us:
        words.append(span(view.span_us))
    if view.at_most_us:
        words.append(f"at most {span(view.at_most_us)}")
    if view.drop:
        words.append("drop")
    return " ".join(words) + (f"  key {in_line(view.key)}" if view.key else "")


def _needs(view: "TaskView") -> list[tuple[str, Any]]:
    return [
        ("needs", in_line(needs_text(view.needs))),
        ("prefers", in_line(needs_text(view.prefer))),
        ("avoids", in_line(needs_text(view.avoid))),
        ("sticky", in_line(view.sticky)),
    ]


def _times(view: "TaskView") -> list[tuple[str, Any]]:
    from jackalope.core.lifecycle import ENDED
    from jackalope.core.limits import TIME_US_MAX

    def when(at_us: int) -> str:
        return f"{clock(at_us)}  {ago(at_us)}" if at_us else ""

    is_endless = view.due_us >= TIME_US_MAX  # It waits for an event, however long that takes.
    ran_us = view.ended_us - view.started_us if view.ended_us and view.started_us else 0
    by = f"  by {view.by}" if view.by else ""
    return [
        ("submitted", when(view.created_us) + by),
        ("due", when(view.due_us) if view.state == "scheduled" and not is_endless else ""),
        ("expires", when(view.expires_us) if view.state not in ENDED else ""),
        ("started", when(view.started_us)),
        ("ended", when(view.ended_us) + (f"  after {span(ran_us)}" if ran_us > 0 else "")),
        ("last try", when(view.tried_us)),
        ("forgotten", when(view.forget_us) if 0 < view.forget_us < 2**60 else ""),
    ]


def _progress(view: "TaskView") -> "Text | str":
    from jackalope.cli.output import bar

    if view.progress is None:
        return ""
    percent = view.progress.percent
    if percent is None:
        return view.progress.note
    drawn = bar(percent, 100, 20, "green")
    return drawn.append(f" {percent:.0f} %  {view.progress.note}", style="default")


def _error(view: "TaskView") -> list[tuple[str, Any]]:
    from rich.text import Text

    if view.error is None:
        return []
    head = Text(f"{view.error.type}: {view.error.message}", style="red")
    trace = view.error.trace[-_TEXT_CHARS_MAX:].rstrip()
    return [("error", head), ("", Text(trace, style="bright_black"))]


# Many tasks.


async def list_(
    client: "Jackalope",
    screen: "Screen",
    *,
    which: Which,
    limit: Annotated[int, opt("--limit -l", "The maximum number of tasks.", min=1)] = 20,
    sort: Annotated[
        str, opt("--sort ORDER", f"One of {', '.join(SORTS)}; a minus reverses it.", complete=SORTS)
    ] = "-created",
    watch: Watch = False,
    every: Every = "2s",
    wide: Wide = False,
) -> None:
    """List tasks, the newest first.

    On a terminal ids are shortened to what tells these tasks apart, and what does not fit is cut.

    Examples:
        jackalope list --state running
        jackalope list --state dead --queue images --sort -ended --limit 50
        jackalope list --text resize --watch
        jackalope list --state ended --older-than 7d --format json
    """
    from msgspec.structs import asdict

    if sort not in SORTS:
        raise Failure(f"unknown order {sort!r}; use {', '.join(SORTS)}", code=Exit.USAGE)
    wanted = await which.filter(client)
    conditions = {name: value for name, value in asdict(wanted).items() if value}

    async def fetch() -> "tuple[list[TaskView], bool]":
        found = [view async for view in client.tasks(limit + 1, sort=sort, **conditions)]
        return found[:limit], len(found) > limit

    if wide:
        screen.widen()
    draw = _draw_list if screen.is_wide else _draw_narrow
    await screen.watch(fetch, draw, every_s(watch, every), lambda found: found[0])


def _draw_list(found: "tuple[list[TaskView], bool]") -> "RenderableType":
    from rich.console import Group

    from jackalope.cli.output import dim, state, table

    tasks, has_more = found
    if not tasks:
        return dim("no tasks")
    alias = ("~alias",) if any(view.alias for view in tasks) else ()
    columns = ("task", "state", "~queue", *alias, "~name", ">prio", ">tries", ">age", "~worker")
    drawn = table(*columns, gap=1)
    for view in tasks:
        drawn.add_row(
            id_text(view.id),
            state(view.state),
            brief(view.queue, 24),
            *(brief(view.alias, 24) for _ in alias),
            brief(view.name, 24),
            str(view.priority),
            str(view.attempts or ""),
            ago(view.created_us).removesuffix(" ago"),
            brief(view.worker, 24),
        )
    return Group(drawn, _more(tasks)) if has_more else drawn


def _draw_narrow(found: "tuple[list[TaskView], bool]") -> "RenderableType":
    """Draw a list that fits a terminal of 80 columns."""
    from rich.console import Group

    from jackalope.cli.output import cell, dim, state, table

    tasks, has_more = found
    if not tasks:
        return dim("no tasks")
    ids = short_ids(view.id for view in tasks)
    optional = {
        "~alias": [view.alias for view in tasks],
        "~worker": [view.worker for view in tasks],
    }
    shown = {name: texts for name, texts in optional.items() if any(texts)}
    drawn = table("task", "state", "~name", "~queue", *shown, ">tries", ">age", gap=1)
    for at, view in enumerate(tasks):
        drawn.add_row(
            ids[view.id],
            state(view.state),
            cell(view.name or "-"),
            cell(view.queue),
            *(cell(texts[at]) for texts in shown.values()),
            str(view.attempts or ""),
            age(view.created_us),
        )
    return Group(drawn, _more(tasks)) if has_more else drawn


def _more(tasks: "list[TaskView]") -> "Text":
    from jackalope.cli.output import dim

    return dim(f"{plural(len(tasks), 'task')}; more match: raise --limit")


# Waiting.


async def wait(
    client: "Jackalope",
    screen: "Screen",
    tasks: Tasks,
    timeout: Annotated[  # noqa: ASYNC109  it is a text yet
        str, opt("--timeout DURATION", "How long to wait.")
    ] = "",
) -> int:
    """Wait until tasks have ended, and show how.

    Exits with 0 if all of them succeeded, else with 1. If the broker restarts, it connects again.

    Examples:
        jackalope wait nightly-report --timeout 10m && echo done
        jackalope wait $(cat ids.txt) --format json
    """
    from jackalope.cli.formatting import content_of

    contents: dict[TaskId, str] = {}
    for task_id in await find_all(client, tasks):
        view = await client.find(task_id)
        contents[task_id] = content_of(view.headers, view.name)
    return await wait_for(client, screen, contents, duration_us(timeout) / 1e6 if timeout else None)


async def wait_for(
    client: "Jackalope",
    screen: "Screen",
    contents: "dict[TaskId, str]",
    timeout_s: float | None = None,
) -> int:
    """Show tasks when all have ended, each with the encoding of its result.

    Returns:
        The exit code.
    """
    import asyncio

    from jackalope.client.handle import as_completed

    handles = [client.handle(task_id) for task_id in contents]
    with screen.progress("waiting", len(handles)) as progress:
        bar = progress.task_ids[0]
        try:
            async with asyncio.timeout(timeout_s):
                if len(handles) == 1 and not progress.disable:
                    async for step in handles[0].progress():
                        percent = step.percent or 0.0
                        text = f"waiting  {percent:.0f} %  {step.note}"
                        progress.update(bar, description=text, completed=percent / 100)
                async for _ in as_completed(handles):
                    progress.advance(bar)
        except TimeoutError:
            left = plural(sum(handle.end is None for handle in handles), "task")
            raise Failure(f"{left} did not end in time", "they continue") from None
    ends = [handle.end for handle in handles if handle.end is not None]
    _show_ends(screen, list(zip(ends, contents.values(), strict=True)))
    return Exit.DONE if all(end.state == "succeeded" for end in ends) else Exit.FAILED


def _show_ends(screen: "Screen", ends: "list[tuple[TaskEnded, str]]") -> None:
    from jackalope.cli.formatting import to_plain
    from jackalope.cli.output import state, table

    if not screen.is_human:
        screen.write([to_plain(end, content) for end, content in ends])
        return
    drawn = table("task", "state", "~outcome")
    for end, content in ends:
        drawn.add_row(id_text(end.task), state(end.state), brief(_outcome(end, content), 200))
    screen.draw(drawn)


def _outcome(end: "TaskEnded", content: str) -> str:
    from jackalope.cli.formatting import decode_body

    if end.error is not None:
        return f"{end.error.type}: {end.error.message}"
    if end.reason is not None:
        return str(end.reason)
    return str(decode_body(end.result, content)) if isinstance(end.result, bytes) else "(large)"


# Why, and what happened.


async def explain(
    client: "Jackalope", screen: "Screen", task: Task, watch: Watch = False, every: Every = "1s"
) -> None:
    """Explain why a task is not running, where it runs, or how it ended.

    Examples:
        jackalope explain nightly-report
        jackalope explain 0193b5c2 --format json | jq -r '.causes[].why'
    """
    task_id = await find(client, task)
    await screen.watch(client.handle(task_id).explain, _draw_explanation, every_s(watch, every))


def _draw_explanation(view: "ExplanationView") -> "RenderableType":
    from rich.text import Text

    from jackalope.cli.output import state

    drawn = Text.assemble(id_text(view.task), " is ", state(view.state))
    for cause in view.causes:
        text = cause.text
        for name, fact in cause.facts.items():
            if name.endswith("_us") and isinstance(fact, int):
                text = text.replace(utc(fact), f"{clock(fact)}, {ago(fact)}")
        drawn.append(f"\n  {cause.why:<14} ", style="bright_black").append(in_line(text))
    return drawn


async def history(client: "Jackalope", screen: "Screen", task: Task) -> None:
    """Show what happened to a task: when, what, and by whom.

    Examples:
        jackalope history nightly-report
        jackalope history 0193b5c2 --format yaml
    """
    happened = await client.handle(await find(client, task)).history()
    screen.show(happened, lambda: _draw_history(happened))


def _draw_history(happened: "list[HistoryEntryView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    drawn = table("at", ">after", "what", "~by", "~detail")
    before_us = 0
    for each in happened:
        after = span(each.at_us - before_us) if 0 < before_us < each.at_us else ""
        drawn.add_row(
            clock(each.at_us), dim(after), each.what, brief(each.by, 30), brief(each.detail, 100)
        )
        before_us = each.at_us
    return drawn


async def logs(
    client: "Jackalope",
    screen: "Screen",
    task: Task,
    *,
    follow: Annotated[
        bool, opt("--follow -f", "Go on with new lines, until the task ends.")
    ] = False,
    attempt: Annotated[
        int, opt("--attempt N", "Only this attempt, from 1.", min=0, default="all")
    ] = 0,
    level: Annotated[
        str,
        opt(
            "--level [error|warn|info|debug|trace]", "Only lines at least as grave.", default="all"
        ),
    ] = "",
    grep: Annotated[str, opt("--grep TEXT", "Only lines that contain this text.")] = "",
    since: Annotated[
        str, opt("--since DURATION", "Only lines of this long ago, or since this time.")
    ] = "",
    lines: Annotated[int, opt("--tail -n N", "Only the last N lines.", min=0, default="all")] = 0,
    raw: Annotated[
        bool, opt("--raw", "Only the text, as the task wrote it, control characters included.")
    ] = False,
) -> None:
    """Show what a task has printed and logged, attempt by attempt.

    Examples:
        jackalope logs nightly-report --follow
        jackalope logs 0193b5c2 --level warn --grep timeout
        jackalope logs 0193b5c2 --attempt 2 --raw
        jackalope logs 0193b5c2 --format json | jq -r .text
    """
    handle = client.handle(await find(client, task))
    warned: set[str] = set()

    def look(page: "LogPage") -> None:
        for each in page.attempts:
            about = f"attempt {each.attempt}: {each.dropped} lines were dropped"
            if each.dropped and not follow and attempt in (0, each.attempt):
                warned.add(f"{about}: there were too many")
        warned.update(filter(None, [page.missing]))

    found = handle.logs(
        follow=follow,
        attempt=attempt,
        level=level,
        text=grep,
        since_us=_ago_us(since),
        tail=lines,
        on_page=look,
    )
    shown = 0
    async for line in found:
        if shown != line.attempt:
            shown = line.attempt
            if screen.is_human and not raw:
                screen.note(f"attempt {line.attempt}")
        if raw:
            screen.print_raw(line.text)
        else:
            screen.stream(line, _draw_line(line))
    for text in sorted(warned):
        screen.warn(text)


def _ago_us(text: str) -> int:
    """Return the time that was so long ago, or that is named."""
    from jackalope.cli.formatting import now_us

    if not text:
        return 0
    if ":" in text or text.count("-") == 2:
        return moment_us(text)
    return now_us() - duration_us(text)


_LEVEL_COLOURS = {
    "error": "red",
    "warn": "yellow",
    "debug": "bright_black",
    "trace": "bright_black",
}


def _draw_line(line: "LogLineView") -> "Text":
    from rich.text import Text

    colour = _LEVEL_COLOURS.get(line.level, "")
    drawn = Text.assemble(
        (f"{_time_of_day(line.at_us)} ", "bright_black"), (f"{line.level:<5} ", colour)
    )
    if line.logger:
        drawn.append(f"{in_line(line.logger)}: ", style="bright_black")
    return drawn.append(visible(line.text).replace("\t", "    "), style=colour)


# Live.


async def tail(
    client: "Jackalope",
    screen: "Screen",
    task: Annotated[str | None, arg("TASK", "Only events of this task.")] = None,
    *,
    queue: Annotated[
        str, opt("--queue -q QUEUE", "Only events of this queue.", complete=completion.queues)
    ] = "",
    limit: Annotated[int, opt("--limit -l N", "Exit after this many events; 0 for never.")] = 0,
    wide: Wide = False,
) -> None:
    """Show events as they happen.

    Examples:
        jackalope tail
        jackalope tail --queue images
        jackalope tail --format json | jq -r 'select(.state == "dead") | .task'
    """
    task_id = await find(client, task) if task else None
    if wide:
        screen.widen()
    draw = _draw_event if screen.is_wide else _draw_short_event
    seen = missed = gaps = 0
    async with client.events(queue=queue, task=task_id) as events:
        screen.note("listening; press Ctrl-C to stop")
        async for event in events:
            if events.gaps > gaps:
                screen.warn("the connection was lost; the events in between are missing")
            if events.missed > missed:
                count = events.missed - missed
                screen.warn(f"{count} events were left out: this terminal reads too slowly")
            gaps, missed = events.gaps, events.missed
            screen.stream(event, draw(event))
            seen += 1
            if seen == limit:
                return


def _draw_event(event: "Happened") -> "Text":
    from rich.text import Text

    from jackalope.cli.output import STATE_COLOURS

    drawn = Text.assemble(
        (f"{clock(event.at_us):<9}", "bright_black"),
        id_text(event.task),
        "  ",
        (f"{event.what:<10}", ""),
        (f"{event.state:<10}", STATE_COLOURS.get(event.state, "")),
        (in_line(event.queue), "bright_black"),
    )
    if event.by:
        drawn.append(f"  {in_line(event.by)}", style="bright_black")
    return drawn.append(f"  {in_line(event.detail)}") if event.detail else drawn


#: How much of an id an event shows: what tells apart the tasks of one client, however many.
_EVENT_ID_CHARS = 18


def _draw_short_event(event: "Happened") -> "Text":
    """Draw an event that fits a terminal of 80 columns; what does not fit is cut at the end."""
    from rich.text import Text

    from jackalope.cli.output import STATE_COLOURS

    drawn = Text.assemble(
        (f"{_time_of_day(event.at_us)} ", "bright_black"),
        f"{id_text(event.task)[:_EVENT_ID_CHARS]} ",
        (f"{brief(event.what, 10):<10} ", ""),
        (f"{event.state:<10}", STATE_COLOURS.get(event.state, "")),
        f"{brief(event.name or '-', 16)} ",
        (brief(event.queue, 16), "bright_black"),
    )
    for more in filter(None, (event.detail, event.by)):
        drawn.append(f" {in_line(more)}", style="bright_black")
    return drawn


def _time_of_day(at_us: int) -> str:
    return clock(at_us)[-8:]
