"""The socket of a worker: GridLike's protocol, message for message.

Owns one connection from its registration to its end. Messages become commands (`worker_session`),
and effects become messages of GridLike.

Theory of operation
===================

A text is a message, a binary message is a payload (to the worker) or a result (from it)::

    -> {"code":0,"name":"...","id":"...","token":"..."}   within the time to register, or kicked
    <- {"code":2}                                         how are you?
    -> {"code":1,"status":1}                              1 ready, 0 busy
    <- payload
    -> {"code":3,"percent":12.5,"info":"..."}             as often as it likes
    -> result, or {"code":4,"info":"...","logs":"..."}
    <- {"code":2}

Nothing here names a job: a result belongs to the last payload. Two things follow.

1. `ready` is an answer to a question that may be older than the payload. So the questions are
   stored with the number of payloads sent before them; `ready` to an older one means nothing for
   the current job, and `ready` to a later one gives the job back. A worker may also send it
   unasked, and then its answers are no longer those of the questions: each looks like the answer to
   a later one. So it is asked again when it was not asked, and a worker that has given back n jobs
   has to send `ready` n + 1 times before the next is taken from it.
2. A job that was taken away (deleted, say) is still being worked on, and its result will come. It
   is discarded: until the worker has sent one, failed, or reported `ready`, it is given nothing
   else.

A worker can keep track of its attempts: it registers with the fields `job` and `attempt`, null as
long as it has none, and is sent both before each payload::

    <- {"code":5,"job":"...","attempt":7}

When it comes back over another connection and names the attempt that it has, the job is its own
again if nothing has happened to it (see `context`). It is asked for its status like any other:
`busy` keeps the job, and so does the result itself; `ready` gives it back. If the attempt is over,
its result is thrown away like that of a job that was taken away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from uvicorn.protocols.utils import ClientDisconnected

from jackalope.broker.access import acting, sees
from jackalope.broker.body_streams import Upload, body_chunks
from jackalope.broker.queries import Refused, read_leases
from jackalope.broker.views.workers import Leases
from jackalope.core.api_key import Permission
from jackalope.core.assertions import must
from jackalope.core.commands import Held
from jackalope.core.durations import SECOND
from jackalope.core.ids import as_task_id, id_text
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Code as RefusalCode
from jackalope.core.task import Body, Error
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.gridlike.context import (
    Entry,
    Grid,
    Standing,
    WorkerShown,
    counts_of,
    grid_of,
    show,
)
from jackalope.doors.http.gridlike.schemas import Code, problem_response, read_message
from jackalope.doors.http.gridlike.worker_session import Goodbye, Job, WorkerSession
from jackalope.doors.http.listener import EXTENSION
from jackalope.doors.http.request import Request, WebSocket, answer
from jackalope.doors.http.router import Routes
from jackalope.storage import StorageFault

routes = Routes(on_error=problem_response)


log = structlog.get_logger(component="gridlike")

#: Room for a number behind it must be left.
ID_CHARS_MAX = NAME_CHARS_MAX - 16

_REGISTRATION_CHARS_MAX = 64 * 1024

#: How often the broker is sent a heartbeat of the connection.
_HEARTBEAT_S = 10.0
#: How many questions without an answer are remembered.
_QUESTIONS_MAX = 1_000
_ROOM_AGAIN_S = 0.5
_GOODBYE_S = 2.0
_REASON_BYTES_MAX = 120

_STATUS_REQUEST = msgspec.json.encode({"code": int(Code.STATUS_REQUEST)}).decode()
_READY = 1


class WorkerSocket:
    """One connection of a worker."""

    def __init__(self, grid: Grid, socket: WebSocket, queue: str) -> None:
        self._grid = grid
        self._socket = socket
        self._entry = Entry(queue, grid.broker.now_us())
        self._session = WorkerSession(grid, self._entry, self._on_job)
        self._outbox: asyncio.Queue[Job | None] = asyncio.Queue()
        self._questions: deque[int] = deque(maxlen=_QUESTIONS_MAX)
        self._asked_at = 0.0
        self._sent = 0
        self._is_sending = False
        self._owes = False
        self._is_sure = False
        self._readies = 0
        self._given_back = 0

    async def run(self) -> None:
        """Talk with the worker until one of the two is gone."""
        settings, roll = self._grid.settings, self._grid.roll
        await self._socket.accept(pieces=True, keepalive_s=settings.keepalive_us / SECOND)
        roll.enter(self._entry)
        try:
            await self._register()
            await self._talk()
        except Goodbye as goodbye:
            await self._say_goodbye(goodbye)
        except Refused as error:
            await self._say_goodbye(Goodbye(1012, error.refusal.message))
        except ClientDisconnected:
            pass
        finally:
            self._session.close()
            roll.leave(self._entry, self._grid.broker.now_us())

    # Registration.

    async def _register(self) -> None:
        """Wait for the registration of the worker, and accept it."""
        grace_s = self._grid.settings.kick_after_us / SECOND
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        try:
            async with asyncio.timeout_at(until):
                message = await self._socket.next()
        except TimeoutError:
            self._entry.standing = Standing.FAILED_REGISTRATION
            raise Goodbye(1008, f"not registered within {grace_s:g} s") from None
        problem = self._read_registration(message)
        if problem:
            # Not at once: a client that guesses tokens has to wait.
            self._entry.standing = Standing.FAILED_REGISTRATION
            await asyncio.sleep(max(0.0, until - loop.time()))
            raise Goodbye(1008, problem)
        try:
            await self._session.join()
        except Refused as error:
            raise Goodbye(1008, error.refusal.message) from None
        self._owes = self._entry.claim is not None
        self._entry.standing = Standing.REGISTERED

    def _read_registration(self, message: dict[str, Any]) -> str:
        text = message.get("text") or ""
        # Anybody can send this: it is not worth reading if it is that long.
        fields = read_message(text) if len(text) <= _REGISTRATION_CHARS_MAX else None
        if fields is None or fields["code"] != Code.REGISTRATION:
            return "send the registration first: code 0, with name, id and token"
        name, worker_id, token = (fields.get(field) for field in ("name", "id", "token"))
        if not isinstance(worker_id, str) or not 0 < len(worker_id) <= ID_CHARS_MAX:
            return f"id: must be a text of 1 to {ID_CHARS_MAX} characters"
        job, attempt = fields.get("job"), fields.get("attempt")
        task = as_task_id(job) if isinstance(job, str) else None
        claim = Held(task, attempt) if task is not None and type(attempt) is int else None
        if job is not None and claim is None:
            return "job: must be null, or the id of a job with the number of its attempt"
        self._entry.id = worker_id
        self._entry.name = name[:NAME_CHARS_MAX] if isinstance(name, str) else ""
        self._entry.names_attempts = "job" in fields
        self._entry.claim = claim
        return self._session.admit(token if isinstance(token, str) else "")

    # The conversation.

    async def _talk(self) -> None:
        """Receive, send and tick, until one of them ends."""
        parts = [
            asyncio.create_task(part, name=f"gridlike-{self._entry.worker}")
            for part in (self._listen(), self._speak(), self._tick(), self._session.ended())
        ]
        self._ask()
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            message = await self._socket.next()
            if message.get("bytes") is not None:
                await self._take_result(message)
                continue
            fields = read_message(message["text"])
            if fields is None:
                raise Goodbye(1007, "not a message: an object with a code")
            await self._on_message(fields)

    async def _on_message(self, fields: dict[str, Any]) -> None:
        code = fields["code"]
        if code == Code.STATUS:
            self._on_status(is_ready=fields.get("status") == _READY)
        elif code == Code.PROGRESS:
            self._on_progress(fields)
        elif code == Code.FAILED:
            await self._on_failed(fields)
        else:
            log.info("message with an unknown code", worker=self._entry.worker, code=code)

    def _on_status(self, *, is_ready: bool) -> None:
        asked_after = self._questions.popleft() if self._questions else None
        if self._is_too_early():
            return  # Said before it had the job.
        if self._owes and is_ready and asked_after is None:
            self._ask()
            return
        if self._owes and asked_after is not None and asked_after < self._sent:
            return
        self._is_sure = True
        if not is_ready:
            self._readies = 0
            self._session.set_ready(is_ready=False)
            self._entry.standing = Standing.BUSY
            return
        if self._owes and not self._give_back():
            return
        self._entry.standing = Standing.READY
        self._session.set_ready(is_ready=True)

    def _give_back(self) -> bool:
        """Take the job from a worker that reports `ready`, once that is beyond doubt."""
        self._readies += 1
        if self._readies <= self._given_back:
            self._ask()
            return False
        self._given_back += 1
        self._settle()
        self._session.give_back()
        return True

    def _on_progress(self, fields: dict[str, Any]) -> None:
        percent, info = fields.get("percent"), fields.get("info")
        is_number = isinstance(percent, int | float) and not isinstance(percent, bool)
        is_sound = (percent is None or (is_number and 0 <= percent <= 100)) and (
            info is None or isinstance(info, str)
        )
        if not is_sound or (percent is None and info is None):
            log.info("invalid progress", worker=self._entry.worker)
            return
        self._session.progress(None if percent is None else float(percent), info)

    async def _on_failed(self, fields: dict[str, Any]) -> None:
        info, logs = (fields.get(name) for name in ("info", "logs"))
        if self._is_too_early():
            return
        self._settle()
        error = Error(
            "JobFailed",
            info if isinstance(info, str) else "",
            logs if isinstance(logs, str) else "",
        )
        await self._session.fail(error)
        self._ask()

    async def _take_result(self, message: dict[str, Any]) -> None:
        """Take a binary message: the result of the last payload."""
        is_early = self._is_too_early()
        job = None if is_early else self._session.job
        upload = Upload(self._grid.broker.blobs, self._grid.door.settings.upload_bytes_max)
        try:
            await self._take_pieces(message, job, upload)
            if is_early:
                return
            self._settle()
            if job is not None and job is self._session.job:
                await self._session.finish(job, await self._finished(upload))
            else:
                log.info("result without a job discarded", worker=self._entry.worker)
                upload.abort()
        except BaseException:
            upload.abort()
            raise
        self._ask()

    def _is_too_early(self) -> bool:
        """Return whether a job is on its way, so that the worker cannot report on it yet."""
        return self._is_sending or (self._session.job is not None and not self._owes)

    async def _take_pieces(self, message: dict[str, Any], job: Job | None, upload: Upload) -> None:
        while True:
            if job is not None and job is self._session.job:
                await self._feed(upload, message["bytes"])
            if not message.get("more"):
                return
            message = await self._socket.next()
            if message.get("bytes") is None:
                raise Goodbye(1002, "a text frame within a binary message")

    async def _feed(self, upload: Upload, piece: bytes) -> None:
        """Store a piece; the worker waits while there is no room for another upload."""
        while True:
            try:
                await upload.feed(piece)
            except Refused as error:
                if error.refusal.code is not RefusalCode.OVERLOADED:
                    await self._session.give_up(Error("ResultTooLarge", error.refusal.message))
                    raise Goodbye(1009, error.refusal.message) from None
                piece = b""
                await asyncio.sleep(_ROOM_AGAIN_S)
            except StorageFault as fault:
                self._session.give_back()
                raise Goodbye(1011, f"the result cannot be stored: {fault}") from None
            else:
                return

    async def _finished(self, upload: Upload) -> Body:
        try:
            await self._feed(upload, b"")
            return await upload.finish()
        except StorageFault as fault:
            self._session.give_back()
            raise Goodbye(1011, f"the result cannot be stored: {fault}") from None

    def _settle(self) -> None:
        """Note that the worker has no job any more."""
        self._owes = False
        self._readies = 0
        self._entry.standing = Standing.REGISTERED

    # Speaking.

    def _ask(self) -> None:
        self._is_sure = False
        self._outbox.put_nowait(None)

    def _on_job(self, job: Job) -> None:
        if self._owes:
            # Its last job was taken away, and the broker gave it this one before it knew that the
            # worker still has the other, whose result would pass for that of this one.
            self._session.give_back()
            return
        self._outbox.put_nowait(job)

    async def _speak(self) -> None:
        """Send questions and payloads, one after the other."""
        loop = asyncio.get_running_loop()
        while True:
            job = await self._outbox.get()
            if job is not None:
                await self._send_payload(job)
                continue
            self._asked_at = loop.time()
            self._questions.append(self._sent)
            await self._socket.send_text(_STATUS_REQUEST)

    async def _send_payload(self, job: Job) -> None:
        try:
            chunks = await body_chunks(self._grid.broker.blobs, job.payload)
        except StorageFault as fault:
            await self._session.fail(Error("PayloadLost", str(fault)))
            self._ask()
            return
        if job is not self._session.job:
            return  # It was taken away again.
        self._sent += 1
        self._owes = self._is_sending = True
        self._entry.standing = Standing.BUSY
        if self._entry.names_attempts:
            await self._socket.send_text(_attempt_of(job))
        try:
            await self._send_chunks(chunks)
        except StorageFault as fault:
            # Half a payload is on its way, and nothing can take it back.
            await self._session.fail(Error("PayloadLost", str(fault)))
            raise Goodbye(1011, "the payload cannot be read") from None
        self._session.start(job)

    async def _send_chunks(self, chunks: AsyncIterator[bytes]) -> None:
        """Send a payload. Its last chunk waits until all of it has been found to be sound."""
        last = b""
        async for chunk in chunks:
            if last:
                await self._send_fragment(last, more=True)
            last = chunk
        await self._send_fragment(last, more=False)
        # At once: the result can be there before anything else is done.
        self._is_sending = False

    async def _send_fragment(self, chunk: bytes, *, more: bool) -> None:
        await self._socket.send({"type": "websocket.send", "bytes": chunk, "more": more})

    async def _tick(self) -> None:
        """Send the broker a heartbeat, and repeat questions that were not answered."""
        loop = asyncio.get_running_loop()
        again_s = self._grid.settings.ask_every_us / SECOND
        while True:
            await asyncio.sleep(min(again_s, _HEARTBEAT_S))
            self._session.heartbeat()
            is_idle = self._session.job is None and not self._session.is_ready
            if (is_idle or not self._is_sure) and loop.time() - self._asked_at >= again_s:
                self._ask()

    # The wire.

    async def _say_goodbye(self, goodbye: Goodbye) -> None:
        log.info(
            "worker disconnected",
            worker=self._entry.worker or self._entry.id,
            code=goodbye.code,
            reason=str(goodbye),
        )
        with suppress(ClientDisconnected, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                # A close frame has no room for more.
                reason = str(goodbye).encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
                await self._socket.close(goodbye.code, reason)


def _attempt_of(job: Job) -> str:
    """Write which attempt the next payload is."""
    held = job.held
    message = {"code": int(Code.ATTEMPT), "job": id_text(held.task), "attempt": held.fence}
    return msgspec.json.encode(message).decode()


# Workers over HTTP: the list of them, and the socket through which each comes.


# Anonymous as far as HTTP goes: a worker proves who it is when it registers.
@routes.websocket("/api/worker", "")
@routes.websocket("/api/worker/{job_type}", "")
async def work(socket: WebSocket, job_type: str = "") -> None:
    """Take a worker in."""
    grid = grid_of(socket)
    queue = await grid.queue_of(job_type)
    must(EXTENSION in (socket.scope.get("extensions") or {}), "sockets come in pieces")
    await WorkerSocket(grid, socket, queue).run()


@routes.get("/api/worker", "")
@routes.get("/api/worker/{job_type}", "")
async def not_a_socket(request: Request, **_: str) -> Response:
    """Answer a request that is not a WebSocket handshake."""
    message = f"{request.path} is for workers; connect with a WebSocket"
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return answer({"problem": message}, 426, headers)


@routes.get("/api/workers", "read_tasks")
async def list_workers(request: Request) -> Response:
    """List the workers that are connected, or were a moment ago, and what they have done."""
    grid = grid_of(request)
    refusal = acting.get().refuse(Permission.READ_TASKS, grid.namespace)
    if refusal is not None:
        raise Refused(refusal)
    shown = await read_leases(grid.broker, grid.namespace, lambda leases: _shown(grid, leases))
    return answer(shown)


def _shown(grid: Grid, leases: Leases) -> list[WorkerShown]:
    return [
        show(
            entry,
            id_text(entry.job) if entry.job else None,
            counts_of(leases, entry.id) if entry.id else (0, 0),
        )
        for entry in grid.roll.entries()
        if sees(entry.queue)
    ]
