"""The brokers that the suite runs against: ours, and RabbitMQ where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from bench.peers import servers
from bench.peers.place import Place
from jackalope import Jackalope
from tests.kiwipy.harness import Switch


@pytest.fixture(scope="package", autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a communicator does for the program that it is a part of."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def ours() -> Iterator[str]:
    app = Jackalope.embedded()
    yield str(app.address)
    app.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if "rabbitmq-server" in servers.missing():
        pytest.skip("rabbitmq-server is not installed: whether we behave the same is not checked")
    place = Place.new("kiwipy", tmp_path_factory.mktemp("rabbitmq"), "always", "classic")
    server = servers.start_rabbitmq(place)
    yield place.amqp_url
    server.stop()


@pytest.fixture(params=["ours", "rabbitmq"])
def switch(request: pytest.FixtureRequest) -> Iterator[Switch]:
    switch = Switch(request.getfixturevalue(request.param))
    yield switch
    switch.close()


@pytest.fixture
def our_switch(ours: str) -> Iterator[Switch]:
    switch = Switch(ours)
    yield switch
    switch.close()
