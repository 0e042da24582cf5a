"""Policies: where designs of task queues disagree, a queue's policy decides.

This module owns the fields, their defaults and the presets. It does not know how a field takes
effect; the module that acts on one says so.
"""

from enum import StrEnum

import msgspec

from jackalope.core.durations import DAY, HOUR, MINUTE, NEVER, SECOND
from jackalope.core.limits import (
    CACHE_BYTES_MAX,
    CACHE_ENTRIES_MAX,
    COUNT_MAX,
    NAME_CHARS_MAX,
    TIME_US_MAX,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import Same


class OnLost(StrEnum):
    """What becomes of a running task whose worker is lost."""

    REQUEUE = "requeue"
    PAUSE = "pause"
    DEAD = "dead"


class OnRestart(StrEnum):
    """What becomes of leases when the broker itself restarts."""

    KEEP = "keep"
    REQUEUE = "requeue"


class Done(StrEnum):
    """When a task counts as done: when its worker ends it, or as soon as the worker has it."""

    PROCESSED = "processed"
    RECEIVED = "received"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one queue. Every default is written here and nowhere else."""

    # what to do with a running task whose worker is lost. A task that was only assigned always
    # becomes ready again.
    on_lost: OnLost = OnLost.REQUEUE
    # keep leases for `restart_grace_us` after a restart of the broker and let workers resume, or
    # put leased tasks back at once
    on_restart: OnRestart = OnRestart.KEEP
    restart_grace_us: int = 30 * SECOND  # how long a lease outlives a restart without its worker
    retries: int = 3  # how many failures are tried again; the next one is final
    retry_base_us: int = 5 * SECOND  # wait before the first retry
    retry_factor: float = 2.0  # each further wait is this many times longer
    retry_cap_us: int = HOUR  # no wait is longer
    crash_limit: int = 5  # how many lost workers a task may cost before it is dead; 0 for no limit
    interruption_limit: int = 0  # how many interruptions before it is dead; 0 for no limit
    # keep a failed task from the worker it failed on while another exists
    prefer_other_worker: bool = True
    priority_drop: int = 0  # how much priority a failed task loses at each failure
    ageing_us: int = 0  # each such span of waiting counts as one step of priority; 0 for no ageing
    time_to_live_us: int = 0  # a task that has not begun by then is dead; 0 for no limit
    timeout_us: int = 0  # how long an attempt may run when the task does not say; 0 for no limit
    depth_limit: int = 100_000  # how many tasks may wait in the queue; 0 for no limit
    batch_size: int = 100  # how many tasks fill a batch
    # how long an ended task is kept; 0 forgets at once, NEVER keeps for good
    retention_us: int = 7 * DAY
    result_becomes: str = ""  # the queue of the same namespace in which each result becomes a task
    held: bool = False  # new tasks wait to be played
    done: Done = Done.PROCESSED  # when a task counts as done
    stuck_after_us: int = 0  # an attempt that runs for longer is shown as stuck; 0 for never
    same: Same = Same.RUN  # what to do with a task that asks for the same as another; not `refresh`
    cache_us: int = HOUR  # how long an answer is good for whoever asks for the same; 0 keeps none
    cache_entries: int = 10_000  # how many answers are kept; the least recently used goes first
    cache_bytes: int = 256 * 1024 * 1024  # how many bytes they may have together


#: What each published design asks for, in our fields.
PRESETS = {
    # A person decides about a calculation whose worker vanished; results live in AiiDA's database.
    "aiida": Policy(
        held=True, on_lost=OnLost.PAUSE, restart_grace_us=20 * SECOND, retries=0, retention_us=0
    ),
    # Another worker tries at once, a little later in line; results stay until they are deleted. A
    # worker that hands every job back must not be given the same one for ever.
    "gridlike": Policy(
        retries=4,
        retry_base_us=0,
        priority_drop=1,
        crash_limit=20,
        interruption_limit=20,
        retention_us=NEVER,
        stuck_after_us=HOUR,
    ),
    # The caller waits: an answer within three minutes or none, and an error is an answer.
    "rpc": Policy(
        on_restart=OnRestart.REQUEUE,
        retries=0,
        crash_limit=3,
        time_to_live_us=3 * MINUTE,
        retention_us=0,
    ),
    # Requests and their answers live for an hour; asking again is the caller's retry.
    "jobqueue": Policy(
        retries=0,
        crash_limit=20,
        time_to_live_us=HOUR,
        retention_us=HOUR,
        same=Same.CACHED,
        cache_us=HOUR,
    ),
    # A message is given again until it is taken or dead; nobody asks for it afterwards.
    "amqp": Policy(
        on_restart=OnRestart.REQUEUE,
        retries=0,
        crash_limit=0,
        prefer_other_worker=False,
        depth_limit=0,
        retention_us=0,
    ),
    "taskqueue": Policy(
        on_restart=OnRestart.REQUEUE,
        retries=3,
        crash_limit=20,
        timeout_us=5 * MINUTE,
        retention_us=7 * DAY,
    ),
    # As with rpc, but the workers are started for their key and outlive the broker's restarts, and
    # an answer stays for a caller who has to come back for it. A worker that hands every request
    # back must not be given the same one for ever.
    "pool": Policy(
        retries=0,
        crash_limit=3,
        interruption_limit=20,
        time_to_live_us=3 * MINUTE,
        retention_us=10 * MINUTE,
    ),
}

DEFAULT_POLICY = Policy()

#: What a queue can do about tasks that ask for the same.
SAME_OF_QUEUES = (Same.RUN, Same.UNIQUE, Same.CACHED)

#: What has a limit of its own.
_MOST = {
    "retention_us": NEVER,
    "cache_us": NEVER,
    "cache_entries": CACHE_ENTRIES_MAX,
    "cache_bytes": CACHE_BYTES_MAX,
}

_NOT_NEGATIVE = tuple(
    name
    for name in Policy.__struct_fields__
    if name.endswith(("_us", "_limit", "_drop", "retries")) or name.startswith("cache_")
)


def change_policy(policy: Policy, changes: dict[str, object]) -> Policy | Refusal:
    """Return the policy with some fields changed, or a refusal that lists every problem."""
    problems = [
        f"{name}: unknown; a policy has {', '.join(Policy.__struct_fields__)}"
        for name in changes
        if name not in Policy.__struct_fields__
    ]
    changed = policy
    for name, value in changes.items():
        if name in Policy.__struct_fields__:
            try:
                changed = msgspec.convert({**msgspec.to_builtins(changed), name: value}, Policy)
            except msgspec.ValidationError as error:
                problems.append(f"{name}: {error}")
    problems += policy_problems(changed)
    if problems:
        return Refusal(Code.INVALID, "policy not changed. " + "; ".join(problems))
    return changed


def policy_problems(policy: Policy) -> list[str]:
    """List what is wrong with the values of a policy, one sentence each."""
    problems = [
        f"{name}: must not be negative, got {getattr(policy, name)}"
        for name in _NOT_NEGATIVE
        if getattr(policy, name) < 0
    ]
    problems += [
        f"{name}: must be at most {most(name)}, got {getattr(policy, name)}"
        for name in (*_NOT_NEGATIVE, "batch_size")
        if getattr(policy, name) > most(name)
    ]
    if len(policy.result_becomes) > NAME_CHARS_MAX:
        problems.append(f"result_becomes: longer than {NAME_CHARS_MAX} characters")
    if not 1.0 <= policy.retry_factor <= 100.0:
        problems.append(f"retry_factor: must be between 1 and 100, got {policy.retry_factor}")
    if policy.batch_size < 1:
        problems.append(f"batch_size: must be at least 1, got {policy.batch_size}")
    if policy.same not in SAME_OF_QUEUES:
        words = ", ".join(SAME_OF_QUEUES)
        problems.append(f"same: {policy.same} is for a single task; a queue has {words}")
    return problems


def most(name: str) -> int:
    """Return the greatest value that a number of a policy may have."""
    if name in _MOST:
        return _MOST[name]
    return TIME_US_MAX if name.endswith("_us") else COUNT_MAX
