"""The backend: one connection to a broker, and the queries and commands of the command line.

Owns the exchange. It does not reconnect: a command that cannot continue fails, and those that wait
for long open another backend.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from jackalope import __version__
from jackalope.cli.formatting import id_text, parse_id
from jackalope.core.commands import Action, RetryTerms
from jackalope.core.effects import Served, TaskEnded
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.policy import Policy
from jackalope.core.refusals import Code
from jackalope.core.task import TaskSpec
from jackalope.errors import ConnectionLost, Rejected, refusals, served
from jackalope.tasks.streams import chunks_of
from jackalope.transport.address import Address
from jackalope.transport.connection import Connection
from jackalope.transport.streams import STREAMED_BYTES, send_parts
from jackalope.wire.messages import (
    Act,
    Ended,
    Events,
    Hello,
    Manage,
    Message,
    Progressed,
    Query,
    Submit,
    Subscribe,
    Watch,
)
from jackalope.wire.views import (
    AnswerView,
    ApiKeyView,
    BatchView,
    ExplanationView,
    HistoryEntryView,
    LimitView,
    PoolView,
    QueueView,
    StatsView,
    TaskPage,
    TaskView,
    WorkerView,
)

T = TypeVar("T")

#: How many tasks of one frame are submitted or watched.
TASKS_PER_FRAME = 1_000

_CANDIDATES_SHOWN = 5
_PREFIX_CHARS_MIN = 4


class Refused(msgspec.Struct, frozen=True):
    """Why something was not done with a task."""

    code: str
    message: str


class Acted(msgspec.Struct, frozen=True):
    """What an action did: tasks changed, workers asked, tasks refused, and whether more match."""

    changed: int = 0
    requested: int = 0
    refused: tuple[tuple[TaskId, Refused], ...] = ()
    more: bool = False


class NotFound(Exception):
    """No task, or more than one, is meant by a text; the message names them."""


class Backend:
    """A connection to a broker, in one namespace. Make it with `connect`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._inbox: asyncio.Queue[Message | ConnectionLost] = asyncio.Queue()
        self._connection: Connection

    async def _open(self) -> None:
        hello = Hello(
            namespace=self.address.namespace,
            token=self.address.token,
            name=actioner(),
            agent=f"jackalope-cli {__version__}",
        )
        self._connection = await Connection.open(
            self.address, hello, heard=self._inbox.put_nowait, lost=self._inbox.put_nowait
        )

    async def _close(self) -> None:
        await self._connection.close()

    # Questions.

    async def _ask(self, what: str, shape: type[T], **about: Any) -> T:
        body = await self._connection.request(Query(0, what, about))
        return msgspec.convert(body, shape)

    async def task(self, task_id: TaskId, *, bodies: bool = False) -> TaskView:
        """Show one task; without its bodies if they fit into no frame."""
        try:
            return await self._ask("task", TaskView, id=task_id, bodies=bodies)
        except Rejected as error:
            if not bodies or error.code != Code.TOO_LARGE:
                raise
            return await self._ask("task", TaskView, id=task_id)

    async def tasks(
        self, wanted: Filter, *, sort: str = "-created", limit: int = 100, cursor: str = ""
    ) -> TaskPage:
        """Show a page of tasks."""
        about = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value} | {
            "sort": sort,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._ask("tasks", TaskPage, **about)

    async def history(self, task_id: TaskId) -> list[HistoryEntryView]:
        """Show what happened to a task."""
        return await self._ask("history", list[HistoryEntryView], id=task_id)

    async def explain(self, task_id: TaskId) -> ExplanationView:
        """Show why a task is as it is."""
        return await self._ask("explain", ExplanationView, id=task_id)

    async def queues(self, queue: str = "") -> list[QueueView]:
        """Show the queues, or one of them."""
        found = await self._ask("queues", list[QueueView])
        return [view for view in found if queue in ("", view.queue)]

    async def workers(self) -> list[WorkerView]:
        """Show the workers, those that left lately included."""
        return await self._ask("workers", list[WorkerView])

    async def pools(self, queue: str = "") -> list[PoolView]:
        """Show the pools with their groups."""
        return await self._ask("pools", list[PoolView], queue=queue)

    async def limits(self) -> list[LimitView]:
        """Show the limited tags."""
        return await self._ask("limits", list[LimitView])

    async def batches(self, queue: str, limit: int, before: int = 0) -> list[BatchView]:
        """Show the latest batches of a queue."""
        return await self._ask("batches", list[BatchView], queue=queue, limit=limit, before=before)

    async def api_keys(self) -> list[ApiKeyView]:
        """Show the API keys."""
        return await self._ask("api_keys", list[ApiKeyView])

    async def answers(self, **about: Any) -> list[AnswerView]:
        """Show the answers that are kept."""
        return await self._ask("answers", list[AnswerView], **about)

    async def answer(self, identity: bytes) -> AnswerView:
        """Show one request."""
        return await self._ask("answer", AnswerView, identity=identity)

    async def stats(self) -> StatsView:
        """Show the broker in numbers."""
        return await self._ask("stats", StatsView)

    async def resolve(self, text: str) -> TaskId:
        """Find the task of a text: a UUID, hex digits, the beginning of them, or an alias."""
        whole = parse_id(text)
        if whole is not None:
            return TaskId(whole)
        try:
            return (await self._ask("task", TaskView, alias=text)).id
        except Rejected as rejected:
            if rejected.code != "unknown_task":
                raise
        digits = text.replace("-", "").lower()
        is_hex = len(digits) >= _PREFIX_CHARS_MIN and not digits.strip("0123456789abcdef")
        if not is_hex:
            raise NotFound(f"no task has the alias {text!r}; `jackalope list` shows tasks")
        page = await self.tasks(Filter(text=digits), limit=100)
        found = [view.id for view in page.tasks if view.id.hex().startswith(digits)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFound(f"no task has the alias {text!r}, and no id begins with it")
        some = ", ".join(id_text(each) for each in found[:_CANDIDATES_SHOWN])
        raise NotFound(f"{text!r} begins the ids of several tasks: {some}…; give more of it")

    # Orders.

    async def submit(self, tasks: list[TaskSpec]) -> tuple[dict[int, Rejected], dict[int, Served]]:
        """Submit tasks; return which were refused, and how requests are served, by their index.

        A request that is served by another task takes on the id of that one.
        """
        for task in tasks:
            await self._upload(task)
        body = await self._connection.request(Submit(0, tasks))
        hows = served(body)
        for index, how in hows.items():
            tasks[index].id = how.task
        return refusals(body), hows

    async def _upload(self, task: TaskSpec) -> None:
        """Send a payload in parts that may fit into no frame, if the broker takes it so."""
        payload = task.payload
        has_parts = self._connection.welcome.part_bytes_max > 0
        if isinstance(payload, bytes) and len(payload) > STREAMED_BYTES and has_parts:
            task.payload = await send_parts(self._connection, chunks_of(payload))

    async def submit_and_wait(self, task: TaskSpec) -> TaskEnded:
        """Submit one task, and return when it has ended.

        Raises:
            Rejected: the broker refused it.
        """
        await self._upload(task)
        submitted = self._connection.request(Submit(0, [task]))
        watched = self._connection.request(Watch(0, (task.id,)))
        body = await submitted
        for rejected in refusals(body).values():
            raise rejected
        await watched
        for how in served(body).values():
            if how.task != task.id:
                task.id = how.task
                await self._connection.request(Watch(0, (task.id,)))
        while True:
            message = await self._next()
            for ended in message.tasks if isinstance(message, Ended) else ():
                if ended.task == task.id:
                    return ended

    async def act(
        self,
        action: Action,
        tasks: Iterable[TaskId] = (),
        wanted: Filter | None = None,
        *,
        dry_run: bool = False,
        terms: RetryTerms | None = None,
    ) -> Acted:
        """Do something with tasks."""
        message = Act(0, action, tuple(tasks), wanted, dry_run, terms)
        body = await self._connection.request(message)
        return msgspec.convert(body, Acted)

    async def act_on_answers(self, action: str, identities: list[bytes], **matching: Any) -> Acted:
        """Pin, unpin or purge answers."""
        body = await self.manage("act_on_answers", action=action, identities=identities, **matching)
        return msgspec.convert(body, Acted)

    async def manage(self, what: str, **about: Any) -> Any:
        """Change a queue, a tag or a worker."""
        return await self._connection.request(Manage(0, what, about))

    async def declare_queue(self, queue: str, preset: str, changes: dict[str, Any]) -> Policy:
        """Create a queue or change its policy, and return it."""
        body = await self.manage("declare_queue", queue=queue, preset=preset, changes=changes)
        return msgspec.convert(body["policy"], Policy)

    # Listening.

    async def ends(
        self, tasks: Iterable[TaskId], follow: Callable[[Progressed], None] | None = None
    ) -> AsyncIterator[TaskEnded]:
        """Yield each task when it has ended, and report their progress until then.

        Raises:
            Rejected: one is unknown.
        """
        waiting = dict.fromkeys(tasks)
        ids = tuple(waiting)
        for begin in range(0, len(ids), TASKS_PER_FRAME):
            part = ids[begin : begin + TASKS_PER_FRAME]
            watch = Watch(0, part, progress=follow is not None)
            refused = refusals(await self._connection.request(watch))
            for rejected in refused.values():
                raise rejected
        while waiting:
            message = await self._next()
            if follow is not None and isinstance(message, Progressed):
                follow(message)
            for ended in message.tasks if isinstance(message, Ended) else ():
                if ended.task in waiting:
                    del waiting[ended.task]
                    yield ended

    async def events(self, queue: str = "", task: TaskId = NO_TASK) -> AsyncIterator[Events]:
        """Yield what happens, as it happens."""
        await self._connection.request(Subscribe(0, queue, task))
        while True:
            message = await self._next()
            if isinstance(message, Events):
                yield message

    async def _next(self) -> Message:
        message = await self._inbox.get()
        if isinstance(message, ConnectionLost):
            raise message
        return message


@asynccontextmanager
async def connect(address: Address) -> AsyncIterator[Backend]:
    """Connect to a broker for the time of a block.

    Raises:
        ConnectionLost: no broker answers there.
        Rejected: the broker refuses the connection.
    """
    backend = Backend(address)
    await backend._open()  # noqa: SLF001  they are one
    try:
        yield backend
    finally:
        await backend._close()  # noqa: SLF001


def actioner() -> str:
    """Return who acts, for the histories: the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
