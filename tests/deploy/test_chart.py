"""The Helm chart: rendered by Helm, valid for Kubernetes, and what the broker understands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.broker.cluster.members import cluster_problems, members_of
from jackalope.broker.config.exposure import exposure_problems
from jackalope.broker.config.loader import load
from jackalope.broker.config.schema import Config
from jackalope.doors.http.app import WATCHING
from jackalope.transport.address import parse_address

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "jackalope"
HELM = Path(sys.executable).with_name("helm")
KEY = {"id": "a" * 16, "hash": "b" * 64, "name": "all", "permissions": ["admin"]}
SECURE = {"tls": {"secretName": "broker-tls"}, "auth": {"keys": [KEY]}}
OPEN = {"auth": {"insecure": True}}
WORKERS = {
    "workers": [
        {"name": "images", "image": "shop:1", "app": "shop:app", "tokenSecret": "shop-token"}
    ]
}
DOORS = {"amqp": {"enabled": True}, "grpc": {"enabled": True}}

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="helm is not installed")

VARIANTS: dict[str, dict[str, Any]] = {
    "alone": OPEN,
    "secure": SECURE | DOORS | WORKERS | {"serviceMonitor": {"enabled": True}},
    "cluster": SECURE | WORKERS | {"replicas": 3},
    "cluster of five": OPEN | {"replicas": 5, "storage": {"size": "1Gi", "className": "fast"}},
}


def helm(*arguments: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HELM, *arguments, "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


def render(values: dict[str, Any], release: str = "shop") -> list[dict[str, Any]]:
    done = helm("template", release, str(CHART), "--namespace", "prod", values=values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def part(parts: list[dict[str, Any]], kind: str, name: str = "shop-jackalope") -> dict[str, Any]:
    return next(e for e in parts if (e["kind"], e["metadata"]["name"]) == (kind, name))


def config_of(parts: list[dict[str, Any]], folder: Path, node: str = "") -> Config:
    path = folder / "jackalope.yaml"
    path.write_text(part(parts, "ConfigMap")["data"]["jackalope.yaml"])
    flags = {"--node": ("cluster.node", node)} if node else {}
    return load(path, {"JACKALOPE_CLUSTER__SECRET": "s"}, flags).config


@pytest.mark.parametrize("name", VARIANTS)
def test_lint_finds_nothing(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), values=VARIANTS[name])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("version", ["1.25", "1.33"])
def test_kubernetes_accepts_every_part(name: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    parts = render(VARIANTS[name])
    known = [each for each in parts if "monitoring.coreos.com" not in each["apiVersion"]]
    assert len(known) >= 4
    for each in known:
        validate.validate(each, version, strict=True)


def test_an_unknown_field_would_be_seen() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    spoiled = part(render(OPEN), "StatefulSet")
    spoiled["spec"]["replica"] = 1
    with pytest.raises(validate.ValidationError):
        validate.validate(spoiled, "1.33", strict=True)


def test_broker_alone(tmp_path: Path) -> None:
    parts = render(VARIANTS["secure"])
    config = config_of(parts, tmp_path)
    assert exposure_problems(config, has_keys=bool(config.auth.keys)) == []
    assert (config.cluster.id, config.amqp.enabled, config.grpc.enabled) == ("", True, True)
    ports = {each["name"]: each["containerPort"] for each in container(parts)["ports"]}
    assert ports == {
        "native": config.native.port,
        "http": config.http.port,
        "amqp": config.amqp.port,
        "grpc": config.grpc.port,
    }
    assert container(parts)["args"] == ["serve", "--config", "/config/jackalope.yaml"]


@pytest.mark.parametrize("name", ["cluster", "cluster of five"])
def test_each_pod_of_a_cluster_is_a_member(tmp_path: Path, name: str) -> None:
    parts = render(VARIANTS[name])
    stateful = part(parts, "StatefulSet")
    for place in range(VARIANTS[name]["replicas"]):
        pod = f"{stateful['metadata']['name']}-{place}"
        config = config_of(parts, tmp_path, pod)
        assert cluster_problems(config) == []
        members = members_of(config)
        assert len(members) == stateful["spec"]["replicas"] == VARIANTS[name]["replicas"]
        service = stateful["spec"]["serviceName"]
        assert members[pod].host == f"{pod}.{service}.prod.svc.cluster.local"
        ports = {each["name"]: each["containerPort"] for each in container(parts)["ports"]}
        assert (ports["peer"], ports["route"]) == (members[pod].peer, members[pod].route)
    assert container(parts)["args"][-2:] == ["--node", "$(POD_NAME)"]
    assert part(parts, "Service")["spec"]["publishNotReadyAddresses"] is True
    assert part(parts, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def container(parts: list[dict[str, Any]]) -> dict[str, Any]:
    pod = part(parts, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    found: dict[str, Any] = pod["containers"][0]
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_probes_selectors_and_data(name: str, tmp_path: Path) -> None:
    parts = render(VARIANTS[name])
    config = config_of(parts, tmp_path)
    paths = {route.path for route in WATCHING}
    scheme = "HTTPS" if config.tls.cert else "HTTP"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container(parts)[probe]["httpGet"]
        assert asked["path"] in paths
        assert asked["scheme"] == scheme
    labels = part(parts, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for each in (part(parts, "Service"), part(parts, "Service", "shop-jackalope-client")):
        assert each["spec"]["selector"] == labels
    mounts = [each["mountPath"] for each in container(parts)["volumeMounts"]]
    assert any(config.data.folder.startswith(f"{mount}/") for mount in mounts)
    variables = {each["name"]: each.get("value") for each in container(parts)["env"]}
    assert variables["JACKALOPE_DATA__FOLDER"] == config.data.folder


def test_workers_reach_the_broker() -> None:
    parts = render(VARIANTS["secure"])
    worker = part(parts, "Deployment", "shop-jackalope-worker-images")
    spec = worker["spec"]["template"]["spec"]["containers"][0]
    address = parse_address(
        next(e["value"] for e in spec["env"] if e["name"] == "JACKALOPE_BROKER")
    )
    assert address.tls
    assert address.host == "shop-jackalope-client.prod.svc.cluster.local"
    assert spec["command"][:3] == ["jackalope", "worker", "shop:app"]
    assert worker["spec"]["selector"]["matchLabels"].items() <= (
        worker["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "tls.secretName is empty"),
        ({"tls": {"secretName": "t"}}, "auth.keys is empty"),
        (OPEN | {"replicas": 2}, "replicas is 2"),
        (OPEN | {"workers": [{"name": "a", "image": "b"}]}, "each needs an app"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], text: str) -> None:
    done = helm("template", "shop", str(CHART), values=values)
    assert done.returncode != 0
    assert text in done.stderr


def test_settings_of_ones_own_win(tmp_path: Path) -> None:
    values = OPEN | {"config": {"data": {"durability": "interval"}, "http": {"port": 7421}}}
    config = config_of(render(values), tmp_path)
    assert config.data.durability.value == "interval"
    assert config.http.host == "0.0.0.0"  # noqa: S104  in a pod
