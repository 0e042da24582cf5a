"""What the tests of AiiDA share: a broker, and a lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aiida.lab import Lab
from tests.kiwipy.conftest import logs_as_before, ours

__all__ = ["logs_as_before", "ours"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with a broker of its own, and a daemon with two workers."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.open()
        lab.open_gate()
        lab.start_daemon()
        yield lab
    finally:
        lab.close()
