"""The manifests of a cluster on Kubernetes are sound, and say what the broker understands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.broker.cluster.members import cluster_problems, members_of
from jackalope.broker.config.loader import load
from jackalope.doors.http.app import WATCHING

FILE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "cluster-on-kubernetes.yaml"
PARTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))


def part(kind: str, name: str = "jackalope") -> dict[str, Any]:
    return next(e for e in PARTS if (e["kind"], e["metadata"]["name"]) == (kind, name))


def broker() -> dict[str, Any]:
    container: dict[str, Any] = part("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize("place", range(3))
def test_each_pod_is_a_member(tmp_path: Path, place: int) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(part("ConfigMap")["data"]["cluster.yaml"])
    spec = part("StatefulSet")["spec"]
    pod = f"{part('StatefulSet')['metadata']['name']}-{place}"
    variables = {"JACKALOPE_CLUSTER__SECRET": "s"}
    config = load(path, variables, {"--node": ("cluster.node", pod)}).config
    assert cluster_problems(config) == []
    members = members_of(config)
    assert len(members) == spec["replicas"] == 3
    assert members[pod].host == f"{pod}.{spec['serviceName']}.default.svc.cluster.local"
    variable = next(e for e in broker()["env"] if e["name"] == "JACKALOPE_CLUSTER__SECRET")
    assert variable["valueFrom"]["secretKeyRef"]["key"] == "secret"


def test_ports_and_probes_are_those_of_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(part("ConfigMap")["data"]["cluster.yaml"])
    config = load(path, {}, {}).config
    member = next(iter(members_of(config).values()))
    ports = {each["name"]: each["containerPort"] for each in broker()["ports"]}
    assert ports == {
        "native": config.native.port,
        "http": config.http.port,
        "peer": member.peer,
        "route": member.route,
    }
    assert {e["name"]: e["port"] for e in part("Service")["spec"]["ports"]} == ports
    paths = {route.path for route in WATCHING}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert broker()[probe]["httpGet"]["path"] in paths
    assert broker()["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_nodes_are_found_before_they_are_ready_and_kept_apart() -> None:
    assert part("Service")["spec"]["clusterIP"] == "None"
    assert part("Service")["spec"]["publishNotReadyAddresses"] is True
    assert part("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    labels = part("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for each in (part("Service"), part("Service", "jackalope-client")):
        assert each["spec"]["selector"] == labels
    command = broker()["command"]
    assert command[:2] == ["jackalope", "serve"]
    assert command[-2:] == ["--node", "$(POD_NAME)"]
