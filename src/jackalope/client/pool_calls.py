"""Pool calls: requests to the workers of a pool, and their answers. A part of `Jackalope`.

Owns what a call is: a task of the pool's queue whose caller waits. It is durable like any task, so
the caller always receives its outcome: the answer, the application's error, or why no worker
gave one. Parts of an answer that come before its end are messages, and not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, cast

from jackalope.client import option_checks
from jackalope.client.admin import Administration
from jackalope.client.deadlines import Within
from jackalope.client.messages import BroadcastMessage, BroadcastStream, Messaging
from jackalope.client.option_checks import one_of, wait_s
from jackalope.client.session.session import Session
from jackalope.client.submit_options import Choices, make_plan
from jackalope.core.commands import Action
from jackalope.core.effects import TaskEnded
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.refusals import Code
from jackalope.core.task import BlobRef, TaskSpec
from jackalope.errors import (
    CallExpired,
    CallRejected,
    DeadLetter,
    DeliveryLimit,
    JackalopeError,
    MaxLength,
    Rejected,
    TaskFailed,
    Timeout,
)
from jackalope.task_ids import new_task_id
from jackalope.tasks.context import current, resting
from jackalope.tasks.serialization import decode_value, encode_value
from jackalope.wire.messages import subject_of

#: How long a call may take unless it says otherwise.
CALL_S = 180.0

#: A call that no worker began to answer ends with the broker, which knows why, not here.
_MARGIN_S = 2.0

#: Why a call that is dead has no answer.
_DEAD_LETTERS: dict[Reason, type[DeadLetter]] = {
    Reason.EXPIRED: CallExpired,
    Reason.CRASHED: DeliveryLimit,
    Reason.REJECTED: CallRejected,
}


class Calling(Administration, Messaging):
    """Calls to pools."""

    async def call(
        self,
        pool: str,
        key: str,
        payload: Any = None,
        *,
        name: str = "",
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as for results
    ) -> Any:
        """Ask the workers of a key of a pool something, and return their answer.

        If there are none, they are started. A caller that stops waiting has the call killed.

        Args:
            pool: the name of the pool, which is that of its queue.
            key: which of its groups of workers; any text.
            payload: bytes go to the worker as they are, and its answer comes so. Otherwise they
                are the arguments of its function: a dict by name, a list or tuple in order,
                anything else is the only one.
            name: which function of the worker is meant, if its queue has several.
            timeout: how many seconds the answer may take; None for as long as it takes.

        Raises:
            TaskFailed: the worker answered with an error.
            DeadLetter: no worker answered; the kind of it and its `status` say why: `CallExpired`
                (`expired`), `DeliveryLimit` (`delivery_limit`), `MaxLength` (`maxlen`),
                `CallRejected` (`rejected`).
            Timeout: a worker began and did not finish in time.
        """
        timeout_s = wait_s(timeout)
        spec = _spec(pool, key, payload, name, timeout_s)
        end = await self._end_of(spec, timeout_s)
        return await _answer_of(self.session(), spec, end, isinstance(payload, bytes))

    async def stream(
        self,
        pool: str,
        key: str,
        payload: Any = None,
        *,
        name: str = "",
        timeout: float | None = CALL_S,  # noqa: ASYNC109  as for results
    ) -> AsyncGenerator[Any, None]:
        """Call, and yield the answer part by part; the last part is what the function returns.

        Arguments and errors are those of `call`, but `timeout` is how many seconds each further
        part may take, and `JackalopeError` is raised if parts were lost on the way.
        """
        timeout_s = wait_s(timeout)
        spec = _spec(pool, key, payload, name, None)
        is_raw, expected = isinstance(payload, bytes), 0
        async with self.broadcasts(subject=subject_of(spec.id)) as parts:
            ending = asyncio.ensure_future(self._end_of(spec, None))
            try:
                while True:
                    part = await _next_part(parts, ending, timeout_s, spec)
                    if part is None:
                        break
                    number, value = part.value
                    if number > expected or parts.missed:
                        raise JackalopeError(f"parts of the answer to {_who(spec)} were lost")
                    if number == expected:  # Not one that an earlier attempt has sent already.
                        expected += 1
                        yield value
                yield await _answer_of(self.session(), spec, await ending, is_raw)
            finally:
                if not ending.done():
                    ending.cancel()
                    with suppress(asyncio.CancelledError, JackalopeError):
                        await ending

    async def send_part(self, value: Any) -> None:
        """Inside a task that answers `stream`: send one part of the answer, before the last.

        Raises:
            JackalopeError: no task runs here.
        """
        task = current()
        number = _parts_sent.get(task.fence, 0)
        if len(_parts_sent) >= _COUNTED_MAX and not number:
            _parts_sent.pop(next(iter(_parts_sent)))
        _parts_sent[task.fence] = number + 1
        await self.broadcast((number, value), subject=subject_of(task.id))

    async def _end_of(self, spec: TaskSpec, timeout_s: float | None) -> TaskEnded:
        wait_s = None if timeout_s is None else timeout_s + _MARGIN_S
        try:
            async with Within(wait_s, f"no answer to {_who(spec)}"):
                with resting():
                    _, end = await self.session().serve(spec, timeout_s=self.timeout_s)
                    return end
        except Rejected as error:
            if error.code == Code.QUEUE_FULL:
                raise MaxLength(spec.id, error.message) from error
            raise
        except (Timeout, asyncio.CancelledError):
            await self._give_up(spec.id)
            raise

    async def _give_up(self, task: TaskId) -> None:
        """Kill a task whose caller no longer waits."""
        killing = asyncio.ensure_future(self.act(Action.KILL, [task]))
        with suppress(JackalopeError, asyncio.CancelledError, TimeoutError):
            async with asyncio.timeout(_MARGIN_S):
                await asyncio.shield(killing)
        killing.add_done_callback(lambda done: done.cancelled() or done.exception())


#: How many parts of its answer each running attempt has sent.
_parts_sent: dict[int, int] = {}
_COUNTED_MAX = 10_000


async def _next_part(
    parts: BroadcastStream,
    ending: asyncio.Future[TaskEnded],
    timeout_s: float | None,
    spec: TaskSpec,
) -> BroadcastMessage | None:
    """Return the next part, or None when there is none before the end."""
    coming = asyncio.ensure_future(parts.__anext__())
    try:
        async with Within(timeout_s, f"no part of the answer to {_who(spec)}"):
            both: list[asyncio.Future[Any]] = [coming, ending]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # What was said before the end has come before it.
            return coming.result() if coming.done() else None
    finally:
        coming.cancel()


def _spec(pool: str, key: str, payload: Any, name: str, timeout_s: float | None) -> TaskSpec:
    choices: dict[str, Any] = {"queue": pool, "key": key}
    if timeout_s is not None:
        choices["expires"] = timeout_s
    plan = make_plan(cast("Choices", choices), name=one_of("name", option_checks.text, name))
    return plan.spec(new_task_id(), _body(payload))


def _body(payload: Any) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, dict):
        return encode_value("msgpack", ((), payload))
    if isinstance(payload, list | tuple):
        return encode_value("msgpack", (payload, {}))
    return encode_value("msgpack", (() if payload is None else (payload,), {}))


async def _answer_of(session: Session, spec: TaskSpec, end: TaskEnded, is_raw: bool) -> Any:
    if end.state is State.SUCCEEDED:
        result = end.result
        if isinstance(result, BlobRef):
            result = b"".join([part async for part in session.parts_of(end.task)])
        return decode_value("bytes" if is_raw else "msgpack", result)
    letter = None if end.reason is None else _DEAD_LETTERS.get(end.reason)
    if letter is None:
        raise TaskFailed(end.task, end.state, end.reason, end.error)
    detail = f": {end.error.type}: {end.error.message}" if end.error else ""
    raise letter(end.task, f"no answer to {_who(spec)}{detail}")


def _who(spec: TaskSpec) -> str:
    return f"the call to key {spec.key!r} of pool {spec.queue!r}"
