"""Configuration: the value of every setting of a broker, and where it came from.

Owns the merging and the places that values come from; `schema` owns the shapes. Values come from
the defaults there, then one file, then the environment, then the flags of the command; later wins.
Everything that is wrong is found at once, also in the queues, pools and limits that are declared.

How one value is written, checked and shown is the same for all settings: `jackalope.core.settings`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from jackalope.broker.config.declared import (
    KeyLimitConfig,
    NamespaceConfig,
    PoolConfig,
    QueueConfig,
)
from jackalope.broker.config.schema import COMPONENTS, Config
from jackalope.broker.config.task_queue_file import Note, translate
from jackalope.core import Core
from jackalope.core.admin.configuration import refusals_of
from jackalope.core.api_key import ApiKey, Permission, api_key_problems
from jackalope.core.commands import (
    DEFAULT_NAMESPACE,
    AnyCommand,
    DeclareAll,
    DeclarePool,
    DeclareQueue,
    LimitTag,
)
from jackalope.core.commands.limits import DeclareLimits
from jackalope.core.policy import PRESETS, Policy
from jackalope.core.refusals import Refusal
from jackalope.core.settings import Field, as_data, find_field, keys_of, plain, read
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.pool import PoolSettings

KeyPath = tuple[str, ...]


class Place(StrEnum):
    """The sources of values, the weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """The source of a value: its kind and name."""

    place: Place
    name: str = ""

    def __str__(self) -> str:
        return f"{self.place} {self.name}" if self.name else self.place.value


class Given(msgspec.Struct, frozen=True):
    """A value as written. `is_text` if its source has only text."""

    path: KeyPath
    value: Any
    origin: Origin
    is_text: bool = False


class Problem(msgspec.Struct, frozen=True):
    """A problem of the configuration."""

    key: str
    message: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.key}: {self.message} ({self.origin})"


class ConfigError(Exception):
    """The configuration is invalid; it lists every problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class Setting(msgspec.Struct, frozen=True):
    """One line of `jackalope config show`."""

    key: str
    value: Any
    origin: Origin


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, the origin of each value, and what was translated for it."""

    config: Config
    settings: list[Setting]
    notes: list[Note] = []


_LAUNCHERS = "must map the name of each launcher to its settings, `type` among them"


# Merging.


def merge(given: Iterable[Given], problems: Iterable[Problem] = ()) -> Loaded:
    """Merge all given values, the weakest first, into a configuration."""
    found = list(problems)
    latest: dict[KeyPath, Given] = {}
    values: dict[KeyPath, Any] = {}
    for each in given:
        path = _full_path(each.path)
        before = latest.get(path)
        if before is not None and before.origin == each.origin:
            found.append(Problem(key_of(path), "duplicate key", each.origin))
        latest[path] = each
        try:
            values[path] = read_value(path, each.value, is_text=each.is_text)
        except ValueError as error:
            found.append(Problem(key_of(path), str(error), each.origin))
    if found:
        raise ConfigError(found)
    return Loaded(_build(Config, _tree(values)), _settings(values, latest))


def key_of(path: KeyPath) -> str:
    """Format a key as in a file: the default namespace is not named."""
    if path[:2] == ("namespaces", DEFAULT_NAMESPACE) and len(path) > 2:
        path = path[2:]
    return ".".join(path)


def _full_path(path: KeyPath) -> KeyPath:
    """Add the default namespace to `queues`, `limits`, `key_limits` and `pools`.

    `limits` has settings of the broker too: they take precedence over tags of the same name.
    """
    is_short = path[0] in NamespaceConfig.__struct_fields__
    if is_short and path[0] in COMPONENTS and len(path) > 1:
        is_short = path[1] not in keys_of(COMPONENTS[path[0]])
    return ("namespaces", DEFAULT_NAMESPACE, *path) if is_short else path


# The tree of settings. Its branches are structs and dictionaries; at its leaves are fields.

#: Branches that change some fields of a struct of the core, and what that is called.
_CHANGED: dict[Any, tuple[type[msgspec.Struct], str]] = {
    QueueConfig: (Policy, "a policy"),
    PoolConfig: (PoolSettings, "a pool"),
    KeyLimitConfig: (LimitSettings, "a limit"),
}

#: What must stand below these branches; others map names to settings.
_HOLDS = {
    QueueConfig: "must be a preset, fields of a policy, or {}",
    PoolConfig: "must be settings of a pool, or {}",
    KeyLimitConfig: "must be settings of a limit, or {}",
    dict[str, dict[str, Any]]: _LAUNCHERS,
    dict[str, Any]: _LAUNCHERS,
}
_PRESET = Field("preset", str, tuple(PRESETS))


def _is_branch(shape: Any) -> bool:
    is_struct = isinstance(shape, type) and issubclass(shape, msgspec.Struct)
    return is_struct or get_origin(shape) is dict


def _below(shape: Any, key: str, owner: str = "") -> Any:
    """Return what is below a key: another branch, or a field; raises `ValueError`."""
    if shape is QueueConfig and key == "preset":
        return _PRESET
    if shape in _CHANGED:
        changed, name = _CHANGED[shape]
        return find_field(changed, key, name, _also(shape))
    if get_origin(shape) is dict:
        field = Field("", get_args(shape)[1])
    else:
        field = find_field(shape, key, owner, _also(shape))
    return field.hint if _is_branch(field.hint) else field


def _also(shape: Any) -> Iterable[str]:
    return {QueueConfig: ("preset",), Config: NamespaceConfig.__struct_fields__}.get(shape, ())


def _find(path: KeyPath) -> Any:
    shape: Any = Config
    for depth, key in enumerate(path):
        if isinstance(shape, Field):
            raise ValueError(f"{'.'.join(path[:depth])} is a single setting and has no keys")  # noqa: TRY004
        owner = "a namespace" if shape is NamespaceConfig else ".".join(path[:depth])
        shape = _below(shape, key, owner)
    return shape


def read_value(path: KeyPath, value: Any, *, is_text: bool = False) -> Any:
    """Validate a value, and return it as the configuration holds it."""
    if path == ("auth", "keys"):
        return read_api_keys(value)
    place = _find(path)
    if isinstance(place, Field):
        return read(place, value, is_text=is_text)
    if path[0] == "namespaces" and place in _CHANGED and value in ({}, None):
        return {}  # Declared, with nothing to change.
    if path[0] in COMPONENTS:
        raise ValueError(f"is a group of settings: {', '.join(keys_of(place))}")
    raise ValueError(_HOLDS.get(place, "must map names to settings"))


def _build(shape: Any, tree: Any) -> Any:
    """Make the struct of a branch from the values below it."""
    if shape in _CHANGED:
        fixed = {"preset": tree["preset"]} if "preset" in tree else {}
        changes = {_below(shape, key).name: tree[key] for key in tree if key not in fixed}
        return shape(**fixed, changes=changes)
    if get_origin(shape) is dict:
        inner = get_args(shape)[1]
        return {name: _build(inner, value) for name, value in tree.items()}
    if not _is_branch(shape):
        return tree
    fields = keys_of(shape)
    return shape(**{fields[key].name: _build(fields[key].hint, tree[key]) for key in tree})


def _tree(values: dict[KeyPath, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node.setdefault(path[-1], value)
    return tree


def _settings(values: dict[KeyPath, Any], given: dict[KeyPath, Given]) -> list[Setting]:
    """List every setting in the order of the schema, then launchers, queues and limits."""
    settings = []
    for component, key, name, _ in known_settings():
        fixed = (component, key)
        value = values[fixed] if fixed in values else getattr(COMPONENTS[component](), name)
        origin = given[fixed].origin if fixed in given else Origin(Place.DEFAULT)
        is_hidden = value and is_secret(component, name)
        settings.append(Setting(key_of(fixed), HIDDEN if is_hidden else shown(name, value), origin))
    for path in sorted(path for path in values if path[0] not in COMPONENTS):
        place = _find(path)
        value = shown(place.name if isinstance(place, Field) else "", values[path])
        is_hidden = path[0] == "launchers" and path[2] == "env"
        settings.append(Setting(key_of(path), HIDDEN if is_hidden else value, given[path].origin))
    return settings


def known_settings() -> Iterable[tuple[str, str, str, str]]:
    """Yield component, key, field name and description of every setting with a fixed key."""
    for component, shape in COMPONENTS.items():
        for key, field in keys_of(shape).items():
            (meta,) = field.hint.__metadata__
            yield component, key, field.name, meta.description


def is_secret(component: str, name: str) -> bool:
    hint = keys_of(COMPONENTS[component])[name.removesuffix("_us")].hint
    return bool((hint.__metadata__[0].extra or {}).get("secret"))


def shown(name: str, value: Any) -> Any:
    """Format a value as in a file; an API key is shown by its id only."""
    if isinstance(value, tuple):
        return [
            f"{each.id} ({each.name})" if isinstance(each, ApiKey) else without_credentials(each)
            for each in value
        ]
    return without_credentials(plain(name, value))


def without_credentials(value: Any) -> Any:
    """Format a value with the credentials removed from addresses."""
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


class _ApiKeyWritten(msgspec.Struct, forbid_unknown_fields=True):
    """An API key as written in a file."""

    id: str
    hash: str
    name: str
    permissions: tuple[Permission, ...]
    queues: tuple[str, ...] = ()
    namespace: str = ""


def read_api_keys(value: Any) -> tuple[ApiKey, ...]:
    """Parse a list of API keys, or the JSON of one. Never repeats its input in errors."""
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
        problems.append("duplicate id")
    if problems:
        raise ValueError("; ".join(problems))
    return keys


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
    """Load the configuration from all sources; raises `ConfigError` with every problem.

    `flags` maps option names to a key and a value, None if not given. `folder` is searched for a
    file if none is named.
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
    for path, value in _flatten(translated.tree):
        if all(isinstance(part, str) for part in path):
            yield Given(path, value, origin)
        else:
            key = ".".join(str(part) for part in path)
            problems.append(Problem(key, "must be a string; put the name in quotes", origin))


def _parse(file: Path) -> dict[str, Any]:
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
        raise ValueError(f"not valid YAML: {where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from None
    if isinstance(tree, dict | None):
        return tree or {}
    raise ValueError("must map keys to values, such as `native: {port: 7420}`")


def _flatten(
    tree: Mapping[Any, Any], shape: Any = Config, path: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each setting of a tree. `merge` reports what is misplaced."""
    for key, value in tree.items():
        here, inner = (*path, key), _place(shape, key)
        if not _is_branch(inner):
            yield here, value
        elif isinstance(value, dict) and value:
            yield from _flatten(value, inner, here)
        elif value not in ({}, None) or (inner in _CHANGED and get_origin(shape) is dict):
            yield here, value
        # Otherwise it is a heading with nothing under it, which sets nothing.


def _place(shape: Any, key: Any) -> Any:
    """Return what is below a key; None if nothing can be."""
    if shape is Config and key in NamespaceConfig.__struct_fields__:
        shape = NamespaceConfig
    try:
        return _below(shape, key)
    except ValueError:
        return None


# The environment.


def _from_environment(variables: Mapping[str, str], problems: list[Problem]) -> Iterator[Given]:
    """Take every variable with a double underscore, which exactly the settings have.

    Others with our prefix belong to other programs: Kubernetes sets `JACKALOPE_PORT` for a service
    of that name. Only one that differs from ours by an underscore is reported as a typo.
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


# What a configuration declares, as one command, and what is wrong with it.

_BY = "configuration"


class Declarations:
    """All that a configuration declares."""

    def __init__(self, config: Config) -> None:
        wanted = _declarations(config)
        self.keys = [key for key, _ in wanted]
        # what declares it
        self.command = DeclareAll(declarations=[command for _, command in wanted])

    def problems(self, refused: list[tuple[int, Refusal]]) -> list[str]:
        """Return what is wrong, each with the key of the setting."""
        return [f"{self.keys[place]}: {refusal.message}" for place, refusal in refused]


def declaration_problems(config: Config) -> list[str]:
    """Return what a broker without any queue would refuse of a configuration."""
    core = Core()
    core.default_policy = config.queue_defaults.policy()
    core.pools.launchers = tuple(config.launchers)
    wanted = Declarations(config)
    return wanted.problems(refusals_of(core, wanted.command.declarations))


def _declarations(config: Config) -> list[tuple[str, AnyCommand]]:
    """Return the commands that declare what is configured, each with its key."""
    commands: list[tuple[str, AnyCommand]] = []
    for namespace, ns in config.namespaces.items():
        for queue, settings in ns.queues.items():
            declare = DeclareQueue(
                queue=queue,
                changes={name: as_data(each) for name, each in settings.changes.items()},
                preset=settings.preset,
                namespace=namespace,
                by=_BY,
            )
            commands.append((key_of(("namespaces", namespace, "queues", queue)), declare))
        for queue, wanted in ns.pools.items():
            changes = dict(wanted.changes)
            pool = DeclarePool(queue=queue, changes=changes, namespace=namespace, by=_BY)
            commands.append((key_of(("namespaces", namespace, "pools", queue)), pool))
        for tag, limit in ns.limits.items():
            command = LimitTag(tag=tag, limit=limit, namespace=namespace, by=_BY)
            commands.append((key_of(("namespaces", namespace, "limits", tag)), command))
        for name, by_key in ns.key_limits.items():
            # All settings: what is no longer in the file is as if it had never been.
            limits = {name: msgspec.to_builtins(LimitSettings(**by_key.changes))}
            declared = DeclareLimits(limits=limits, namespace=namespace, by=_BY)
            commands.append((key_of(("namespaces", namespace, "key_limits", name)), declared))
    return commands
