"""Commands that act on tasks: cancel, kill, pause, play, hold, retry, signal, purge."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, arg, opt
from jackalope.cli.formatting import id_text, plural
from jackalope.cli.options import (
    DryRun,
    SomeTasks,
    Task,
    Tasks,
    Which,
    Yes,
    confirm,
    duration_us,
    find,
    find_all,
)

if TYPE_CHECKING:
    from jackalope.cli.output import Screen
    from jackalope.client.admin import Acted
    from jackalope.client.app import Jackalope
    from jackalope.core.commands import RetryTerms
    from jackalope.core.filter import Filter
    from jackalope.core.ids import TaskId


@dataclass(frozen=True)
class Order:
    """What to do: the action, its past tense, and how."""

    action: str
    past: str
    dry_run: bool = False
    is_sure: bool = False
    terms: "RetryTerms | None" = None


_FORMS = """

    Name tasks, or select them with the options below; a selection must be confirmed.

    Examples:
"""

#: For each action: what it does, its past tense, and examples.
_ACTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "kill": (
        "Kill tasks and their children; workers are asked to stop those that run.",
        "killed",
        ("kill nightly-report", "kill --queue images --state pending --yes"),
    ),
    "pause": (
        "Pause tasks: those that run are asked to stop, the others wait until they are played.",
        "paused",
        ("pause nightly-report", "pause --queue images --dry-run"),
    ),
    "play": (
        "Play tasks that are held or paused, so that they can run.",
        "played",
        ("play nightly-report", "play --state held --queue images"),
    ),
    "hold": (
        "Hold tasks that have not started, until they are played.",
        "held",
        ("hold nightly-report", "hold --tag gpu --yes"),
    ),
}


def _command(name: str) -> Callable[..., Coroutine[Any, Any, int]]:
    """Make the command of an action."""
    about, past, examples = _ACTIONS[name]

    async def command(
        client: "Jackalope",
        screen: "Screen",
        *,
        which: Which,
        tasks: SomeTasks = None,
        dry_run: DryRun = False,
        yes: Yes = False,
    ) -> int:
        order = Order(name, past, dry_run, yes)
        return await _act(client, screen, order, tasks or [], which)

    command.__name__ = name
    lines = "".join(f"        jackalope {example}\n" for example in examples)
    command.__doc__ = f"{about}{_FORMS}{lines}    "
    return command


kill, pause, play, hold = map(_command, _ACTIONS)


async def retry(
    client: "Jackalope",
    screen: "Screen",
    *,
    which: Which,
    tasks: SomeTasks = None,
    retries: Annotated[int | None, opt("--retries N", "A new number of retries.", min=0)] = None,
    time_limit: Annotated[str, opt("--timeout DURATION", "A new time limit.")] = "",
    priority: Annotated[int | None, opt("--priority -p", "A new priority.", min=0, max=255)] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Retry tasks that are dead or killed; a task that waits for its next attempt starts at once.

    Name tasks, or select them with the options below; a selection must be confirmed. With other
    limits only tasks that have ended can be retried.

    Examples:
        jackalope retry nightly-report
        jackalope retry nightly-report --timeout 2h --retries 1
        jackalope retry --state dead --queue images --yes
    """
    from jackalope.core.commands import RetryTerms

    timeout_us = duration_us(time_limit) if time_limit else None
    terms = RetryTerms(retries, timeout_us, priority)
    order = Order("retry", "tried again", dry_run, yes, None if terms == RetryTerms() else terms)
    return await _act(client, screen, order, tasks or [], which)


async def purge(
    client: "Jackalope",
    screen: "Screen",
    *,
    which: Which,
    tasks: SomeTasks = None,
    every: Annotated[bool, opt("--all", "Every task that has ended.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Delete tasks that have ended, with their payloads and results.

    Name tasks, or select them with the options below; a selection must be confirmed.

    Examples:
        jackalope purge --state succeeded --older-than 7d
        jackalope purge --state dead --queue images --dry-run
        jackalope purge --all --yes
    """
    if every and which.is_empty():
        which.state = ["ended"]
    order = Order("purge", "purged", dry_run, yes)
    return await _act(client, screen, order, tasks or [], which)


async def signal(
    client: "Jackalope",
    screen: "Screen",
    task: Task,
    event: Annotated[str, arg("EVENT", "The name of the event.")],
    data: Annotated[str, opt("--data JSON", "What the task gets with it.")] = "",
) -> None:
    """Send an event to a task that waits for it, or will.

    A task waits with `await current().wait_for(EVENT)`, without a worker. An event that comes
    before it asks is kept.

    Examples:
        jackalope signal order-17 approved
        jackalope signal order-17 approved --data '{"by": "Ann", "limit": 100}'
    """
    import json

    try:
        value = json.loads(data) if data else None
    except ValueError as error:
        message = f"--data: {error}; write JSON, a text in double quotes"
        raise Failure(message, code=Exit.USAGE) from None
    task_id = await find(client, task)
    await client.signal(task_id, event, value)
    shown = id_text(task_id)
    screen.show({"task": shown, "event": event}, f"sent {event} to {shown}")


async def cancel(client: "Jackalope", screen: "Screen", tasks: Tasks) -> int:
    """Cancel tasks that have not started.

    A running task is left alone: `jackalope kill` asks its worker to stop it.

    Examples:
        jackalope cancel nightly-report
    """
    from jackalope.cli.options import STATE_SETS
    from jackalope.client.admin import Acted
    from jackalope.core.commands import Action
    from jackalope.core.filter import Filter
    from jackalope.core.lifecycle import State
    from jackalope.errors import Rejected

    pending = tuple(State(name) for name in STATE_SETS["pending"])
    cancelled = 0
    refused: dict[TaskId, Rejected] = {}
    for task_id in await find_all(client, tasks):
        # By filter, so that the broker itself decides whether it has begun: nothing can come
        # between looking and doing.
        acted = await client.act(Action.KILL, matching=Filter(states=pending, text=task_id.hex()))
        cancelled += acted.changed
        if not acted.changed:
            refused[task_id] = Rejected("wrong_state", await _why_not(client, task_id))
            screen.warn(refused[task_id].message)
    _show(screen, Order("cancel", "cancelled"), Acted(cancelled, refused=refused))
    return Exit.FAILED if refused else Exit.DONE


async def _why_not(client: "Jackalope", task_id: "TaskId") -> str:
    view = await client.find(task_id)
    if view.state in ("assigned", "running"):
        return (
            f"{id_text(task_id)} is {view.state} on {view.worker}: it was not cancelled. "
            f"`jackalope kill {id_text(task_id)}` asks the worker to stop it"
        )
    return f"{id_text(task_id)} has ended already: {view.state}"


# What all of them do.


async def _act(
    client: "Jackalope", screen: "Screen", order: Order, tasks: list[str], which: Which
) -> int:
    if tasks and not which.is_empty():
        message = "name tasks or select them with options such as --queue, not both"
        raise Failure(message, code=Exit.USAGE)
    if tasks:
        return await _act_on(client, screen, order, tasks)
    if which.is_empty():
        message = (
            f"no tasks to {order.action}: name them, or select them with options such as --queue"
        )
        raise Failure(message, code=Exit.USAGE)
    return await _act_by(client, screen, order, await which.filter(client))


async def _act_on(client: "Jackalope", screen: "Screen", order: Order, tasks: list[str]) -> int:
    """Act on tasks that were named."""
    from jackalope.core.commands import Action

    ids = await find_all(client, tasks)
    acted = await client.act(Action(order.action), ids, dry_run=order.dry_run, terms=order.terms)
    for refused in acted.refused.values():
        screen.warn(refused.message)
    _show(screen, order, acted)
    return Exit.FAILED if acted.refused else Exit.DONE


async def _act_by(client: "Jackalope", screen: "Screen", order: Order, wanted: "Filter") -> int:
    """Act on tasks that match, once it is sure that they are meant."""
    from jackalope.core.commands import Action

    counted = await client.act(
        Action(order.action), matching=wanted, dry_run=True, terms=order.terms
    )
    count = counted.changed + counted.requested
    if order.dry_run or not count:
        _show(screen, order, counted)
        return Exit.DONE
    how_many = plural(count, "task") + (" and more" if counted.more else "")
    confirm(screen, f"{order.action} {how_many}?", is_sure=order.is_sure)
    _show(screen, order, await _act_on_all(client, screen, order, wanted, count))
    return Exit.DONE


async def _act_on_all(
    client: "Jackalope", screen: "Screen", order: Order, wanted: "Filter", count: int
) -> "Acted":
    """Go on until no task matches any more."""
    from jackalope.client.admin import Acted
    from jackalope.core.commands import Action

    done = Acted(more=True)
    with screen.progress(order.action, count) as progress:
        while done.more:
            acted = await client.act(Action(order.action), matching=wanted, terms=order.terms)
            done = Acted(
                done.changed + acted.changed, done.requested + acted.requested, {}, acted.more
            )
            count = max(count, done.changed + done.requested)
            progress.update(
                progress.task_ids[0], completed=done.changed + done.requested, total=count
            )
    return done


def _show(screen: "Screen", order: Order, acted: "Acted") -> None:
    data: dict[str, Any] = {
        "changed": acted.changed,
        "requested": acted.requested,
        "refused": len(acted.refused),
    }
    if order.dry_run:
        data |= {"dry_run": True, "more": acted.more}
    would = "would be " if order.dry_run else ""
    parts = []
    if acted.changed or not acted.requested:
        more = " and more" if acted.more else ""
        parts.append(f"{plural(acted.changed, 'task')}{more} {would}{order.past}")
    if acted.requested:
        tasks = "a task that runs" if acted.requested == 1 else f"{acted.requested} tasks that run"
        parts.append(f"{would}asked the worker of {tasks}".replace("would be asked", "would ask"))
    screen.show(data, "; ".join(parts))
