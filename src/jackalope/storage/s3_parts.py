"""Parts of uploads that never ended, in S3-compatible storage.

A broker that is killed in the middle of an upload leaves its parts in the bucket, where they are
no object, show in no list, and cost money. obstore cannot find them, so the two requests that can
are made here: one lists such uploads, one aborts one. Knows nothing of blobs but their prefix.

It needs keys to sign with. Where a machine or container gets its credentials in another way, parts
are left to a rule of the bucket (`AbortIncompleteMultipartUpload`), as the documentation says.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from html import unescape
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

_TIMEOUT_S = 30
EXPIRES_S = 300
_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_UPLOAD_ID = re.compile(r"<UploadId>(.*?)</UploadId>", re.DOTALL)


@dataclass(frozen=True)
class Keys:
    """What lets a broker into a store. Never shown.

    Attributes:
        id: which keys these are.
        secret: what signs requests.
        token: what else is asked for when they hold for some hours only.
    """

    id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


class Parts:
    """Finds and removes the parts of uploads that never ended."""

    def __init__(self, bucket: str, prefix: str, region: str, keys: Keys | None) -> None:
        """Prepare to look for parts.

        Args:
            bucket: the address of the bucket.
            prefix: what the keys of such uploads begin with; the rest is the id of a draft.
            region: that of the bucket.
            keys: what lets us in; without them nothing is ever found.
        """
        self._bucket = bucket
        self._prefix = prefix
        self._region = region
        self._keys = keys

    def clear(self, drafts: Container[str]) -> int:
        """Abort every upload below the prefix but those of the drafts, and return how many.

        Raises:
            OSError: the store does not do as asked.
        """
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
    """Return an address with a signature in it: AWS Signature Version 4, in the query."""
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
