"""What holds for all tests: how hard Hypothesis tries, and which files begin."""

from pathlib import Path

import pytest

from tests import profiles

profiles.load()

#: Their files take longest: begun last, one of them would run on alone at the end.
_FIRST = [Path(__file__).parent / name for name in ("aiida", "simulation", "acceptance")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(item.path.is_relative_to(folder) for folder in _FIRST))
