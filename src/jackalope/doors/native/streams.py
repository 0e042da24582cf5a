"""Streams: bodies that fit into no frame, sent and fetched in parts.

Owns the uploads of one connection, from the first part until a request names what was uploaded, and
the reading of parts. An upload that no request names ends with its connection, and its blob is
removed; a blob belongs to one task, so that a request uses an upload up. Parts of an upload are
written one after the other, and the peer is not read from meanwhile: that is the flow control. A
peer that fetches asks for each part.

Rights, in one place: sending parts needs `submit_tasks` or `work`; reading needs `read_tasks` and a
task that the peer may see, or the lease on it.
"""

from __future__ import annotations

import msgspec

from jackalope.broker.access import Principal
from jackalope.broker.blobs import HeldDraft
from jackalope.broker.queries import About, Refused, leased_payload, task_and_bodies
from jackalope.broker.service import Broker
from jackalope.core.api_key import Permission
from jackalope.core.commands import AnyCommand, FinishAttempts, Held, SubmitTasks
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.refusals import Code, Refusal
from jackalope.core.task import BlobRef, Body, size_of
from jackalope.doors.native.commands import submitted_in
from jackalope.wire.frames import UPLOAD_BYTES_MAX
from jackalope.wire.messages import Fetch, Part, Upload

#: How many uploads of a connection may be open, and how many whole ones may wait for a request.
UPLOADS_PER_CONNECTION_MAX = 16

#: How many parts of a connection are read at once.
FETCHES_AT_ONCE_MAX = 8

_MAY_UPLOAD = (Permission.SUBMIT_TASKS, Permission.WORK)


class Streams:
    """The uploads and downloads of one connection."""

    def __init__(self, broker: Broker, part_bytes_max: int) -> None:
        self._broker = broker
        self._part_bytes_max = part_bytes_max
        self._open: dict[int, tuple[HeldDraft, int]] = {}
        self._whole: dict[str, BlobRef] = {}
        self.fetches = 0

    def end(self) -> None:
        """Remove every upload that no request has used."""
        for draft, _ in self._open.values():
            self._broker.blobs.abandon(draft)
        self._open.clear()
        for ref in self._whole.values():
            self._broker.blobs.let_go(ref)
            self._broker.blobs.delete(ref.blob)
        self._whole.clear()

    # In.

    async def add(self, message: Upload, who: Principal) -> BlobRef | int:
        """Write a part of an upload; return its name with the last part, else the bytes so far.

        Raises `Refused` or `StorageFault`, which both end the upload.
        """
        draft, size = self._open.pop(message.upload, (None, 0))
        try:
            self._check(message, who, size + len(message.data), is_new=draft is None)
            blobs = self._broker.blobs
            if draft is None:
                draft = await blobs.begin_off_loop()
            if message.data:
                writing = draft
                await blobs.off_loop(lambda: writing.add(message.data))
        except BaseException:
            if draft is not None:
                self._broker.blobs.abandon(draft)
            raise
        if not message.last:
            self._open[message.upload] = (draft, size + len(message.data))
            return size + len(message.data)
        ref = await blobs.finish_off_loop(draft)
        self._whole[ref.blob] = ref
        blobs.hold(ref)
        return ref

    def abort(self, upload: int) -> None:
        """Abort an upload, if it is open."""
        draft, _ = self._open.pop(upload, (None, 0))
        if draft is not None:
            self._broker.blobs.abandon(draft)

    def unknown(self, bodies: list[Body]) -> Refusal | None:
        """Refuse bodies that do not name an upload of this connection."""
        named = [body.blob for body in bodies if isinstance(body, BlobRef)]
        if all(name in self._whole for name in named) and len(set(named)) == len(named):
            return None
        message = "unknown upload, or it was already used; upload the body again"
        return Refusal(Code.UNKNOWN_BLOB, message)

    def claim(self, commands: list[AnyCommand]) -> None:
        """Put uploads into the commands that name them, which own them from now on."""
        for command in commands:
            if isinstance(command, SubmitTasks | SubmitFlow | AddNodes):
                for spec in submitted_in(command):
                    spec.payload = self._claimed(spec.payload)
            elif type(command) is FinishAttempts:
                command.attempts = [
                    msgspec.structs.replace(finish, result=self._claimed(finish.result))
                    for finish in command.attempts
                ]

    def _claimed(self, body: Body) -> Body:
        if not isinstance(body, BlobRef):
            return body
        ref = self._whole.pop(body.blob)
        self._broker.blobs.let_go(ref)
        return ref

    def _check(self, message: Upload, who: Principal, size: int, *, is_new: bool) -> None:
        refusal = who.refuse_any(_MAY_UPLOAD)
        if refusal is None and len(message.data) > self._part_bytes_max:
            text = f"a part of {len(message.data)} bytes; at most {self._part_bytes_max}"
            refusal = Refusal(Code.TOO_LARGE, text)
        if refusal is None and size > UPLOAD_BYTES_MAX:
            refusal = Refusal(Code.TOO_LARGE, f"an upload has at most {UPLOAD_BYTES_MAX} bytes")
        if refusal is None and is_new:
            if max(len(self._open), len(self._whole)) >= UPLOADS_PER_CONNECTION_MAX:
                text = f"{UPLOADS_PER_CONNECTION_MAX} uploads are open or not yet used, the maximum"
                refusal = Refusal(Code.TOO_MANY, text)
            else:
                refusal = self._broker.admit(1) or self._broker.blobs.admit()
        if refusal is not None:
            raise Refused(refusal)

    # Out.

    async def read(self, message: Fetch, session: int, namespace: str) -> Part:
        """Read a part of a body; raises `Refused` if the peer may not see it."""
        if message.fence:
            lease = Held(message.task, message.fence)
            held = await leased_payload(self._broker, session, lease, message.node)
        else:
            about = About(id=message.task)
            _, bodies = await task_and_bodies(self._broker, namespace, about)
            held = bodies[not message.payload]
        size, offset = size_of(held), message.offset
        length = min(message.length or self._part_bytes_max, self._part_bytes_max)
        if not 0 <= offset <= size or length < 0:
            raise Refused(Refusal(Code.INVALID, f"offset {offset} of {size} bytes"))
        if not isinstance(held, BlobRef):
            return Part(size, "", held[offset : offset + length])
        ref, blobs = held, self._broker.blobs
        data = await blobs.off_loop(lambda: b"".join(blobs.read(ref, offset, length)))
        return Part(size, ref.digest, data)
