"""The language itself: above all, that a wrong script and a wrong core are found out."""

import pytest

from jackalope.core import Core
from jackalope.core.assertions import BrokenInvariant
from jackalope.core.durations import HOUR, NEVER, SECOND
from jackalope.core.ids import is_time_ordered
from tests.scenarios.cast import Cast
from tests.scenarios.language import ScriptError, expand, parse_duration_us, perform, tell_duration
from tests.scenarios.shelf import Shelf
from tests.scenarios.stage import START_US, Stage

# The text.


def test_perform_puts_what_happens_below_each_command() -> None:
    script = "# Title\n\n> a\nold\nold\n> b\n# Comment\n> c\n\n"
    assert perform(script, lambda command: [f"did {command}"] * (command != "b")) == (
        "# Title\n\n> a\ndid a\n> b\n# Comment\n> c\ndid c\n\n"
    )


def test_perform_refuses_text_below_no_command() -> None:
    with pytest.raises(ScriptError, match="line 3: 'what is this'"):
        perform("# Title\n\nwhat is this\n", lambda _: [])


def test_a_fault_names_its_line() -> None:
    with pytest.raises(ScriptError, match=r"line 3, > dance: no verb 'dance'; there are add, "):
        perform("# Title\n\n> dance\n", Stage().act)


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [("0", 0), ("5s", 5 * SECOND), ("-2h", -2 * HOUR), ("1d12h1m30s250ms1us", 129_690_250_001)],
)
def test_durations_are_written_as_they_are_read(text: str, duration_us: int) -> None:
    assert parse_duration_us(text) == duration_us
    assert tell_duration(duration_us) == text


def test_forever() -> None:
    assert parse_duration_us("forever") == NEVER
    assert tell_duration(NEVER) == "forever"


def test_lists_and_ranges() -> None:
    assert expand("t9..t11,w1,a*3") == ["t9", "t10", "t11", "w1", "aaa"]
    assert expand("") == []


# The stage.


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("submit t1 queue=a colour=red", "submit does not understand colour=red"),
        ("submit t1 queue=a asleep", "submit does not understand asleep"),
        ("submit t1 queue=a queue=b", "queue is given twice"),
        ("kill t1 and t2", "kill does not understand and"),
        ("submit", "needs the names of tasks"),
        ("wait soon", "'soon' is not a duration"),
        ("finish t1", "t1 was never assigned"),
        ("join w1 queues=a holding=t1", "w1 never had t1"),
        ("show t1", "there is no such task"),
    ],
)
def test_nonsense_is_refused(line: str, fault: str) -> None:
    with pytest.raises(ScriptError, match=fault):
        Stage().act(line)


def test_only_an_open_session_is_spoken_to() -> None:
    cast = Cast()
    session = cast.session("w1")
    assert cast.session_name(session) == "w1"
    cast.close(session)
    assert cast.session("w1") != session
    with pytest.raises(ScriptError, match="not open"):
        cast.session_name(session)


def test_ids_are_time_ordered_unless_the_script_says_otherwise() -> None:
    cast = Cast()
    first, second = cast.task("t1", START_US), cast.task("t2", START_US)
    assert first < second
    assert is_time_ordered(first)
    assert not is_time_ordered(cast.task("v4.a", START_US))
    assert len(cast.task("bad.a", START_US)) < 16


def test_invariants_are_checked_after_each_command() -> None:
    stage = Stage()
    stage.act("submit t1 queue=images")
    queue = stage.core.book.queue("default", "images")
    assert queue is not None
    queue.depth = queue.namespace.depth = 7
    with pytest.raises(BrokenInvariant, match="a queue knows its depth"):
        stage.act("tick")


@pytest.mark.parametrize("after", [(), ("store",), ("store", "submit t2 queue=images")])
def test_a_state_that_storage_does_not_give_is_found_out(after: tuple[str, ...]) -> None:
    stage = Stage()
    for line in ("submit t1 queue=images", *after):
        stage.act(line)
    stage.check_replay()
    stage.core.book.counters.fence = 7
    with pytest.raises(BrokenInvariant, match="another state"):
        stage.check_replay()


def test_an_empty_shelf_gives_an_empty_core() -> None:
    Shelf().check(Core())
