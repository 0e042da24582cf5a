"""Policies: the settings of a queue, for everything in which task queues differ.

This module owns the fields, their defaults and bounds, and the presets. It does not know how a
field takes effect; the module that acts on one says so.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from jackalope.core.durations import DAY, HOUR, MINUTE, NEVER, SECOND
from jackalope.core.limits import (
    CACHE_BYTES_MAX,
    CACHE_ENTRIES_MAX,
    COUNT_MAX,
    FAIR_WEIGHT_MAX,
    FAIR_WEIGHTS_PER_QUEUE_MAX,
    KEY_NAME_CHARS_MAX,
    KEY_VALUE_CHARS_MAX,
    NAME_CHARS_MAX,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.settings import Bounds, Count, Duration, change
from jackalope.core.shapes.callback import Callback, Trigger
from jackalope.core.shapes.contract import OnMisfit
from jackalope.core.shapes.request import Same


class OnLost(StrEnum):
    """What to do with a running task whose worker is lost."""

    REQUEUE = "requeue"
    PAUSE = "pause"
    DEAD = "dead"


class OnRestart(StrEnum):
    """What to do with leases when the broker itself restarts."""

    KEEP = "keep"
    REQUEUE = "requeue"


class Done(StrEnum):
    """When a task counts as done: when its worker finishes it, or on receipt."""

    PROCESSED = "processed"
    RECEIVED = "received"


#: How many weights that cannot be are listed.
_PROBLEMS_SHOWN_MAX = 20

#: What a queue can do about tasks that ask for the same; `refresh` is for a single task.
SAME_OF_QUEUES = (Same.RUN, Same.UNIQUE, Same.CACHED)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of one queue. Every default is written here and nowhere else.

    A field at its default is not written, so that versions without the field can read what does not
    use it. A default therefore never changes.
    """

    # what to do with a running task whose worker is lost. A task that was only assigned always
    # becomes ready again.
    on_lost: OnLost = OnLost.REQUEUE
    # keep leases for `restart_grace_us` after a restart of the broker and let workers resume, or
    # put leased tasks back at once
    on_restart: OnRestart = OnRestart.KEEP
    # how long a lease outlives a restart without its worker
    restart_grace_us: Duration = 30 * SECOND
    retries: Count = 3  # how many failures are tried again; the next one is final
    retry_base_us: Duration = 5 * SECOND  # wait before the first retry
    # each further wait is this many times longer
    retry_factor: Annotated[float, Bounds(1, 100)] = 2.0
    retry_cap_us: Duration = HOUR  # no wait is longer
    # how many lost workers a task may cost before it is dead; 0 for no limit
    crash_limit: Count = 5
    interruption_limit: Count = 0  # how many interruptions before it is dead; 0 for no limit
    # keep a failed task from the worker it failed on while another exists
    prefer_other_worker: bool = True
    priority_drop: Count = 0  # how much priority a failed task loses at each failure
    # each such span of waiting counts as one step of priority; 0 for no ageing
    ageing_us: Duration = 0
    time_to_live_us: Duration = 0  # a task that has not begun by then is dead; 0 for no limit
    # how long an attempt may run when the task does not say; 0 for no limit
    timeout_us: Duration = 0
    depth_limit: Count = 100_000  # how many tasks may wait in the queue; 0 for no limit
    batch_size: Annotated[int, Bounds(1, COUNT_MAX)] = 100  # how many tasks fill a batch
    # how long an ended task is kept; 0 removes it at once, NEVER keeps it forever
    retention_us: Annotated[int, Bounds(0, NEVER)] = 7 * DAY
    # the queue of the same namespace in which each result becomes a task
    result_becomes: Annotated[str, Bounds(0, NAME_CHARS_MAX)] = ""
    held: bool = False  # new tasks wait to be played
    done: Done = Done.PROCESSED  # when a task counts as done
    stuck_after_us: Duration = 0  # an attempt that runs for longer is shown as stuck; 0 for never
    # what to do with a task that asks for the same as another
    same: Annotated[Same, Bounds(words=SAME_OF_QUEUES)] = Same.RUN
    # how long an answer is used for equal requests; 0 keeps none
    cache_us: Annotated[int, Bounds(0, NEVER)] = HOUR
    # how many answers are kept; the least recently used goes first
    cache_entries: Annotated[int, Bounds(0, CACHE_ENTRIES_MAX)] = 10_000
    # how many bytes they may have together
    cache_bytes: Annotated[int, Bounds(0, CACHE_BYTES_MAX)] = 256 * 1024 * 1024
    # each wait before a retry is shorter by up to this share of it, by chance, so that tasks that
    # failed together are not tried together
    retry_jitter: Annotated[float, Bounds(0, 1)] = 0.2
    callbacks: tuple[Callback, ...] = ()  # where the ends of its tasks and batches are posted
    triggers: tuple[Trigger, ...] = ()  # what is submitted elsewhere when its tasks end
    # the key by whose values tasks are shared out: each value has its turn; empty for none
    fair_by: Annotated[str, Bounds(0, KEY_NAME_CHARS_MAX)] = ""
    # how many turns a value has where others have one
    fair_weights: dict[str, int] = {}
    # how many turns the queue has where others of a worker have one; 0 takes the most urgent task
    # of all its queues, if none has a weight
    weight: Annotated[int, Bounds(0, FAIR_WEIGHT_MAX)] = 0
    # what to do with a task that does not fit what workers say that its name takes
    on_misfit: OnMisfit = OnMisfit.REFUSE
    # what tasks that do not say need of their workers: numbers and sizes such as "8GiB" of
    # resources, and texts that are the values of labels
    needs: dict[str, int | float | str | tuple[str, ...]] = {}


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
    # A message is given again until it is taken or dead; no client asks for it afterwards.
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

#: Of the queue of callbacks: a receiver that is down for half a day misses nothing, and what could
#: not be delivered is there for a month.
CALLBACKS_POLICY = Policy(
    on_restart=OnRestart.REQUEUE,
    retries=20,
    crash_limit=0,
    prefer_other_worker=False,
    depth_limit=0,
    retention_us=30 * DAY,
)


def change_policy(policy: Policy, changes: dict[str, object]) -> Policy | Refusal:
    """Return the policy with some fields changed, or a refusal that lists every problem."""
    changed = change(policy, changes, "a policy")
    if isinstance(changed, list):
        return Refusal(Code.INVALID, "policy not changed. " + "; ".join(changed))
    return changed


def fair_problems(policy: Policy) -> list[str]:
    """Return what is wrong with the weights of a queue's shares."""
    weights, problems = policy.fair_weights, []
    if weights and not policy.fair_by:
        problems.append("fair_weights: weights of what? set fair_by to the name of a key")
    if len(weights) > FAIR_WEIGHTS_PER_QUEUE_MAX:
        problems.append(
            f"fair_weights: must be at most {FAIR_WEIGHTS_PER_QUEUE_MAX}, got {len(weights)}; "
            "the others have a weight of 1"
        )
    for value, weight in list(weights.items())[:FAIR_WEIGHTS_PER_QUEUE_MAX]:
        if len(value) > KEY_VALUE_CHARS_MAX:
            shown = f"{value[:20]}..."
            problems.append(
                f"fair_weights: {shown!r} must have at most {KEY_VALUE_CHARS_MAX} characters"
            )
        if not 1 <= weight <= FAIR_WEIGHT_MAX:
            problems.append(f"fair_weights: {value!r} must be 1 to {FAIR_WEIGHT_MAX}, got {weight}")
    return problems[:_PROBLEMS_SHOWN_MAX]
