"""The brokers that each scenario runs against: ours, and RabbitMQ where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.peers import servers
from bench.peers.place import Place
from tests.doors.amqp.harness import Broker, Serving
from tests.ports import free_port


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    serving = Serving(tmp_path_factory.mktemp("ours"))
    yield serving.broker
    serving.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if "rabbitmq-server" in servers.missing():
        pytest.skip("rabbitmq-server is not installed: whether we behave the same is not checked")
    place = Place.new("amqp", tmp_path_factory.mktemp("rabbitmq"), "always", "classic")
    management_port = free_port()
    server = servers.start_rabbitmq(place, management_port=management_port)
    yield Broker("rabbitmq", place.rabbitmq_port, management_port)
    server.stop()


@pytest.fixture(params=["ours", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found
