"""The settings of launchers: what each kind can be told, its defaults and bounds.

Owns the shapes and how they are read; the launchers own what they mean. As in the rest of the
configuration, a field that ends in `_us` is a duration: its key has no `_us`, and its value is a
number of seconds or a text such as "30s".
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND, parse_duration

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE

#: Names as DNS has them, so that every backend takes them.
_NAME = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


def _about(text: str, **bounds: Any) -> Meta:
    return Meta(description=text, **bounds)


Command = Annotated[
    tuple[str, ...],
    _about("The program that is the worker, and its arguments.", min_length=1),
]
Env = Annotated[
    dict[str, str], _about("Variables that every worker gets; those of the pool come on top.")
]
Timeout = Annotated[
    int,
    _about("How long one order to the backend may take.", ge=100 * MILLISECOND, le=HOUR),
]
LogBytes = Annotated[
    int,
    _about("How much of what a worker prints is kept, about.", ge=4 * KIBIBYTE, le=1024 * MEBIBYTE),
]


class NoneSettings(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="none"
):
    """Workers are started by hand, or by somebody else."""


class SubprocessSettings(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="subprocess",
):
    """Workers are processes on the broker's machine."""

    command: Command
    folder: Annotated[str, _about("Where they run; empty for where the broker does.")] = ""
    env: Env = {}
    inherit_env: Annotated[
        bool,
        _about("Whether they get the broker's variables too, those with `JACKALOPE_` apart."),
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


class SystemdSettings(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="systemd",
):
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


class DockerSettings(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="docker"
):
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
        int,
        _about("How much of what each prints Docker keeps; 0 leaves that to Docker.", ge=0),
    ] = 10 * MEBIBYTE
    timeout_us: Timeout = 10 * SECOND
    pull_timeout_us: Annotated[
        int, _about("How long fetching an image may take.", ge=SECOND, le=DAY)
    ] = 15 * MINUTE


AnySettings = NoneSettings | SubprocessSettings | SystemdSettings | DockerSettings

SHAPES: dict[str, type[Struct]] = {
    str(shape.__struct_config__.tag): shape for shape in get_args(AnySettings)
}


def read_settings(given: Mapping[str, object]) -> AnySettings:
    """Read the settings of a launcher as a person wrote them.

    Raises:
        ValueError: the kind is unknown, or a setting does not fit; the text says what would.
    """
    kind = given.get("type", "subprocess")
    if kind not in SHAPES:
        known = " or ".join(SHAPES)
        raise ValueError(f"type: must be {known}, got {kind!r}{_did_you_mean(kind, SHAPES)}")
    tree = _plain(SHAPES[str(kind)], {**given, "type": kind}, "")
    try:
        settings: AnySettings = msgspec.convert(tree, AnySettings)
    except msgspec.ValidationError as error:
        raise ValueError(f"{kind} launcher: {_in_words(error)}") from None
    _check_together(settings)
    return settings


def _plain(shape: type[Struct], given: Mapping[str, object], where: str) -> dict[str, object]:
    """Give durations their names and numbers, and find keys that nobody knows."""
    hints = get_type_hints(shape)
    keys = {name.removesuffix("_us"): name for name in hints}
    plain: dict[str, object] = {}
    for key, value in given.items():
        if key == "type":
            plain[key] = value
            continue
        if key not in keys:
            known = ", ".join(keys) or "nothing else"
            hint = _did_you_mean(key, keys) or f"; there are {known}"
            raise ValueError(f"{where}{key}: unknown key{hint}")
        name = keys[key]
        try:
            plain[name] = parse_duration(value) if name.endswith("_us") else value
        except ValueError as error:
            raise ValueError(f"{where}{key}: {error}") from None
    return plain


def _check_together(settings: AnySettings) -> None:
    """Find settings that fit each by itself and still make no launcher."""
    if isinstance(settings, DockerSettings) and settings.network and settings.host_network:
        raise ValueError("network: cannot be set with host_network; leave out one of them")


def _in_words(error: Exception) -> str:
    """Put the place first, as the rest of the configuration does."""
    text, _, place = str(error).partition(" - at `$")
    key = place.rstrip("`").lstrip(".")
    return f"{key.removesuffix('_us')}: {text}" if key else text


def _did_you_mean(name: object, known: Mapping[str, object]) -> str:
    close = get_close_matches(str(name).lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
