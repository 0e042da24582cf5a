"""The tutorial: a stranger who does what it says sees what it says."""

from pathlib import Path

import pytest

from tests.docs.following import Follower, blocks_of, compare
from tests.ports import free_port

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def test_every_block_works_as_it_stands(tmp_path: Path) -> None:
    follower = Follower(tmp_path, free_port(), free_port())
    try:
        for block in blocks_of(TUTORIAL.read_text()):
            follower.follow(block)
    finally:
        follower.stop()


def test_every_block_is_followed() -> None:
    text = TUTORIAL.read_text()
    blocks = blocks_of(text)
    assert 2 * len(blocks) == sum(line.startswith("```") for line in text.splitlines())
    assert {block.kind for block in blocks} == {"python", "console", "sh"}
    assert [block.text for block in blocks if block.kind == "sh"] == [
        "python -m venv .venv\nsource .venv/bin/activate\npip install jackalope pytest\n"
    ]


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (["a ... c"], ["a c"]),
        (["b"], ["b", "c"]),
        (["a", "...", "d"], ["a", "b"]),
        (["01a1e21a-ccf9-7000-bcff-a916ded557ac is dead"], ["it is dead"]),
    ],
)
def test_other_words_are_noticed(expected: list[str], said: list[str]) -> None:
    if said == ["a c"]:
        compare("x", expected, said)
    else:
        with pytest.raises(AssertionError, match="in place of"):
            compare("x", expected, said)
