"""Plays every script, and compares what happens with what the script says.

`REWRITE=1 pytest tests/scenarios` writes what happens into the scripts.
"""

import os
import re
from difflib import unified_diff
from functools import cache
from pathlib import Path

import pytest

from jackalope.core.explain import Why
from jackalope.core.policy import PRESETS
from jackalope.core.refusals import Code
from jackalope.core.tasks import attempts
from tests.scenarios.language import perform
from tests.scenarios.phrases import PAST
from tests.scenarios.stage import Stage

FOLDER = Path(__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The scripts show the rule of the waits; `test_retries` shows how chance shortens them.
    monkeypatch.setattr(attempts, "chance", lambda *_: 0.0)
    expected = path.read_text()
    stage = Stage()
    actual = perform(expected, stage.act)
    stage.check_replay()
    if os.environ.get("REWRITE"):
        path.write_text(actual)
        return
    old, new = expected.splitlines(), actual.splitlines()
    diff = list(unified_diff(old, new, "expected", "actual", n=6, lineterm=""))
    if diff:
        pytest.fail("\n".join([f"{path.name} tells another story", *diff]), pytrace=False)


# What the scripts cover.


@cache
def all_scripts() -> str:
    return "\n".join(path.read_text() for path in SCRIPTS)


def test_every_script_has_title_and_prose() -> None:
    beginning = re.compile(r"# .+\n# .+\n(?:# .+\n)*\n> ")
    assert not [path.name for path in SCRIPTS if not beginning.match(path.read_text())]


@pytest.mark.parametrize("why", Why)
def test_every_reason_is_explained(why: Why) -> None:
    assert f"\n{why}: " in all_scripts()


#: Said by the engine and the doors, never by the core.
NOT_OF_THE_CORE = {
    Code.STORAGE_FAILED,
    Code.OVERLOADED,
    Code.RATE_LIMITED,
    Code.UNKNOWN_RECIPIENT,
    Code.UNAUTHORISED,
    Code.UNKNOWN_BLOB,
    Code.INTERNAL,
}


@pytest.mark.parametrize("code", sorted(set(Code) - NOT_OF_THE_CORE))
def test_every_refusal_is_shown(code: Code) -> None:
    assert re.search(rf": refused (?:\S+ )?{code}: ", all_scripts())


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_shown(preset: str) -> None:
    assert f" preset={preset}\n" in all_scripts()


@pytest.mark.parametrize(
    "words",
    [
        *PAST.values(),
        *("declared", "deleted queue", "paused queue", "resumed queue", "limited", "unlimited"),
        *("submitted", "revived", "purged", "assigned", "started", "finished"),
        *("requested kill of", "requested pause of", "requested timeout of", "signal of"),
        *("w1: joined", "w1: assignment", "w1: asked to kill", "w1: asked to pause"),
        *("w1: asked to timeout", "w1: asked to drain", "w1: session replaced", "w1: lease lost"),
        *("w1: nothing to claim", "client: ended", "client: declared"),
    ],
)
def test_every_record_and_message_is_shown(words: str) -> None:
    assert re.search(rf"^{words}\b", all_scripts(), re.MULTILINE)
