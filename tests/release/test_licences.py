"""What is bundled is named, with its licence."""

import os

import pytest

from tests.release.licences import NOTICES, ROOT, bundled, notices


def test_notices_name_what_is_bundled() -> None:
    text = NOTICES.read_text()
    wanted = bundled()
    assert "preact" in wanted
    for name, version in wanted.items():
        assert f"\n{name} {version} (" in text, f"{name}: REWRITE=1 pytest tests/release"


@pytest.mark.skipif(
    not (ROOT / "dashboard" / "node_modules" / "preact").is_dir(),
    reason="needs the dashboard's packages: `make dashboard`",
)
def test_notices_are_those_of_the_packages() -> None:
    text = notices()
    if os.environ.get("REWRITE"):
        NOTICES.write_text(text)
    assert NOTICES.read_text() == text
