"""Every behaviour through every door: real clients of a door, against real brokers."""

import pkgutil
from collections.abc import Iterator

import pytest

from jackalope import doors
from tests.conformance.behaviours import BEHAVIOURS, Stage
from tests.conformance.broker import ClosedBroker, OpenBroker, Ports
from tests.conformance.driver import Driver, NewTask
from tests.conformance.grpc import GrpcDriver
from tests.conformance.native import NativeDriver
from tests.conformance.rest import RestDriver
from tests.doors.harness import run

DRIVERS: dict[str, type[NativeDriver | RestDriver | GrpcDriver]] = {
    "native": NativeDriver,
    "rest": RestDriver,
    "grpc": GrpcDriver,
}

#: The package of each door, by the name of its driver.
PACKAGES = {"native": "native", "rest": "http", "grpc": "grpc"}

#: What a door lacks, with the reason. Nothing else may be left out.
LACKS: dict[tuple[str, str], str] = {}

#: Doors that the suite does not open, with the reason.
OTHER_DOORS = {
    "amqp": "has the behaviours of RabbitMQ, which tests/doors/amqp compares with RabbitMQ itself",
    "peer": "serves the other nodes of a cluster, not clients",
}

CASES = [(door, name) for door in DRIVERS for name in BEHAVIOURS if (door, name) not in LACKS]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBroker]:
    # Nothing is called: callbacks wait in their queue.
    opened = OpenBroker(tmp_path_factory.mktemp("open"), {"callbacks": {"enabled": False}})
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedBroker]:
    opened = ClosedBroker(tmp_path_factory.mktemp("closed"))
    yield opened
    opened.stop()


@pytest.mark.parametrize(("door", "name"), CASES, ids=lambda each: each)
def test_behaviour(door: str, name: str, broker: OpenBroker, closed: ClosedBroker) -> None:
    stage = Stage(DRIVERS[door], broker, closed, queue=f"{door}-{name}")

    async def check() -> None:
        try:
            await BEHAVIOURS[name](stage)
        finally:
            await stage.close()

    run(check())


@pytest.mark.parametrize("submits", DRIVERS)
@pytest.mark.parametrize("works", DRIVERS)
def test_doors_meet(submits: str, works: str, broker: OpenBroker) -> None:
    """A task goes in through one door and is worked on through another, and is the same in both."""

    async def check() -> None:
        client, other = _open(submits, broker.ports), _open(works, broker.ports)
        queue = f"{submits}-to-{works}"
        try:
            task = NewTask(queue, "resize", b"cat.png")
            assert await client.submit(task) == [None]
            assert await other.submit(task) == [None]  # The same task, whoever submits it again.
            assert await other.task(task.id) == await client.task(task.id)
            worker = await other.worker(f"{queue}-w", queue)
            attempt = await worker.claim()
            assert attempt is not None
            assert attempt.payload == b"cat.png"
            assert await client.kill(task.id) == "requested"
            assert await worker.signal() == (task.id, "kill")
            await worker.finish(attempt, b"done before it was told")
            assert (await client.wait(task.id, 20)).state == "succeeded"
            assert await client.result(task.id) == b"done before it was told"
            assert await other.task(task.id) == await client.task(task.id)
        finally:
            await client.close()
            await other.close()

    run(check())


def _open(door: str, ports: Ports) -> Driver:
    return DRIVERS[door](ports)


def test_every_door_has_every_behaviour() -> None:
    """What a door lacks is named with its reason, and what is named exists."""
    found = {module.name for module in pkgutil.iter_modules(doors.__path__) if module.ispkg}
    assert found == {PACKAGES[door] for door in DRIVERS} | OTHER_DOORS.keys()
    assert {door for door, _ in LACKS} <= DRIVERS.keys()
    assert {name for _, name in LACKS} <= BEHAVIOURS.keys()
    assert all([*LACKS.values(), *OTHER_DOORS.values()])
    assert len(CASES) + len(LACKS) == len(DRIVERS) * len(BEHAVIOURS)
    for name in BEHAVIOURS:
        assert any((door, name) in CASES for door in DRIVERS), name
