"""Blobs in S3-compatible storage, through obstore: needs `jackalope[s3]`.

Owns the objects below one prefix of one bucket::

    <prefix>/owner                        which broker this prefix belongs to
    <prefix>/blobs/<name>                 a blob
    <prefix>/incoming/<until>-<name>      what a client sent over a link, and no task names yet

An object appears when its upload is complete, so one with a name is whole. Its bytes are checked
against the digest of the reference. Large ones are uploaded in parts; parts that a crash left
behind are no objects yet, and removed by `Parts`.

The prefix is claimed before anything is written, listed or removed in it: two brokers on one prefix
would sweep away each other's blobs. A store that does not answer is a fault of the call, never of
the broker: it starts, and works on whatever needs no blob.
"""

from __future__ import annotations

import configparser
import hmac
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, sha256
from html import unescape
from pathlib import Path
from time import time
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from jackalope.core.assertions import BrokenInvariant, must
from jackalope.core.task import BlobRef
from jackalope.storage.faults import Corrupt, OutOfReach, StorageFault
from jackalope.storage.ports import BLOB_NAME, Blobs, Draft, Links

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import S3Config


# Parts of uploads that never ended, in S3-compatible storage.

_TIMEOUT_S = 30
EXPIRES_S = 300
_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_UPLOAD_ID = re.compile(r"<UploadId>(.*?)</UploadId>", re.DOTALL)


@dataclass(frozen=True)
class Keys:
    """The credentials of a store. Never shown."""

    id: str  # which keys these are
    secret: str = field(repr=False)  # what signs requests
    # what else is asked for when they hold for some hours only
    token: str = field(default="", repr=False)


class Parts:
    """Finds and removes the parts of incomplete uploads."""

    def __init__(self, bucket: str, prefix: str, region: str, keys: Keys | None) -> None:
        """Prepare to list uploads whose keys begin with `prefix`, followed by the id of a draft.

        Without `keys` nothing is ever found.
        """
        self._bucket = bucket
        self._prefix = prefix
        self._region = region
        self._keys = keys

    def clear(self, drafts: Container[str]) -> int:
        """Abort every upload below the prefix except those of the drafts, and return how many."""
        if self._keys is None:
            return 0
        query = {"uploads": "", "prefix": self._prefix}
        listing = self._ask("GET", self._bucket, query, self._keys)
        aborted = 0
        for upload in _UPLOAD.findall(listing):
            key, upload_id = _KEY.search(upload), _UPLOAD_ID.search(upload)
            if not key or not upload_id:
                continue
            name = unescape(key[1])
            if name.startswith(self._prefix) and name.removeprefix(self._prefix) not in drafts:
                address = f"{self._bucket}/{quote(name)}"
                self._ask("DELETE", address, {"uploadId": unescape(upload_id[1])}, self._keys)
                aborted += 1
        return aborted

    def _ask(self, method: str, address: str, query: dict[str, str], keys: Keys) -> str:
        signed = sign(method, address, query, self._region, keys, now=datetime.now(UTC))
        # The address is that of the configuration.
        with urlopen(Request(signed, method=method), timeout=_TIMEOUT_S) as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text


def sign(
    method: str, address: str, query: dict[str, str], region: str, keys: Keys, *, now: datetime
) -> str:
    """Return a presigned URL: AWS Signature Version 4, in the query."""
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{region}/s3/aws4_request"
    query = query | {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.id}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(EXPIRES_S),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.token:
        query["X-Amz-Security-Token"] = keys.token
    text = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
    parts = urlsplit(address)
    canonical = "\n".join(
        [method, parts.path, text, f"host:{parts.netloc}", "", "host", "UNSIGNED-PAYLOAD"]
    )
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, sha256(canonical.encode()).hexdigest()])
    secret = f"AWS4{keys.secret}".encode()
    for step in (day, region, "s3", "aws4_request"):
        secret = hmac.digest(secret, step.encode(), "sha256")
    signature = hmac.digest(secret, to_sign.encode(), "sha256").hex()
    return f"{address}?{text}&X-Amz-Signature={signature}"


CHUNK_BYTES = 256 * 1024

#: How much is uploaded at a time, the least that S3 takes, and how many at once: each upload needs
#: so much memory.
_PART_BYTES = 5 * 1024 * 1024
_PARTS_AT_ONCE = 2

LINK_LIFE_S = 15 * 60

#: How long an object that came over a link stays after the link has ended.
_UNCLAIMED_S = 3_600

_REQUEST_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_RETRY_TIMEOUT = timedelta(seconds=10)
_RETRIES_MAX = 3

_NAME = re.compile(r"[0-9a-f]{32}")
_INCOMING = re.compile(r"(\d{10,12})-[0-9a-f]{32}")
_ETAG = "etag:"


@dataclass(frozen=True)
class S3Place:
    """The location of a broker's blobs in S3-compatible storage."""

    bucket: str  # its bucket, which must be there
    prefix: str  # what all its keys begin with
    endpoint: str = ""  # the address of the server; empty for that of Amazon
    region: str = "us-east-1"  # its region
    # what lets it in; None for what the machine or container provides
    keys: Keys | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def settings(self) -> S3Config:
        settings: S3Config = {"disable_bulk_delete": True, "region": self.region}
        if self.endpoint:
            settings["endpoint"] = self.endpoint
            settings["virtual_hosted_style_request"] = False
        if self.keys is not None:
            settings["access_key_id"] = self.keys.id
            settings["secret_access_key"] = self.keys.secret
            if self.keys.token:
                settings["session_token"] = self.keys.token
        return settings


class S3Blobs(Blobs, Links):
    """See `jackalope.storage.ports.Blobs` and `Links`."""

    drafts_max = 32

    def __init__(self, place: S3Place, owner: str, link_life_s: int = LINK_LIFE_S) -> None:
        """Prepare to use a place, without contacting it.

        `owner` identifies this broker across restarts.
        """
        self._place = place
        self._owner = owner
        self._is_claimed = False
        with naming_store_faults(place):
            self._store = S3Store(
                place.bucket,
                prefix=place.prefix,
                config=place.settings(),
                client_options={
                    "allow_http": place.endpoint.startswith("http://"),
                    "timeout": _REQUEST_TIMEOUT,
                    "connect_timeout": _CONNECT_TIMEOUT,
                },
                retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": _RETRY_TIMEOUT},
            )
        self.links = self
        self.link_life_s = link_life_s
        self._drafts: set[str] = set()
        endpoint = place.endpoint or f"https://s3.{place.region}.amazonaws.com"
        bucket = f"{endpoint.rstrip('/')}/{place.bucket}"
        self._parts = Parts(bucket, f"{place.prefix}/blobs/", place.region, place.keys)

    def claim(self) -> None:
        """Ensure that the prefix belongs to this broker; raises `OutOfReach` or `StorageFault`."""
        if self._is_claimed:
            return
        with naming_store_faults(self._place):
            try:
                obstore.put(self._store, "owner", self._owner.encode(), mode="create")
            except AlreadyExistsError:
                holder = bytes(obstore.get(self._store, "owner").bytes()).decode(errors="replace")
                if holder != self._owner:
                    raise StorageFault(
                        f"{self._place}: belongs to another broker ({holder[:64]}). Give this one "
                        "a prefix of its own; or, if the data folder of that one is gone for good, "
                        f"write {self._owner} into the object `owner`"
                    ) from None
        self._is_claimed = True

    def holder(self) -> str:
        """Return which broker the prefix belongs to; nothing if it is new. Raises `OutOfReach`."""
        try:
            return bytes(obstore.get(self._store, "owner").bytes()).decode(errors="replace")
        except FileNotFoundError:
            return ""
        except (BaseError, OSError) as error:
            raise OutOfReach(f"{self._place}: request failed ({_first_line(error)})") from None

    def take_over(self, holder: str) -> None:
        """Make the prefix this broker's, if it is that of another one or its own already."""
        if self.holder() == holder:
            with naming_store_faults(self._place):
                obstore.put(self._store, "owner", self._owner.encode())
        self.claim()

    def begin(self) -> S3Draft:
        self.claim()
        return S3Draft(self._store, self._place, self._drafts)

    def begin_copy(self, name: str) -> S3Draft:
        self.claim()
        self._key(name)
        return S3Draft(self._store, self._place, self._drafts, name)

    def ref(self, name: str) -> BlobRef:
        with naming_store_faults(self._place):
            try:
                return BlobRef(name, obstore.head(self._store, self._key(name))["size"])
            except FileNotFoundError:
                raise self._damaged(BlobRef(name, 0), "is missing") from None

    def read(self, ref: BlobRef, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        must(offset >= 0 and (length is None or length >= 0), "not a range", offset, length)
        key = self._key(ref.blob)
        end = ref.size if length is None else min(ref.size, offset + length)
        with naming_store_faults(self._place):
            try:
                chunks: Iterator[bytes] = iter(())
                if offset >= end:
                    found = obstore.head(self._store, key)
                else:
                    got = obstore.get(self._store, key, options={"range": (offset, end)})
                    found, chunks = got.meta, got.stream(CHUNK_BYTES)
            except FileNotFoundError:
                raise self._damaged(ref, "is missing") from None
        if found["size"] != ref.size:
            raise self._damaged(ref, f"has {found['size']} bytes instead of {ref.size}")
        is_whole = offset == 0 and end == ref.size
        if ref.digest.startswith(_ETAG):
            if f"{_ETAG}{found['e_tag']}" != ref.digest:
                raise self._damaged(ref, "is not what was stored")
            is_whole = False  # The store itself vouches for what it has not changed.
        return self._read(ref, chunks, end - offset, is_whole=is_whole)

    def delete(self, name: str) -> None:
        key = self._key(name)
        self.claim()
        with naming_store_faults(self._place):
            obstore.delete(self._store, key)

    def names(self) -> Iterator[str]:
        self.claim()
        for key in self._keys("blobs"):
            if BLOB_NAME.fullmatch(key):
                yield key

    def clear(self) -> int:
        """Remove parts of crashed uploads, and unclaimed uploads over links."""
        self.claim()
        removed = 0
        for key in list(self._keys("incoming")):
            until = _INCOMING.fullmatch(key)
            if until and int(until[1]) + _UNCLAIMED_S < time():
                with naming_store_faults(self._place):
                    obstore.delete(self._store, f"incoming/{key}")
                removed += 1
        with naming_store_faults(self._place):
            return removed + self._parts.clear(self._drafts)

    # Links.

    def link_in(self, name: str, until_s: int) -> str:
        self.claim()
        with naming_store_faults(self._place):
            return obstore.sign(
                self._store, "PUT", _incoming(name, until_s), timedelta(seconds=until_s - time())
            )

    def take_in(self, name: str, until_s: int, bytes_max: int) -> BlobRef | None:
        """Make a blob of what was sent to a link; None if nothing was.

        It gets another key, so that the link, which still works, cannot change it any more.
        """
        self.claim()
        incoming, key = _incoming(name, until_s), self._key(name)
        with naming_store_faults(self._place):
            try:
                if obstore.head(self._store, incoming)["size"] > bytes_max:
                    return BlobRef(name, bytes_max + 1)
                obstore.copy(self._store, incoming, key)
            except FileNotFoundError:
                pass  # It may have been taken in before, by the same request.
            try:
                found = obstore.head(self._store, key)
            except FileNotFoundError:
                return None
            obstore.delete(self._store, incoming)
        return BlobRef(name, found["size"], f"{_ETAG}{found['e_tag']}")

    def link_out(self, ref: BlobRef, for_s: int) -> str:
        with naming_store_faults(self._place):
            key = self._key(ref.blob)
            return obstore.sign(self._store, "GET", key, timedelta(seconds=for_s))

    def close(self) -> None:
        """No-op: connections end by themselves."""

    def _key(self, name: str) -> str:
        # A name comes from a record, and a record from a client: it must not lead elsewhere.
        if not BLOB_NAME.fullmatch(name):
            raise Corrupt(f"{name!r} is not the name of a blob in {self._place}")
        return f"blobs/{name}"

    def _keys(self, folder: str) -> Iterator[str]:
        with naming_store_faults(self._place):
            for batch in obstore.list(self._store, f"{folder}/"):
                for found in batch:
                    yield found["path"].removeprefix(f"{folder}/")

    def _read(
        self, ref: BlobRef, chunks: Iterator[bytes], left: int, *, is_whole: bool
    ) -> Iterator[bytes]:
        digest = blake2b(digest_size=16)
        while left > 0:
            with naming_store_faults(self._place):
                chunk = bytes(next(chunks, b""))
            if not chunk:
                raise OutOfReach(f"{self._place}: blob {ref.blob} download interrupted; try again")
            left -= len(chunk)
            digest.update(chunk)
            yield chunk
        if is_whole and ref.digest and digest.hexdigest() != ref.digest:
            raise self._damaged(ref, "does not match its digest")

    def _damaged(self, ref: BlobRef, what: str) -> Corrupt:
        return Corrupt(
            f"{self._place}: blob {ref.blob} {what}. Restore the object `blobs/{ref.blob}` from a "
            "backup"
        )


class S3Draft(Draft):
    """See `jackalope.storage.ports.Draft`."""

    def __init__(self, store: S3Store, place: S3Place, drafts: set[str], name: str = "") -> None:
        self.id = name or uuid4().hex
        self._store = store
        self._place = place
        self._drafts = drafts
        self._size = 0
        self._digest = blake2b(digest_size=16)
        drafts.add(self.id)
        # Nothing is sent before there is enough for a part.
        self._writer: WritableFile | None = obstore.open_writer(
            store, f"blobs/{self.id}", buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )

    def add(self, chunk: bytes) -> None:
        writer = self._open()
        try:
            with naming_store_faults(self._place):
                writer.write(chunk)
        except BaseException:
            self.abort()
            raise
        self._size += len(chunk)
        self._digest.update(chunk)

    def finish(self) -> BlobRef:
        writer = self._open()
        try:
            with naming_store_faults(self._place):
                writer.close()
        except BaseException:
            self._end()  # What is there of it is swept: it never gets an owner.
            raise
        self._end()
        return BlobRef(self.id, self._size, self._digest.hexdigest())

    def abort(self) -> None:
        """Abort the upload; parts that cannot be removed now are cleared later."""
        writer = self._writer
        if writer is None:
            return
        try:
            # The only way to abort an upload, rather than to complete it.
            writer.__exit__(StorageFault, StorageFault("aborted"), None)
        except (BaseError, OSError):
            pass
        finally:
            self._end()

    def _open(self) -> WritableFile:
        if self._writer is None:
            raise BrokenInvariant(f"draft {self.id} has ended")
        return self._writer

    def _end(self) -> None:
        self._writer = None
        self._drafts.discard(self.id)


@contextmanager
def naming_store_faults(place: S3Place) -> Iterator[None]:
    """Convert errors of a store into faults that name it."""
    try:
        yield
    except FileNotFoundError as error:
        raise OutOfReach(
            f"{place}: the bucket does not exist ({_first_line(error)}). Create it, or correct "
            "`blobs.bucket`"
        ) from None
    except (BaseError, OSError) as error:
        raise OutOfReach(
            f"{place}: request failed ({_first_line(error)}). Check the address and the "
            "credentials; large payloads and results are refused until it succeeds"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


def _incoming(name: str, until_s: int) -> str:
    must(_NAME.fullmatch(name), "not a name", name)
    return f"incoming/{until_s}-{name}"


def keys_from(file: Path) -> Keys:
    """Return the keys of the default profile of an AWS credentials file."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(file.read_text())
        found = parser["default"]
        return Keys(
            found["aws_access_key_id"],
            found["aws_secret_access_key"],
            found.get("aws_session_token", ""),
        )
    except OSError as error:
        raise StorageFault(f"{file}: cannot be read ({error.strerror})") from None
    except (configparser.Error, KeyError, ValueError):
        # What is in the file must not get into a message.
        raise StorageFault(
            f"{file}: needs a section [default] with aws_access_key_id and aws_secret_access_key"
        ) from None
