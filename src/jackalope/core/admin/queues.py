"""Commands about queues and tags: declaring, pausing, limiting.

Owns which policies are accepted. A queue that is named for the first time is created with the
default policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.core.commands import DeclareQueue, DeleteQueue, LimitTag, PauseQueue, ResumeQueue
from jackalope.core.effects import Accepted, Declared
from jackalope.core.limits import (
    COUNT_MAX,
    LIMITED_TAGS_PER_NAMESPACE_MAX,
    NAME_CHARS_MAX,
    NAMESPACES_MAX,
    QUEUES_PER_NAMESPACE_MAX,
    TAG_CHARS_MAX,
)
from jackalope.core.policy import PRESETS, Policy, change_policy
from jackalope.core.records import QueueDeclared, QueuePaused, QueueResumed, TagLimited
from jackalope.core.refusals import Code, Refusal
from jackalope.core.tasks.assign import offer_queue

if TYPE_CHECKING:
    from jackalope.core.core import Core
    from jackalope.core.state.queue import Namespace, Queue


def open_queue(
    core: Core, namespace: str, name: str, by: str, policy: Policy | None = None
) -> Queue | Refusal:
    """Find a queue, or make it with this policy, else the default one."""
    queue = core.book.queue(namespace, name)
    if queue is not None:
        return queue
    refusal = no_room(core, namespace, name, is_used=policy is None)
    if refusal is not None:
        return refusal
    policy = policy or core.default_policy
    core.record(QueueDeclared(core.now_us, namespace, name, policy, by))
    return core.book.namespaces[namespace].queues[name]


def open_namespace(core: Core, name: str) -> Namespace | Refusal:
    """Find a namespace, or make it; while it is empty that need not be written down."""
    found = core.book.namespaces.get(name)
    return found or _no_namespace(core, name, is_used=True) or core.book.namespace(name)


def open_queues(
    core: Core, namespace: str, names: tuple[str, ...], by: str, *, is_used: bool = True
) -> Refusal | None:
    """Create those queues that do not exist yet: all of them, or none and report why."""
    book = core.book
    new = [name for name in dict.fromkeys(names) if book.queue(namespace, name) is None]
    for name in new:
        refusal = no_room(core, namespace, name, len(new), is_used=is_used)
        if refusal is not None:
            return refusal
    for name in new:
        core.record(QueueDeclared(core.now_us, namespace, name, core.default_policy, by))
    return None


def declare_queue(core: Core, command: DeclareQueue) -> None:
    """Create a queue or change its policy."""
    queue = core.book.queue(command.namespace, command.queue)
    policy = core.default_policy if queue is None else queue.policy
    if command.preset:
        preset = PRESETS.get(command.preset)
        if preset is None:
            message = f"no preset {command.preset!r}; there are {', '.join(PRESETS)}"
            core.reply(command, Refusal(Code.INVALID, message))
            return
        policy = preset
    changed = change_policy(policy, command.changes)
    if isinstance(changed, Refusal):
        core.reply(command, changed)
        return
    target = changed.result_becomes
    is_target_new = bool(target) and core.book.queue(command.namespace, target) is None
    count = is_target_new + (queue is None)
    refusal = no_room(core, command.namespace, command.queue, count) if count else None
    refusal = refusal or _cycle(core, command, changed)
    if refusal is None and is_target_new:
        # What results become must be there before the first result.
        targets = (target,)
        refusal = open_queues(core, command.namespace, targets, command.by, is_used=False)
    if refusal is not None:
        core.reply(command, refusal)
        return
    if queue is None or queue.policy != changed:
        traits = None if queue is None else queue.traits
        core.record(
            QueueDeclared(
                core.now_us, command.namespace, command.queue, changed, command.by, traits
            )
        )
        core.roster.check_deliveries(command.namespace, command.queue, core.now_us)
    core.reply(command, Declared(changed))


def pause_queue(core: Core, command: PauseQueue) -> None:
    """Give out no task of the queue until it is resumed."""
    queue = known_queue(core, command)
    if queue is None:
        return
    if not queue.paused_by:
        by = command.by or "unknown"
        core.record(
            QueuePaused(core.now_us, command.namespace, command.queue, by, queue.is_volatile())
        )
    core.reply(command, Accepted())


def resume_queue(core: Core, command: ResumeQueue) -> None:
    """Give out tasks of the queue again."""
    queue = known_queue(core, command)
    if queue is None:
        return
    if queue.paused_by:
        core.record(
            QueueResumed(
                core.now_us, command.namespace, command.queue, command.by, queue.is_volatile()
            )
        )
    core.reply(command, Accepted())
    offer_queue(core, queue)


def limit_tag(core: Core, command: LimitTag) -> None:
    """Set or remove the limit of a tag."""
    if not 0 < len(command.tag) <= TAG_CHARS_MAX:
        message = f"a tag must have 1 to {TAG_CHARS_MAX} characters, got {len(command.tag)}"
        core.reply(command, Refusal(Code.INVALID, message))
        return
    namespace = core.book.namespaces.get(command.namespace)
    limits = {} if namespace is None else namespace.limits
    if command.tag not in limits and len(limits) >= LIMITED_TAGS_PER_NAMESPACE_MAX:
        message = f"{len(limits)} tags have limits; remove one before limiting another"
        core.reply(command, Refusal(Code.TOO_MANY, message))
        return
    refusal = _no_namespace(core, command.namespace)
    if refusal is not None or command.limit > COUNT_MAX:
        message = f"limit: must be at most {COUNT_MAX}, got {command.limit}"
        core.reply(command, refusal or Refusal(Code.INVALID, message))
        return
    limit = max(command.limit, -1)
    if limits.get(command.tag, -1) != limit:
        core.record(TagLimited(core.now_us, command.namespace, command.tag, limit, command.by))
        namespace = core.book.namespaces[command.namespace]
        for queue in namespace.queues.values():
            offer_queue(core, queue)
    core.reply(command, Accepted())


def known_queue(core: Core, command: DeleteQueue | PauseQueue | ResumeQueue) -> Queue | None:
    """Find the queue of a command, or refuse the command."""
    queue = core.book.queue(command.namespace, command.queue)
    if queue is None:
        message = f"no queue {command.queue!r} in namespace {command.namespace!r}; declare it first"
        core.reply(command, Refusal(Code.UNKNOWN_QUEUE, message))
    return queue


def no_room(
    core: Core, namespace: str, name: str, count: int = 1, *, is_used: bool = False
) -> Refusal | None:
    """Refuse new queues of which one's name is unfit or for which there is no room.

    What is merely used, and not declared, leaves room for what is.
    """
    if not 0 < len(name) <= NAME_CHARS_MAX:
        message = f"queue: must have 1 to {NAME_CHARS_MAX} characters, got {len(name)}"
        return Refusal(Code.INVALID, message)
    refusal = _no_namespace(core, namespace, is_used=is_used)
    if refusal is not None:
        return refusal
    if is_used:
        there = sum(len(each.queues) for each in core.book.namespaces.values())
        if there + count > core.queues_by_use_max:
            message = f"there are {there} queues; declare queue {name!r} before it is used"
            return Refusal(Code.TOO_MANY, f"{message}, or raise limits.queues_by_use")
    ns = core.book.namespaces.get(namespace)
    if ns is not None and len(ns.queues) + count > QUEUES_PER_NAMESPACE_MAX:
        message = f"namespace {namespace!r} has {len(ns.queues)} queues; delete one first"
        return Refusal(Code.TOO_MANY, message)
    return None


def _no_namespace(core: Core, name: str, *, is_used: bool = False) -> Refusal | None:
    """Refuse a new namespace whose name is unfit or for which there is no room."""
    if not 0 < len(name) <= NAME_CHARS_MAX:
        message = f"namespace: must have 1 to {NAME_CHARS_MAX} characters, got {len(name)}"
        return Refusal(Code.INVALID, message)
    there = len(core.book.namespaces)
    if name in core.book.namespaces:
        return None
    if there >= NAMESPACES_MAX:
        return Refusal(Code.TOO_MANY, f"there are {NAMESPACES_MAX} namespaces; use one of them")
    if is_used and there >= core.namespaces_by_use_max:
        message = f"there are {there} namespaces; declare a queue in namespace {name!r} first"
        return Refusal(Code.TOO_MANY, f"{message}, or raise limits.namespaces_by_use")
    return None


def _cycle(core: Core, command: DeclareQueue, policy: Policy) -> Refusal | None:
    """Refuse a policy by which a result would come back to the queue it came from."""
    path, target = [command.queue], policy.result_becomes
    while target:
        path.append(target)
        if target == command.queue:
            message = f"results would go in a circle: {' -> '.join(path)}"
            return Refusal(Code.POLICY_CYCLE, message + "; end the chain at one of these queues")
        queue = core.book.queue(command.namespace, target)
        target = "" if queue is None else queue.policy.result_becomes
    return None
