"""Blobs over gRPC: bodies in chunks, in and out.

Owns the uploads that no task names yet. One lives for a minute and is used once, by the key that
sent it. A download is read as its client takes it.
"""

from __future__ import annotations

import asyncio
import secrets

from jackalope.broker.access import Principal
from jackalope.broker.body_streams import Upload, read_chunks
from jackalope.broker.queries import About, Refused, leased_payload, task_and_bodies
from jackalope.broker.service import Broker
from jackalope.core.api_key import Permission
from jackalope.core.commands import Held
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, size_of
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import fence_of, id_of

#: How long an upload waits for what names it: less than the store holds it for.
UPLOAD_LIFE_S = 60.0

#: How many uploads may wait. Small ones are kept in memory.
UPLOADS_WAITING_MAX = 1_000

_MAY_UPLOAD = (Permission.SUBMIT_TASKS, Permission.WORK)


class Uploads:
    """The uploads of a door."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[str, tuple[Body, Principal]] = {}

    def admit(self) -> None:
        if len(self._waiting) >= UPLOADS_WAITING_MAX:
            message = f"{UPLOADS_WAITING_MAX} uploads wait to be used; try again later"
            raise Refused(Refusal(Code.OVERLOADED, message, 1_000_000))

    def add(self, body: Body, who: Principal) -> str:
        """Keep an upload for a while, and return its name."""
        name = secrets.token_urlsafe(16)
        self._waiting[name] = (body, who)
        asyncio.get_running_loop().call_later(UPLOAD_LIFE_S, self._drop, name)
        return name

    def claim(self, name: str, who: Principal) -> Body:
        """Return an upload to the task that names it, which owns it from now on."""
        body, owner = self._waiting.get(name, (b"", None))
        if owner is None or owner.key != who.key:
            message = "unknown upload, or it was already used or has expired; upload it again"
            raise Refused(Refusal(Code.UNKNOWN_BLOB, message))
        del self._waiting[name]
        return body

    def _drop(self, name: str) -> None:
        body, _ = self._waiting.pop(name, (b"", None))
        if isinstance(body, BlobRef):
            self._broker.blobs.doubt(body)


class BlobService:
    """Bodies of any size."""

    async def upload_blob(self, call: Call) -> pb.UploadBlobResponse:
        refusal = call.principal.refuse_any(_MAY_UPLOAD, call.namespace) or call.broker.admit(1)
        if refusal is not None:
            raise Refused(refusal)
        call.door.uploads.admit()
        upload = Upload(call.broker.blobs, call.door.settings.upload_bytes_max)
        try:
            while (request := await call.read()) is not None:
                await upload.feed(request.data)
            body = await upload.finish()
        except BaseException:
            upload.abort()
            raise
        name = call.door.uploads.add(body, call.principal)
        return pb.UploadBlobResponse(upload=name, size=size_of(body))

    async def download_blob(self, call: Call, request: pb.DownloadBlobRequest) -> None:
        body = await _body_of(call, request)
        size, begin = size_of(body), request.offset
        if begin > size:
            raise BadField("offset", f"{begin} is behind the {size} bytes of the body")
        end = min(size, begin + request.length) if request.length else size
        chunks = await read_chunks(call.broker.blobs, body, begin, end)
        first = size
        async for chunk in chunks:
            await call.send(pb.DownloadBlobResponse(size=first, data=chunk))
            first = 0
        if first or not size:
            await call.send(pb.DownloadBlobResponse(size=size))


async def _body_of(call: Call, request: pb.DownloadBlobRequest) -> Body:
    """Find a body: of a task that the caller may see, or of the attempt of its worker."""
    task_id = id_of(request.task_id, "task_id")
    if request.session:
        worker = call.door.workers.get(request.session)
        if worker is None:
            message = "unknown session, or its stream is closed"
            raise Refused(Refusal(Code.UNKNOWN_SESSION, message))
        worker.heartbeat()
        lease = Held(task_id, fence_of(request.fence, "fence"))
        return await leased_payload(call.broker, worker.session, lease, request.node)
    if request.kind not in (0, pb.BODY_KIND_RESULT, pb.BODY_KIND_PAYLOAD):
        raise BadField("kind", f"unknown value {request.kind}")
    _, bodies = await task_and_bodies(call.broker, call.namespace, About(id=task_id))
    return bodies[request.kind != pb.BODY_KIND_PAYLOAD]
