"""The pytest plugin: a fixture `virtual_broker`, a new one for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jackalope.testing.virtual_broker import VirtualBroker


@pytest.fixture
def virtual_broker() -> Iterator[VirtualBroker]:
    """Give a broker on a virtual clock, in front of every application until the test ends."""
    from jackalope.testing.virtual_broker import VirtualBroker  # noqa: PLC0415  only for who asks for it

    with VirtualBroker() as broker:
        yield broker
