"""The examples of launchers are good configuration."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.pools.launchers import make_launcher

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "launchers.md"
EXAMPLES = [
    yaml.safe_load(block)
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "launchers" in each])
def test_example_makes_a_launcher(example: dict[str, Any], tmp_path: Path) -> None:
    for settings in example["launchers"].values():
        make_launcher(settings, tmp_path, "one")


def test_every_launcher_has_an_example() -> None:
    launchers = [each["launchers"].values() for each in EXAMPLES if "launchers" in each]
    kinds = {settings["type"] for each in launchers for settings in each}
    assert kinds == {"subprocess", "systemd", "docker", "kubernetes"}
