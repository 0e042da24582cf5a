"""What is special about blobs in S3: parts, faults of a store elsewhere, owners and links."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import obstore
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from jackalope.core.task import BlobRef
from jackalope.storage import Corrupt, OutOfReach, StorageFault
from jackalope.storage.blobs.s3 import EXPIRES_S, Keys, S3Blobs, S3Place, keys_from, sign
from tests.storage.blobs.s3_server import KEYS, S3Server

MIB = 1024 * 1024
BODY = bytes(range(256)) * 4_096
LINK_S = 600


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def place(server: S3Server) -> S3Place:
    return server.place()


@pytest.fixture
def blobs(place: S3Place) -> S3Blobs:
    return S3Blobs(place, "tests")


def put(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, body, headers, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310
        pass


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        return bytes(answer.read())


# Uploads in parts.


def test_large_blob_goes_up_in_parts(server: S3Server, blobs: S3Blobs) -> None:
    draft = blobs.begin()
    for _ in range(12):
        draft.add(BODY)
    assert server.uploads() == 1
    ref = draft.finish()
    assert server.uploads() == 0
    assert ref.size == 12 * MIB
    assert b"".join(blobs.read(ref)) == BODY * 12
    assert b"".join(blobs.read(ref, 7 * MIB + 3, 5)) == BODY[3:8]


def test_aborted_upload_leaves_no_parts(server: S3Server, blobs: S3Blobs) -> None:
    draft = blobs.begin()
    for _ in range(12):
        draft.add(BODY)
    assert server.uploads() == 1
    draft.abort()
    assert server.uploads() == 0


def test_parts_of_a_broker_that_died_are_cleared(
    server: S3Server, place: S3Place, blobs: S3Blobs
) -> None:
    dying, other = S3Blobs(place, "tests"), S3Blobs(server.place(), "others")
    drafts = [dying.begin(), other.begin(), blobs.begin()]
    for draft in drafts:
        for _ in range(12):
            draft.add(BODY)
    assert blobs.clear() == 1
    assert server.uploads() == 2  # That of the other prefix, and that which is under way here.
    for draft in drafts[1:]:
        draft.abort()
    assert server.uploads() == 0


def test_without_keys_parts_are_left_to_the_bucket(place: S3Place) -> None:
    keyless = S3Place(place.bucket, place.prefix, place.endpoint)
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with patch.dict("os.environ", keys):
        blobs = S3Blobs(keyless, "tests")
        draft = blobs.begin()
        for _ in range(12):
            draft.add(BODY)
        assert S3Blobs(keyless, "tests").clear() == 0
        draft.abort()


@pytest.mark.parametrize("token", ["", "a+token/="])
def test_signature_is_that_of_amazon(token: str) -> None:
    now = datetime.now(UTC)
    address = "https://s3.eu-west-1.amazonaws.com/my-bucket/a%20b/blobs/x"
    query = {"uploadId": "a/b+c=", "uploads": ""}
    keys = Keys("AKID", "secret/+", token)
    ours = sign("DELETE", address, query, "eu-west-1", keys, now=now)
    request = AWSRequest("DELETE", address, params=query)
    credentials = Credentials(keys.id, keys.secret, token or None)
    with patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None)):
        S3SigV4QueryAuth(credentials, "s3", "eu-west-1", expires=EXPIRES_S).add_auth(request)
    assert ours.rpartition("=")[2] == request.url.rpartition("=")[2]


# Damage.


def test_damage_is_found(blobs: S3Blobs) -> None:
    ref = blobs.write([BODY])
    obstore.put(blobs._store, f"blobs/{ref.blob}", BODY[:-1] + b"x")
    with pytest.raises(Corrupt, match="digest") as raised:
        list(blobs.read(ref))
    assert ref.blob in str(raised.value)
    obstore.put(blobs._store, f"blobs/{ref.blob}", BODY[:-1])
    with pytest.raises(Corrupt, match="instead of"):
        blobs.read(ref)


@pytest.mark.parametrize("name", ["", ".", "..", "../owner", "/etc/passwd", "x" * 32, "a\0"])
def test_names_lead_nowhere_else(blobs: S3Blobs, name: str) -> None:
    with pytest.raises(Corrupt, match="not the name"):
        blobs.read(BlobRef(name, 0))
    with pytest.raises(Corrupt, match="not the name"):
        blobs.delete(name)


# Owners.


def test_prefix_of_another_broker_is_refused(place: S3Place, blobs: S3Blobs) -> None:
    ref = blobs.write([BODY])
    another = S3Blobs(place, "another")
    for attempt in (another.begin, another.clear, lambda: list(another.names())):
        with pytest.raises(StorageFault, match="belongs to another broker") as raised:
            attempt()
        assert not isinstance(raised.value, OutOfReach)
    with pytest.raises(StorageFault, match="belongs to another broker"):
        another.delete(ref.blob)
    assert b"".join(S3Blobs(place, "tests").read(ref)) == BODY


def test_a_prefix_is_taken_over_from_one_broker_and_no_other(
    place: S3Place, blobs: S3Blobs
) -> None:
    ref = blobs.write([BODY])
    another = S3Blobs(place, "another")
    assert another.holder() == "tests"
    assert b"".join(another.read(ref)) == BODY
    with pytest.raises(StorageFault, match="belongs to another broker"):
        another.take_over("a third")
    another.take_over("tests")
    another.take_over("tests")
    assert list(another.names()) == [ref.blob]
    with pytest.raises(StorageFault, match="belongs to another broker"):
        S3Blobs(place, "tests").begin()
    assert (
        S3Blobs(S3Place(place.bucket, "new", place.endpoint, keys=place.keys), "x").holder() == ""
    )


# Stores that do not answer.


def test_store_that_goes_away_and_comes_back() -> None:
    server = S3Server()
    try:
        blobs = S3Blobs(server.place(), "tests")
        ref = blobs.write([BODY])
        draft = blobs.begin()
        server.stop()
        begun = time.monotonic()
        for attempt in (
            lambda: blobs.write([BODY]),
            lambda: blobs.write([bytes(12 * MIB)]),
            lambda: blobs.read(ref),
            lambda: blobs.delete(ref.blob),
            lambda: list(blobs.names()),
            blobs.clear,
            draft.finish,
        ):
            with pytest.raises(OutOfReach, match="s3://test/") as raised:
                attempt()
            assert raised.value.is_settled
        assert time.monotonic() - begun < 30
        server = S3Server(server.port)  # It has forgotten everything, as moto does.
        assert b"".join(blobs.read(blobs.write([BODY]))) == BODY
    finally:
        server.stop()


def test_broker_can_prepare_while_the_store_is_down() -> None:
    blobs = S3Blobs(S3Place("test", "x", "http://127.0.0.1:1", keys=KEYS), "tests")
    with pytest.raises(OutOfReach):
        blobs.claim()


def test_missing_bucket_is_named(server: S3Server) -> None:
    blobs = S3Blobs(S3Place("nothing-here", "x", server.url, keys=KEYS), "tests")
    with pytest.raises(OutOfReach, match="bucket does not exist"):
        blobs.begin()


# Keys.


def test_keys_show_nowhere(place: S3Place) -> None:
    assert KEYS.secret not in f"{place} {place!r} {KEYS!r} {S3Blobs(place, 'tests')!r}"


def test_keys_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n")
    assert keys_from(file) == Keys("a", "b%c")
    file.write_text(file.read_text() + "aws_session_token = t\n[other]\nx = y\n")
    assert keys_from(file) == Keys("a", "b%c", "t")


@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "[default]\naws_secret_access_key = hunter2\n"],
    ids=["empty", "no section", "half"],
)
def test_file_without_keys(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    with pytest.raises(StorageFault, match="cannot be read"):
        keys_from(file)
    file.write_text(text)
    with pytest.raises(StorageFault, match=r"\[default\]") as raised:
        keys_from(file)
    assert "hunter2" not in str(raised.value)


# Links.


def test_link_in_and_link_out(blobs: S3Blobs) -> None:
    name, until_s = uuid4().hex, int(time.time()) + LINK_S
    link = blobs.link_in(name, until_s)
    assert blobs.take_in(name, until_s, len(BODY)) is None
    put(link, BODY)
    assert list(blobs.names()) == []
    ref = blobs.take_in(name, until_s, len(BODY))
    assert ref is not None
    assert (ref.blob, ref.size) == (name, len(BODY))
    assert b"".join(blobs.read(ref)) == get(blobs.link_out(ref, LINK_S)) == BODY
    assert b"".join(blobs.read(ref, 1, 2)) == BODY[1:3]


def test_what_was_taken_in_cannot_be_changed_over_the_link(blobs: S3Blobs) -> None:
    name, until_s = uuid4().hex, int(time.time()) + LINK_S
    link = blobs.link_in(name, until_s)
    put(link, BODY)
    ref = blobs.take_in(name, until_s, len(BODY))
    assert ref is not None
    put(link, b"something else")
    assert b"".join(blobs.read(ref)) == BODY


def test_taking_in_is_safe_to_repeat(blobs: S3Blobs) -> None:
    name, until_s = uuid4().hex, int(time.time()) + LINK_S
    put(blobs.link_in(name, until_s), BODY)
    assert blobs.take_in(name, until_s, len(BODY)) == blobs.take_in(name, until_s, len(BODY))


def test_too_large_is_not_taken_in(blobs: S3Blobs) -> None:
    name, until_s = uuid4().hex, int(time.time()) + LINK_S
    put(blobs.link_in(name, until_s), BODY)
    ref = blobs.take_in(name, until_s, len(BODY) - 1)
    assert ref is not None
    assert ref.size > len(BODY) - 1
    assert list(blobs.names()) == []


def test_what_nobody_takes_in_is_cleared(blobs: S3Blobs) -> None:
    blobs.claim()
    old, new = int(time.time()) - 3_700, int(time.time()) + LINK_S
    for until_s in (old, new):
        obstore.put(blobs._store, f"incoming/{until_s}-{uuid4().hex}", BODY)
    assert blobs.clear() == 1
    assert blobs.clear() == 0


def test_link_ends(blobs: S3Blobs) -> None:
    """Only Amazon's own server and its like look at the signature; ours is made for the time."""
    link = blobs.link_in(uuid4().hex, int(time.time()) + LINK_S)
    assert 0 < int(link.partition("X-Amz-Expires=")[2].partition("&")[0]) <= LINK_S
    with pytest.raises(urllib.error.HTTPError):
        get(link)
