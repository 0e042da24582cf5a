"""Configuration: every setting of a broker, its default, its meaning and where its value came from.

Owns the shapes and the merging. Values come from the defaults below, then one file, then the
environment, then the flags of the command; later wins. Everything that is wrong is found at once.
`sources` reads the places that values come from; nothing else looks at them.

A setting that ends in `_us` here is a duration: its key has no `_us`, and its value is a number of
seconds or a text such as "30s". That holds for the policies of queues as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum, StrEnum
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, NEVER, SECOND
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy, policy_problems
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.wire.frames import FRAME_BYTES_MAX

KeyPath = tuple[str, ...]


class LogLevel(StrEnum):
    """How much is logged: each level includes those before it."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"


class LogFormat(StrEnum):
    """How a line of the log looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


def _about(text: str, **bounds: Any) -> Meta:
    return Meta(description=text, **bounds)


class DataConfig(msgspec.Struct, frozen=True):
    """Where the broker keeps what it must not forget, and how surely."""

    folder: Annotated[
        str, _about("The data folder; one broker at a time has it.", min_length=1)
    ] = "jackalope-data"
    durability: Annotated[
        Level,
        _about(
            "What an acknowledgement promises. `fsync`: nothing is ever lost. `interval`: a power "
            "failure may cost the last `data.interval`. `memory`: everything ends with the process."
        ),
    ] = Level.FSYNC
    interval_us: Annotated[
        int,
        _about("How often the disk is synced at durability `interval`.", ge=MILLISECOND, le=MINUTE),
    ] = INTERVAL_US_DEFAULT


class NativeConfig(msgspec.Struct, frozen=True):
    """The native door: the TCP port of clients, workers and this command line."""

    host: Annotated[
        str, _about("The address to listen on; `0.0.0.0` for every network.", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[int, _about("The port; 0 takes a free one.", ge=0, le=65_535)] = 7420
    max_connections: Annotated[
        int, _about("How many connections are open at once; more are refused.", ge=1, le=1_000_000)
    ] = 10_000
    frame_bytes_max: Annotated[
        int, _about("The largest frame that is taken.", ge=64 * 1024, le=FRAME_BYTES_MAX)
    ] = FRAME_BYTES_MAX
    heartbeat_us: Annotated[
        int,
        _about(
            "How often each side of a connection sends something. One that hears nothing for three "
            "of these may close it.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 10 * SECOND


class LogConfig(msgspec.Struct, frozen=True):
    """What is logged, on the standard error."""

    level: Annotated[
        LogLevel,
        _about(
            "`error`: failures of the system. `warn`: also retries, slow tasks and full queues. "
            "`info`: also the lives of tasks and workers. `debug`: also every change of state."
        ),
    ] = LogLevel.INFO
    format: Annotated[
        LogFormat, _about("`json`, `console`, or `auto`: for people if it is a terminal.")
    ] = LogFormat.AUTO
    slow_task_us: Annotated[
        int, _about("Warn of an attempt that took longer; 0 never warns.", ge=0)
    ] = 0


class ShutdownConfig(msgspec.Struct, frozen=True):
    """How the broker stops."""

    deadline_us: Annotated[
        int,
        _about(
            "How long a stop may take to write everything behind. Nothing acknowledged is lost "
            "after it either.",
            ge=0,
        ),
    ] = 30 * SECOND


class QueueConfig(msgspec.Struct, frozen=True):
    """A queue to declare at the start: a preset, and what differs from it."""

    preset: str = ""
    changes: dict[str, Any] = {}


class NamespaceConfig(msgspec.Struct, frozen=True):
    """The queues and limited tags of a namespace to declare at the start."""

    queues: dict[str, QueueConfig] = {}
    limits: dict[str, int] = {}


class Config(msgspec.Struct, frozen=True):
    """Every setting of a broker."""

    data: DataConfig = DataConfig()
    native: NativeConfig = NativeConfig()
    log: LogConfig = LogConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    namespaces: dict[str, NamespaceConfig] = {}


COMPONENTS: dict[str, type[msgspec.Struct]] = {
    "data": DataConfig,
    "native": NativeConfig,
    "log": LogConfig,
    "shutdown": ShutdownConfig,
}


class Place(StrEnum):
    """Kinds of places that values come from, the weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: the kind of place, and its name."""

    place: Place
    name: str = ""

    def __str__(self) -> str:
        return f"{self.place} {self.name}" if self.name else self.place.value


class Given(msgspec.Struct, frozen=True):
    """A value as somebody wrote it. `is_text` if its place knows nothing but text."""

    path: KeyPath
    value: Any
    origin: Origin
    is_text: bool = False


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with the configuration."""

    key: str
    message: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.key}: {self.message} ({self.origin})"


class ConfigError(Exception):
    """The configuration cannot be used; it lists everything that is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class Setting(msgspec.Struct, frozen=True):
    """One line of `jackalope config show`."""

    key: str
    value: Any
    origin: Origin


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, and where each of its values came from."""

    config: Config
    settings: list[Setting]


# Merging.


def merge(given: Iterable[Given], problems: Iterable[Problem] = ()) -> Loaded:
    """Make a configuration of all that was given, the weakest first.

    Raises:
        ConfigError: with every problem, those already found included.
    """
    found = list(problems)
    latest: dict[KeyPath, Given] = {}
    values: dict[KeyPath, Any] = {}
    for each in given:
        path = _full_path(each.path)
        before = latest.get(path)
        if before is not None and before.origin == each.origin:
            found.append(Problem(key_of(path), "given twice", each.origin))
        latest[path] = each
        try:
            values[path] = read_value(path, each.value, is_text=each.is_text)
        except ValueError as error:
            found.append(Problem(key_of(path), str(error), each.origin))
    found += _policy_problems(values, latest)
    if found:
        raise ConfigError(found)
    return Loaded(_build(values), _settings(values, latest))


def key_of(path: KeyPath) -> str:
    """Return a key as people write it: the default namespace is not named."""
    if path[:2] == ("namespaces", DEFAULT_NAMESPACE) and len(path) > 2:
        path = path[2:]
    return ".".join(path)


def _full_path(path: KeyPath) -> KeyPath:
    """Give `queues` and `limits` the namespace that they mean when they name none."""
    is_short = path[0] in NamespaceConfig.__struct_fields__
    return ("namespaces", DEFAULT_NAMESPACE, *path) if is_short else path


def read_value(path: KeyPath, value: Any, *, is_text: bool = False) -> Any:
    """Check a value, and return it as the configuration holds it.

    Raises:
        ValueError: there is no such key, or the value does not fit it; the text says what would.
    """
    match path:
        case ("namespaces", _, "limits", _):
            return _convert(value, Annotated[int, Meta(ge=0)], is_text)
        case ("namespaces", _, "queues", _) if value in ({}, None):
            return {}
        case ("namespaces", _, "queues", _, "preset"):
            return _preset(value)
        case ("namespaces", _, "queues", _, field):
            return policy_value(field, value, is_text=is_text)
        case ("namespaces", *rest):
            raise ValueError(_not_a_namespace(rest))
        case (component, field) if component in COMPONENTS:
            fields = _fields(COMPONENTS[component])
            if field not in fields:
                raise ValueError(_unknown(field, fields, component))
            name, shape = fields[field]
            return _read(name, value, shape, is_text)
        case (component,) if component in COMPONENTS:
            raise ValueError(f"is a group of settings: {', '.join(_fields(COMPONENTS[component]))}")
    known = [*COMPONENTS, *NamespaceConfig.__struct_fields__, "namespaces"]
    raise ValueError(_unknown(path[0], known, ""))


def policy_value(field: str, value: Any, *, is_text: bool = False) -> Any:
    """Check one field of a policy as a person wrote it, and return it as the core takes it.

    Raises:
        ValueError: there is no such field, or the value does not fit it.
    """
    fields = _fields(Policy)
    if field not in fields:
        raise ValueError(_unknown(field, ["preset", *fields], "a policy"))
    name, shape = fields[field]
    return _read(name, value, shape, is_text)


def policy_field(field: str) -> str:
    """Return the core's name of a field of a policy: `retry_base` is `retry_base_us`."""
    return f"{field}_us" if f"{field}_us" in Policy.__struct_fields__ else field


def _policy_problems(values: dict[KeyPath, Any], given: dict[KeyPath, Given]) -> Iterable[Problem]:
    """Find values that fit their fields and still make no policy."""
    for path, value in values.items():
        if path[2:3] == ("queues",) and path[4:] not in ((), ("preset",)):
            field = policy_field(path[4])
            policy = msgspec.structs.replace(DEFAULT_POLICY, **{field: value})
            for problem in policy_problems(policy):
                yield Problem(key_of(path), problem.partition(": ")[2], given[path].origin)


def _build(values: dict[KeyPath, Any]) -> Config:
    tree: dict[str, Any] = {name: {} for name in COMPONENTS}
    namespaces: dict[str, Any] = {}
    for path, value in values.items():
        if path[0] != "namespaces":
            name, _ = _fields(COMPONENTS[path[0]])[path[1]]
            tree[path[0]][name] = value
            continue
        _, namespace, kind, name, *field = path
        world = namespaces.setdefault(namespace, {"queues": {}, "limits": {}})
        if kind == "limits":
            world["limits"][name] = value
            continue
        queue = world["queues"].setdefault(name, {"changes": {}})
        if field == ["preset"]:
            queue["preset"] = value
        elif field:
            queue["changes"][policy_field(field[0])] = value
    components: dict[str, Any] = {name: COMPONENTS[name](**tree[name]) for name in tree}
    return Config(
        **components,
        namespaces={
            name: NamespaceConfig(
                {queue: QueueConfig(**fields) for queue, fields in world["queues"].items()},
                world["limits"],
            )
            for name, world in namespaces.items()
        },
    )


def _settings(values: dict[KeyPath, Any], given: dict[KeyPath, Given]) -> list[Setting]:
    """List every setting in the order of this file, then queues and limits."""
    settings = []
    for component, key, name, _ in known_settings():
        fixed = (component, key)
        value = values[fixed] if fixed in values else getattr(COMPONENTS[component](), name)
        origin = given[fixed].origin if fixed in given else Origin(Place.DEFAULT)
        settings.append(Setting(key_of(fixed), plain(name, value), origin))
    for path in sorted(path for path in values if path[0] == "namespaces"):
        name = policy_field(path[-1]) if path[4:] else ""
        settings.append(Setting(key_of(path), plain(name, values[path]), given[path].origin))
    return settings


def known_settings() -> Iterable[tuple[str, str, str, str]]:
    """Yield component, key, name in the code and meaning of every setting that has a fixed key."""
    for component, shape in COMPONENTS.items():
        for key, (name, hint) in _fields(shape).items():
            (meta,) = hint.__metadata__
            yield component, key, name, meta.description


def plain(name: str, value: Any) -> Any:
    """Show a value as it would be written in a file."""
    if name.endswith("_us"):
        return format_duration(value)
    return value.value if isinstance(value, Enum) else value


# Values.

_UNITS = {"us": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)?\s*")
FOREVER = "forever"


def parse_duration(value: Any) -> int:
    """Return a duration in microseconds: "30s", "5m", "1h30m", "100ms", "forever" or seconds.

    Raises:
        ValueError: it is none; the text says what one looks like.
    """
    if isinstance(value, str) and value.strip().lower() == FOREVER:
        return NEVER
    text = str(value).strip().lower()
    parts = _DURATION.findall(text)
    is_whole = bool(parts) and not _DURATION.sub("", text) and not isinstance(value, bool)
    if not is_whole or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise ValueError(f"{value!r} is no duration; write 100ms, 30s, 5m, 2h, 7d or seconds")
    return sum(round(float(number) * _UNITS[unit or "s"]) for number, unit in parts)


def format_duration(duration_us: int) -> str:
    """Return a duration as a file would say it, exactly."""
    if duration_us >= NEVER:
        return FOREVER
    for unit, size in reversed(_UNITS.items()):
        if duration_us and duration_us % size == 0:
            return f"{duration_us // size}{unit}"
    return "0s"


def _fields(shape: type[msgspec.Struct]) -> dict[str, tuple[str, Any]]:
    """Return the keys of a struct, each with its field and the type of that."""
    hints = get_type_hints(shape, include_extras=True)
    return {name.removesuffix("_us"): (name, hints[name]) for name in shape.__struct_fields__}


def _read(name: str, value: Any, shape: Any, is_text: bool) -> Any:
    if name.endswith("_us"):
        return _convert(parse_duration(value), shape, is_text=False, is_duration=True)
    return _convert(value, shape, is_text)


def _convert(value: Any, shape: Any, is_text: bool, is_duration: bool = False) -> Any:
    try:
        return msgspec.convert(value, shape, strict=not is_text)
    except msgspec.ValidationError as error:
        raise ValueError(_plain_words(error, value, shape, is_duration)) from None


def _plain_words(error: Exception, value: Any, shape: Any, is_duration: bool) -> str:
    kind = getattr(shape, "__origin__", shape)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = [str(member.value) for member in kind]
        return f"must be {' or '.join(members)}, got {value!r}{_did_you_mean(value, members)}"
    meta = next((m for m in getattr(shape, "__metadata__", ()) if isinstance(m, Meta)), None)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and meta is not None:
        say: Callable[[Any], str] = format_duration if is_duration else str
        lowest = say(meta.ge) if meta.ge is not None else None
        bounds = f"at least {lowest}" if meta.le is None else f"{lowest} to {say(meta.le)}"
        return f"must be {bounds}, got {say(value)}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if kind is str and value == "":
        return "must not be empty"
    return f"must be {words.get(kind, str(error))}, got {value!r}"


def _preset(value: Any) -> str:
    if value not in PRESETS:
        names = list(PRESETS)
        raise ValueError(
            f"must be {' or '.join(names)}, got {value!r}{_did_you_mean(value, names)}"
        )
    return str(value)


def _not_a_namespace(rest: list[str]) -> str:
    match rest:
        case [_, "queues", _]:
            return "must hold a preset, fields of a policy, or nothing in braces: {}"
        case [_, kind, *_] if kind not in NamespaceConfig.__struct_fields__:
            return _unknown(kind, NamespaceConfig.__struct_fields__, "a namespace")
    return "must map names to settings"


def _unknown(name: str, known: Iterable[str], owner: str) -> str:
    names = list(known)
    suggestion = _did_you_mean(name, names)
    where = f"{owner} has" if owner else "there are"
    return f"unknown key{suggestion}" if suggestion else f"unknown key; {where} {', '.join(names)}"


def _did_you_mean(name: Any, known: Iterable[str]) -> str:
    close = get_close_matches(str(name).lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
