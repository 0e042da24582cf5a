"""The Kubernetes launcher: workers are pods of deployments.

Owns the orders to the cluster and the meaning of its answers, and the objects that it sends.

With autoscaling `fixed`, each worker is a deployment of one pod, and the broker decides how many
there are. With `hpa` or `keda`, each group is a deployment that an autoscaler makes larger and
smaller between its limits. An autoscaler belongs to its deployment and goes with it; one that is
missing or left over, after a crash between two orders, is made or removed when the list is asked
for.

A pod that ends is started again by the cluster: nothing is ever listed as ended, but the reason
why it does not come up is reported.

A watch is on deployments and pods, from the moment of a list. It is over when the cluster ends
either, as it does now and then, or no longer knows that moment: the next one begins with a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.core.client import LabelSelector
from lightkube.core.exceptions import ConfigError, NotReadyError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import ContainerStatus
from lightkube.models.meta_v1 import ObjectMeta, Status
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.autoscaling_v2 import HorizontalPodAutoscaler
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType

from jackalope.core.commands import Seen
from jackalope.core.durations import SECOND
from jackalope.core.effects import StartOrder
from jackalope.core.shapes.exchange import requests_queue
from jackalope.core.shapes.pool import Phase
from jackalope.pools.launcher import LaunchFailed, Scope, check_worker, env_of, labels_of, seen_with
from jackalope.pools.launchers.settings import Fixed, Hpa, Keda, KubernetesSettings

ScaledObject = create_namespaced_resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")

#: How many objects come in one answer.
PAGE = 500
DETAIL_LENGTH_MAX = 2000
#: How long the cluster is asked to report changes before it ends a watch.
WATCH_S = 300
#: The moment to watch from is too long ago.
_GONE = 410


class KubernetesLauncher:
    """Starts workers, or groups of them, as deployments."""

    def __init__(self, settings: KubernetesSettings, owner: str) -> None:
        self._settings = settings
        self._owner = owner
        self._client: AsyncClient | None = None
        self._autoscaler: Any = (
            HorizontalPodAutoscaler if isinstance(settings.autoscaling, Hpa) else ScaledObject
        )
        self._check()

    @property
    def scope(self) -> Scope:
        is_one = isinstance(self._settings.autoscaling, Fixed)
        return Scope.WORKER if is_one else Scope.GROUP

    async def start(self, order: StartOrder, env: Mapping[str, str]) -> None:
        """Make the deployment of a worker or group; change nothing if it is there."""
        whole = env_of(order.launch, self._settings.env, env)
        wanted: Deployment = msgspec.convert(
            deployment_of(self._settings, order, whole, self._owner), Deployment
        )
        async with self._order(f"start {order.launch}") as client:
            try:
                made = await client.create(wanted)
            except ApiError as error:
                if error.status.code == 409:
                    return
                raise
            try:
                await self._scale(client, order, made)
            except BaseException:
                # Nothing would ever scale it.
                with suppress(ApiError, httpx2.HTTPError):
                    await client.delete(Deployment, _name(made.metadata))
                raise

    async def stop(self, worker: str, grace_s: float) -> None:
        """Delete the deployment of a worker or group, and give its pods the grace."""
        check_worker(worker)
        name = name_of(self._settings, self._owner, worker)
        async with self._order(f"stop {worker}") as client:
            try:
                # In the foreground: it is listed until its pods are gone.
                await client.delete(Deployment, name, cascade=CascadeType.FOREGROUND)
            except ApiError as error:
                if error.status.code == 404:
                    return
                raise
            chosen: LabelSelector = {**selector(self._settings, self._owner, worker)}
            async for pod in client.list(Pod, labels=chosen, chunk_size=PAGE):
                with suppress(ApiError):  # It may be gone by now.
                    await client.delete(Pod, _name(pod.metadata), grace_period=round(grace_s))

    async def list(self) -> list[Seen]:
        mine: LabelSelector = {OWNER: owner_label(self._owner)}
        async with self._order("list deployments") as client:
            found = client.list(Deployment, labels=mine, chunk_size=PAGE)
            deployments = [each async for each in found]
            if self.scope is Scope.GROUP:
                await self._mend_autoscalers(client, deployments)
            troubles: Mapping[str, str] = {}
            if any(_phase_of(each) is Phase.STARTING for each in deployments):
                pods = client.list(Pod, labels=mine, chunk_size=PAGE)
                troubles = _troubles([pod async for pod in pods])
        entries = [_entry(each, troubles) for each in deployments]
        return sorted((each for each in entries if each), key=lambda each: each.launch)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Report changes until the cluster ends the watch."""
        what = "watch deployments and pods"
        async with AsyncExitStack() as stack:
            with suppress(_WatchOver):
                async with self._order(what) as client:
                    kinds: tuple[type[Deployment | Pod], ...] = (Deployment, Pod)
                    streams = [await self._stream(client, kind, stack) for kind in kinds]
                changed()
                async with self._order(what, 2.0 * WATCH_S):
                    await _until_one_ends([_tell(stream, changed) for stream in streams])

    async def close(self) -> None:
        """Let go of the cluster. What runs goes on running."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # Watching.

    async def _stream(
        self, client: AsyncClient, kind: type[Deployment | Pod], stack: AsyncExitStack
    ) -> httpx2.Response:
        """Open a stream of what changes from now on."""
        mine: LabelSelector = {OWNER: owner_label(self._owner)}
        listed = client.list(kind, labels=mine, chunk_size=PAGE)
        async for _ in listed:
            pass
        # The client's own watch does not say when it begins, and asks again without end.
        inner: Any = client._client  # noqa: SLF001
        asked = inner.prepare_request(
            "list",
            res=kind,
            watch=True,
            params={
                "labelSelector": f"{OWNER}={owner_label(self._owner)}",
                "resourceVersion": listed.resourceVersion,
                "timeoutSeconds": str(WATCH_S),
            },
        )
        asked.timeout = httpx2.Timeout(self._settings.timeout_us / SECOND, read=None)
        stream: httpx2.Response = await inner.send(inner.build_adapter_request(asked), stream=True)
        stack.push_async_callback(stream.aclose)
        if stream.is_error:
            await stream.aread()
            if stream.status_code == _GONE:
                raise _WatchOver
            inner.raise_for_status(stream)
        return stream

    # Autoscalers.

    async def _scale(self, client: AsyncClient, order: StartOrder, deployment: Deployment) -> None:
        uid = (deployment.metadata and deployment.metadata.uid) or ""
        wanted = autoscaler_of(self._settings, order, self._owner, uid)
        if wanted is None:
            return
        try:
            await client.create(self._autoscaler.from_dict(wanted))
        except ApiError as error:
            if error.status.code != 409:
                raise

    async def _mend_autoscalers(
        self, client: AsyncClient, deployments: Iterable[Deployment]
    ) -> None:
        mine: LabelSelector = {OWNER: owner_label(self._owner)}
        found = client.list(self._autoscaler, labels=mine, chunk_size=PAGE)
        scaled = {_name(each.metadata) async for each in found}
        there = {_name(each.metadata): each for each in deployments}
        for name in scaled - there.keys():
            with suppress(ApiError):
                await client.delete(self._autoscaler, name)
        for name in there.keys() - scaled:
            metadata = there[name].metadata
            if metadata is not None and metadata.deletionTimestamp is None:
                with suppress(ValueError):
                    await self._scale(client, order_of(metadata.annotations or {}), there[name])

    # The cluster.

    def _check(self) -> None:
        """Find out now whether the settings make a deployment."""
        sample = StartOrder("w", "", "", "", 0, "", 1, 1)
        try:
            msgspec.convert(deployment_of(self._settings, sample, {}, self._owner), Deployment)
        except msgspec.ValidationError as error:
            raise ValueError(f"kubernetes launcher: {error}") from None

    def _open(self) -> AsyncClient:
        if self._client is None:
            path, context = self._settings.kubeconfig, self._settings.context or None
            limit_s = self._settings.timeout_us / SECOND
            try:
                config = KubeConfig.from_file(path) if path else KubeConfig.from_env()
                self._client = AsyncClient(
                    config=config.get(context),
                    namespace=self._settings.namespace or None,
                    timeout=httpx2.Timeout(limit_s),
                    field_manager="jackalope",
                )
            except (AssertionError, ConfigError, OSError, KeyError, ValueError) as error:
                raise LaunchFailed(
                    f"no credentials for a cluster ({error}); run the broker in a pod with a "
                    "service account, or set `kubeconfig`"
                ) from error
        return self._client

    @asynccontextmanager
    async def _order(self, what: str, limit_s: float = 0) -> AsyncIterator[AsyncClient]:
        """Limit the time of an order, and raise `LaunchFailed` for whatever goes wrong with it."""
        limit_s = limit_s or self._settings.timeout_us / SECOND
        client = self._open()
        try:
            async with asyncio.timeout(limit_s):
                yield client
        except (TimeoutError, httpx2.TimeoutException):
            raise LaunchFailed(
                f"cannot {what}: the cluster did not respond within {limit_s:g} s; check its API "
                "server, or raise `timeout`"
            ) from None
        except ApiError as error:
            raise LaunchFailed(
                f"cannot {what}: the cluster reports {error.status.message} "
                f"({error.status.code}); {_advice(error.status.code or 0)}"
            ) from error
        except (httpx2.HTTPError, ConfigError, OSError) as error:
            raise LaunchFailed(
                f"cannot {what}: the cluster is unreachable: "
                f"{str(error).partition(chr(10))[0] or type(error).__name__}; check its address "
                "and the credentials"
            ) from error
        except (msgspec.DecodeError, KeyError, NotReadyError) as error:
            raise LaunchFailed(
                f"cannot {what}: the server is not Kubernetes ({error}); set `kubeconfig`"
            ) from error


class _WatchOver(Exception):
    """The cluster has ended a watch, and another can begin."""


class _About(msgspec.Struct):
    """An object that a watch reports, as far as it is read: only that of an error."""

    code: int = 0
    message: str = ""


class _Told(msgspec.Struct):
    """An event of a watch."""

    type: str
    object: _About


async def _tell(stream: httpx2.Response, changed: Callable[[], None]) -> None:
    async for line in stream.aiter_lines():
        told = msgspec.json.decode(line, type=_Told)
        if told.type == "ERROR":
            if told.object.code == _GONE:
                break
            raise ApiError(status=Status(code=told.object.code, message=told.object.message))
        changed()
    raise _WatchOver


async def _until_one_ends(doing: Iterable[Coroutine[None, None, None]]) -> None:
    """Wait until one ends, or all should have: a connection may have died without notice."""
    tasks = [asyncio.create_task(each, name="jackalope-watch") for each in doing]
    try:
        ended, _ = await asyncio.wait(
            tasks, timeout=1.2 * WATCH_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _entry(deployment: Deployment, troubles: Mapping[str, str]) -> Seen | None:
    metadata = deployment.metadata
    name = _name(metadata)
    phase = _phase_of(deployment)
    detail = troubles.get(name, "") or _refusal(deployment) if phase is Phase.STARTING else ""
    annotations = (metadata and metadata.annotations) or {}
    return seen_with(annotations, phase, name, detail[:DETAIL_LENGTH_MAX], PREFIX)


def _phase_of(deployment: Deployment) -> Phase:
    if deployment.metadata is not None and deployment.metadata.deletionTimestamp is not None:
        return Phase.STOPPING
    ready = (deployment.status and deployment.status.readyReplicas) or 0
    # Who scaled it to nothing can scale it up again.
    return Phase.RUNNING if ready or deployment.spec.replicas == 0 else Phase.STARTING


def _refusal(deployment: Deployment) -> str:
    """Return why a deployment has no pods, such as a quota."""
    conditions = (deployment.status and deployment.status.conditions) or []
    failures = (each for each in conditions if each.type == "ReplicaFailure")
    return next((each.message or each.reason or "" for each in failures), "")


def _troubles(pods: Iterable[Pod]) -> dict[str, str]:
    """Return, for each deployment, why its pods do not run."""
    found = {}
    for pod in pods:
        name = ((pod.metadata and pod.metadata.labels) or {}).get(NAME, "")
        statuses = (pod.status and pod.status.containerStatuses) or []
        conditions = (pod.status and pod.status.conditions) or []
        told = [_container_trouble(status) for status in statuses]
        told += [each.message or "" for each in conditions if each.status == "False"]
        if words := next(filter(None, told), ""):
            found[name] = words
    return found


def _container_trouble(status: ContainerStatus) -> str:
    waiting = status.state and status.state.waiting
    last = (status.lastState and status.lastState.terminated) or (
        status.state and status.state.terminated
    )
    words = [waiting.reason or "", waiting.message or ""] if waiting else []
    if last:
        words.append(f"exit code {last.exitCode}")
        words.append(f"last output: {last.message.strip()}" if last.message else "")
    return "; ".join(filter(None, words))


def _name(metadata: ObjectMeta | None) -> str:
    return (metadata and metadata.name) or ""


def _advice(code: int) -> str:
    if code in {401, 403}:
        return "grant the launcher's role to the broker's service account"
    if code == 404:
        return "check that the namespace exists, and KEDA if it scales"
    if code == 422:
        return "check the launcher's settings"
    if code == 429 or code >= 500:
        return "check the API server"
    return "check the launcher's settings and the cluster's quotas"


# Manifests: what a worker or a group is in Kubernetes, as its API has it.

PREFIX = "jackalope/"
OWNER = f"{PREFIX}owner"
NAME = f"{PREFIX}name"
MANAGED_BY = "app.kubernetes.io/managed-by"

#: KEDA puts nine signs in front, and the whole becomes a label, which has 63.
NAME_LENGTH_MAX = 54

#: Asks for the last lines of a log when a container fails.
LAST_WORDS = "FallbackToLogsOnError"


def owner_label(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:16]


def name_of(settings: KubernetesSettings, owner: str, worker: str) -> str:
    name = f"{settings.prefix}-{owner_label(owner)[:8]}-{worker}"
    if len(name) <= NAME_LENGTH_MAX and not worker.endswith("-"):
        return name
    return f"{settings.prefix[:20]}-{sha256(f'{owner} {worker}'.encode()).hexdigest()[:24]}"


def selector(settings: KubernetesSettings, owner: str, worker: str) -> dict[str, str]:
    """Return the labels by which the pods of a worker or group are found."""
    return {OWNER: owner_label(owner), NAME: name_of(settings, owner, worker)}


def deployment_of(
    settings: KubernetesSettings, order: StartOrder, env: Mapping[str, str], owner: str
) -> dict[str, Any]:
    """Describe the deployment of a worker or group."""
    chosen = selector(settings, owner, order.launch)
    is_one = isinstance(settings.autoscaling, Fixed)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(settings, order, owner),
        "spec": {
            "replicas": 1 if is_one else order.workers_min,
            "selector": {"matchLabels": chosen},
            # One worker is never two, not even while it is replaced.
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {
                    "labels": {**settings.labels, MANAGED_BY: "jackalope", **chosen},
                    "annotations": _annotations(settings, order, owner),
                },
                "spec": _pod(settings, env),
            },
        },
    }


def autoscaler_of(
    settings: KubernetesSettings, order: StartOrder, owner: str, deployment_uid: str
) -> dict[str, Any] | None:
    """Describe what scales a group; None if the broker does. It goes when the deployment goes."""
    how = settings.autoscaling
    if isinstance(how, Fixed):
        return None
    made = _hpa(how, order) if isinstance(how, Hpa) else _scaled_object(how, order)
    name = name_of(settings, owner, order.launch)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    made["spec"]["scaleTargetRef"] = target
    made["metadata"] = {
        **_metadata(settings, order, owner),
        "ownerReferences": [{**target, "uid": deployment_uid, "controller": True}],
    }
    return made


def _metadata(settings: KubernetesSettings, order: StartOrder, owner: str) -> dict[str, Any]:
    chosen = selector(settings, owner, order.launch)
    return {
        "name": chosen[NAME],
        "labels": {**settings.labels, MANAGED_BY: "jackalope", **chosen},
        "annotations": _annotations(settings, order, owner),
    }


def _annotations(settings: KubernetesSettings, order: StartOrder, owner: str) -> dict[str, str]:
    return {
        **settings.annotations,
        **labels_of(order, owner, PREFIX),
        f"{PREFIX}queue": order.queue,
        f"{PREFIX}requests-queue": requests_queue(order.queue, order.key),
        f"{PREFIX}workers-min": str(order.workers_min),
        f"{PREFIX}workers-max": str(order.workers_max),
    }


def order_of(annotations: Mapping[str, str]) -> StartOrder:
    """Return the order that an object was made of, as far as scaling needs it."""

    def of(field: str) -> str:
        return annotations.get(f"{PREFIX}{field}", "")

    return StartOrder(
        launch=of("worker"),
        namespace=of("namespace"),
        queue=of("pool"),
        key=of("key"),
        generation=int(of("generation")),
        version=of("version"),
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


def _hpa(hpa: Hpa, order: StartOrder) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": hpa.target_cpu_percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {
            # It cannot scale to nothing: the broker stops the whole group then.
            "minReplicas": max(1, order.workers_min),
            "maxReplicas": max(1, order.workers_max),
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def _scaled_object(keda: Keda, order: StartOrder) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "spec": {
            "pollingInterval": _seconds(keda.polling_interval_us),
            "cooldownPeriod": _seconds(keda.cooldown_us),
            "minReplicaCount": order.workers_min,
            "maxReplicaCount": max(1, order.workers_max),
            "triggers": [
                {
                    "metricType": keda.metric_type.value,
                    "useCachedMetrics": keda.use_cached_metrics,
                    **_trigger(keda, order),
                }
            ],
        },
    }


def _trigger(keda: Keda, order: StartOrder) -> dict[str, Any]:
    value, activation = f"{keda.value:g}", f"{keda.activation_value:g}"
    if keda.amqp_host:
        asked = {
            "host": keda.amqp_host,
            "queueName": requests_queue(order.queue, order.key),
            "mode": keda.mode.value,
            "value": value,
            "activationValue": activation,
        }
        return {"type": "rabbitmq", "metadata": asked}
    url = keda.metrics_url
    places = {"namespace": order.namespace, "queue": order.queue, "key": order.key}
    for name, text in {**places, "pool": order.queue}.items():
        url = url.replace(f"{{{name}}}", quote(text, safe=""))
    asked = {
        "url": url,
        "valueLocation": keda.metrics_path,
        "targetValue": value,
        "activationTargetValue": activation,
    }
    return {"type": "metrics-api", "metadata": asked}


def _seconds(duration_us: int) -> int:
    return round(duration_us / SECOND)
