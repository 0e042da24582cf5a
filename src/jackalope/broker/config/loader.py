"""Configuration: the value of every setting of a broker, and where it came from.

Owns the merging; `settings` owns the shapes. Values come from the defaults there, then one file,
then the environment, then the flags of the command; later wins. Everything that is wrong is found
at once. `sources` reads the places that values come from; nothing else looks at them.

A setting that ends in `_us` is a duration: its key has no `_us`, and its value is a number of
seconds or a text such as "30s". That holds for the policies of queues as well.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from jackalope.broker.config.schema import (
    COMPONENTS,
    Config,
    LimitsConfig,
    NamespaceConfig,
    QueueConfig,
)
from jackalope.broker.config.task_queue_file import Note, translate
from jackalope.core.api_key import ApiKey, Permission, api_key_problems
from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.durations import format_duration, parse_duration
from jackalope.core.limits import WORKERS_PER_GROUP_MAX
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy, policy_problems
from jackalope.core.shapes.pool import DEFAULT_POOL, PoolSettings, pool_problems

KeyPath = tuple[str, ...]


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
    """A value as it was written. `is_text` if its source has nothing but text."""

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
    """A configuration, where each of its values came from, and what was translated for it."""

    config: Config
    settings: list[Setting]
    notes: list[Note] = []


# Merging.


def merge(given: Iterable[Given], problems: Iterable[Problem] = ()) -> Loaded:
    """Make a configuration of all that was given, the weakest first."""
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
    """Give `queues` and `limits` the namespace that they mean when they name none.

    The limits of the broker itself stand beside those of tags.
    """
    is_own = path[0] == "limits" and path[1:2] != () and path[1] in _fields(LimitsConfig)
    is_short = path[0] in NamespaceConfig.__struct_fields__ and not is_own
    return ("namespaces", DEFAULT_NAMESPACE, *path) if is_short else path


def read_value(path: KeyPath, value: Any, *, is_text: bool = False) -> Any:
    """Check a value, and return it as the configuration holds it."""
    match path:
        case ("namespaces", *rest):
            return _read_of_namespace(rest, value, is_text=is_text)
        case ("queue_defaults", field):
            return _read_of_queue(field, value, is_text=is_text)
        case ("launchers", _, _):
            return value  # Each launcher checks its own settings.
        case ("auth", "keys"):
            return read_api_keys(value)
        case (component, field) if component in COMPONENTS:
            fields = _fields(COMPONENTS[component])
            if field not in fields:
                raise ValueError(_unknown(field, fields, component))
            name, shape = fields[field]
            return _read(name, value, shape, is_text)
        case (component,) if component in COMPONENTS:
            raise ValueError(f"is a group of settings: {', '.join(_fields(COMPONENTS[component]))}")
    if path[0] in _GROUPS:
        raise ValueError(_GROUPS[path[0]])
    known = [
        *COMPONENTS,
        *NamespaceConfig.__struct_fields__,
        "launchers",
        "namespaces",
        "queue_defaults",
    ]
    raise ValueError(_unknown(path[0], known, ""))


#: What must stand below these keys.
_GROUPS = {
    "queue_defaults": "must hold a preset or fields of a policy",
    "launchers": "must map the name of each launcher to its settings, `type` among them",
}


def _read_of_namespace(rest: list[str], value: Any, *, is_text: bool) -> Any:
    """Check a value of a namespace; see `read_value`."""
    match rest:
        case [_, "limits", _]:
            return _convert(value, Annotated[int, Meta(ge=0)], is_text)
        case [_, "queues" | "pools", _] if value in ({}, None):
            return {}
        case [_, "queues", _, field]:
            return _read_of_queue(field, value, is_text=is_text)
        case [_, "pools", _, field]:
            return pool_value(field, value, is_text=is_text)
        case _:
            raise ValueError(_not_a_namespace(rest))


def _read_of_queue(field: str, value: Any, *, is_text: bool) -> Any:
    """Check a preset or a field of a policy; see `read_value`."""
    return _preset(value) if field == "preset" else policy_value(field, value, is_text=is_text)


def policy_value(field: str, value: Any, *, is_text: bool = False) -> Any:
    """Check one field of a policy as a person wrote it, and return it as the core takes it."""
    fields = _fields(Policy)
    if field not in fields:
        raise ValueError(_unknown(field, ["preset", *fields], "a policy"))
    name, shape = fields[field]
    return _read(name, value, shape, is_text)


def pool_value(field: str, value: Any, *, is_text: bool = False) -> Any:
    """Check one setting of a pool as a person wrote it, and return it as the core takes it."""
    fields = _fields(PoolSettings)
    if field not in fields:
        raise ValueError(_unknown(field, fields, "a pool"))
    name, shape = fields[field]
    return _read(name, value, shape, is_text)


def pool_field(field: str) -> str:
    """Return the core's name of a setting of a pool: `stop_delay` is `stop_delay_us`."""
    return f"{field}_us" if f"{field}_us" in PoolSettings.__struct_fields__ else field


def policy_field(field: str) -> str:
    """Return the core's name of a field of a policy: `retry_base` is `retry_base_us`."""
    return f"{field}_us" if f"{field}_us" in Policy.__struct_fields__ else field


def _policy_problems(values: dict[KeyPath, Any], given: dict[KeyPath, Given]) -> Iterable[Problem]:
    """Find values that fit their fields and still make no policy."""
    for path, value in values.items():
        if path[2:3] == ("pools",) and path[4:]:
            pool = msgspec.structs.replace(_WIDE_POOL, **{pool_field(path[4]): value})
            for problem in pool_problems(pool):
                yield Problem(key_of(path), problem.partition(": ")[2], given[path].origin)
        named = path[1:] if path[0] == "queue_defaults" else path[4:]
        is_policy = path[0] == "queue_defaults" or path[2:3] == ("queues",)
        if is_policy and named not in ((), ("preset",)):
            field = policy_field(named[0])
            policy = msgspec.structs.replace(DEFAULT_POLICY, **{field: value})
            for problem in policy_problems(policy):
                yield Problem(key_of(path), problem.partition(": ")[2], given[path].origin)


#: Other settings do not keep any number of workers from being right in itself.
_WIDE_POOL = msgspec.structs.replace(DEFAULT_POOL, workers_min=0, workers_max=WORKERS_PER_GROUP_MAX)


def _build(values: dict[KeyPath, Any]) -> Config:
    tree: dict[str, Any] = {name: {} for name in COMPONENTS}
    namespaces: dict[str, Any] = {}
    launchers: dict[str, dict[str, Any]] = {}
    defaults: dict[str, Any] = {"changes": {}}
    for path, value in values.items():
        if path[0] == "queue_defaults":
            _put_policy(defaults, path[1], value)
            continue
        if path[0] == "launchers":
            launchers.setdefault(path[1], {})[path[2]] = value
            continue
        if path[0] != "namespaces":
            name, _ = _fields(COMPONENTS[path[0]])[path[1]]
            tree[path[0]][name] = value
            continue
        _, namespace, kind, name, *field = path
        ns = namespaces.setdefault(namespace, {"queues": {}, "limits": {}, "pools": {}})
        if kind == "limits":
            ns["limits"][name] = value
            continue
        if kind == "pools":
            pool = ns["pools"].setdefault(name, {})
            if field:
                pool[pool_field(field[0])] = value
            continue
        queue = ns["queues"].setdefault(name, {"changes": {}})
        if field:
            _put_policy(queue, field[0], value)
    components: dict[str, Any] = {name: COMPONENTS[name](**tree[name]) for name in tree}
    return Config(
        **components,
        launchers=launchers,
        queue_defaults=QueueConfig(**defaults),
        namespaces={
            name: NamespaceConfig(
                {queue: QueueConfig(**fields) for queue, fields in ns["queues"].items()},
                ns["limits"],
                ns["pools"],
            )
            for name, ns in namespaces.items()
        },
    )


def _put_policy(queue: dict[str, Any], field: str, value: Any) -> None:
    if field == "preset":
        queue["preset"] = value
    else:
        queue["changes"][policy_field(field)] = value


def _settings(values: dict[KeyPath, Any], given: dict[KeyPath, Given]) -> list[Setting]:
    """List every setting in the order of this file, then queues and limits."""
    settings = []
    for component, key, name, _ in known_settings():
        fixed = (component, key)
        value = values[fixed] if fixed in values else getattr(COMPONENTS[component](), name)
        origin = given[fixed].origin if fixed in given else Origin(Place.DEFAULT)
        is_hidden = value and is_secret(component, name)
        settings.append(Setting(key_of(fixed), HIDDEN if is_hidden else plain(name, value), origin))
    others = ("launchers", "namespaces", "queue_defaults")
    for path in sorted(path for path in values if path[0] in others):
        if path[0] == "launchers":
            shown = HIDDEN if path[2] == "env" else without_credentials(values[path])
            settings.append(Setting(key_of(path), shown, given[path].origin))
            continue
        is_field = bool(path[4:]) or path[0] == "queue_defaults"
        name = pool_field(policy_field(path[-1])) if is_field else ""
        settings.append(Setting(key_of(path), plain(name, values[path]), given[path].origin))
    return settings


def known_settings() -> Iterable[tuple[str, str, str, str]]:
    """Yield component, key, name in the code and meaning of every setting that has a fixed key."""
    for component, shape in COMPONENTS.items():
        for key, (name, hint) in _fields(shape).items():
            (meta,) = hint.__metadata__
            yield component, key, name, meta.description


def is_secret(component: str, name: str) -> bool:
    """Return whether a setting is never to be shown."""
    _, hint = _fields(COMPONENTS[component])[name.removesuffix("_us")]
    return bool((hint.__metadata__[0].extra or {}).get("secret"))


def plain(name: str, value: Any) -> Any:
    """Show a value as it would be written in a file; of an API key only which one it is."""
    if isinstance(value, tuple):
        return [
            f"{each.id} ({each.name})" if isinstance(each, ApiKey) else without_credentials(each)
            for each in value
        ]
    if name.endswith("_us"):
        return format_duration(value)
    return value.value if isinstance(value, Enum) else without_credentials(value)


def without_credentials(value: Any) -> Any:
    """Show a value with the credentials removed from the addresses in it."""
    if isinstance(value, str):
        return _PARAMETER.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", value))
    if isinstance(value, dict):
        return {name: without_credentials(each) for name, each in value.items()}
    return [without_credentials(each) for each in value] if isinstance(value, list) else value


# Values.

HIDDEN = "(hidden)"

#: In an address: what stands before the host, and parameters that are called like a secret.
_USER = re.compile(r"(\w[\w+.-]*://)[^/?#\s]*@")
_PARAMETER = re.compile(
    r"([?&;][^=&;\s]*(?:token|key|secret|passw|sig|auth|credential)[^=&;\s]*=)[^&;#\s]+",
    re.IGNORECASE,
)


def _fields(shape: type[msgspec.Struct]) -> dict[str, tuple[str, Any]]:
    """Return the keys of a struct, each with its field and the type of that."""
    hints = get_type_hints(shape, include_extras=True)
    return {name.removesuffix("_us"): (name, hints[name]) for name in shape.__struct_fields__}


def _read(name: str, value: Any, shape: Any, is_text: bool) -> Any:
    if is_text and getattr(shape, "__origin__", None) == tuple[str, ...]:
        value = [part.strip() for part in str(value).split(",") if part.strip()]
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
    if meta is not None and meta.extra:
        return "must be a text"  # It may be a secret: do not repeat it.
    if kind == tuple[str, ...]:
        return f"must be a list of texts, got {value!r}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if kind is str and value == "":
        return "must not be empty"
    return f"must be {words.get(kind, str(error))}, got {value!r}"


class _ApiKeyWritten(msgspec.Struct, forbid_unknown_fields=True):
    """An API key as a file has it."""

    id: str
    hash: str
    name: str
    permissions: tuple[Permission, ...]
    queues: tuple[str, ...] = ()
    namespace: str = ""


def read_api_keys(value: Any) -> tuple[ApiKey, ...]:
    """Read a list of API keys, or the JSON of one. Never repeats what it was given."""
    try:
        written: list[_ApiKeyWritten] = (
            msgspec.json.decode(value, type=list[_ApiKeyWritten])
            if isinstance(value, str)
            else msgspec.convert(value, list[_ApiKeyWritten])
        )
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a list of keys as `jackalope keys new` makes: {error}") from None
    keys = tuple(ApiKey(**msgspec.structs.asdict(each)) for each in written)
    problems = [f"{key.name}: {problem}" for key in keys for problem in api_key_problems(key)]
    if len({key.id for key in keys}) < len(keys):
        problems.append("an id is there twice")
    if problems:
        raise ValueError("; ".join(problems))
    return keys


def _preset(value: Any) -> str:
    if value not in PRESETS:
        names = list(PRESETS)
        raise ValueError(
            f"must be {' or '.join(names)}, got {value!r}{_did_you_mean(value, names)}"
        )
    return str(value)


def _not_a_namespace(rest: list[str]) -> str:
    match rest:
        case [_, "pools", _]:
            return "must hold settings of a pool, or nothing in braces: {}"
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


# Sources of configuration: one file, the environment and the flags of a command.

PREFIX = "JACKALOPE_"

#: The variable that names the file.
FILE_VARIABLE = "JACKALOPE_CONFIG"

#: Looked for in the folder where the broker is started, if no file is named.
FILES = ("jackalope.yaml", "jackalope.yml", "jackalope.toml")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Read the configuration from every place.

    Args:
        file: the file to read, in place of the one that the environment names or that lies there.
        environment: variables.
        flags: by their name on the command line: the key, and the value, None if not given.
        folder: where to look for a file if none is named.

    Raises:
        ConfigError: with every problem of every place.
    """
    variables = environment or {}
    problems: list[Problem] = []
    given: list[Given] = []
    notes: list[Note] = []
    found = find_file(file, variables, folder)
    if found is not None:
        given += _from_file(found, problems, notes)
    given += _from_environment(variables, problems)
    given += _from_flags(flags or {})
    return msgspec.structs.replace(merge(given, problems), notes=notes)


def find_file(
    file: Path | None, environment: Mapping[str, str], folder: Path | None = None
) -> Path | None:
    """Return the file that is read, or None: it is then done without."""
    if file is not None:
        return file
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    here = folder or Path()
    return next((here / name for name in FILES if (here / name).is_file()), None)


# The file.


def _from_file(file: Path, problems: list[Problem], notes: list[Note]) -> Iterator[Given]:
    origin = Origin(Place.FILE, str(file))
    try:
        tree = _parse(file)
    except OSError as error:
        problems.append(Problem("file", error.strerror or str(error), origin))
        return
    except ValueError as error:
        problems.append(Problem("file", str(error), origin))
        return
    translated = translate(tree)
    notes += translated.notes
    problems += [Problem(key, message, origin) for key, message in translated.problems]
    for path, value in _flatten(translated.tree, ()):
        if all(isinstance(part, str) for part in path):
            yield Given(path, value, origin)
        else:
            key = ".".join(str(part) for part in path)
            problems.append(Problem(key, "is no text; put the name in quotes", origin))


def _parse(file: Path) -> dict[str, Any]:
    """Read a file by its ending.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not of the format of its ending.
    """
    if file.suffix not in {".yaml", ".yml", ".toml"}:
        raise ValueError("must end in .yaml, .yml or .toml")
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".toml":
        return tomllib.loads(text)
    import yaml  # noqa: PLC0415  most starts do without

    try:
        tree = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"no YAML: {where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from None
    if isinstance(tree, dict | None):
        return tree or {}
    raise ValueError("must map keys to values, such as `native: {port: 7420}`")


def _flatten(tree: Mapping[Any, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each setting of a tree. What is not where a setting can be is left for `merge`."""
    for name, value in tree.items():
        here = (*path, name)
        if isinstance(value, dict) and value and len(here) < _depth(here):
            yield from _flatten(value, here)
        elif value in ({}, None) and not _may_be_empty(here) and len(here) < _depth(here):
            continue  # A heading with nothing under it sets nothing.
        else:
            yield here, value


def _depth(path: KeyPath) -> int:
    """Return how many names make a setting, from the first of them."""
    if path[0] == "namespaces":
        return 2 + _depth(path[2:]) if len(path) > 2 else 3
    known = {"queues": 3, "pools": 3, "launchers": 3, "limits": 2, "queue_defaults": 2}
    return known.get(path[0], 2 if path[0] in COMPONENTS else 1)


def _may_be_empty(path: KeyPath) -> bool:
    """Return whether this is a queue or a pool, which is declared even without settings."""
    inner = path[2:] if path[0] == "namespaces" else path
    return len(inner) == 2 and inner[0] in ("queues", "pools")


# The environment.


def _from_environment(variables: Mapping[str, str], problems: list[Problem]) -> Iterator[Given]:
    """Take every variable with a double underscore, which all settings have and nothing else has.

    Others with our prefix belong to other programs: Kubernetes sets `JACKALOPE_PORT` for a service
    of that name. Only one that differs from ours by an underscore is taken for a slip.
    """
    slips = {
        f"{PREFIX}{component}_{key}".upper(): f"{PREFIX}{component}__{key}".upper()
        for component, key, *_ in known_settings()
    }
    for variable, text in sorted(variables.items()):
        if not variable.startswith(PREFIX):
            continue
        origin = Origin(Place.ENVIRONMENT, variable)
        path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        if len(path) > 1:
            yield Given(path, text, origin, is_text=True)
        elif variable in slips and not text.startswith("tcp://"):
            message = f"unknown variable; did you mean {slips[variable]}?"
            problems.append(Problem(path[0], message, origin))


# The flags.


def _from_flags(flags: Mapping[str, tuple[str, Any]]) -> Iterator[Given]:
    for flag, (key, value) in flags.items():
        if value is not None:
            yield Given(tuple(key.split(".")), value, Origin(Place.FLAG, flag), is_text=True)
