"""The configuration file of the published task queue design, in our settings.

Owns the translation of its sections (`broker`, `persistence`, `raft`, `api`, `monitoring`, `worker`
and parts of `auth`), and the note that each of its keys leaves: what it became, or why it has no
effect. Values are checked where ours are, under our keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

KeyPath = tuple[str, ...]


class Note(msgspec.Struct, frozen=True):
    """The effect of a key of the file."""

    key: str
    message: str
    has_effect: bool = True

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class Translated(msgspec.Struct):
    """A tree of our settings, the notes on it, and the problems: keys and messages."""

    tree: dict[Any, Any]
    notes: list[Note] = []
    problems: list[tuple[str, str]] = []


_CLUSTER = "has no effect: `jackalope cluster init` writes the configuration of a cluster"
_WORKER = "has no effect on the broker: `jackalope worker --config` reads it"
_BCRYPT = (
    "bcrypt hashes are not supported: create each key with `jackalope keys new`, put its output "
    "under auth.keys, and remove this"
)


def _one(*path: str) -> Callable[[Any], dict[KeyPath, Any]]:
    return lambda value: {path: value}


def _host(value: Any) -> dict[KeyPath, Any]:
    return {(door, "host"): value for door in ("native", "http", "grpc")}


def _sync(value: Any) -> dict[KeyPath, Any]:
    if not value:
        return {("data", "durability"): "fsync"}
    return {("data", "durability"): "interval", ("data", "interval"): f"{_number(value)}ms"}


def _days(value: Any) -> dict[KeyPath, Any]:
    return {("queue_defaults", "retention"): f"{_number(value) * 24}h"}


def _level(value: Any) -> dict[KeyPath, Any]:
    return {("log", "level"): str(value).lower().replace("warning", "warn")}


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"must be a whole number, got {value!r}")
    return value


#: What each key becomes, and what to add to the note.
_BECOMES: dict[KeyPath, tuple[Callable[[Any], dict[KeyPath, Any]], str]] = {
    ("broker", "host"): (_host, ""),
    ("broker", "port"): (_one("native", "port"), ""),
    ("broker", "max_connections"): (_one("native", "max_connections"), ""),
    ("broker", "queue_depth_threshold"): (
        _one("queue_defaults", "depth_limit"),
        "per queue, not in total",
    ),
    ("persistence", "data_dir"): (_one("data", "folder"), ""),
    ("persistence", "wal_sync_interval_ms"): (_sync, "without it no acknowledged change is lost"),
    ("persistence", "retention_days"): (_days, "for queues that are not declared"),
    ("persistence", "completed_task_retention_days"): (_days, "for queues that are not declared"),
    ("api", "rest_port"): (_one("http", "port"), ""),
    ("api", "grpc_port"): (_one("grpc", "port"), "the door is opened by grpc.enabled"),
    ("api", "tls_cert_path"): (_one("tls", "cert"), "for all doors"),
    ("api", "tls_key_path"): (_one("tls", "key"), "for all doors"),
    ("monitoring", "prometheus_port"): (_one("http", "monitoring_port"), ""),
    ("monitoring", "log_level"): (_level, ""),
}

#: Why keys have no effect.
_IDLE: dict[KeyPath, str] = {
    ("raft", "enabled"): _CLUSTER,
    ("raft", "node_id"): _CLUSTER,
    ("raft", "peers"): _CLUSTER,
    ("raft", "election_timeout_ms"): _CLUSTER,
    ("raft", "heartbeat_interval_ms"): _CLUSTER,
    ("api", "enable_tls"): "has no effect: TLS is used if there is a certificate",
    ("auth", "enabled"): "has no effect: API keys are required as soon as there is one",
    ("worker", "concurrency"): _WORKER,
    ("worker", "heartbeat_interval_secs"): _WORKER,
    ("worker", "graceful_shutdown_timeout_secs"): _WORKER,
}

_SECTIONS = ("broker", "persistence", "raft", "api", "monitoring", "worker")


def translate(tree: Mapping[Any, Any]) -> Translated:
    """Translate a configuration to our settings; keys of ours stay as they are."""
    found = Translated({name: value for name, value in tree.items() if name not in _SECTIONS}, [])
    found.problems = []
    if isinstance(tree.get("auth"), dict):
        found.tree["auth"] = {
            name: value
            for name, value in tree["auth"].items()
            if name not in ("enabled", "api_keys")
        }
    foreign = list(_foreign(tree, found))
    has_tls = all(path != ("api", "enable_tls") or value for path, value in foreign)
    for path, value in foreign:
        if not has_tls and path[1].startswith("tls_"):
            found.notes.append(Note(".".join(path), "has no effect: enable_tls is off", False))
        else:
            _translate(path, value, found)
    if any(name in tree for name in ("broker", "persistence")):
        _put(found.tree, ("queue_defaults", "preset"), "taskqueue")
        note = "queues that are not declared have the preset taskqueue: queue_defaults.preset"
        found.notes.append(Note("broker", note))
        _put(found.tree, ("http", "names"), "task_queue")
        note = "answers over HTTP have the names of its API: http.names"
        found.notes.append(Note("broker", note))
    return found


def _foreign(tree: Mapping[Any, Any], found: Translated) -> Iterator[tuple[KeyPath, Any]]:
    for section in (*_SECTIONS, "auth"):
        fields = tree.get(section) or {}
        if not isinstance(fields, dict):
            if section != "auth":
                found.problems.append((section, "must map keys to values"))
            continue
        for name, value in fields.items():
            if section != "auth" or name in ("enabled", "api_keys"):
                yield (section, str(name)), value


def _translate(path: KeyPath, value: Any, found: Translated) -> None:
    key = ".".join(path)
    if path in _BECOMES:
        make, remark = _BECOMES[path]
        try:
            became = make(value)
        except ValueError as error:
            found.problems.append((key, str(error)))
            return
        for ours, given in became.items():
            _put(found.tree, ours, given, found, key)
        shown = ", ".join(f"{'.'.join(ours)}: {given}" for ours, given in became.items())
        found.notes.append(Note(key, f"became {shown}" + (f" ({remark})" if remark else "")))
    elif path in _IDLE:
        if not (path == ("raft", "enabled") and value is False):
            found.notes.append(Note(key, _IDLE[path], has_effect=False))
    elif path == ("auth", "api_keys"):
        if value:
            found.problems.append((key, _BCRYPT))
    else:
        known = [name for section, name in (*_BECOMES, *_IDLE) if section == path[0]]
        found.problems.append((key, f"unknown key; {path[0]} has {', '.join(known)}"))


def _put(
    tree: dict[Any, Any], path: KeyPath, value: Any, found: Translated | None = None, key: str = ""
) -> None:
    """Set a value of our tree. A value that the file itself has set takes precedence."""
    section = tree.setdefault(path[0], {})
    if not isinstance(section, dict):
        return
    if path[1] not in section:
        tree[path[0]] = {**section, path[1]: value}
    elif found is not None:
        found.problems.append((key, f"{'.'.join(path)} is given as well; remove one"))
