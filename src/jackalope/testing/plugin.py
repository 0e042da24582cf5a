"""The pytest plugin: a fixture `virtual_broker`, a new one for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jackalope.testing.virtual import VirtualBroker


@pytest.fixture
def virtual_broker() -> VirtualBroker:
    """Give a broker on a virtual clock, with one worker of ten slots."""
    from jackalope.testing.virtual import VirtualBroker  # noqa: PLC0415  only for who asks for it

    return VirtualBroker()
