"""A cluster of real processes for each file of tests, whole again before each test."""

from collections.abc import Iterator

import pytest

from tests.cluster.brokers import Brokers, running, until


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with running(tmp_path_factory.mktemp("nodes")) as brokers:
        brokers.leader()
        yield brokers


@pytest.fixture
def whole(brokers: Brokers) -> Brokers:
    """Return the cluster with all of its nodes."""
    for each in brokers.all:
        if not each.is_up:
            each.start()
    until(lambda: all(each.get("/health")[0] for each in brokers.all), brokers.all)
    return brokers
