"""The worker's file of the published task queue design, as options of `jackalope worker`.

Owns what its keys mean here. Options on the command line win over the file.
"""

from pathlib import Path
from typing import Any

from jackalope.cli.base import Exit, Failure

#: The key, and the option that it stands for.
KEYS = {
    "broker_address": "--broker",
    "concurrency": "--concurrency",
    "heartbeat_interval_secs": "--lease",
    "graceful_shutdown_timeout_secs": "--drain-deadline",
}

#: A worker is given up when this many of its heartbeats are missing.
_MISSED_BEATS = 2


def read_worker_file(file: str) -> dict[str, str]:
    """Return the options that a file stands for, with their values as they would be written."""
    import yaml

    try:
        tree = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", code=Exit.USAGE) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(
            f"{file}: not valid YAML: {' '.join(str(error).split())}", code=Exit.USAGE
        ) from None
    fields = tree.get("worker", tree) if isinstance(tree, dict) else tree
    if not isinstance(fields, dict):
        raise Failure(f"{file}: must map keys to values", code=Exit.USAGE)
    problems = [
        f"{key}: unknown key; there are {', '.join(KEYS)}" for key in fields if key not in KEYS
    ]
    problems += [
        f"{key}: must be a whole number, got {value!r}"
        for key, value in fields.items()
        if key in KEYS and key != "broker_address" and not _is_count(value)
    ]
    if problems:
        raise Failure(f"{file}: invalid settings", code=Exit.USAGE, details=problems)
    return {KEYS[key]: _written(key, value) for key, value in fields.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _written(key: str, value: Any) -> str:
    if key == "heartbeat_interval_secs":
        return f"{value * _MISSED_BEATS}s"
    return f"{value}s" if key == "graceful_shutdown_timeout_secs" else str(value)
