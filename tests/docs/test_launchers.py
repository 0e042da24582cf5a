"""The examples of launchers and pools are good configuration."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.broker.config.loader import load
from jackalope.pools.launchers import make_launcher

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to"
EXAMPLES = [
    block
    for page in ("launchers.md", "from-osrdyne.md")
    for block in re.findall(
        r"^```yaml\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL
    )
    if "launchers:" in block
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_good(example: str, tmp_path: Path) -> None:
    file = tmp_path / "jackalope.yaml"
    file.write_text(example)
    for settings in load(file).config.launchers.values():
        make_launcher(settings, tmp_path, "one")


def test_every_launcher_has_an_example() -> None:
    written: list[dict[str, Any]] = [yaml.safe_load(example)["launchers"] for example in EXAMPLES]
    kinds = {settings["type"] for launchers in written for settings in launchers.values()}
    assert kinds == {"subprocess", "systemd", "docker", "kubernetes"}
