"""Visits of a cluster: cookies that every node reads, none can make up, and one sign-out ends."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from jackalope.broker.access import WITHDRAWN_MAX, Access, Principal, Withdrawn
from jackalope.core.api_key import ApiKey, Permission
from jackalope.doors.http.visits import VISIT_US_MAX, SignedVisits

SECRET = b"of the cluster"
KEY = ApiKey("aa", "1" * 64, "ada", (Permission.READ_TASKS,))
NOW_US = 1_000_000


def node(*keys: ApiKey, secret: bytes = SECRET) -> SignedVisits:
    return SignedVisits(Access(keys or [KEY]), secret)


def signed_in(at: SignedVisits) -> str:
    return at.open(Principal(KEY), NOW_US)[0]


def cookie(at: SignedVisits, value: str) -> dict[bytes, bytes]:
    return {b"cookie": f"other=1; {at.cookie}={value}".encode()}


def is_in(at: SignedVisits, value: str, now_us: int = NOW_US) -> bool:
    return at.find(cookie(at, value), now_us) is not None


def test_every_node_knows_the_visit_whatever_its_port() -> None:
    one, other = node(), node()
    one.port, other.port = 1, 2
    assert one.cookie == other.cookie
    value = signed_in(one)
    visit = other.find(cookie(other, value), NOW_US)
    assert visit is not None
    assert visit.principal.key == KEY
    assert visit.expires_us == NOW_US + VISIT_US_MAX
    assert signed_in(one) != value


def test_a_visit_ends() -> None:
    value = signed_in(node())
    assert is_in(node(), value, NOW_US + VISIT_US_MAX - 1)
    assert not is_in(node(), value, NOW_US + VISIT_US_MAX)


@pytest.mark.parametrize(
    "keys",
    [
        [ApiKey("bb", "1" * 64, "ada", (Permission.ADMIN,))],
        [ApiKey("aa", "2" * 64, "ada", (Permission.ADMIN,))],
        [ApiKey("aa", "1" * 64, "ada", (Permission.READ_TASKS,), expires_us=NOW_US)],
    ],
    ids=["revoked", "another with its id", "expired"],
)
def test_a_visit_ends_with_its_key(keys: list[ApiKey]) -> None:
    assert not is_in(node(*keys), signed_in(node()))


def test_no_other_secret_makes_a_cookie() -> None:
    stranger = node(secret=b"of another cluster")
    value = signed_in(stranger)
    assert is_in(stranger, value)
    assert not is_in(node(), value)
    assert stranger.cookie != node().cookie


def test_no_changed_cookie_is_a_visit() -> None:
    value = signed_in(node())
    signed = urlsafe_b64decode(value)
    for place in range(len(signed)):
        changed = bytearray(signed)
        changed[place] ^= 1
        assert not is_in(node(), urlsafe_b64encode(changed).decode())
    odd = ["", "x", "====", "a" * 5_000, value[:-4], f"{value}AAAA", value.swapcase(), "\xff"]
    for each in odd:
        assert not is_in(node(), each), each


def test_who_signs_out_is_out_on_every_node_that_was_told() -> None:
    one, other = node(), node()
    value, kept = signed_in(one), signed_in(one)
    one.close(cookie(one, value), NOW_US)
    assert not is_in(one, value)
    assert is_in(other, value)
    other._access.withdrawn.take(one._access.withdrawn.told(), NOW_US)
    assert not is_in(other, value)
    assert is_in(other, kept)
    # Written otherwise it would be another cookie, and is none.
    for same in (f"{value}=", f"{value}==", value[:10] + "!" + value[10:]):
        assert not is_in(one, same)


def test_signing_out_with_what_is_no_visit_is_not_remembered() -> None:
    one = node()
    for value in ("", "x", signed_in(node(secret=b"of another cluster"))):
        one.close(cookie(one, value), NOW_US)
    assert one._access.withdrawn.told() == ()


def test_what_was_withdrawn_is_bounded_and_forgotten_in_time() -> None:
    withdrawn = Withdrawn()
    for number in range(WITHDRAWN_MAX + 5):
        withdrawn.add(b"%d" % number, 10 + number, 0)
    assert len(withdrawn.told()) == WITHDRAWN_MAX
    assert b"4" not in withdrawn
    assert b"5" in withdrawn
    withdrawn.add(b"later", 5_000, 2_000)
    assert [digest for digest, _ in withdrawn.told()] == [b"later"]
    withdrawn.take([(b"over", 2_000)], 2_000)
    assert b"over" not in withdrawn
