"""One vocabulary: states are called the same wherever they are named."""

import re
from pathlib import Path

from jackalope.cli.options import STATE_SETS, STATES
from jackalope.cli.output import STATE_COLOURS
from jackalope.core.lifecycle import ENDED, PENDING, State
from jackalope.doors.http.rest.schemas import STATES as BY_STATUS
from jackalope.doors.http.rest.schemas import Status

ROOT = Path(__file__).resolve().parents[2]


def test_states_of_tasks() -> None:
    assert {*STATES} == {*State} == {state for states in BY_STATUS.values() for state in states}
    assert {*STATE_COLOURS} >= {*State}
    assert {*STATE_SETS["ended"]} == ENDED
    assert {*STATE_SETS["pending"]} == PENDING
    page = (ROOT / "docs" / "reference" / "lifecycle.md").read_text()
    assert {state for state in State if f"`{state}`" not in page} == set()


def test_the_dashboard_has_the_same_states() -> None:
    source = "".join(path.read_text() for path in (ROOT / "dashboard" / "src").rglob("*.ts*"))
    assert {
        state for state in State if f'"{state}"' not in source and f"{state}:" not in source
    } == set()


def test_an_alias_is_none_of_our_words() -> None:
    # `pending` is a set of states for the command line as well, and means the same there.
    assert {*Status} & {*State} == set()
    assert {*BY_STATUS[Status.PENDING]} == {*STATE_SETS["pending"]}
    # Our own command line says nothing in the words of the aliases.
    for path in (ROOT / "src" / "jackalope" / "cli").rglob("*.py"):
        assert not re.search(r"dead_letter|in_progress|task_type|retry_count", path.read_text()), (
            path
        )
