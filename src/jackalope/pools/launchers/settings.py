"""The settings of launchers: what each kind can be told, its defaults and bounds.

Owns the shapes; the launchers own what they mean. They are read as all settings are
(`jackalope.core.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import Meta, Struct

from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from jackalope.core.settings import one_of, read_all

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE

#: Names as DNS has them, so that every backend takes them.
_NAME = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


def _about(text: str, **bounds: Any) -> Meta:
    return Meta(description=text, **bounds)


Command = Annotated[
    tuple[str, ...],
    _about("The worker's command line: the program and its arguments.", min_length=1),
]
Env = Annotated[
    dict[str, str], _about("Environment variables of every worker; those of the pool are added.")
]
Timeout = Annotated[
    int, _about("The time limit of one operation of the backend.", ge=100 * MILLISECOND, le=HOUR)
]
LogBytes = Annotated[
    int,
    _about(
        "The approximate number of bytes kept of a worker's output.",
        ge=4 * KIBIBYTE,
        le=1024 * MEBIBYTE,
    ),
]


class _Kind(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The settings of one kind; `type` names the kind."""


class NoneSettings(_Kind, frozen=True, tag="none"):
    """Workers are started by hand, or by another program."""


class SubprocessSettings(_Kind, frozen=True, tag="subprocess"):
    """Workers are processes on the broker's machine."""

    command: Command
    folder: Annotated[str, _about("The working directory; empty for that of the broker.")] = ""
    env: Env = {}
    inherit_env: Annotated[
        bool, _about("Inherit the broker's environment, except `JACKALOPE_` variables.")
    ] = True
    keep_running: Annotated[
        bool,
        _about(
            "Leave workers running when the broker stops, and adopt them when it "
            "starts. A broker that is killed leaves them running in any case."
        ),
    ] = True
    log_bytes_max: LogBytes = MEBIBYTE
    logs_kept: Annotated[
        int, _about("How many logs of ended workers are kept.", ge=0, le=10_000)
    ] = 20
    timeout_us: Timeout = 10 * SECOND


class Manager(StrEnum):
    """Whose systemd it is."""

    SYSTEM = "system"
    USER = "user"


class SystemdSettings(_Kind, frozen=True, tag="systemd"):
    """Workers are instances of a template unit."""

    unit: Annotated[
        str,
        _about(
            "The name of the template unit, without `@.service`.",
            pattern="^[A-Za-z0-9:_.-]+$",
            max_length=100,
        ),
    ] = "jackalope-worker"
    manager: Annotated[
        Manager,
        _about(
            "`system`: the system manager. `user`: the manager of the user who runs the broker."
        ),
    ] = Manager.SYSTEM
    env_folder: Annotated[
        str,
        _about(
            "The folder of the environment files, one per worker and named after it; empty for "
            "`%t/jackalope/workers`."
        ),
    ] = ""
    env: Env = {}
    systemctl: Annotated[str, _about("The path of `systemctl`.", min_length=1)] = "systemctl"
    journalctl: Annotated[
        str, _about("The path of `journalctl`, for the last output of a worker; empty to skip it.")
    ] = "journalctl"
    timeout_us: Timeout = 10 * SECOND


class Pull(StrEnum):
    """When an image is fetched."""

    MISSING = "missing"
    NEVER = "never"


class DockerSettings(_Kind, frozen=True, tag="docker"):
    """Workers are containers. It needs `jackalope[docker]`."""

    image: Annotated[str, _about("The image of the workers.", min_length=1)]
    command: Annotated[
        tuple[str, ...], _about("The command in the container; empty for that of the image.")
    ] = ()
    prefix: Annotated[
        str, _about("The prefix of container names.", pattern=_NAME, max_length=100)
    ] = "jackalope"
    env: Env = {}
    network: Annotated[
        str, _about("The network of the containers; empty for Docker's default.")
    ] = ""
    host_network: Annotated[
        bool, _about("Use the host's network, including its loopback interface.")
    ] = False
    extra_hosts: Annotated[
        tuple[str, ...],
        _about("Additional host names, such as `host.docker.internal:host-gateway`."),
    ] = ()
    volumes: Annotated[tuple[str, ...], _about("Bind mounts, such as `/srv/data:/data:ro`.")] = ()
    user: Annotated[str, _about("The user in the container; empty for that of the image.")] = ""
    memory_bytes_max: Annotated[
        int, _about("The memory limit of each container; 0 for none.", ge=0)
    ] = 0
    cpus: Annotated[float, _about("The CPU limit of each container; 0 for none.", ge=0)] = 0
    labels: Annotated[dict[str, str], _about("Labels in addition to Jackalope's own.")] = {}
    pull: Annotated[
        Pull, _about("`missing`: pull the image if it is not present. `never`: it must be present.")
    ] = Pull.MISSING
    host: Annotated[
        str,
        _about(
            "The address of Docker, such as `unix:///var/run/docker.sock`; empty for the one "
            "that Docker's own tools use."
        ),
    ] = ""
    log_bytes_max: Annotated[
        int, _about("The size limit of each container's log; 0 for Docker's default.", ge=0)
    ] = 10 * MEBIBYTE
    timeout_us: Timeout = 10 * SECOND
    pull_timeout_us: Annotated[
        int, _about("The time limit for pulling an image.", ge=SECOND, le=DAY)
    ] = 15 * MINUTE


class Fixed(_Kind, frozen=True, tag="fixed"):
    """Each worker is a deployment of one replica; the broker decides how many there are."""


class Hpa(_Kind, frozen=True, tag="hpa"):
    """Each group is a deployment that grows and shrinks by how busy its processors are."""

    target_cpu_percent: Annotated[
        int, _about("The target CPU utilization, in percent of the request.", ge=1, le=1000)
    ] = 80


class KedaMode(StrEnum):
    """What KEDA looks at."""

    QUEUE_LENGTH = "QueueLength"
    MESSAGE_RATE = "MessageRate"


class KedaMetric(StrEnum):
    """How KEDA compares it with the value."""

    AVERAGE_VALUE = "AverageValue"
    VALUE = "Value"


class Keda(_Kind, frozen=True, tag="keda"):
    """Each group is a deployment that KEDA scales by the length or the rate of its queue."""

    amqp_host: Annotated[
        str,
        _about(
            "The address at which KEDA reaches the broker's AMQP door, such as "
            "`amqp://broker:5672/`."
        ),
    ] = ""
    metrics_url: Annotated[
        str,
        _about(
            "Instead of `amqp_host`: a URL that returns JSON. `{namespace}`, `{queue}`, `{pool}` "
            "and `{key}` are replaced by those of the group."
        ),
    ] = ""
    metrics_path: Annotated[
        str, _about("The path of the metric in that JSON, such as `queue.ready`.")
    ] = ""
    mode: Annotated[KedaMode, _about("The metric that is read over AMQP.")] = KedaMode.QUEUE_LENGTH
    value: Annotated[float, _about("The target number of tasks per worker.", gt=0)] = 10
    activation_value: Annotated[
        float, _about("The number of tasks up to which the group stays at its minimum.", ge=0)
    ] = 0
    metric_type: Annotated[KedaMetric, _about("How the metric is compared with the value.")] = (
        KedaMetric.AVERAGE_VALUE
    )
    use_cached_metrics: Annotated[bool, _about("Let KEDA use the metric of its last poll.")] = False
    polling_interval_us: Annotated[
        int, _about("KEDA's polling interval, in whole seconds.", ge=SECOND, le=HOUR)
    ] = 30 * SECOND
    cooldown_us: Annotated[
        int, _about("How long KEDA waits before it scales to zero.", ge=0, le=DAY)
    ] = 5 * MINUTE


Autoscaling = Fixed | Hpa | Keda


class KubernetesSettings(_Kind, frozen=True, tag="kubernetes"):
    """Workers are pods of deployments. It needs `jackalope[kubernetes]`."""

    image: Annotated[str, _about("The image of the workers.", min_length=1)]
    command: Annotated[
        tuple[str, ...], _about("The command in the pod; empty for that of the image.")
    ] = ()
    namespace: Annotated[
        str, _about("The Kubernetes namespace; empty for that of the credentials.")
    ] = ""
    prefix: Annotated[
        str, _about("The prefix of deployment names.", pattern=_NAME, max_length=40)
    ] = "jackalope"
    autoscaling: Annotated[
        Autoscaling,
        _about("What scales the workers of a group: `fixed` (the broker), `hpa` or `keda`."),
    ] = Fixed()
    env: Env = {}
    image_pull_secrets: Annotated[
        tuple[str, ...], _about("The names of the image pull secrets.")
    ] = ()
    service_account: Annotated[str, _about("The service account of the pods.")] = ""
    resources: Annotated[
        dict[str, dict[str, str]],
        _about("The `requests` and `limits` of each pod, in Kubernetes' format."),
    ] = {}
    node_selector: Annotated[dict[str, str], _about("The node selector of the pods.")] = {}
    affinity: Annotated[
        dict[str, Any], _about("The affinity of the pods, in Kubernetes' format.")
    ] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], _about("The tolerations of the pods, in Kubernetes' format.")
    ] = ()
    labels: Annotated[dict[str, str], _about("Labels in addition to Jackalope's own.")] = {}
    annotations: Annotated[
        dict[str, str], _about("Annotations in addition to Jackalope's own.")
    ] = {}
    grace_max_us: Annotated[
        int, _about("The termination grace period of the pods.", ge=SECOND, le=DAY)
    ] = 10 * MINUTE
    kubeconfig: Annotated[
        str,
        _about(
            "A kubeconfig file; empty for the service account of the broker's pod, then for the "
            "one that `kubectl` uses."
        ),
    ] = ""
    context: Annotated[
        str, _about("The context of the kubeconfig file; empty for its current one.")
    ] = ""
    timeout_us: Timeout = 10 * SECOND


AnySettings = (
    NoneSettings | SubprocessSettings | SystemdSettings | DockerSettings | KubernetesSettings
)


def _by_tag(shapes: Any) -> dict[str, type[Struct]]:
    return {str(shape.__struct_config__.tag): shape for shape in get_args(shapes)}


SHAPES = _by_tag(AnySettings)


def read_settings(given: Mapping[str, object]) -> AnySettings:
    """Read the settings of a launcher as a person wrote them."""
    given = {"type": "subprocess", **given}
    scaling = {}
    if given["type"] == "kubernetes" and "autoscaling" in given:
        wanted = given.pop("autoscaling")
        wanted = {"type": wanted} if isinstance(wanted, str) else wanted
        scaling = {"autoscaling": _read(_by_tag(Autoscaling), wanted, "autoscaling.")}
    settings: Any = msgspec.structs.replace(_read(SHAPES, given), **scaling)
    _check_together(settings)
    return cast("AnySettings", settings)


def _read(shapes: dict[str, type[Struct]], given: Any, where: str = "") -> Struct:
    kind = given.get("type") if isinstance(given, Mapping) else given
    if not isinstance(kind, str) or kind not in shapes:
        raise ValueError(f"{where}type: {one_of(kind, shapes)}")
    fields = {key: value for key, value in given.items() if key != "type"}
    try:
        return read_all(shapes[kind], fields, where)
    except ValueError as error:
        raise ValueError(str(error) if where else f"{kind} launcher: {error}") from None


def _check_together(settings: AnySettings) -> None:
    """Find settings that fit each by itself and still make no launcher."""
    if isinstance(settings, DockerSettings) and settings.network and settings.host_network:
        raise ValueError("network: cannot be set with host_network; leave out one of them")
    if isinstance(settings, KubernetesSettings) and isinstance(settings.autoscaling, Keda):
        keda = settings.autoscaling
        if bool(keda.amqp_host) == bool(keda.metrics_url):
            raise ValueError("autoscaling: keda needs either amqp_host or metrics_url")
        if keda.metrics_url and not keda.metrics_path:
            raise ValueError("autoscaling.metrics_path: metrics_url needs it, such as queue.ready")
