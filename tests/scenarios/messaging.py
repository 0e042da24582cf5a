"""Verbs of messaging: queues, exchanges, consumers and messages in the manner of AMQP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jackalope.core.commands import AnyCommand
from jackalope.core.commands.amqp import (
    Bind,
    ClearRule,
    Consume,
    GrantCredit,
    HoldConsumer,
    LimitShare,
    OpenExchange,
    OpenQueue,
    Publication,
    PublishMessages,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    StopConsuming,
    TakeTask,
    Unbind,
    WaitForReplies,
)
from jackalope.core.shapes.exchange import AppliesTo, Binding, Exchange, Kind, Rule
from jackalope.core.shapes.pool import LAUNCH_LABEL, POOL_LABEL
from jackalope.wire import amqp_properties as properties
from tests.scenarios.language import Order
from tests.scenarios.phrases import DEFAULT

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage


_NO_KEY = "(none)"


def open_queue(stage: Stage, order: Order) -> AnyCommand:
    queue = order.word("a queue")
    session, owner = stage.client(order), stage.session(order.text("owner", "client"))
    return OpenQueue(
        queue=queue,
        key=_key(order),
        durable=not order.flag("volatile"),
        exclusive=order.flag("exclusive"),
        auto_delete=order.flag("auto-delete"),
        passive=order.flag("passive"),
        generated=order.flag("generated"),
        session=session,
        owner=owner,
        namespace=order.text("namespace", DEFAULT),
        arguments=_arguments(order),
    )


def remove_queue(stage: Stage, order: Order) -> AnyCommand:
    return RemoveQueue(
        queue=order.word("a queue"),
        key=_key(order),
        if_unused=order.flag("if-unused"),
        if_empty=order.flag("if-empty"),
        session=stage.client(order),
        owner=stage.session(order.text("owner", "client")),
    )


def empty_queue(stage: Stage, order: Order) -> AnyCommand:
    queue, owner = order.word("a queue"), order.text("owner", "client")
    session, key = stage.client(order), _key(order)
    return PurgeQueue(queue=queue, key=key, session=session, owner=stage.session(owner))


def open_exchange(stage: Stage, order: Order) -> AnyCommand:
    name, kind = order.word("an exchange"), Kind(order.text("kind", "direct"))
    durable, auto_delete = not order.flag("volatile"), order.flag("auto-delete")
    internal, passive = order.flag("internal"), order.flag("passive")
    session = stage.client(order)
    exchange = Exchange(name, kind, durable, auto_delete, internal, _arguments(order))
    return OpenExchange(exchange=exchange, passive=passive, session=session)


def remove_exchange(stage: Stage, order: Order) -> AnyCommand:
    return RemoveExchange(
        exchange=order.word("an exchange"),
        if_unused=order.flag("if-unused"),
        session=stage.client(order),
    )


def bind(stage: Stage, order: Order) -> AnyCommand:
    source, session = order.word("an exchange"), stage.client(order)
    owner = stage.session(order.text("owner", "client"))
    exchange, key = order.text("exchange"), order.text("key")
    to = exchange or order.text("queue")
    binding = Binding(source, to, bool(exchange), key, _arguments(order))
    shape = Bind if order.verb == "bind" else Unbind
    return shape(binding=binding, owner=owner, session=session)


def set_rule(stage: Stage, order: Order) -> AnyCommand:
    name, session = order.word("a name"), stage.client(order)
    pattern, priority = order.text("pattern"), order.number("priority")
    applies_to = AppliesTo(order.text("applies_to", "all"))
    return SetRule(
        rule=Rule(name, pattern, _arguments(order), priority, applies_to), session=session
    )


def clear_rule(stage: Stage, order: Order) -> AnyCommand:
    return ClearRule(rule=order.word("a name"), session=stage.client(order))


def publish(stage: Stage, order: Order) -> AnyCommand:
    session, exchange, key = stage.client(order), order.text("exchange"), order.text("key")
    mandatory, persistent = order.flag("mandatory"), not order.flag("transient")
    priority, expires = order.number("priority"), order.duration_us("expires", -1)
    payload, only = order.text("payload"), order.list("only")
    names = order.names("the names of messages")
    raw: properties.Raw = {properties.DELIVERY_MODE: b"\2" if persistent else b"\1"}
    for flag, name in ((properties.CORRELATION_ID, "id"), (properties.REPLY_TO, "reply_to")):
        if text := order.text(name):
            raw[flag] = properties.short(text)
    headers = {name: properties.field_of(value) for name, value in _arguments(order).items()}
    if headers:
        properties.put_headers(raw, headers)
    if priority:
        raw[properties.PRIORITY] = bytes((priority,))
    messages = [
        Publication(
            stage.task(name),
            exchange,
            key,
            properties.join(raw),
            (payload or name).encode(),
            mandatory,
            persistent,
            priority,
            expires,
        )
        for name in names
    ]
    return PublishMessages(messages=messages, session=session, only=only)


def consume(stage: Stage, order: Order) -> AnyCommand:
    consumer, queue, user = order.word("a consumer"), order.text("queue"), order.text("user")
    return Consume(
        consumer=consumer,
        session=stage.session(consumer),
        queue=queue,
        key=_key(order),
        slots=order.number("slots", 1),
        share=order.number("share"),
        share_slots=order.number("share_slots"),
        credit=order.number("credit") or None,
        exclusive=order.flag("exclusive"),
        priority=order.number("priority"),
        owner=stage.session(order.text("owner", "client")),
        # So the door says of a consumer of a pool, by its user, which launch it came of.
        labels={POOL_LABEL: queue, LAUNCH_LABEL: user} if user else {},
    )


def stop(stage: Stage, order: Order) -> AnyCommand:
    return StopConsuming(session=stage.session(order.word("a consumer")))


def hold_consumer(stage: Stage, order: Order) -> AnyCommand:
    session = stage.session(order.word("a consumer"))
    return HoldConsumer(session=session, is_held=not order.flag("no-more"))


def grant(stage: Stage, order: Order) -> AnyCommand:
    session = stage.session(order.word("a consumer"))
    return GrantCredit(session=session, credit=order.number("credit"))


def share(stage: Stage, order: Order) -> AnyCommand:
    number, slots = order.number("number", 1), order.number("slots")
    who = order.text("consumer")
    return LimitShare(share=number, slots=slots, session=stage.session(who or "client"))


def take(stage: Stage, order: Order) -> AnyCommand:
    consumer = order.word("a consumer")
    return TakeTask(
        consumer=consumer,
        session=stage.session(consumer),
        queue=order.text("queue"),
        key=_key(order),
        owner=stage.session(order.text("owner", "client")),
    )


def wait_for_replies(stage: Stage, order: Order) -> AnyCommand:
    session = stage.client(order)
    address, is_over = order.word("an address"), order.flag("no-more")
    return WaitForReplies(session=session, address=address, is_over=is_over)


def _key(order: Order) -> str | None:
    """Return the key of whose requests a command is; none if it does not say."""
    key = order.text("key", _NO_KEY)
    return None if key == _NO_KEY else key


def _arguments(order: Order) -> dict[str, Any]:
    return {name: _value(text) for name, text in order.rest().items()}


def _value(text: str) -> Any:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


MESSAGING = {
    "open": open_queue,
    "remove": remove_queue,
    "empty": empty_queue,
    "open-exchange": open_exchange,
    "remove-exchange": remove_exchange,
    "bind": bind,
    "unbind": bind,
    "rule": set_rule,
    "clear-rule": clear_rule,
    "publish": publish,
    "consume": consume,
    "stop": stop,
    "hold-consumer": hold_consumer,
    "grant": grant,
    "share": share,
    "wait-for-replies": wait_for_replies,
    "take": take,
}
