"""Manifests: what a worker or a group is in Kubernetes, as its API has it.

Pure: settings and an order go in, objects come out. Who asks the cluster for them is the launcher.

Any text may be in an annotation, but in a label only few; so labels say whose an object is and what
belongs together, and annotations say who it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from jackalope.core.durations import SECOND
from jackalope.pools.launchers.labels import labels_of
from jackalope.pools.launchers.settings import Fixed, Hpa, Keda, KubernetesSettings
from jackalope.pools.ports import Launch

PREFIX = "jackalope/"
OWNER = f"{PREFIX}owner"
NAME = f"{PREFIX}name"
MANAGED_BY = "app.kubernetes.io/managed-by"

REQUESTS_QUEUE = "WORKER_REQUESTS_QUEUE"

#: KEDA puts nine signs in front, and the whole becomes a label, which has 63.
NAME_LENGTH_MAX = 54

#: Asks for the last lines of a log when a container fails.
LAST_WORDS = "FallbackToLogsOnError"


def owner_label(owner: str) -> str:
    """Return an owner as a label can hold it."""
    return sha256(owner.encode()).hexdigest()[:16]


def name_of(settings: KubernetesSettings, owner: str, worker: str) -> str:
    """Return the name of all objects of a worker or group."""
    name = f"{settings.prefix}-{owner_label(owner)[:8]}-{worker}"
    if len(name) <= NAME_LENGTH_MAX and not worker.endswith("-"):
        return name
    return f"{settings.prefix[:20]}-{sha256(f'{owner} {worker}'.encode()).hexdigest()[:24]}"


def selector(settings: KubernetesSettings, owner: str, worker: str) -> dict[str, str]:
    """Return the labels by which the pods of a worker or group are found."""
    return {OWNER: owner_label(owner), NAME: name_of(settings, owner, worker)}


def deployment_of(
    settings: KubernetesSettings, launch: Launch, env: Mapping[str, str], owner: str
) -> dict[str, Any]:
    """Describe the deployment of a worker or group."""
    chosen = selector(settings, owner, launch.worker)
    is_one = isinstance(settings.autoscaling, Fixed)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(settings, launch, owner),
        "spec": {
            "replicas": 1 if is_one else launch.workers_min,
            "selector": {"matchLabels": chosen},
            # One worker is never two, not even while it is replaced.
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {
                    "labels": {**settings.labels, MANAGED_BY: "jackalope", **chosen},
                    "annotations": _annotations(settings, launch, owner),
                },
                "spec": _pod(settings, env),
            },
        },
    }


def autoscaler_of(
    settings: KubernetesSettings, launch: Launch, owner: str, deployment_uid: str
) -> dict[str, Any] | None:
    """Describe what scales a group; None if the broker does. It goes when the deployment goes."""
    how = settings.autoscaling
    if isinstance(how, Fixed):
        return None
    made = _hpa(how, launch) if isinstance(how, Hpa) else _scaled_object(how, launch)
    name = name_of(settings, owner, launch.worker)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    made["spec"]["scaleTargetRef"] = target
    made["metadata"] = {
        **_metadata(settings, launch, owner),
        "ownerReferences": [{**target, "uid": deployment_uid, "controller": True}],
    }
    return made


def _metadata(settings: KubernetesSettings, launch: Launch, owner: str) -> dict[str, Any]:
    chosen = selector(settings, owner, launch.worker)
    return {
        "name": chosen[NAME],
        "labels": {**settings.labels, MANAGED_BY: "jackalope", **chosen},
        "annotations": _annotations(settings, launch, owner),
    }


def _annotations(settings: KubernetesSettings, launch: Launch, owner: str) -> dict[str, str]:
    return {
        **settings.annotations,
        **labels_of(launch, owner, PREFIX),
        f"{PREFIX}queue": launch.queue,
        f"{PREFIX}requests-queue": _requests_queue(launch),
        f"{PREFIX}workers-min": str(launch.workers_min),
        f"{PREFIX}workers-max": str(launch.workers_max),
    }


def launch_of(annotations: Mapping[str, str]) -> Launch:
    """Return the order that an object was made of, as far as scaling needs it.

    Raises:
        ValueError: the annotations are not ours.
    """

    def of(field: str) -> str:
        return annotations.get(f"{PREFIX}{field}", "")

    return Launch(
        worker=of("worker"),
        namespace=of("namespace"),
        pool=of("pool"),
        key=of("key"),
        queue=of("queue"),
        generation=int(of("generation")),
        version=of("version"),
        env={REQUESTS_QUEUE: of("requests-queue")},
        workers_min=int(of("workers-min")),
        workers_max=int(of("workers-max")),
    )


def _pod(settings: KubernetesSettings, env: Mapping[str, str]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "worker",
        "image": settings.image,
        "env": [{"name": name, "value": _without_references(value)} for name, value in env.items()],
        "terminationMessagePolicy": LAST_WORDS,
    }
    if settings.command:
        container["command"] = [_without_references(word) for word in settings.command]
    if settings.resources:
        container["resources"] = settings.resources
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": _seconds(settings.grace_max_us),
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "serviceAccountName": settings.service_account,
        "nodeSelector": settings.node_selector,
        "affinity": settings.affinity,
        "tolerations": list(settings.tolerations),
    }
    return {name: value for name, value in pod.items() if value}


def _without_references(text: str) -> str:
    """Keep Kubernetes from reading `$(NAME)` in a key as a variable."""
    return text.replace("$(", "$$(")


def _hpa(hpa: Hpa, launch: Launch) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": hpa.target_cpu_percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {
            # It cannot scale to nothing: the broker stops the whole group then.
            "minReplicas": max(1, launch.workers_min),
            "maxReplicas": max(1, launch.workers_max),
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def _scaled_object(keda: Keda, launch: Launch) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "spec": {
            "pollingInterval": _seconds(keda.polling_interval_us),
            "cooldownPeriod": _seconds(keda.cooldown_us),
            "minReplicaCount": launch.workers_min,
            "maxReplicaCount": max(1, launch.workers_max),
            "triggers": [
                {
                    "metricType": keda.metric_type.value,
                    "useCachedMetrics": keda.use_cached_metrics,
                    **_trigger(keda, launch),
                }
            ],
        },
    }


def _trigger(keda: Keda, launch: Launch) -> dict[str, Any]:
    value, activation = f"{keda.value:g}", f"{keda.activation_value:g}"
    if keda.amqp_host:
        asked = {
            "host": keda.amqp_host,
            "queueName": _requests_queue(launch),
            "mode": keda.mode.value,
            "value": value,
            "activationValue": activation,
        }
        return {"type": "rabbitmq", "metadata": asked}
    url = keda.metrics_url
    for field in ("namespace", "queue", "pool", "key"):
        url = url.replace(f"{{{field}}}", quote(getattr(launch, field), safe=""))
    asked = {
        "url": url,
        "valueLocation": keda.metrics_path,
        "targetValue": value,
        "activationTargetValue": activation,
    }
    return {"type": "metrics-api", "metadata": asked}


def _requests_queue(launch: Launch) -> str:
    """Return the queue as AMQP has it."""
    return launch.env.get(REQUESTS_QUEUE, launch.queue)


def _seconds(duration_us: int) -> int:
    return round(duration_us / SECOND)
