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
    tuple[str, ...], _about("The program that is the worker, and its arguments.", min_length=1)
]
Env = Annotated[
    dict[str, str], _about("Variables that every worker gets; those of the pool come on top.")
]
Timeout = Annotated[
    int, _about("How long one order to the backend may take.", ge=100 * MILLISECOND, le=HOUR)
]
LogBytes = Annotated[
    int,
    _about("How much of what a worker prints is kept, about.", ge=4 * KIBIBYTE, le=1024 * MEBIBYTE),
]


class _Kind(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The settings of one kind; `type` names the kind."""


class NoneSettings(_Kind, frozen=True, tag="none"):
    """Workers are started by hand, or by another program."""


class SubprocessSettings(_Kind, frozen=True, tag="subprocess"):
    """Workers are processes on the broker's machine."""

    command: Command
    folder: Annotated[str, _about("Where they run; empty for where the broker does.")] = ""
    env: Env = {}
    inherit_env: Annotated[
        bool, _about("Whether they get the broker's variables too, those with `JACKALOPE_` apart.")
    ] = True
    keep_running: Annotated[
        bool,
        _about(
            "Whether they go on when the broker is stopped, and are found again when it starts. A "
            "broker that is killed leaves them running in any case."
        ),
    ] = True
    log_bytes_max: LogBytes = MEBIBYTE
    logs_kept: Annotated[
        int, _about("How many logs of workers that are gone are kept.", ge=0, le=10_000)
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
        _about("The template is `UNIT@.service`.", pattern="^[A-Za-z0-9:_.-]+$", max_length=100),
    ] = "jackalope-worker"
    manager: Annotated[
        Manager,
        _about("`system`: the machine's systemd. `user`: that of the user who runs the broker."),
    ] = Manager.SYSTEM
    env_folder: Annotated[
        str,
        _about(
            "Where the template finds a file with the variables of each worker, named after it; "
            "empty for `%t/jackalope/workers`."
        ),
    ] = ""
    env: Env = {}
    systemctl: Annotated[str, _about("The program that orders it.", min_length=1)] = "systemctl"
    journalctl: Annotated[
        str, _about("The program that has a worker's last words; empty asks for none.")
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
        tuple[str, ...], _about("What runs in a container; empty for what the image says.")
    ] = ()
    prefix: Annotated[
        str, _about("What the names of containers begin with.", pattern=_NAME, max_length=100)
    ] = "jackalope"
    env: Env = {}
    network: Annotated[str, _about("The network of the containers; empty for Docker's own.")] = ""
    host_network: Annotated[
        bool, _about("Whether they share the machine's network, and reach its loopback.")
    ] = False
    extra_hosts: Annotated[
        tuple[str, ...],
        _about("Names that they know, such as `host.docker.internal:host-gateway`."),
    ] = ()
    volumes: Annotated[
        tuple[str, ...], _about("Folders that they see, such as `/srv/data:/data:ro`.")
    ] = ()
    user: Annotated[str, _about("Who runs in them; empty for whom the image says.")] = ""
    memory_bytes_max: Annotated[int, _about("How much memory each may have; 0 for any.", ge=0)] = 0
    cpus: Annotated[float, _about("How many processors each may use; 0 for any.", ge=0)] = 0
    labels: Annotated[dict[str, str], _about("Labels beside Jackalope's own.")] = {}
    pull: Annotated[
        Pull, _about("`missing`: an image that is not there is fetched. `never`: it must be there.")
    ] = Pull.MISSING
    host: Annotated[
        str,
        _about(
            "Where Docker is, such as `unix:///var/run/docker.sock`; empty for where its own tools "
            "would look."
        ),
    ] = ""
    log_bytes_max: Annotated[
        int, _about("How much of what each prints Docker keeps; 0 leaves that to Docker.", ge=0)
    ] = 10 * MEBIBYTE
    timeout_us: Timeout = 10 * SECOND
    pull_timeout_us: Annotated[
        int, _about("How long fetching an image may take.", ge=SECOND, le=DAY)
    ] = 15 * MINUTE


class Fixed(_Kind, frozen=True, tag="fixed"):
    """Each worker is a deployment of one replica; the broker decides how many there are."""


class Hpa(_Kind, frozen=True, tag="hpa"):
    """Each group is a deployment that grows and shrinks by how busy its processors are."""

    target_cpu_percent: Annotated[
        int, _about("How busy the processors should be, of what is requested.", ge=1, le=1000)
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
        str, _about("The broker's AMQP door as KEDA sees it, such as `amqp://broker:5672/`.")
    ] = ""
    metrics_url: Annotated[
        str,
        _about(
            "In its place: an address that answers with JSON. `{namespace}`, `{queue}`, `{pool}` "
            "and `{key}` stand for those of the group."
        ),
    ] = ""
    metrics_path: Annotated[
        str, _about("Where the number is in that answer, such as `queue.ready`.")
    ] = ""
    mode: Annotated[KedaMode, _about("What is looked at over AMQP.")] = KedaMode.QUEUE_LENGTH
    value: Annotated[float, _about("How many tasks one worker is for.", gt=0)] = 10
    activation_value: Annotated[
        float, _about("Up to how many tasks leave the group at its least.", ge=0)
    ] = 0
    metric_type: Annotated[KedaMetric, _about("How the number is compared with the value.")] = (
        KedaMetric.AVERAGE_VALUE
    )
    use_cached_metrics: Annotated[bool, _about("Whether KEDA asks only at its interval.")] = False
    polling_interval_us: Annotated[
        int, _about("How often KEDA looks, in whole seconds.", ge=SECOND, le=HOUR)
    ] = 30 * SECOND
    cooldown_us: Annotated[
        int, _about("How long KEDA waits before it scales to nothing.", ge=0, le=DAY)
    ] = 5 * MINUTE


Autoscaling = Fixed | Hpa | Keda


class KubernetesSettings(_Kind, frozen=True, tag="kubernetes"):
    """Workers are pods of deployments. It needs `jackalope[kubernetes]`."""

    image: Annotated[str, _about("The image of the workers.", min_length=1)]
    command: Annotated[
        tuple[str, ...], _about("What runs in a pod; empty for what the image says.")
    ] = ()
    namespace: Annotated[
        str, _about("Where in the cluster; empty for where the credentials say.")
    ] = ""
    prefix: Annotated[
        str, _about("What the names of deployments begin with.", pattern=_NAME, max_length=40)
    ] = "jackalope"
    autoscaling: Annotated[
        Autoscaling, _about("Who decides how many workers a group has: `fixed`, `hpa` or `keda`.")
    ] = Fixed()
    env: Env = {}
    image_pull_secrets: Annotated[
        tuple[str, ...], _about("Names of the secrets that fetching the image needs.")
    ] = ()
    service_account: Annotated[str, _about("Who the pods are in the cluster.")] = ""
    resources: Annotated[
        dict[str, dict[str, str]],
        _about("`requests` and `limits` of each pod, as Kubernetes has them."),
    ] = {}
    node_selector: Annotated[
        dict[str, str], _about("Labels of the nodes that pods may run on.")
    ] = {}
    affinity: Annotated[dict[str, Any], _about("Their affinity, as Kubernetes has it.")] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], _about("Their tolerations, as Kubernetes has them.")
    ] = ()
    labels: Annotated[dict[str, str], _about("Labels beside Jackalope's own.")] = {}
    annotations: Annotated[dict[str, str], _about("Annotations beside Jackalope's own.")] = {}
    grace_max_us: Annotated[
        int, _about("How long a pod that must end may take at most.", ge=SECOND, le=DAY)
    ] = 10 * MINUTE
    kubeconfig: Annotated[
        str,
        _about(
            "A file with addresses and credentials; empty for those of the pod that the broker "
            "runs in, then for those that `kubectl` would take."
        ),
    ] = ""
    context: Annotated[str, _about("Which context of that file; empty for its current one.")] = ""
    timeout_us: Timeout = 10 * SECOND


AnySettings = (
    NoneSettings | SubprocessSettings | SystemdSettings | DockerSettings | KubernetesSettings
)


def _by_tag(shapes: Any) -> dict[str, type[Struct]]:
    return {str(shape.__struct_config__.tag): shape for shape in get_args(shapes)}


SHAPES = _by_tag(AnySettings)


def read_settings(given: Mapping[str, object]) -> AnySettings:
    """Read the settings of a launcher as a person wrote them.

    Raises:
        ValueError: the kind is unknown, or settings do not fit; the text lists what is wrong.
    """
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
    """Read settings of the kind that their `type` names."""
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
