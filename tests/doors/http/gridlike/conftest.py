from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.http.gridlike.harness import Remote


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    there = Remote(tmp_path)
    yield there
    there.serving.stop()
