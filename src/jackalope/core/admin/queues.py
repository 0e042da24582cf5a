"""Commands about queues and tags: declaring, deleting, pausing, limiting.

Owns which policies are accepted.
"""

from __future__ import annotations

from jackalope.core.amqp.queue_removal import drop_queue, still_needed
from jackalope.core.commands import DeclareQueue, DeleteQueue, LimitTag, PauseQueue, ResumeQueue
from jackalope.core.context import Context
from jackalope.core.effects import Accepted, Declared
from jackalope.core.limits import COUNT_MAX, LIMITED_TAGS_PER_NAMESPACE_MAX, TAG_CHARS_MAX
from jackalope.core.namespaces import no_namespace, no_room, not_kept, open_queue, open_queues
from jackalope.core.policy import CALLBACKS_POLICY, PRESETS, Policy, change_policy, fair_problems
from jackalope.core.records import (
    FLOW_CONTROL_LEVEL,
    QueueDeclared,
    QueuePaused,
    QueueResumed,
    TagLimited,
)
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import (
    CALLBACKS_QUEUE,
    OWN_QUEUE,
    callback_problems,
    trigger_problems,
)
from jackalope.core.shapes.needs import policy_needs_problems
from jackalope.core.state.queue import Queue
from jackalope.core.task import PRIORITY_MAX
from jackalope.core.tasks.levels import too_old_for_callbacks, too_old_for_limits


def declare_queue(ctx: Context, command: DeclareQueue) -> Declared | Refusal:
    queue = ctx.book.queue(command.namespace, command.queue)
    policy = ctx.default_policy if queue is None else queue.policy
    if command.preset:
        preset = PRESETS.get(command.preset)
        if preset is None:
            message = f"unknown preset {command.preset!r}; use {', '.join(PRESETS)}"
            return Refusal(Code.INVALID, message)
        policy = preset
    changed = change_policy(policy, command.changes)
    if isinstance(changed, Refusal):
        return changed
    refusal = _unsound(ctx, command, changed)
    targets = _targets(changed)
    new = [each for each in targets if ctx.book.queue(command.namespace, each) is None]
    has_callbacks = ctx.book.queue(command.namespace, CALLBACKS_QUEUE) is not None
    is_first = bool(changed.callbacks) and not has_callbacks
    count = len(new) + (queue is None) + is_first
    refusal = refusal or (no_room(ctx, command.namespace, command.queue, count) if count else None)
    refusal = refusal or _cycle(ctx, command, changed)
    if refusal is None and new:
        # What results become must be there before the first result.
        refusal = open_queues(ctx, command.namespace, tuple(new), command.by, is_used=False)
    if refusal is not None:
        return refusal
    if is_first:
        open_queue(ctx, command.namespace, CALLBACKS_QUEUE, command.by, CALLBACKS_POLICY)
    if queue is None or queue.policy != changed:
        traits = None if queue is None else queue.traits
        ctx.record(
            QueueDeclared(ctx.now_us, command.namespace, command.queue, changed, command.by, traits)
        )
        ctx.roster.check_deliveries(command.namespace, command.queue, ctx.now_us)
    return Declared(changed)


def delete_queue(ctx: Context, command: DeleteQueue) -> Accepted | Refusal:
    queue = _known(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    if unfinished := queue.unfinished():
        message = f"queue {queue.name!r} has {unfinished} unfinished tasks; kill or finish them"
        return Refusal(Code.QUEUE_NOT_EMPTY, message)
    refusal = still_needed(queue)
    if refusal is None:
        drop_queue(ctx, queue, command.by)
    return refusal or Accepted()


def pause_queue(ctx: Context, command: PauseQueue) -> Accepted | Refusal:
    queue = _known(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    if not queue.paused_by:
        by = command.by or "unknown"
        ctx.record(
            QueuePaused(ctx.now_us, command.namespace, command.queue, by, queue.is_volatile())
        )
        if ctx.roster.reserved:
            ctx.agenda.offer_queue(queue)  # No worker is kept free for it any longer.
    return Accepted()


def resume_queue(ctx: Context, command: ResumeQueue) -> Accepted | Refusal:
    queue = _known(ctx, command)
    if isinstance(queue, Refusal):
        return queue
    if queue.paused_by:
        ctx.record(
            QueueResumed(
                ctx.now_us, command.namespace, command.queue, command.by, queue.is_volatile()
            )
        )
    ctx.agenda.offer_queue(queue)
    return Accepted()


def limit_tag(ctx: Context, command: LimitTag) -> Accepted | Refusal:
    if not 0 < len(command.tag) <= TAG_CHARS_MAX:
        message = f"a tag must have 1 to {TAG_CHARS_MAX} characters, got {len(command.tag)}"
        return Refusal(Code.INVALID, message)
    namespace = ctx.book.namespaces.get(command.namespace)
    limits = {} if namespace is None else namespace.gates.tags
    if command.tag not in limits and len(limits) >= LIMITED_TAGS_PER_NAMESPACE_MAX:
        message = f"{len(limits)} tags have limits; remove one before limiting another"
        return Refusal(Code.TOO_MANY, message)
    refusal = no_namespace(ctx, command.namespace)
    if refusal is not None or command.limit > COUNT_MAX:
        message = f"limit: must be at most {COUNT_MAX}, got {command.limit}"
        return refusal or Refusal(Code.INVALID, message)
    limit = max(command.limit, -1)
    if limits.get(command.tag, -1) != limit:
        ctx.record(TagLimited(ctx.now_us, command.namespace, command.tag, limit, command.by))
    return Accepted()


def _known(ctx: Context, command: DeleteQueue | PauseQueue | ResumeQueue) -> Queue | Refusal:
    message = f"no queue {command.queue!r} in namespace {command.namespace!r}; declare it first"
    queue = ctx.book.queue(command.namespace, command.queue)
    return queue or Refusal(Code.UNKNOWN_QUEUE, message)


def _unsound(ctx: Context, command: DeclareQueue, policy: Policy) -> Refusal | None:
    """Refuse callbacks, triggers, targets and needs that cannot be; list all problems."""
    callbacks, triggers = policy.callbacks, policy.triggers
    problems = callback_problems(callbacks, ctx.callback_targets, is_of_queue=True)
    problems += trigger_problems(triggers, PRIORITY_MAX)
    problems += policy_needs_problems(policy.needs)
    if policy.result_becomes == CALLBACKS_QUEUE:
        problems.append(f"result_becomes: {OWN_QUEUE}")
    if command.queue == CALLBACKS_QUEUE and (callbacks or _targets(policy)):
        problems.append(f"nothing follows from the end of a callback: {OWN_QUEUE}")
    problems += fair_problems(policy)
    if problems:
        return Refusal(Code.INVALID, "policy not changed. " + "; ".join(problems))
    if (policy.fair_by or policy.weight) and (refusal := _too_old_for_shares(ctx)):
        return refusal
    if (callbacks or triggers) and (refusal := too_old_for_callbacks(ctx)):
        return refusal
    if policy.needs and (refusal := too_old_for_limits(ctx)):
        return refusal
    for target in _targets(policy):
        queue = ctx.book.queue(command.namespace, target)
        if queue is not None and queue.is_volatile():
            return not_kept(queue)
    return None


def _too_old_for_shares(ctx: Context) -> Refusal | None:
    """Refuse what a member of the cluster could not read."""
    if ctx.level >= FLOW_CONTROL_LEVEL:
        return None
    message = f"fair shares need level {FLOW_CONTROL_LEVEL} of the log, which is at {ctx.level}"
    return Refusal(Code.INVALID, f"{message}; run `jackalope cluster upgrade`")


def _targets(policy: Policy) -> list[str]:
    """Return the queues to which the ends of tasks submit others."""
    targets = [policy.result_becomes, *(trigger.queue for trigger in policy.triggers)]
    return [target for target in dict.fromkeys(targets) if target]


def _cycle(ctx: Context, command: DeclareQueue, policy: Policy) -> Refusal | None:
    """Refuse a policy by which the end of a task would lead back to its queue."""
    seen: set[str] = set()
    paths = [[command.queue, target] for target in _targets(policy)]
    while paths:
        path = paths.pop()
        target = path[-1]
        if target == command.queue:
            message = f"results would form a cycle: {' -> '.join(path)}"
            return Refusal(Code.POLICY_CYCLE, message + "; end the chain at one of these queues")
        queue = None if target in seen else ctx.book.queue(command.namespace, target)
        seen.add(target)
        if queue is not None:
            paths += [[*path, each] for each in _targets(queue.policy)]
    return None
