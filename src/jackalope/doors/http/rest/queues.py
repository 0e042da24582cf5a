"""Queues over REST: their policies, pauses and batches; and the limits of tags."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.broker import queries
from jackalope.broker.queries import About, Refused
from jackalope.core.commands import DeclareQueue, DeleteQueue, LimitTag, PauseQueue, ResumeQueue
from jackalope.core.lifecycle import State
from jackalope.core.limits import COUNT_MAX, TIME_US_MAX
from jackalope.core.policy import PRESETS, Policy
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import given, shown, taken
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import Rejected
from jackalope.doors.http.request import (
    Request,
    answer,
    ask,
    nothing,
    read_body,
    read_query,
    view_of,
)
from jackalope.doors.http.rest.schemas import TaskList, about, shape_of, show
from jackalope.doors.http.router import Routes, Spec
from jackalope.wire.views import BatchView, LimitView, QueueView

routes = Routes("/api/v1", has_namespace=True)


show_queue = shape_of(
    QueueView,
    "QueueShown",
    "A queue: how many tasks it has by state, and its policy, durations as text.",
    nullable=("paused_by",),
    made={"policy": (dict[str, Any], shown)},
)

QueueShown: Any = show_queue.shown


class QueueList(msgspec.Struct):
    """The queues of a namespace, by name."""

    queues: list[QueueShown]


#: The fields of a policy that change; durations in seconds or as text.
PolicyGiven: Any = given(Policy, "PolicyGiven", __name__)


class QueueWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The policy of a queue: a preset, with fields that change it."""

    preset: Annotated[
        str, about("The preset to start from.", pattern=f"^({'|'.join(PRESETS)})?$")
    ] = ""
    policy: Annotated[PolicyGiven, about("The fields to change.")] = PolicyGiven()


@routes.get("/queues", "read_tasks", Spec(QueueList))
async def list_queues(request: Request) -> Response:
    """List the queues."""
    views = await _views(request)
    return answer(QueueList([show_queue(view) for view in views]))


@routes.get("/queues/{queue}", "read_tasks", Spec(QueueShown, errors=(404,)))
async def read_queue(request: Request, queue: str) -> Response:
    """Return a queue."""
    return answer(await _queue(request, queue))


async def _views(request: Request, queue: str = "") -> list[QueueView]:
    return await view_of(request, queries.queues, About(queue=queue))


async def _queue(request: Request, queue: str) -> msgspec.Struct:
    for view in await _views(request, queue):
        return show_queue(view)
    message = f"no queue {queue!r}; list the queues"
    raise Refused(Refusal(Code.UNKNOWN_QUEUE, message))


@routes.put("/queues/{queue}", "admin", Spec(QueueShown, body=QueueWanted, errors=(404, 409)))
async def declare_queue(request: Request, queue: str) -> Response:
    """Create a queue, or change the policy of one. What is not named stays as it is."""
    wanted = await read_body(request, QueueWanted)
    changes = taken(Policy, wanted.policy)
    await ask(request, DeclareQueue(queue=queue, changes=changes, preset=wanted.preset))
    return answer(await _queue(request, queue))


@routes.delete("/queues/{queue}", "admin", Spec(status=204, errors=(404, 409)))
async def delete_queue(request: Request, queue: str) -> Response:
    """Remove a queue that has no unfinished task, with its ended tasks."""
    await ask(request, DeleteQueue(queue=queue))
    return nothing()


@routes.post("/queues/{queue}/pause", "admin", Spec(QueueShown, errors=(404,)))
async def pause_queue(request: Request, queue: str) -> Response:
    """Give out no task of a queue until it is resumed."""
    await ask(request, PauseQueue(queue=queue))
    return answer(await _queue(request, queue))


@routes.post("/queues/{queue}/resume", "admin", Spec(QueueShown, errors=(404,)))
async def resume_queue(request: Request, queue: str) -> Response:
    """Give out tasks of a queue again."""
    await ask(request, ResumeQueue(queue=queue))
    return answer(await _queue(request, queue))


# Batches.


class BatchShown(msgspec.Struct):
    """A batch of a queue. It is stable once it is full."""

    queue: str
    number: int
    counts: dict[State, int]
    is_full: bool


class BatchList(msgspec.Struct):
    """Batches of a queue, the latest first."""

    batches: list[BatchShown]


class BatchQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which batches."""

    limit: Annotated[int, about("The maximum number of items.", ge=1, le=1_000)] = 100
    before: Annotated[
        int, about("Only batches with smaller numbers; 0 for the latest.", ge=0, le=TIME_US_MAX)
    ] = 0


class BatchTasksQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks of a batch."""

    limit: Annotated[int, about("The maximum number of items.", ge=1, le=1_000)] = 1_000
    cursor: Annotated[str, about("The cursor of the previous page.", max_length=1_024)] = ""


class BatchWithTasks(BatchShown):
    """A batch and its tasks, the earliest first."""

    tasks: TaskList


@routes.get("/queues/{queue}/batches", "read_tasks", Spec(BatchList, query=BatchQuery))
async def list_batches(request: Request, queue: str) -> Response:
    """List the batches of a queue, the latest first."""
    query = read_query(request, BatchQuery)
    views = await _batches(request, queue, query.limit, query.before)
    shown = [BatchShown(v.queue, v.number, v.counts, v.is_full) for v in views]
    return answer(BatchList(shown))


@routes.get(
    "/queues/{queue}/batches/{number}",
    "read_tasks",
    Spec(BatchWithTasks, query=BatchTasksQuery, errors=(404,)),
)
async def read_batch(request: Request, queue: str, number: str) -> Response:
    """Return a batch of a queue, with its tasks."""
    query = read_query(request, BatchTasksQuery)
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0
    views = await _batches(request, queue, 1, wanted + 1) if wanted else []
    if not views or views[0].number != wanted:
        raise Rejected(404, f"queue {queue!r} has no batch {number}", "unknown_batch")
    asked = About(
        queue=queue,
        batch=wanted,
        sort="created",
        limit=query.limit,
        cursor=query.cursor,
        total=True,
    )
    page, view = await view_of(request, queries.tasks, asked), views[0]
    tasks = TaskList([show(each) for each in page.tasks], page.total, page.cursor or None)
    return answer(BatchWithTasks(view.queue, view.number, view.counts, view.is_full, tasks))


async def _batches(request: Request, queue: str, limit: int, before: int) -> list[BatchView]:
    return await view_of(request, queries.batches, About(queue=queue, limit=limit, before=before))


# Limits of tags.


_show_limit = shape_of(
    LimitView, "LimitShown", "A tag with a limit, and how many tasks with it are in flight."
)

LimitShown: Any = _show_limit.shown


class LimitList(msgspec.Struct):
    """The limited tags of a namespace."""

    limits: list[LimitShown]


class LimitWanted(msgspec.Struct, forbid_unknown_fields=True):
    """How many tasks with a tag may be in flight at once; 0 stops them all."""

    limit: Annotated[int, Meta(ge=0, le=COUNT_MAX)]


@routes.get("/limits", "read_tasks", Spec(LimitList))
async def list_limits(request: Request) -> Response:
    """List the tags that have a limit."""
    return answer(LimitList([_show_limit(view) for view in await _limits(request)]))


@routes.put("/limits/{tag}", "admin", Spec(LimitShown, body=LimitWanted))
async def limit_tag(request: Request, tag: str) -> Response:
    """Limit how many tasks with a tag may be in flight at once."""
    wanted = await read_body(request, LimitWanted)
    await ask(request, LimitTag(tag=tag, limit=wanted.limit))
    found = [each for each in await _limits(request) if each.tag == tag]
    return answer(_show_limit(found[0] if found else LimitView(tag, wanted.limit)))


@routes.delete("/limits/{tag}", "admin", Spec(status=204, errors=(404,)))
async def unlimit_tag(request: Request, tag: str) -> Response:
    """Remove the limit of a tag."""
    if all(each.tag != tag for each in await _limits(request)):
        raise Rejected(404, f"tag {tag!r} has no limit", "unknown_limit")
    await ask(request, LimitTag(tag=tag, limit=-1))
    return nothing()


async def _limits(request: Request) -> list[LimitView]:
    return await view_of(request, queries.limits)
