"""Administration: query a broker, change its queues, pools and keys, and act on tasks.

Owns the client's side of QUERY, MANAGE and ACT. A part of `Jackalope`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from jackalope.client import option_checks
from jackalope.client.messages import EventStream
from jackalope.client.option_checks import one_of
from jackalope.client.session.session import SessionOwner
from jackalope.client.session.watches import TASKS_PER_FRAME
from jackalope.core.api_key import ApiKey
from jackalope.core.commands import Action, ActOnTasks, RetryTerms
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.limits import COUNT_MAX
from jackalope.core.policy import Policy
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.pool import PoolSettings
from jackalope.errors import ConfigError, ProtocolError, Rejected, kind_of, to_rejected
from jackalope.task_ids import to_task_id
from jackalope.tasks.serialization import DEFAULT_CONTENT, encode_value
from jackalope.wire.messages import Manage, Query, Subscribe
from jackalope.wire.views import (
    ActPage,
    ActView,
    ApiKeyView,
    BatchView,
    LimitView,
    NamespaceView,
    PoolView,
    QueueView,
    StatsView,
    TaskPage,
    TaskView,
    WorkerView,
)

V = TypeVar("V")

#: How many tasks of a list are asked for at once.
PAGE_TASKS = 500

#: Idempotent actions, which set a state: done twice they do what they do once.
_REPEATABLE = frozenset({Action.KILL, Action.PAUSE, Action.HOLD})

ActionName = Literal["hold", "play", "pause", "kill", "retry", "purge"]
GroupActionName = Literal["start", "stop", "pin", "unpin"]


@dataclass(frozen=True, slots=True)
class Acted:
    """What an action did."""

    changed: int = 0  # how many tasks are now what was asked for
    requested: int = 0  # how many are running, so that their workers were asked
    # tasks that could not be, and why
    refused: dict[TaskId, Rejected] = field(default_factory=dict)
    more: bool = False  # the filter matches more tasks than one action changes; act again


class Administration(SessionOwner):
    """Questions and orders to a broker."""

    # Tasks.

    async def find(
        self, task: object = None, *, alias: str = "", with_bodies: bool = False
    ) -> TaskView:
        """Return a task as it is now, by its id or alias.

        Args:
            task: its id, or its handle.
            alias: its alias, in place of the id.
            with_bodies: payload and result as well.

        Raises:
            Rejected: there is no such task.
        """
        about: dict[str, Any] = {"alias": alias} if task is None else {"id": to_task_id(task)}
        if with_bodies:
            about["bodies"] = True
        return await self.query("task", about, TaskView)

    async def tasks(
        self, limit: int | None = None, *, sort: str = "-created", **conditions: Any
    ) -> AsyncIterator[TaskView]:
        """Yield the tasks that meet all conditions, newest first, page by page.

        Args:
            limit: at most so many; all if not given.
            sort: the order.
            conditions: those of `Filter`: states, queue, name, key, tag, parent, batch, text,
                older_than_us.
        """
        cursor, left = "", None if limit is None else one_of("limit", _count, limit)
        while left is None or left > 0:
            size = PAGE_TASKS if left is None else min(left, PAGE_TASKS)
            page = await self.page(size, cursor=cursor, sort=sort, **conditions)
            for task in page.tasks:
                yield task
            left = None if left is None else left - len(page.tasks)
            cursor = page.cursor
            if not cursor:
                return

    async def page(
        self, limit: int = 100, *, cursor: str = "", sort: str = "-created", **conditions: Any
    ) -> TaskPage:
        """Return one page of a list of tasks; its cursor, if there is one, asks for the next."""
        about = {**conditions, "limit": limit, "cursor": cursor, "sort": sort}
        if "parent" in about:
            about["parent"] = to_task_id(about["parent"])
        return await self.query("tasks", about, TaskPage)

    async def act(
        self,
        action: Action | ActionName,
        tasks: Iterable[object] | None = None,
        *,
        matching: Filter | None = None,
        dry_run: bool = False,
        terms: RetryTerms | None = None,
    ) -> Acted:
        """Do something with tasks: with those named, or with those that match a filter.

        Args:
            action: hold, play, pause, kill, retry or purge.
            tasks: handles or ids.
            matching: a filter, in place of names.
            dry_run: only count.
            terms: with `retry`: other retries, time limit or priority.

        Raises:
            Rejected: the terms cannot be, or go with another action.
            ConnectionLost: the connection was lost, and it is not known whether it took effect.
            Timeout: no answer came in time.
        """
        action = Action(one_of("action", _action, action))
        if (tasks is None) == (matching is None):
            raise ConfigError("act on tasks or on those matching a filter: one of the two")
        if matching is not None:
            return await self._act(
                ActOnTasks(0, action, (), matching, dry_run, terms), can_repeat=dry_run
            )
        named, acted = one_of("tasks", _tasks, tasks), Acted()
        for begin in range(0, len(named), TASKS_PER_FRAME):
            part = tuple(named[begin : begin + TASKS_PER_FRAME])
            message = ActOnTasks(0, action, part, None, dry_run, terms)
            more = await self._act(message, can_repeat=dry_run or action in _REPEATABLE)
            acted = _sum(acted, more)
        return acted

    async def signal(self, task: object, event: str, data: object = None) -> None:
        """Send an event to a task that waits for it, or will: see `current().wait_for`.

        Args:
            task: its handle or id.
            event: the name of the event.
            data: what the task gets.

        Raises:
            Rejected: the broker does not know the task, or it has ended.
            EncodeFailed: the data cannot be sent.
            ConnectionLost: the connection was lost, and it is not known whether it was sent.
        """
        event = one_of("event", option_checks.text, event)
        body = encode_value(DEFAULT_CONTENT, data)
        about = {"task": to_task_id(task), "event": event, "data": body}
        await self.manage("send_event", about, can_repeat=False)

    # Queues, tags and workers.

    async def queues(self, queue: str = "") -> list[QueueView]:
        """Return every queue: how much is in it, and its policy.

        Args:
            queue: only the queue of this name, if there is one, with its largest shares.
        """
        return await self.query("queues", {"queue": queue} if queue else {}, list[QueueView])

    async def declare_queue(
        self, queue: str, *, preset: str = "", changes: Mapping[str, Any] | None = None
    ) -> Policy:
        """Create a queue or change its policy, and return the policy.

        Args:
            queue: its name.
            preset: replaces the whole policy, before the changes.
            changes: fields of `Policy` and their values.

        Raises:
            Rejected: the policy cannot be; every problem is listed.
        """
        about = {"queue": queue, "preset": preset, "changes": one_of("changes", _changes, changes)}
        body = await self.manage("declare_queue", about)
        return shaped(body["policy"], Policy)

    async def delete_queue(self, queue: str) -> None:
        """Remove a queue that has no unfinished task."""
        await self.manage("delete_queue", {"queue": queue}, can_repeat=False)

    async def pause_queue(self, queue: str) -> None:
        """Give out no task of the queue until it is resumed."""
        await self.manage("pause_queue", {"queue": queue})

    async def resume_queue(self, queue: str) -> None:
        """Give out tasks of the queue again."""
        await self.manage("resume_queue", {"queue": queue})

    async def batches(self, queue: str, *, limit: int = 100, before: int = 0) -> list[BatchView]:
        """Return the batches of a queue, newest first."""
        about = {"queue": queue, "limit": limit, "before": before}
        return await self.query("batches", about, list[BatchView])

    async def limits(self) -> list[LimitView]:
        """Return every tag with a limit, and how much of it is used."""
        return await self.query("limits", {}, list[LimitView])

    async def limit_tag(self, tag: str, limit: int | None) -> None:
        """Let at most `limit` tasks with the tag be under way at once; None removes the limit."""
        await self.manage("limit_tag", {"tag": tag, "limit": -1 if limit is None else limit})

    async def workers(self) -> list[WorkerView]:
        """Return every worker, those that left lately included."""
        return await self.query("workers", {}, list[WorkerView])

    async def drain_worker(self, worker: str) -> None:
        """Give no more tasks to a worker, and tell it to finish and leave."""
        await self.manage("drain_worker", {"worker": worker})

    # Namespaces.

    async def namespaces(self) -> list[NamespaceView]:
        """Return every namespace that the API key covers: its settings, and what it uses."""
        return await self.query("namespace_list", {}, list[NamespaceView])

    async def namespace_of(self, name: str) -> NamespaceView:
        """Return a namespace.

        Raises:
            Rejected: there is none, or the API key is for another.
        """
        return await self.query("namespace", {"name": name}, NamespaceView)

    async def declare_namespace(
        self, name: str, changes: Mapping[str, Any] | None = None
    ) -> NamespaceSettings:
        """Create a namespace or change its settings, and return them.

        Args:
            name: its name.
            changes: fields of `NamespaceSettings` and their values; a quota of 0 is none.

        Raises:
            Rejected: the settings cannot be; every problem is listed.
        """
        about = {"name": name, "changes": one_of("changes", _changes, changes)}
        body = await self.manage("declare_namespace", about)
        return shaped(body["settings"], NamespaceSettings)

    async def delete_namespace(self, name: str, *, force: bool = False) -> int:
        """Delete a namespace with all that is in it, and return how many tasks were killed.

        Args:
            name: its name.
            force: kill its unfinished tasks, and tell its workers to finish; without it they are
                a reason to refuse.

        Raises:
            Rejected: there is none, or it is in use.
        """
        about = {"name": name, "force": force}
        body = await self.manage("delete_namespace", about, can_repeat=False)
        return int(body["killed"])

    async def audit(self, limit: int = 100, *, text: str = "") -> AsyncIterator[ActView]:
        """Yield what administrators did, or tried to, the latest first.

        Args:
            limit: at most so many.
            text: only with this text in any field.
        """
        left, cursor = one_of("limit", _count, limit), ""
        while left > 0:
            about = {"limit": min(left, PAGE_TASKS), "cursor": cursor, "text": text}
            page = await self.query("audit", about, ActPage)
            for act in page.acts:
                yield act
            left, cursor = left - len(page.acts), page.cursor
            if not cursor:
                return

    # API keys.

    async def api_keys(self) -> list[ApiKeyView]:
        """Return every API key: whose it is and what it permits, never its token."""
        return await self.query("api_keys", {}, list[ApiKeyView])

    async def create_api_key(self, key: ApiKey) -> None:
        """Create an API key. The broker gets the hash of its token, never the token.

        Raises:
            Rejected: the key cannot be; every problem is listed.
        """
        about = {"key": msgspec.to_builtins(key)}
        await self.manage("create_api_key", about, can_repeat=False)

    async def revoke_api_key(self, key: str) -> None:
        """Revoke the API key of this id; connections that use it end at once."""
        await self.manage("revoke_api_key", {"key": key}, can_repeat=False)

    # Pools.

    async def pools(self, queue: str = "") -> list[PoolView]:
        """Return every pool with its groups, or that of one queue."""
        return await self.query("pools", {"queue": queue}, list[PoolView])

    async def declare_pool(
        self, queue: str, changes: Mapping[str, Any] | None = None
    ) -> PoolSettings:
        """Have workers started for a queue, or change how, and return the settings.

        Args:
            queue: its name, which is that of the pool.
            changes: fields of `PoolSettings` and their values.

        Raises:
            Rejected: the settings cannot be; every problem is listed.
        """
        body = await self.manage(
            "declare_pool", {"queue": queue, "changes": one_of("changes", _changes, changes)}
        )
        return shaped(body["settings"], PoolSettings)

    async def delete_pool(self, queue: str) -> None:
        """Have no more workers started for a queue; those there are go when they are idle."""
        await self.manage("delete_pool", {"queue": queue}, can_repeat=False)

    async def act_on_group(self, queue: str, key: str, action: GroupActionName) -> None:
        """Start or stop the workers of a key of a pool by hand, or let them stay up."""
        await self.manage("act_on_group", {"queue": queue, "key": key, "action": action})

    async def stats(self) -> StatsView:
        """Return the broker in numbers."""
        return await self.query("stats", {}, StatsView)

    # What happens.

    def events(self, *, queue: str = "", task: object = None) -> EventStream:
        """Return what happens from now on, in one queue, to one task, or everywhere.

            async with app.events(queue="images") as events:
                async for event in events:
                    print(event.what, event.task.hex())

        It has a connection of its own, so that a slow reader holds up nothing else.
        """
        task_id = NO_TASK if task is None else to_task_id(task)
        queue = one_of("queue", option_checks.text, queue)
        return EventStream(self, Subscribe(0, queue, task_id))

    # In the words of the wire.

    async def query(self, what: str, about: Mapping[str, Any], shape: type[V]) -> V:
        """Ask a question, and return the answer in a shape of `jackalope.wire.views`."""
        message = Query(0, what, dict(about))
        body = await self.session().request(message, timeout_s=self.timeout_s)
        return shaped(body, shape)

    async def manage(self, what: str, about: Mapping[str, Any], *, can_repeat: bool = True) -> Any:
        """Give an order, and return the body of the answer."""
        message = Manage(0, what, dict(about))
        return await self.session().request(
            message, timeout_s=self.timeout_s, can_repeat=can_repeat
        )

    async def _act(self, message: ActOnTasks, *, can_repeat: bool) -> Acted:
        body = await self.session().request(
            message, timeout_s=self.timeout_s, can_repeat=can_repeat
        )
        return to_acted(body)


_action = partial(option_checks.word, words=tuple(Action))
_count = partial(option_checks.whole, least=0, most=COUNT_MAX)
_tasks = partial(option_checks.several, check=to_task_id, what="tasks", most=COUNT_MAX)


def _changes(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"must be a mapping, not {kind_of(value)}")
    return dict(value)


def shaped(body: object, shape: type[V]) -> V:
    """Read an answer.

    Raises:
        ProtocolError: the broker speaks of things that are not known here.
    """
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"the broker's answer cannot be read: {error}") from None


def to_acted(body: Mapping[str, Any]) -> Acted:
    """Read what an action did."""
    refused = {TaskId(task): to_rejected(refusal) for task, refusal in body["refused"]}
    return Acted(body["changed"], body["requested"], refused, body["more"])


def _sum(one: Acted, other: Acted) -> Acted:
    return Acted(
        one.changed + other.changed,
        one.requested + other.requested,
        {**one.refused, **other.refused},
        one.more or other.more,
    )
