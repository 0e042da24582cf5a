"""Actions on tasks over REST: on one, on many by filter; and what a task has gone through."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.broker import queries
from jackalope.broker.client_session import of_kind
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import Action, ActOnTasks, RetryTerms, SendEvent
from jackalope.core.effects import Acted
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId, as_task_id, id_text
from jackalope.core.lifecycle import PENDING
from jackalope.core.limits import COUNT_MAX, ITEMS_PER_COMMAND_MAX
from jackalope.core.refusals import Code, Refusal
from jackalope.core.values import value_problem
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import ErrorBody, Rejected, refusal_body
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    nothing,
    read_body,
    task_id_of,
    view_of,
)
from jackalope.doors.http.rest.schemas import (
    Count,
    Id,
    Priority,
    Seconds,
    about,
    from_seconds,
    shape_of,
    status_of,
)
from jackalope.doors.http.rest.tasks import FilterGiven
from jackalope.doors.http.router import Routes, Spec
from jackalope.doors.http.vocabulary import alias
from jackalope.wire.views import CauseView, ExplanationView, HistoryEntryView

routes = Routes("/api/v1", has_namespace=True)


#: A task is pending as long as no worker has it.
_PENDING = Filter(states=tuple(sorted(PENDING)))

#: What cancelling is called beside our own actions: killing what is still pending.
CANCEL = "cancel"


class Outcome(StrEnum):
    """How an action went: it is done, or the worker of the task was asked."""

    CHANGED = "changed"
    REQUESTED = "requested"


class ActionDone(msgspec.Struct):
    """What an action did."""

    task: Id
    outcome: Outcome


@routes.delete("/tasks/{task_id}", "cancel_tasks", Spec(status=204, errors=(404, 409)))
async def cancel_task(request: Request, task_id: str) -> Response:
    """Cancel a task that is pending: it is killed. One that a worker has is a conflict."""
    await _act_on_one(request, task_id_of(task_id), Action.KILL, _PENDING)
    return nothing()


@routes.post("/tasks/{task_id}/{action}", "cancel_tasks", Spec(ActionDone, errors=(404, 409)))
async def act_on_task(request: Request, task_id: str, action: str) -> Response:
    """Do something with a task.

    `hold` keeps it from running until `play` lets it. `pause` and `kill` ask the worker, if one
    runs it. `retry` runs one again that is dead or killed, or at once if it waits for its retry.
    `purge` forgets one that has ended. `cancel` kills it only while it is pending.
    """
    found = task_id_of(task_id)
    if action == CANCEL:
        outcome = await _act_on_one(request, found, Action.KILL, _PENDING)
    elif action in set(Action):
        outcome = await _act_on_one(request, found, Action(action))
    else:
        names = ", ".join([*Action, CANCEL])
        raise Rejected(404, f"unknown action {action!r}; use {names}")
    return answer(ActionDone(id_text(found), outcome))


class EventGiven(msgspec.Struct, forbid_unknown_fields=True):
    """An event for a task."""

    data: Annotated[Any, about("What the task gets.")] = None


@routes.post(
    "/tasks/{task_id}/events/{event}",
    "submit_tasks",
    Spec(status=204, body=EventGiven, needs_body=False, errors=(404, 409)),
)
async def send_event(request: Request, task_id: str, event: str) -> Response:
    """Send an event to a task that waits for it, or will."""
    given = await read_body(request, EventGiven) if request.header("content-type") else EventGiven()
    if problem := value_problem(given.data, COUNT_MAX):  # The core limits the size.
        raise Rejected(400, f"data: {problem}")
    data = b"" if given.data is None else msgspec.msgpack.encode(given.data)
    await ask(request, SendEvent(task=task_id_of(task_id), event=event, data=data))
    return nothing()


async def _act_on_one(
    request: Request, task: TaskId, action: Action, only_if: Filter | None = None
) -> Outcome:
    command = ActOnTasks(ref=0, action=action, tasks=(task,), filter=only_if)
    acted = of_kind(await ask(request, command), Acted)
    if acted.refused:
        refusal = acted.refused[0][1]
        if only_if is _PENDING and refusal.code is Code.WRONG_STATE:
            message = f"task {id_text(task)} is no longer pending and cannot be cancelled"
            refusal = Refusal(refusal.code, message + "; kill it, which asks its worker to stop")
        raise Refused(refusal)
    return Outcome.REQUESTED if acted.requested else Outcome.CHANGED


class TermsGiven(msgspec.Struct, forbid_unknown_fields=True):
    """Overrides for a retried task; omitted fields stay."""

    retries: Annotated[Count | None, about("How many failures are retried.")] = None
    timeout_seconds: Annotated[Seconds | None, about("The time limit of an attempt.")] = None
    priority: Annotated[Priority | None, about("Higher runs first.")] = None


class ActionAsked(msgspec.Struct, forbid_unknown_fields=True):
    """An action on many tasks: on those named, on those that match, or on those that are both."""

    action: Action
    filter: Annotated[FilterGiven | None, about("All tasks that match this filter.")] = None
    tasks: Annotated[tuple[Id, ...], about("These tasks.", max_length=ITEMS_PER_COMMAND_MAX)] = ()
    dry_run: Annotated[bool, about("Only count what would be changed.")] = False
    terms: Annotated[
        TermsGiven | None, about("With `retry`: other limits, for tasks that have ended.")
    ] = None


_EITHER = Annotated[
    ActionAsked,
    Meta(
        extra_json_schema={
            "allOf": [
                {
                    "anyOf": [
                        {"required": ["filter"], "properties": {"filter": {"type": "object"}}},
                        {"required": ["tasks"], "properties": {"tasks": {"minItems": 1}}},
                    ]
                },
                {
                    "anyOf": [
                        {"properties": {"terms": {"type": "null"}}},
                        {"properties": {"action": {"enum": [Action.RETRY]}}},
                    ]
                },
            ]
        }
    ),
]


class RefusedTask(msgspec.Struct):
    """A task that could not be changed, and why."""

    task: Id
    error: ErrorBody


class ActionResult(msgspec.Struct):
    """What an action on many tasks did. If there is more, ask again."""

    changed: int
    requested: int
    refused: list[RefusedTask]
    more: bool
    dry_run: bool


@routes.post("/tasks/actions", "cancel_tasks", Spec(ActionResult, body=_EITHER))
async def act_on_tasks(request: Request) -> Response:
    """Do something with many tasks, or count what that would change.

    By filter, those that cannot be changed so are passed over, and at most 10,000 are changed at a
    time; `more` says whether to ask again.
    """
    asked = await read_body(request, ActionAsked)
    if asked.filter is None and not asked.tasks:
        raise Rejected(400, "body: filter or tasks is required")
    given = asked.filter
    wanted = None if given is None else given.to_filter(given.states)
    command = ActOnTasks(
        ref=0,
        action=asked.action,
        tasks=tuple(as_task_id(each) or NO_TASK for each in asked.tasks),
        filter=wanted,
        dry_run=asked.dry_run,
        terms=None if asked.terms is None else _to_terms(asked.terms),
    )
    if given is not None and given.status and wanted is not None and not wanted.states:
        return answer(ActionResult(0, 0, [], more=False, dry_run=asked.dry_run))
    acted = of_kind(await ask(request, command), Acted)
    refused = [RefusedTask(id_text(task), refusal_body(why)) for task, why in acted.refused]
    return answer(ActionResult(acted.changed, acted.requested, refused, acted.more, asked.dry_run))


def _to_terms(given: TermsGiven) -> RetryTerms:
    timeout = given.timeout_seconds
    timeout_us = None if timeout is None else from_seconds(timeout)
    return RetryTerms(given.retries, timeout_us, given.priority)


# What a task has gone through.


_show_entry = shape_of(HistoryEntryView, "HappeningShown", "One thing that happened to a task.")

HappeningShown: Any = _show_entry.shown


class HistoryShown(msgspec.Struct):
    """What happened to a task, the earliest first."""

    task: Id
    history: list[HappeningShown]


@routes.get("/tasks/{task_id}/history", "read_tasks", Spec(HistoryShown, errors=(404,)))
async def read_history(request: Request, task_id: str) -> Response:
    """Return what happened to a task."""
    happened = await view_of(request, queries.history, About(id=task_id_of(task_id)))
    entries = [_show_entry(entry) for entry in happened]
    return answer(HistoryShown(id_text(task_id_of(task_id)), entries))


_show_explanation = shape_of(
    ExplanationView,
    "ExplanationShown",
    "Why a task is as it is.",
    inner={"causes": shape_of(CauseView, "CauseShown", "One reason why a task is as it is.")},
)

for _shape in (ActionDone, RefusedTask, HistoryShown):
    alias(_shape, names={"task": "task_id"})
alias(TermsGiven, names={"retries": "max_retries"})
alias(ActionAsked, names={"tasks": "task_ids"})
alias(
    _show_explanation.shown,
    names={"task": "task_id"},
    added={"status": status_of},
    without=("state",),
)


@routes.get("/tasks/{task_id}/explain", "read_tasks", Spec(_show_explanation.shown, errors=(404,)))
async def explain_task(request: Request, task_id: str) -> Response:
    """Explain why a task is not running, or why it ended as it did."""
    view = await view_of(request, queries.explain, About(id=task_id_of(task_id)))
    return answer(_show_explanation(view))
