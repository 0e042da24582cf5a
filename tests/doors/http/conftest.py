from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.http.harness import Serving


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """Return a broker in a process of its own; `open_http` of `house` gives one in this process."""
    broker = Serving(tmp_path)
    yield broker
    broker.stop()
