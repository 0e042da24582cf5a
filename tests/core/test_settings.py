"""Settings: read as people write them, changed with all problems listed, shown as written."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from jackalope.core.durations import HOUR, MINUTE, NEVER, SECOND
from jackalope.core.policy import Policy
from jackalope.core.settings import (
    Bounds,
    Duration,
    change,
    find_field,
    given,
    keys_of,
    read,
    read_all,
    shown,
    taken,
)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Lamp(msgspec.Struct, frozen=True):
    name: Annotated[str, Bounds(1, 8)]
    watts: Annotated[int, Bounds(1, 100)] = 10
    dim: Annotated[float, Meta(gt=0)] = 1.0
    on_for_us: Duration = MINUTE
    kept_us: Annotated[int, Bounds(0, NEVER)] = HOUR
    colour: Annotated[Colour, Bounds(words=(Colour.RED, Colour.GREEN))] = Colour.RED
    rooms: tuple[str, ...] = ()
    token: Annotated[str, Meta(min_length=9, extra={"secret": True})] = "x" * 9
    socket: Annotated[str, Meta(pattern="^[A-Z]$")] = "E"


LAMP = Lamp("hall")


def read_one(key: str, value: Any, *, is_text: bool = False) -> Any:
    return read(find_field(Lamp, key, "a lamp"), value, is_text=is_text)


def test_keys_of_durations_have_no_unit() -> None:
    assert [field.name for field in keys_of(Lamp).values()] == list(Lamp.__struct_fields__)
    assert keys_of(Lamp)["on_for"].name == "on_for_us"
    assert "on_for_us" not in keys_of(Lamp)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("watts", "60", 60),
        ("on_for", "1m30s", 90 * SECOND),
        ("on_for", "2", 2 * SECOND),
        ("kept", "forever", NEVER),
        ("colour", "green", Colour.GREEN),
        ("rooms", "hall, cellar,", ("hall", "cellar")),
    ],
)
def test_text_is_read_as_the_field_holds_it(key: str, value: str, expected: object) -> None:
    assert read_one(key, value, is_text=True) == expected


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("wats", 5, "unknown key; did you mean watts?"),
        ("weight", 5, "unknown key; a lamp has name, watts"),
        ("watts", 0, "must be 1 to 100, got 0"),
        ("watts", "60", "must be a whole number, got '60'"),
        ("watts", True, "must be a whole number, got True"),
        ("dim", 0, "must be more than 0, got 0"),
        ("on_for", "soon", "'soon' is not a duration; write"),
        ("on_for", "forever", "must be 0s to "),
        ("colour", "blue", "must be red or green, got 'blue'"),
        ("colour", "grean", "must be red or green, got 'grean'; did you mean green?"),
        ("name", "", "must not be empty"),
        ("name", "x" * 9, "must have 1 to 8 characters, got 9"),
        ("socket", "ee", "must match ^[A-Z]$, got 'ee'"),
        ("rooms", 5, "must be a list of strings, got 5"),
        ("token", "s3cret", "must be a string"),
    ],
)
def test_a_problem_says_what_would_fit(key: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is compared below
        read_one(key, value)
    assert str(caught.value).startswith(problem)
    assert "s3cret" not in str(caught.value)


def test_a_number_in_a_text_is_told_its_bounds() -> None:
    with pytest.raises(ValueError, match="must be 1 to 100, got 500"):
        read_one("watts", "500", is_text=True)
    with pytest.raises(ValueError, match="must be a whole number, got 'many'"):
        read_one("watts", "many", is_text=True)


def test_a_struct_is_read_whole_or_all_its_problems_are_listed() -> None:
    assert read_all(Lamp, {"name": "hall", "on_for": 60}) == LAMP
    with pytest.raises(ValueError, match=r"^a.watts: must be 1 to 100, got 0; a.x: unknown"):
        read_all(Lamp, {"watts": 0, "x": 1}, "a.")
    with pytest.raises(ValueError, match=r"^name: required$"):
        read_all(Lamp, {})


def test_changes_are_made_whole_or_all_their_problems_are_listed() -> None:
    changed = msgspec.structs.replace(LAMP, watts=5, colour=Colour.GREEN)
    assert change(LAMP, {"watts": 5, "colour": "green"}, "a lamp") == changed
    assert change(LAMP, {}, "a lamp") == LAMP
    assert change(LAMP, {"watts": 0, "on_for_us": -1, "on_for": 1}, "a lamp") == [
        "watts: must be 1 to 100, got 0",
        "on_for_us: must be 0s to 26687997d, got -1us",
        f"on_for: unknown; a lamp has {', '.join(Lamp.__struct_fields__)}",
    ]


def test_bounds_do_not_keep_what_is_stored_from_being_read() -> None:
    stored = msgspec.msgpack.encode(msgspec.structs.replace(Policy(), retries=-1))
    assert msgspec.msgpack.decode(stored, type=Policy).retries == -1


def test_json_has_durations_in_seconds_or_as_text() -> None:
    written = given(Lamp, "LampGiven", __name__)
    wanted = msgspec.convert({"on_for": 0.5, "kept": "forever", "watts": 7}, written)
    assert taken(Lamp, wanted) == {"on_for_us": 500_000, "kept_us": NEVER, "watts": 7}
    for wrong in ({"watts": 0}, {"on_for": "forever"}, {"colour": "blue"}, {"on_for_us": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, written)


def test_what_is_shown_can_be_read() -> None:
    assert shown(LAMP)["on_for"] == "1m"
    assert shown(LAMP)["colour"] == "red"
    assert read_all(Lamp, shown(LAMP)) == LAMP
