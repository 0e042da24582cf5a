"""Blobs in JetStream: a second replicated stream, a subject for every part of a blob.

Owns the stream of blobs. For clusters: every node reads what the leader has stored, and nothing
but the log's own servers is needed. Not for terabytes: what is stored is stored on every copy.

A blob is parts and, behind them, an end that names its size and digest: without one it is a draft,
or what is left of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.task import BlobRef
from jackalope.storage.faults import Corrupt, DiskFull, OutOfReach
from jackalope.storage.ports import Blobs, Draft
from jackalope.storage.shared.jetstream import FULL, REPLICAS, JetStreamEngine

PART_BYTES = 512 * 1024
_END = "end"
_DIGEST_BYTES = 16


class JetStreamBlobs(Blobs):
    """See `jackalope.storage.ports.Blobs`."""

    drafts_max = 100

    def __init__(self, engine: JetStreamEngine, node: str, replicas: int = REPLICAS) -> None:
        self.stream = f"JK_BLOBS_{engine.cluster}"
        self._root = f"jackalope.{engine.cluster}.blob"
        self._engine = engine
        self._node = node
        self.drafts: set[str] = set()
        engine.make_stream(
            StreamConfig(
                name=self.stream,
                subjects=[f"{self._root}.>"],
                num_replicas=replicas,
                storage=StorageType.FILE,
                discard=DiscardPolicy.NEW,
                allow_direct=False,
            )
        )

    def begin(self) -> JetStreamDraft:
        return JetStreamDraft(self, self._node)

    def begin_copy(self, name: str) -> JetStreamDraft:
        return JetStreamDraft(self, self._node, name)

    def ref(self, name: str) -> BlobRef:
        if (end := self._get(name, _END)) is None:
            raise Corrupt(f"{self.stream}: blob {name} is missing")
        found = json.loads(end)
        return BlobRef(name, found["size"], found["digest"])

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        must(offset >= 0 and (length is None or length >= 0), "not a range", offset, length)
        end = self._get(ref.blob, _END)
        found = {} if end is None else json.loads(end)
        if found.get("size") != ref.size:
            raise Corrupt(f"{self.stream}: blob {ref.blob} of {ref.size} bytes is missing")
        stop = ref.size if length is None else min(ref.size, offset + length)
        return self._parts(ref, offset, stop)

    def _parts(self, ref: BlobRef, offset: int, stop: int) -> Iterator[bytes]:
        is_whole = offset == 0 and stop == ref.size
        digest = blake2b(digest_size=_DIGEST_BYTES)
        while offset < stop:
            number, skip = divmod(offset, PART_BYTES)
            part = self._get(ref.blob, str(number))
            if part is None:
                raise Corrupt(f"{self.stream}: part {number} of blob {ref.blob} is missing")
            piece = part[skip : skip + stop - offset]
            if not piece:
                raise Corrupt(f"{self.stream}: part {number} of blob {ref.blob} is too short")
            digest.update(piece)
            offset += len(piece)
            yield piece
        if is_whole and ref.digest and digest.hexdigest() != ref.digest:
            raise Corrupt(f"{self.stream}: blob {ref.blob} is damaged")

    def delete(self, name: str) -> None:
        self._engine.ask(
            f"STREAM.PURGE.{self.stream}", {"filter": f"{self._root}.{_token(name)}.>"}
        )

    def names(self) -> Iterator[str]:
        return iter(self._with_end())

    def clear(self) -> int:
        """Remove what writes of this node left behind; another's may still be under way."""
        mine = {name for name in self._with_part() if name.endswith(f"-{self._node}")}
        left = mine - self._with_end() - self.drafts
        for name in left:
            self.delete(name)
        return len(left)

    def close(self) -> None:
        """No-op; the connection is the log's."""

    # The stream.

    def put(self, name: str, part: str, body: bytes) -> None:
        """Store a part; durable when this returns."""
        subject = f"{self._root}.{_token(name)}.{part}"
        answer = self._engine.request(subject, body)
        error: dict[str, Any] = answer.get("error") or {}
        if error.get("err_code") in FULL:
            raise DiskFull(f"{self.stream}: no room for a blob: {error.get('description')}")
        if error or "seq" not in answer:
            raise OutOfReach(f"{self.stream}: {error.get('description', 'no answer')}")

    def _get(self, name: str, part: str) -> bytes | None:
        subject = f"{self._root}.{_token(name)}.{part}"
        return self._engine.last_of(self.stream, subject)

    def _with_end(self) -> set[str]:
        return self._subjects(f"{self._root}.*.{_END}")

    def _with_part(self) -> set[str]:
        return self._subjects(f"{self._root}.*.0")

    def _subjects(self, wanted: str) -> set[str]:
        names: set[str] = set()
        while True:
            question = {"subjects_filter": wanted, "offset": len(names)}
            info = self._engine.ask(f"STREAM.INFO.{self.stream}", question) or {}
            found = info.get("state", {}).get("subjects") or {}
            names |= {unquote(subject.split(".")[-2]) for subject in found}
            if len(names) >= info.get("total", 0) or not found:
                return names


def _token(name: str) -> str:
    """Return a name as one token of a subject: that of a node in it may have dots."""
    return quote(name, safe="").replace(".", "%2E")


class JetStreamDraft(Draft):
    """See `jackalope.storage.ports.Draft`."""

    def __init__(self, blobs: JetStreamBlobs, node: str, name: str = "") -> None:
        self.id = uuid4().hex
        self._name = name or f"{self.id}-{node}"
        self._blobs = blobs
        self._rest = bytearray()
        self._parts = 0
        self._size = 0
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._has_ended = False
        blobs.drafts.add(self._name)

    def add(self, chunk: bytes) -> None:
        if self._has_ended:
            raise BrokenInvariant(f"draft {self.id} has ended")
        self._digest.update(chunk)
        self._size += len(chunk)
        self._rest += chunk
        while len(self._rest) >= PART_BYTES:
            self._put(bytes(self._rest[:PART_BYTES]))
            del self._rest[:PART_BYTES]

    def finish(self) -> BlobRef:
        if self._has_ended:
            raise BrokenInvariant(f"draft {self.id} has ended")
        if self._rest:
            self._put(bytes(self._rest))
        ref = BlobRef(self._name, self._size, self._digest.hexdigest())
        self._put(json.dumps({"size": ref.size, "digest": ref.digest}).encode(), _END)
        self._end()
        return ref

    def abort(self) -> None:
        """Leave nothing behind."""
        if not self._has_ended:
            self._end()
            self._blobs.delete(self._name)

    def _put(self, body: bytes, part: str = "") -> None:
        try:
            self._blobs.put(self._name, part or str(self._parts), body)
        except (OutOfReach, DiskFull):
            self._end()
            raise  # What is left is cleared later: the store does not answer now.
        self._parts += 1

    def _end(self) -> None:
        self._has_ended = True
        self._rest.clear()
        self._blobs.drafts.discard(self._name)
