"""The Kubernetes launcher: what only a cluster can do to one."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Pod

from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import Launcher, LaunchFailed, Scope
from jackalope.pools.launchers import make_launcher
from jackalope.pools.launchers.kubernetes import (
    NAME,
    NAME_LENGTH_MAX,
    _entry,
    _troubles,
    autoscaler_of,
    deployment_of,
    name_of,
    order_of,
)
from jackalope.pools.launchers.settings import KubernetesSettings, read_settings
from tests.pools.launchers.backends import is_empty, launch, play, reach, running, to_start, until
from tests.pools.launchers.kubernetes import Kubernetes, KubernetesHpa, KubernetesKeda
from tests.pools.launchers.kubernetes_server import container_status, status


@pytest.fixture
def backend(tmp_path: Path) -> Kubernetes:
    return Kubernetes(tmp_path)


def settings_with(**changes: object) -> KubernetesSettings:
    read = read_settings({"type": "kubernetes", "image": "worker:1", **changes})
    assert isinstance(read, KubernetesSettings)
    return read


def test_hanging_order_is_given_up_and_holds_up_no_other(backend: Kubernetes) -> None:
    async def hang(request: web.Request) -> None:
        if request.method == "POST" and b"w-1" in await request.read():
            await asyncio.Event().wait()

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = hang
        hasty = backend.made(timeout="1s")
        hanging = asyncio.create_task(hasty.start(*to_start("w-1")))
        await running(backend, launcher, launch("w-2"))
        with pytest.raises(LaunchFailed, match="did not respond within 1 s; check"):
            await hanging
        await hasty.close()

    play(backend, scenario)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (401, "service account"),
        (403, "service account"),
        (404, "check that the namespace exists"),
        (422, "the launcher's settings"),
        (429, "check the API server"),
        (500, "check the API server"),
        (400, "cluster's quotas"),
    ],
)
def test_error_of_the_cluster_is_told(backend: Kubernetes, code: int, advice: str) -> None:
    async def fail(request: web.Request) -> web.Response | None:
        return status(code, "out of cheese") if request.method == "POST" else None

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = fail
        told = f"start w-1: the cluster reports out of cheese \\({code}\\); .*{advice}"
        with pytest.raises(LaunchFailed, match=told):
            await launcher.start(*to_start("w-1"))

    play(backend, scenario)


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(text="<html>", content_type="text/html"),
        web.Response(body=b"{}", content_type="application/json"),
        web.Response(status=502, text="bad gateway"),
        web.Response(status=503, headers={"Content-Type": ""}),
    ],
    ids=["page", "nothing", "gateway", "untyped"],
)
def test_answer_that_is_none_is_told(backend: Kubernetes, answer: web.Response) -> None:
    async def babble(request: web.Request) -> web.Response | None:
        return web.Response(
            status=answer.status, body=answer.body, content_type=answer.content_type
        )

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = babble
        with pytest.raises(LaunchFailed, match="cannot list deployments: "):
            await launcher.list()
        backend.server.fault = None

    play(backend, scenario)


def test_no_credentials_are_told(
    backend: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))

    async def scenario(launcher: Launcher) -> None:
        for kubeconfig in ("", str(tmp_path / "nothing")):
            missing = backend.made(kubeconfig=kubeconfig)
            with pytest.raises(LaunchFailed, match=r"no credentials .*set `kubeconfig`"):
                await missing.list()
            await missing.close()
        other = backend.made(context="nowhere")
        with pytest.raises(LaunchFailed, match="no credentials"):
            await other.list()

    play(backend, scenario)


@pytest.mark.feature("O21")
@pytest.mark.parametrize("kind", [KubernetesHpa, KubernetesKeda])
def test_group_that_cannot_be_scaled_is_not_left(kind: type[Kubernetes], tmp_path: Path) -> None:
    backend = kind(tmp_path)

    async def no_scaling(request: web.Request) -> web.Response | None:
        is_scaler = "scale" in request.path and request.method == "POST"
        return status(404, "the server could not find the resource") if is_scaler else None

    async def scenario(launcher: Launcher) -> None:
        backend.server.fault = no_scaling
        with pytest.raises(LaunchFailed, match="KEDA if it scales"):
            await launcher.start(*to_start("w-1"))
        await until(lambda: is_empty(launcher))

    play(backend, scenario)


@pytest.mark.feature("O21")
@pytest.mark.parametrize(
    ("kind", "scalers"),
    [(KubernetesHpa, "horizontalpodautoscalers"), (KubernetesKeda, "scaledobjects")],
)
def test_autoscalers_are_mended(kind: type[Kubernetes], scalers: str, tmp_path: Path) -> None:
    backend = kind(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        assert launcher.scope is Scope.GROUP
        await running(backend, launcher, launch("w-1", workers_min=1, workers_max=7))
        (before,) = backend.server.objects[scalers].values()
        # As if the broker had been killed between two orders.
        backend.server.objects[scalers].clear()
        await launcher.list()
        (after,) = backend.server.objects[scalers].values()
        assert after["spec"] == before["spec"]
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
        # As if nobody had collected what belonged to a deployment.
        left = {**after, "metadata": {**after["metadata"], "name": "left", "ownerReferences": []}}
        backend.server.objects[scalers]["left"] = left
        await launcher.list()
        assert "left" not in backend.server.objects[scalers]
        await launcher.stop("w-1", 600)
        await until(lambda: is_empty(launcher))
        assert backend.server.objects[scalers] == {}

    play(backend, scenario)


def test_group_has_as_many_pods_as_its_least(tmp_path: Path) -> None:
    backend = KubernetesHpa(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1", workers_min=3, workers_max=5))
        assert len(backend.server.pods) == 3
        (scaler,) = backend.server.objects["horizontalpodautoscalers"].values()
        assert scaler["spec"]["minReplicas"] == 3
        assert scaler["spec"]["maxReplicas"] == 5

    play(backend, scenario)


def test_group_of_nobody_runs(tmp_path: Path) -> None:
    backend = KubernetesKeda(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        await launcher.start(*to_start("w-1", workers_min=0, workers_max=5))
        await reach(launcher, "w-1", Phase.RUNNING)
        assert backend.server.pods == {}

    play(backend, scenario)


@pytest.mark.parametrize(
    ("pod_status", "detail"),
    [
        ({}, ""),
        (
            {"conditions": [{"type": "X", "status": "False", "message": "0/3 nodes available"}]},
            "0/3 nodes available",
        ),
        ({"containerStatuses": [container_status()]}, "ContainerCreating"),
        (
            {"containerStatuses": [container_status(ended={"exitCode": 3, "message": " x\n"})]},
            "CrashLoopBackOff; exit code 3; last output: x",
        ),
    ],
)
def test_trouble_of_a_pod_is_told(pod_status: dict[str, Any], detail: str) -> None:
    pod = msgspec.convert({"metadata": {"labels": {NAME: "x"}}, "status": pod_status}, Pod)
    assert _troubles([pod]).get("x", "") == detail


def test_refusal_of_pods_is_told() -> None:
    made = deployment_of(settings_with(), launch("w-1"), {}, "one")
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    made["status"] = {"conditions": [refused]}
    entry = _entry(msgspec.convert(made, Deployment), {})
    assert entry is not None
    assert (entry.phase, entry.detail) == (Phase.STARTING, "exceeded quota")


def test_damaged_annotations_are_passed_over(tmp_path: Path) -> None:
    backend = KubernetesHpa(tmp_path)

    async def scenario(launcher: Launcher) -> None:
        await running(backend, launcher, launch("w-1"))
        (deployment,) = backend.server.objects["deployments"].values()
        kept = deployment["metadata"]["annotations"]
        deployment["metadata"]["annotations"] = {"jackalope/worker": "w-1"}
        backend.server.objects["horizontalpodautoscalers"].clear()
        assert await launcher.list() == []
        deployment["metadata"]["annotations"] = kept

    play(backend, scenario)


# Manifests.


def test_deployment_is_made_as_set() -> None:
    settings = settings_with(
        command=["worker", "$(KEEP)"],
        prefix="core",
        image_pull_secrets=["registry"],
        service_account="workers",
        resources={"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}},
        node_selector={"disk": "ssd"},
        affinity={"nodeAffinity": {}},
        tolerations=[{"key": "spot", "operator": "Exists"}],
        labels={"team": "infra"},
        annotations={"note": "x"},
        grace_max="90s",
    )
    made = deployment_of(settings, launch("w-1"), {"A": "$(B) $x"}, "one")
    assert made["metadata"]["labels"]["team"] == "infra"
    assert made["metadata"]["annotations"]["note"] == "x"
    assert made["metadata"]["annotations"]["jackalope/key"] == "42"
    assert made["spec"]["replicas"] == 1
    template = made["spec"]["template"]
    assert made["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert template["spec"] == {
        "containers": [
            {
                "name": "worker",
                "image": "worker:1",
                "env": [{"name": "A", "value": "$$(B) $x"}],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "command": ["worker", "$$(KEEP)"],
                "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}},
            }
        ],
        "terminationGracePeriodSeconds": 90,
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "workers",
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }


def test_keda_is_told_as_set() -> None:
    keda: dict[str, Any] = {
        "type": "keda",
        "amqp_host": "amqp://broker:5672/",
        "mode": "MessageRate",
        "value": 2.5,
        "activation_value": 1,
        "metric_type": "Value",
        "use_cached_metrics": True,
        "polling_interval": "5s",
        "cooldown": "1m",
    }
    order = launch("w-1", workers_min=0, workers_max=9)
    made = autoscaler_of(settings_with(autoscaling=keda), order, "one", "uid-1")
    assert made is not None
    target = made["spec"].pop("scaleTargetRef")
    assert made["metadata"]["ownerReferences"] == [{**target, "uid": "uid-1", "controller": True}]
    assert made["spec"] == {
        "pollingInterval": 5,
        "cooldownPeriod": 60,
        "minReplicaCount": 0,
        "maxReplicaCount": 9,
        "triggers": [
            {
                "type": "rabbitmq",
                "metricType": "Value",
                "useCachedMetrics": True,
                "metadata": {
                    "host": "amqp://broker:5672/",
                    "queueName": "core-req-42",
                    "mode": "MessageRate",
                    "value": "2.5",
                    "activationValue": "1",
                },
            }
        ],
    }


def test_keda_asks_an_address_of_the_group() -> None:
    url = "http://broker:7421/{namespace}/{queue}/{pool}?key={key}"
    keda = {"type": "keda", "metrics_url": url, "metrics_path": "ready"}
    order = launch("w-1", "a/b=ü")
    made = autoscaler_of(settings_with(autoscaling=keda), order, "one", "uid-1")
    assert made is not None
    assert made["spec"]["triggers"][0]["metadata"] == {
        "url": "http://broker:7421/default/core/core?key=a%2Fb%3D%C3%BC",
        "valueLocation": "ready",
        "targetValue": "10",
        "activationTargetValue": "0",
    }


def test_order_can_be_read_from_annotations() -> None:
    order = launch("w-1", "odd\nkey", workers_min=2, workers_max=4)
    made = deployment_of(settings_with(), order, {}, "one")
    read = order_of(made["metadata"]["annotations"])
    assert read == order
    with pytest.raises(ValueError, match="invalid literal"):
        order_of({})


@pytest.mark.parametrize("worker", ["w", "w" * 63, "ends-", "-begins", "-"])
def test_names_are_short_and_their_own(worker: str) -> None:
    settings = settings_with(prefix="p" * 40)
    names = {name_of(settings, owner, each) for owner in ("one", "two") for each in (worker, "x")}
    assert len(names) == 4
    assert all(len(name) <= NAME_LENGTH_MAX and not name.endswith("-") for name in names)


def test_settings_that_make_no_deployment_are_told(tmp_path: Path) -> None:
    given = {"type": "kubernetes", "image": "worker:1", "affinity": {"nodeAffinity": 5}}
    with pytest.raises(ValueError, match=r"kubernetes launcher: .*nodeAffinity"):
        make_launcher(given, tmp_path, "one")
