"""The Compose file of a cluster is sound, and says what the broker understands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.broker.cluster.members import cluster_problems, members_of
from jackalope.broker.config.exposure import exposure_problems
from jackalope.broker.config.loader import load
from jackalope.broker.config.schema import Config
from jackalope.doors.http.app import WATCHING

FILE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "cluster-with-compose.yaml"
PARTS: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = PARTS["services"]


def config_of(name: str, tmp_path: Path) -> Config:
    """Return the configuration of a service, as its command and environment make it."""
    service = SERVICES[name]
    (mounted,) = service["configs"]
    path = tmp_path / "cluster.yaml"
    path.write_text(PARTS["configs"][mounted["source"]]["content"])
    program, verb, *rest = service["command"]
    assert (program, verb, rest) == (
        "jackalope",
        "serve",
        ["--config", mounted["target"], "--node", name],
    )
    assert list(service["environment"]) == ["JACKALOPE_CLUSTER__SECRET"]
    variables = dict.fromkeys(service["environment"], "s")
    return load(path, variables, {"--node": ("cluster.node", name)}).config


@pytest.mark.feature("D44")
@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_a_member(tmp_path: Path, name: str) -> None:
    config = config_of(name, tmp_path)
    assert cluster_problems(config) == []
    assert exposure_problems(config, has_keys=False) == []
    members = members_of(config)
    assert list(members) == list(SERVICES)
    assert len(members) == 3
    assert members[name].host == name  # By its name the others find a service.


@pytest.mark.parametrize("name", SERVICES)
def test_doors_are_open_to_the_machine_alone_and_data_outlives_a_container(
    tmp_path: Path, name: str
) -> None:
    config, service = config_of(name, tmp_path), SERVICES[name]
    inside = []
    for port in service["ports"]:
        host, _, door = port.split(":")
        assert host == "127.0.0.1"
        inside.append(int(door))
    assert inside == [config.native.port, config.http.port]
    (volume,) = service["volumes"]
    assert volume == f"{name}:{config.data.folder}"
    assert name in PARTS["volumes"]


def test_no_two_services_have_a_port_in_common() -> None:
    outside = [port.split(":")[1] for service in SERVICES.values() for port in service["ports"]]
    assert len(set(outside)) == len(outside) == 6


def test_health_is_asked_where_the_broker_tells_it() -> None:
    for service in SERVICES.values():
        *_, program = service["healthcheck"]["test"]
        compile(program, "healthcheck", "exec")
        assert any(f":7421{route.path}'" in program for route in WATCHING)
