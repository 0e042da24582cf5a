"""Servers that several suites of storage share."""

from collections.abc import Iterator

import pytest

from tests.storage.shared.servers import Servers, running


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Return three nats-servers that replicate."""
    with running(tmp_path_factory.mktemp("nats")) as servers:
        yield servers
