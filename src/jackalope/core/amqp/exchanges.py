"""Exchanges, bindings and rules: declare and remove them.

Owns the checks.
"""

from __future__ import annotations

from jackalope.core.amqp.arguments import (
    BadArgument,
    changed_policy,
    exchange_terms,
    queue_terms,
    rule_of,
    rule_problem,
)
from jackalope.core.amqp.lifetimes import watch_idle
from jackalope.core.commands.amqp import (
    Bind,
    ClearRule,
    Consume,
    OpenExchange,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    TakeTask,
    Unbind,
)
from jackalope.core.context import Context
from jackalope.core.effects import Accepted
from jackalope.core.limits import (
    BINDINGS_PER_NAMESPACE_MAX,
    EXCHANGES_PER_NAMESPACE_MAX,
    NAME_CHARS_MAX,
    RULES_PER_NAMESPACE_MAX,
)
from jackalope.core.namespaces import drop_exchange, open_namespace, unbind_one
from jackalope.core.records import Bound, ExchangeDeclared, QueueDeclared, RuleCleared, RuleSet
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import (
    DEFAULT_EXCHANGE,
    GIVEN_NAMES,
    AppliesTo,
    Binding,
    Exchange,
    Kind,
    Rule,
    requests_queue,
)
from jackalope.core.shapes.problems import Problem, refuse
from jackalope.core.state.changes import is_volatile_binding
from jackalope.core.state.queue import Namespace, Queue
from jackalope.core.state.routing import MATCHES
from jackalope.core.state.topology import lane_of
from jackalope.core.tasks.submit import trim


def absent_queue(ctx: Context, namespace: str, name: str) -> Refusal:
    """Refuse a queue that does not exist, or that is internal to a pool."""
    ns = ctx.book.namespaces.get(namespace)
    pool = None if ns is None else ns.topology.reserved.get(name)
    if pool is None:
        return refuse(Problem.NO_QUEUE, name, namespace)
    return refuse(Problem.QUEUE_OF_POOL, name, namespace, value=pool)


def locked(queue: Queue, owner: int) -> Refusal | None:
    if queue.traits is None or queue.traits.owner in (0, owner):
        return None
    return refuse(Problem.LOCKED, queue.name, queue.namespace.name)


def not_permitted(what: str, name: str) -> Refusal:
    """Refuse what an API key does not cover, with the same message whether it exists or not."""
    return Refusal(Code.FORBIDDEN, f"the API key does not permit this for {what} '{name}'")


def is_hidden(command: Consume | TakeTask | RemoveQueue, queue: Queue | None) -> bool:
    """Return whether the API key does not cover the queue and the session does not own it."""
    if command.only is None or command.queue in command.only:
        return False
    traits = None if queue is None else queue.traits
    return traits is None or not command.owner or traits.owner != command.owner


def find_open(ctx: Context, command: Consume | TakeTask | PurgeQueue) -> Queue | Refusal:
    """Return the queue that a command names, or a refusal."""
    queue = ctx.book.queue(command.namespace, command.queue)
    if not isinstance(command, PurgeQueue) and is_hidden(command, queue):
        return not_permitted("queue", command.queue)
    if queue is None:
        return absent_queue(ctx, command.namespace, command.queue)
    return locked(queue, command.owner) or queue


# Exchanges.


def open_exchange(ctx: Context, command: OpenExchange) -> Accepted | Refusal:
    """Declare an exchange: create it, or compare it with the existing one."""
    wanted = command.exchange
    namespace = open_namespace(ctx, command.namespace)
    if isinstance(namespace, Refusal):
        return namespace
    before = namespace.topology.exchanges.get(wanted.name)
    if before is not None:
        return (not command.passive and _different(before, wanted, namespace.name)) or Accepted()
    if command.passive:
        return refuse(Problem.NO_EXCHANGE, wanted.name, namespace.name)
    if not command.may_make:
        return not_permitted("exchange", wanted.name)
    refusal = _unfit(namespace, wanted)
    if refusal is None:
        rule = rule_of(namespace.topology.rules.values(), wanted.name, AppliesTo.EXCHANGES)
        exchange = exchange_terms(wanted, rule)
        ctx.record(ExchangeDeclared(ctx.now_us, namespace.name, exchange, command.by))
    return refusal or Accepted()


def _unfit(namespace: Namespace, exchange: Exchange) -> Refusal | None:
    if not 0 < len(exchange.name) <= NAME_CHARS_MAX:
        message = f"an exchange must have a name of 1 to {NAME_CHARS_MAX} characters"
        return Refusal(Code.INVALID, message)
    if exchange.name.startswith("amq."):
        return refuse(Problem.RESERVED_EXCHANGE, exchange.name, namespace.name)
    argument = "alternate-exchange"
    alternate = exchange.arguments.get(argument, "")
    if not isinstance(alternate, str):
        return refuse(
            Problem.BAD_ALTERNATE, exchange.name, namespace.name, argument=argument, value=alternate
        )
    if len(namespace.topology.exchanges) - len(GIVEN_NAMES) >= EXCHANGES_PER_NAMESPACE_MAX:
        message = f"there are {EXCHANGES_PER_NAMESPACE_MAX} exchanges; delete one first"
        return Refusal(Code.TOO_MANY, message)
    return None


def _different(before: Exchange, wanted: Exchange, namespace: str) -> Refusal | None:
    """Refuse a declaration that is not equivalent to the existing exchange."""
    alternate = "alternate-exchange"
    for argument, now, then in (
        ("type", wanted.kind, before.kind),
        ("durable", wanted.durable, before.durable),
        ("auto_delete", wanted.auto_delete, before.auto_delete),
        ("internal", wanted.internal, before.internal),
        (alternate, wanted.arguments.get(alternate), before.arguments.get(alternate)),
    ):
        if now != then:
            return refuse(
                Problem.DIFFERENT_EXCHANGE,
                before.name,
                namespace,
                argument=argument,
                value=now,
                current=then,
            )
    return None


def remove_exchange(ctx: Context, command: RemoveExchange) -> Accepted | Refusal:
    namespace = ctx.book.namespaces.get(command.namespace)
    if command.exchange == DEFAULT_EXCHANGE:
        return refuse(Problem.DEFAULT_EXCHANGE, DEFAULT_EXCHANGE, command.namespace)
    if command.exchange.startswith("amq."):
        return refuse(Problem.SYSTEM_EXCHANGE, command.exchange, command.namespace)
    if namespace is None or command.exchange not in namespace.topology.exchanges:
        return Accepted()
    if pool := namespace.topology.reserved.get(command.exchange):
        message = f"exchange '{command.exchange}' belongs to pool '{pool}'; delete the pool"
        return Refusal(Code.FORBIDDEN, message)
    if command.if_unused and next(namespace.topology.from_source(command.exchange), None):
        return refuse(Problem.EXCHANGE_IN_USE, command.exchange, namespace.name)
    drop_exchange(ctx, namespace, command.exchange, command.by)
    return Accepted()


# Bindings.


def bind(ctx: Context, command: Bind) -> Accepted | Refusal:
    namespace = open_namespace(ctx, command.namespace)
    if isinstance(namespace, Refusal):
        return namespace
    binding, topology = command.binding, namespace.topology
    is_known = binding.name() in topology.bindings or _is_of_pool(namespace, binding)
    refusal = None
    if command.only is not None and not is_known:
        refusal = _foreign(namespace, binding, command.only)
    if refusal is None and not _is_of_pool(namespace, binding):
        refusal = _ends(ctx, namespace, binding, command.owner)
    if refusal is not None or is_known:
        return refusal or Accepted()
    match = binding.arguments.get("x-match", "all")
    if topology.exchanges[binding.source].kind is Kind.HEADERS and match not in MATCHES:
        return refuse(Problem.BAD_MATCH, binding.source, namespace.name, value=match)
    if len(binding.key) > NAME_CHARS_MAX:
        message = f"a routing key has at most {NAME_CHARS_MAX} characters"
        return Refusal(Code.INVALID, message)
    if len(topology.bindings) >= BINDINGS_PER_NAMESPACE_MAX:
        message = f"there are {BINDINGS_PER_NAMESPACE_MAX} bindings; remove one first"
        return Refusal(Code.TOO_MANY, message)
    is_volatile = is_volatile_binding(namespace, binding)
    ctx.record(Bound(ctx.now_us, namespace.name, binding, is_volatile))
    return Accepted()


def unbind(ctx: Context, command: Unbind) -> Accepted | Refusal:
    namespace = ctx.book.namespaces.get(command.namespace)
    binding = command.binding
    if command.only is not None:
        refusal = _foreign(namespace, binding, command.only)
        if refusal is not None:
            return refusal
    if namespace is not None and _is_of_pool(namespace, binding):
        pool = namespace.topology.requests[binding.source]
        return refuse(Problem.QUEUE_OF_POOL, binding.to, namespace.name, value=pool)
    if namespace is None or binding.name() not in namespace.topology.bindings:
        # As RabbitMQ does since 3.2: what is not there is unbound already.
        return (namespace is not None and _default(namespace, binding)) or Accepted()
    refusal = _ends(ctx, namespace, binding, command.owner)
    if refusal is None:
        unbind_one(ctx, namespace, binding)
    return refusal or Accepted()


def _foreign(
    namespace: Namespace | None, binding: Binding, queues: tuple[str, ...]
) -> Refusal | None:
    """Refuse a binding unless it stays within these queues and exposes no messages of others.

    An exchange is within them if all its bindings lead to them, it has one, and no other exchange
    is bound to it. A predefined exchange is within any set.
    """
    refusal = not_permitted("exchange", binding.source)
    if namespace is None or binding.is_to_exchange or binding.to not in queues:
        return refusal
    topology = namespace.topology
    exchange = topology.exchanges.get(binding.source)
    if exchange is None or binding.source in GIVEN_NAMES or binding.source in topology.reserved:
        return refusal
    leading = list(topology.from_source(binding.source))
    is_own = (
        bool(leading)
        and all(not each.is_to_exchange and each.to in queues for each in leading)
        and next(topology.to_target(binding.source, is_exchange=True), None) is None
        and not exchange.alternate
        and all(each.alternate != binding.source for each in topology.exchanges.values())
        and not any(_sends_dead_letters(each, binding.source) for each in namespace.queues.values())
    )
    return None if is_own else refusal


def _sends_dead_letters(queue: Queue, exchange: str) -> bool:
    return queue.traits is not None and queue.traits.dead_letter_exchange == exchange


def _default(namespace: Namespace, binding: Binding) -> Refusal | None:
    if binding.source == DEFAULT_EXCHANGE or (binding.is_to_exchange and not binding.to):
        return refuse(Problem.DEFAULT_EXCHANGE, DEFAULT_EXCHANGE, namespace.name)
    return None


def _is_of_pool(namespace: Namespace, binding: Binding) -> bool:
    """Return whether a binding is the implicit one of a pool: its exchange to a key's queue."""
    pool = namespace.topology.requests.get(binding.source)
    if pool is None or binding.is_to_exchange or binding.to in namespace.queues:
        return False
    return binding.to == requests_queue(pool, binding.key)


def _ends(ctx: Context, namespace: Namespace, binding: Binding, owner: int) -> Refusal | None:
    """Refuse a binding whose source or destination does not exist or may not be changed."""
    exchanges = namespace.topology.exchanges
    refusal = _default(namespace, binding)
    if refusal is not None:
        return refusal
    for name in (binding.source, *((binding.to,) if binding.is_to_exchange else ())):
        if name not in exchanges:
            return refuse(Problem.NO_EXCHANGE, name, namespace.name)
    if not binding.is_to_exchange:
        queue = namespace.queues.get(binding.to)
        if queue is not None:
            return locked(queue, owner)
        lane = lane_of(namespace.queues, binding.to)
        if lane is not None:
            return refuse(Problem.QUEUE_OF_POOL, binding.to, namespace.name, value=lane[0])
        return absent_queue(ctx, namespace.name, binding.to)
    return None


# Rules.


def set_rule(ctx: Context, command: SetRule) -> Accepted | Refusal:
    namespace, rule = open_namespace(ctx, command.namespace), command.rule
    if isinstance(namespace, Refusal):
        return namespace
    problem = rule_problem(rule)
    if isinstance(problem, BadArgument):
        bad = problem._asdict()
        return refuse(Problem.BAD_DEFINITION, rule.name, namespace.name, **bad)
    if problem is not None:
        return Refusal(Code.INVALID, f"rule {rule.name!r}: {problem}")
    rules = namespace.topology.rules
    if rule.name not in rules and len(rules) >= RULES_PER_NAMESPACE_MAX:
        message = f"there are {RULES_PER_NAMESPACE_MAX} rules; clear one first"
        return Refusal(Code.TOO_MANY, message)
    if rules.get(rule.name) != rule:
        before = list(rules.values())
        ctx.record(RuleSet(ctx.now_us, namespace.name, rule, command.by))
        _apply_rules(ctx, namespace, before, command.by)
    return Accepted()


def clear_rule(ctx: Context, command: ClearRule) -> Accepted | Refusal:
    namespace = ctx.book.namespaces.get(command.namespace)
    if namespace is None or command.rule not in namespace.topology.rules:
        return refuse(Problem.NO_RULE, command.rule, command.namespace)
    before = list(namespace.topology.rules.values())
    ctx.record(RuleCleared(ctx.now_us, namespace.name, command.rule, command.by))
    _apply_rules(ctx, namespace, before, command.by)
    return Accepted()


def _apply_rules(ctx: Context, namespace: Namespace, before: list[Rule], by: str) -> None:
    rules = list(namespace.topology.rules.values())
    for exchange in list(namespace.topology.exchanges.values()):
        if exchange.name == DEFAULT_EXCHANGE:
            continue
        changed = exchange_terms(exchange, rule_of(rules, exchange.name, AppliesTo.EXCHANGES))
        if changed != exchange:
            ctx.record(ExchangeDeclared(ctx.now_us, namespace.name, changed, by))
    for queue in list(namespace.queues.values()):
        if queue.traits is None:
            continue
        policy, traits = queue_terms(queue.traits, rule_of(rules, queue.name, AppliesTo.QUEUES))
        then, _ = queue_terms(queue.traits, rule_of(before, queue.name, AppliesTo.QUEUES))
        # What was changed at another door stays: a rule changes only what it sets itself.
        policy = changed_policy(queue.policy, then, policy)
        if (policy, traits) != (queue.policy, queue.traits):
            ctx.record(QueueDeclared(ctx.now_us, namespace.name, queue.name, policy, by, traits))
            ctx.agenda.add(trim, queue)
            watch_idle(ctx, queue)
            ctx.roster.check_deliveries(namespace.name, queue.name, ctx.now_us)
            ctx.agenda.offer_queue(queue)
