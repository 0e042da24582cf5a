import time
from datetime import UTC, datetime

import pytest

from jackalope.cli.formatting import (
    ago,
    brief,
    clock,
    id_text,
    now_us,
    number,
    parse_id,
    parse_time,
    plural,
    setting,
    size,
    span,
)

S = 1_000_000


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (5, "5 µs"),
        (340_000, "340 ms"),
        (S, "1 s"),
        (2.5 * S, "2.5 s"),
        (59 * S, "59 s"),
        (125 * S, "2 m 05 s"),
        (3_600 * S, "1 h 00 m"),
        (90_000 * S, "1 d 01 h"),
        (2**62, "for ever"),
    ],
)
def test_span(duration_us: float, text: str) -> None:
    assert span(duration_us) == text


def test_ago() -> None:
    assert ago(0) == ""
    assert ago(10 * S, base_us=10 * S) == "now"
    assert ago(10 * S, base_us=15 * S) == "5 s ago"
    assert ago(70 * S, base_us=10 * S) == "in 1 m 00 s"


def test_clock_has_the_date_unless_it_is_today() -> None:
    assert clock(0) == ""
    assert len(clock(now_us())) == len("00:00:00")
    assert clock(S).startswith(("1970-01-01", "1969-12-31"))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


def test_numbers_and_nouns() -> None:
    assert number(1234567) == "1,234,567"
    assert number(2.5) == "2.5"
    assert number(12.5) == "12"
    assert plural(1, "task") == "1 task"
    assert plural(2000, "task") == "2,000 tasks"
    assert setting(value=True) == "true"
    assert brief("a\n  b", 10) == "a b"
    assert brief("abcdef", 4) == "abc…"


def test_ids() -> None:
    task_id = bytes(range(16))
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert id_text(task_id) == text
    assert id_text(b"") == ""
    assert parse_id(text) == parse_id(text.replace("-", "").upper()) == task_id
    for other in ("", "cat", text[:-1], "g" * 32):
        assert parse_id(other) is None


def test_times() -> None:
    assert parse_time("1970-01-01T00:00:01+00:00") == S
    local = datetime.fromtimestamp(0, tz=UTC).astimezone().replace(tzinfo=None)
    assert parse_time(local.isoformat()) == 0
    in_a_minute = datetime.fromtimestamp(time.time() + 90, tz=UTC).astimezone()
    assert 0 < parse_time(in_a_minute.strftime("%H:%M")) - now_us() < 91 * S
    a_minute_ago = datetime.fromtimestamp(time.time() - 60, tz=UTC).astimezone()
    assert parse_time(a_minute_ago.strftime("%H:%M")) > now_us() + 86_000 * S
    with pytest.raises(ValueError, match="is not a time"):
        parse_time("tomorrow")
