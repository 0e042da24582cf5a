"""Labels: what a launched worker is known by, and what it is given to know itself.

Owns how an order becomes labels and environment, and labels become an entry of the list again.
Which backend holds them is the launcher's.
"""

from __future__ import annotations

from collections.abc import Mapping

from jackalope.core.assertions import must
from jackalope.pools.launcher import Launch, Launched, LaunchFailed, Phase

PREFIX = "jackalope."
OWNER = f"{PREFIX}owner"
WORKER = f"{PREFIX}worker"

_FIELDS = ("worker", "namespace", "pool", "key", "generation", "version")

WORKER_LENGTH_MAX = 63
_WORKER_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def launched_of(launch: Launch, phase: Phase = Phase.STARTING) -> Launched:
    """Return the entry of what an order starts."""
    return Launched(**{field: getattr(launch, field) for field in _FIELDS}, phase=phase)


def labels_of(launch: Launch, owner: str, prefix: str = PREFIX) -> dict[str, str]:
    """Return an order's labels, as text."""
    labels = {f"{prefix}{field}": str(getattr(launch, field)) for field in _FIELDS}
    return {f"{prefix}owner": owner, **labels}


def launched_with(
    labels: Mapping[str, str],
    phase: Phase,
    external_id: str,
    detail: str = "",
    prefix: str = PREFIX,
) -> Launched | None:
    """Return the entry of something that has labels; None if they are not ours."""
    given = {field: labels.get(f"{prefix}{field}", "") for field in _FIELDS}
    generation = given.pop("generation")
    if not given["worker"] or not generation.isdecimal():
        return None
    return Launched(
        **given, generation=int(generation), phase=phase, external_id=external_id, detail=detail
    )


def env_of(launch: Launch, own: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: the launcher's own variables, and the pool's on top.

    Raises:
        LaunchFailed: a value holds what no environment can.
    """
    check_worker(launch.worker)
    env = {**own, **launch.env}
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise LaunchFailed(
                f"the variable {name!r} of worker {launch.worker} cannot be in an environment: "
                "a name has no '=', and neither has a NUL; use another key"
            )
    return env


def check_worker(worker: str) -> None:
    """Stop if an id could be anything but a name: it becomes a folder, a unit, a container."""
    must(
        0 < len(worker) <= WORKER_LENGTH_MAX and _WORKER_SIGNS.issuperset(worker),
        "a worker's id is 1 to 63 of a-z, 0-9 and -",
        worker,
    )
