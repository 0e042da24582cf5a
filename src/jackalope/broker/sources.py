"""Sources of configuration: one file, the environment and the flags of a command.

Owns how settings are found and written there. What a setting means is the matter of `config`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jackalope.broker.config import (
    Given,
    KeyPath,
    Loaded,
    Origin,
    Place,
    Problem,
    known_settings,
    merge,
)
from jackalope.broker.settings import COMPONENTS
from jackalope.broker.task_queue_file import Note, translate

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
        folder: where to look for a file that nobody has named.

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
        ValueError: it is not what its ending says.
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
            continue  # A heading with nothing under it says nothing.
        else:
            yield here, value


def _depth(path: KeyPath) -> int:
    """Tell how many names make a setting, from the first of them."""
    if path[0] == "namespaces":
        return 2 + _depth(path[2:]) if len(path) > 2 else 3
    known = {"queues": 3, "pools": 3, "launchers": 3, "limits": 2, "queue_defaults": 2}
    return known.get(path[0], 2 if path[0] in COMPONENTS else 1)


def _may_be_empty(path: KeyPath) -> bool:
    """Tell whether this is a queue or a pool, which is declared even if nothing is said of it."""
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
