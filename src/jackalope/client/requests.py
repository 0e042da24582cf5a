"""Requests: ask once, and receive the answer here, later, or after a restart.

Owns what a user holds of a request, and what can be asked of the broker about answers. A part of
`Jackalope`. Answers are pushed, never polled for; what was missed while the connection was lost is
sent when it is back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast

from jackalope.client.admin import Acted, Administration, to_acted
from jackalope.client.handle import Handle
from jackalope.client.option_checks import Seconds, one_of, word
from jackalope.core.commands import AnswerAction
from jackalope.core.effects import Served, TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.shapes.request import IDENTITY_BYTES, How
from jackalope.errors import ConfigError, shown
from jackalope.tasks.serialization import DEFAULT_CONTENT, Content, decode_value
from jackalope.wire.views import AnswerView

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope
    from jackalope.client.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

log = logging.getLogger("jackalope.client")

AnswerActionName = Literal["pin", "unpin", "purge"]


@dataclass(frozen=True, slots=True)
class Answer(Generic[R_co]):
    """The answer to a request, and where it came from."""

    value: R_co  # what the function returned
    how: How  # how the request was served: `hit`, `miss`, `joined`, `refresh` or `bypass`
    task: TaskId  # the task that made the answer
    identity: bytes  # what was asked for, as a hash; empty for `bypass`
    made_us: int = 0  # of a `hit`, when it was made
    worker: str = ""  # of a `hit`, who made it


class Asked(Handle[R_co]):
    """A request that was sent: the handle of the task that has the answer or will have it."""

    __slots__ = ("served",)

    def __init__(self, app: Jackalope, served: Served, decode: Callable[[bytes], R_co]) -> None:
        super().__init__(app, served.task, decode)
        self.served = served  # how it is served, in the words of the broker

    @property
    def how(self) -> How:
        """How the request is served: `hit`, `miss`, `joined`, `refresh` or `bypass`."""
        return self.served.how

    @property
    def identity(self) -> bytes:
        """What was asked for, as a hash; empty for `bypass`. `app.find_request` takes it."""
        return self.served.identity

    async def answer(self, timeout: Seconds | None = None) -> Answer[R_co]:  # noqa: ASYNC109
        """Wait for the answer. Raises as `result` does.

        Args:
            timeout: how long to wait, in seconds; without it, as long as it takes.
        """
        await self.wait(timeout)
        if self.end is None:
            return self.answered()
        return make_answer(self.served, await self.outcome_of(self.end))

    async def check(self) -> Answer[R_co] | None:
        """Return the answer if it is there, without waiting for it.

        Raises:
            TaskFailed: the task ended without success.
            Rejected: the broker does not know the task (any more).
        """
        if self.end is None:
            view = await self.status()
            if view.state not in ENDED:
                return None
        return await self.answer()

    def answered(self) -> Answer[R_co]:
        """Return the answer that has come, as in a callback.

        Raises:
            TaskFailed: the task ended without success.
            ConfigError: nothing has come yet.
        """
        if self.end is None:
            raise ConfigError(f"request {self} has no answer yet; await answer()")
        return make_answer(self.served, self.outcome(self.end))

    async def provenance(self) -> AnswerView:
        """Return who made the answer that is kept, when, and who had use of it.

        Raises:
            Rejected: none is kept, or not any more: `unknown_request`.
        """
        return await self.app.query("answer", {"id": self.id}, AnswerView)


def make_answer(served: Served, value: R) -> Answer[R]:
    """Put together what was returned and how it was come by."""
    return Answer(value, served.how, served.task, served.identity, served.made_us, served.worker)


class Requests(Administration):
    """Asking once, and what is kept of the answers."""

    # Asking.

    async def request(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Answer[R]:
        """Ask for what a task returns, and wait for it: run at most once for all who ask.

        Raises:
            TaskFailed: it ended without success. The next request runs again.
            Rejected: the broker did not accept it.
            Timeout: the broker did not accept it in time, or there is no answer within the
                `result_timeout` of the task's options.
        """
        return await task.request(*args, **kwargs)

    async def send_request(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Asked[R]:
        """Ask, and do not wait: the request is durable with the broker when this returns.

        `gather` and `as_completed` wait for many.

        Raises:
            Rejected: the broker did not accept it.
            Timeout: no answer came in time.
        """
        return await task.send_request(*args, **kwargs)

    async def find_request(
        self, identity: bytes | str, *, content: Content = DEFAULT_CONTENT, returns: Any = Any
    ) -> Asked[Any]:
        """Return a request that was sent before, here or elsewhere, by its identity.

        Args:
            identity: 32 bytes, or in hexadecimal.
            content: how its answer is encoded.
            returns: the type that its answer has.

        Raises:
            Rejected: it was never sent, or its answer is no longer kept: `unknown_request`.
        """
        served = await self.find_served(to_identity(identity))
        return Asked(cast("Jackalope", self), served, partial(decode_value, content, kind=returns))

    async def check(self, request: Asked[R] | bytes | str) -> Answer[R] | None:
        """Return the answer to a request that was sent before, or None if it is still to come.

        Args:
            request: what `send_request` returned, or the identity of it.

        Raises:
            TaskFailed: the task ended without success.
            Rejected: the broker does not know the request: `unknown_request`.
        """
        if not isinstance(request, Asked):
            request = await self.find_request(request)
        return await request.check()

    async def on_answer(
        self, request: Asked[R] | bytes | str, callback: Callable[[Asked[R]], object]
    ) -> None:
        """Have a function called when the answer comes, or at once if it has.

        It is called on the event loop, and must not block; a coroutine function is awaited there.
        It gets the request, whose `answered()` returns or raises. What it raises itself is logged.

        Args:
            request: what `send_request` returned, or the identity of it.
            callback: the function.

        Raises:
            Rejected: the broker does not know the request: `unknown_request`.
        """
        if isinstance(request, Asked):
            asked = request
            if asked.identity:
                await self.find_served(asked.identity)
        else:
            asked = await self.find_request(request)
        end = self.session().watch(asked.id)
        end.add_done_callback(partial(_call_back, asked, callback))

    # What is kept.

    async def answers(
        self, *, queue: str = "", name: str = "", version: str = "", limit: int = 100
    ) -> list[AnswerView]:
        """Return the answers that are kept, the most recently used of each queue first."""
        about = {"queue": queue, "name": name, "version": version, "limit": limit}
        return await self.query("answers", about, list[AnswerView])

    async def find_answer(self, identity: bytes | str) -> AnswerView:
        """Return a request: who made its answer, when, and who had use of it.

        Raises:
            Rejected: the broker does not know it: `unknown_request`.
        """
        return await self.query("answer", {"identity": to_identity(identity)}, AnswerView)

    async def act_on_answers(
        self,
        action: AnswerAction | AnswerActionName,
        identities: Iterable[bytes | str] = (),
        *,
        queue: str = "",
        name: str = "",
        version: str = "",
        older_than_us: int = 0,
    ) -> Acted:
        """Pin, unpin or purge answers: those named, or else all that match.

        Args:
            action: pin, unpin or purge.
            identities: the requests whose answers are meant.
            queue: only answers of this queue.
            name: only answers of tasks of this name.
            version: only answers of this version of the code.
            older_than_us: only answers made before this moment.
        """
        about = {
            "action": one_of("action", partial(word, words=tuple(AnswerAction)), action),
            "identities": [to_identity(identity) for identity in identities],
            "queue": queue,
            "name": name,
            "version": version,
            "older_than_us": older_than_us,
        }
        return to_acted(await self.manage("act_on_answers", about))

    # For this package.

    async def find_served(self, identity: bytes) -> Served:
        """Return which task serves a request that was sent before."""
        view = await self.query("answer", {"identity": identity}, AnswerView)
        how = How.HIT if view.state in ENDED else How.JOINED
        return Served(how, view.task, identity, view.made_us, view.worker)


def to_identity(identity: bytes | str) -> bytes:
    """Return the bytes of an identity.

    Raises:
        ConfigError: it is none.
    """
    try:
        found = bytes.fromhex(identity) if isinstance(identity, str) else bytes(identity)
    except (ValueError, TypeError, OverflowError, MemoryError):
        found = b""
    if len(found) != IDENTITY_BYTES:
        raise ConfigError(
            f"{shown(identity)} is no identity: {IDENTITY_BYTES} bytes, or hexadecimal"
        )
    return found


def _call_back(
    asked: Asked[R], callback: Callable[[Asked[R]], object], end: asyncio.Future[TaskEnded]
) -> None:
    """Pass on what came. A closed client receives nothing more."""
    if end.cancelled():
        return
    error = end.exception()
    if error is not None:
        log.warning("no answer to request %s will come: %s", asked, error)
        return
    asked.end = end.result()
    task = asyncio.ensure_future(_run_callback(asked, callback))
    _callbacks.add(task)
    task.add_done_callback(_callbacks.discard)


async def _run_callback(asked: Asked[R], callback: Callable[[Asked[R]], object]) -> None:
    try:
        result = callback(asked)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("the callback for request %s failed", asked)


#: Those that run. The loop itself keeps no hold of them.
_callbacks: set[asyncio.Task[None]] = set()
