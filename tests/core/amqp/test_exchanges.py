"""Exchanges, bindings, rules and removal: what is refused, and what a limited key can reach.

The scenarios show how messages flow; here is what each command refuses, and that it changes nothing
then.
"""

from __future__ import annotations

from typing import Any

import pytest

from jackalope.core.commands import AnyCommand, DeclarePool
from jackalope.core.commands.amqp import (
    Bind,
    ClearRule,
    Consume,
    OpenExchange,
    OpenQueue,
    Publication,
    PublishMessages,
    PurgeQueue,
    RemoveExchange,
    RemoveQueue,
    SetRule,
    TakeTask,
    Unbind,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Dropped, Published
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import Binding, Exchange, Kind, Rule
from jackalope.wire.amqp_properties import field_of, join, put_headers
from tests.core.driving import Driver, task_id

LONG = "x" * 257
MINE = ("mine",)


@pytest.fixture
def driver() -> Driver:
    """Return a core with two queues, an exchange for each, and a pool."""
    driver = Driver()
    for name in ("mine", "other"):
        driver.send(OpenQueue(queue=name, durable=True))
        driver.send(OpenExchange(exchange=Exchange(f"to-{name}", Kind.DIRECT)))
        driver.send(Bind(binding=Binding(f"to-{name}", name, key="k")))
    driver.send(DeclarePool(queue="models", changes={}))
    return driver


def code_of(driver: Driver, command: AnyCommand) -> Code | None:
    """Return the code that refuses a command; a refused one changes nothing."""
    before = driver.snapshot()
    answer = driver.send(command)
    if not isinstance(answer, Refusal):
        return None
    assert driver.snapshot() == before
    return answer.code


def exchange(name: str = "new", **fields: Any) -> OpenExchange:
    return OpenExchange(exchange=Exchange(name, Kind.DIRECT, **fields))


def publish(driver: Driver, number: int, to: str, only: tuple[str, ...] = ()) -> Published:
    """Publish a message with the routing key `k`."""
    message = Publication(task_id(number), to, "k", b"", b"body")
    answer = driver.send(PublishMessages(messages=[message], only=only))
    assert isinstance(answer, Published)
    return answer


# Declarations.


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (exchange(""), None),  # The default exchange exists, and is found as it is.
        (exchange(LONG), Code.INVALID),
        (exchange("amq.mine"), Code.FORBIDDEN),
        (exchange(arguments={"alternate-exchange": 5}), Code.NOT_EQUIVALENT),
        (OpenExchange(exchange=Exchange("to-mine", Kind.TOPIC)), Code.NOT_EQUIVALENT),
        (
            OpenExchange(exchange=Exchange("absent", Kind.DIRECT), passive=True),
            Code.UNKNOWN_EXCHANGE,
        ),
        (OpenExchange(exchange=Exchange("new", Kind.DIRECT), may_make=False), Code.FORBIDDEN),
        (OpenExchange(exchange=Exchange("to-mine", Kind.DIRECT), may_make=False), None),
    ],
)
def test_exchange_that_cannot_be_declared(
    driver: Driver, command: OpenExchange, code: Code | None
) -> None:
    assert code_of(driver, command) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", Code.FORBIDDEN),
        ("amq.topic", Code.FORBIDDEN),
        ("models-req-xchg", Code.FORBIDDEN),
        ("absent", None),
        ("to-mine", None),
    ],
)
def test_exchange_is_removed_unless_it_is_given(
    driver: Driver, name: str, code: Code | None
) -> None:
    assert code_of(driver, RemoveExchange(exchange=name)) == code
    assert code_of(driver, RemoveExchange(exchange="to-other", if_unused=True)) == Code.IN_USE


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        (Rule("", "^a", {"max-length": 1}), True),
        (Rule("r", LONG, {"max-length": 1}), True),
        (Rule("r", "(", {"max-length": 1}), True),
        (Rule("r", "^a", {}), True),
        (Rule("r", "^a", {"max-length": -1}), True),
        (Rule("r", "^a", {"max-length": 5}), False),
    ],
)
def test_rule_that_means_nothing_is_refused(driver: Driver, rule: Rule, refused: bool) -> None:
    assert (code_of(driver, SetRule(rule=rule)) is not None) is refused
    assert (code_of(driver, ClearRule(rule="r")) is not None) is refused


# Bindings.


@pytest.mark.parametrize(
    ("binding", "code"),
    [
        (Binding("", "mine"), Code.FORBIDDEN),
        (Binding("to-mine", "", is_to_exchange=True), Code.FORBIDDEN),
        (Binding("absent", "mine"), Code.UNKNOWN_EXCHANGE),
        (Binding("to-mine", "absent", is_to_exchange=True), Code.UNKNOWN_EXCHANGE),
        (Binding("to-mine", "absent"), Code.UNKNOWN_QUEUE),
        (Binding("to-mine", "models-req-paris"), Code.LOCKED),
        (Binding("to-mine", "models-dl"), Code.LOCKED),
        (Binding("to-mine", "mine", key=LONG), Code.INVALID),
        (Binding("amq.headers", "mine", arguments={"x-match": "some"}), Code.NOT_EQUIVALENT),
        (Binding("models-req-xchg", "models-req-paris", key="paris"), None),
        (Binding("to-mine", "to-other", is_to_exchange=True), None),
    ],
)
def test_binding_needs_both_of_its_ends(
    driver: Driver, binding: Binding, code: Code | None
) -> None:
    assert code_of(driver, Bind(binding=binding)) == code


def test_what_is_not_bound_is_unbound_already(driver: Driver) -> None:
    assert driver.send(Unbind(binding=Binding("to-mine", "mine", key="other"))) == Accepted()
    assert driver.send(Unbind(namespace="absent", binding=Binding("a", "b"))) == Accepted()
    implicit = Binding("models-req-xchg", "models-req-paris", key="paris")
    assert code_of(driver, Unbind(binding=implicit)) == Code.LOCKED
    assert code_of(driver, Unbind(binding=Binding("", "mine"))) == Code.FORBIDDEN


def test_limited_key_binds_within_its_queues(driver: Driver) -> None:
    own = Binding("to-mine", "mine", key="more")
    assert driver.send(Bind(binding=own, only=MINE)) == Accepted()
    assert driver.send(Unbind(binding=own, only=MINE)) == Accepted()


@pytest.mark.parametrize(
    "binding",
    [
        Binding("to-other", "mine", key="k"),  # It would show the messages of another queue.
        Binding("to-mine", "other", key="x"),
        Binding("amq.topic", "mine", key="#"),
        Binding("absent", "mine"),
        Binding("to-mine", "to-other", is_to_exchange=True),
        Binding("models-req-xchg", "mine"),
    ],
)
def test_limited_key_binds_nothing_else(driver: Driver, binding: Binding) -> None:
    assert code_of(driver, Bind(binding=binding, only=MINE)) == Code.FORBIDDEN
    assert code_of(driver, Unbind(binding=binding, only=MINE)) == Code.FORBIDDEN


@pytest.mark.parametrize(
    "command",
    [
        OpenExchange(
            exchange=Exchange("more", Kind.DIRECT, arguments={"alternate-exchange": "to-mine"})
        ),
        OpenQueue(queue="dying", durable=True, arguments={"x-dead-letter-exchange": "to-mine"}),
        Bind(binding=Binding("to-other", "to-mine", is_to_exchange=True)),
    ],
    ids=["alternate", "dead letters", "another exchange"],
)
def test_exchange_that_others_lead_to_is_not_within_the_queues(
    driver: Driver, command: AnyCommand
) -> None:
    assert not isinstance(driver.send(command), Refusal)
    assert (
        code_of(driver, Bind(binding=Binding("to-mine", "mine", key="x"), only=MINE))
        == Code.FORBIDDEN
    )


# Publishing.


def test_limited_key_publishes_to_its_queues_alone(driver: Driver) -> None:
    assert publish(driver, 1, "to-mine", MINE).failed is None
    for number, name in enumerate(("to-other", "amq.direct"), start=2):
        failed = publish(driver, number, name, MINE).failed
        assert failed is not None
        assert failed[1].code is Code.FORBIDDEN
        assert task_id(number) not in driver.core.book.tasks


def test_message_to_no_exchange_ends_the_rest(driver: Driver) -> None:
    driver.send(OpenExchange(exchange=Exchange("inside", Kind.FANOUT, internal=True)))
    for number, name in enumerate(("absent", "inside"), start=1):
        assert publish(driver, number, name).failed is not None
    key = "x" * 250
    messages = [Publication(task_id(9), "models-req-xchg", key, b"", b"")]
    answer = driver.send(PublishMessages(messages=messages))
    assert isinstance(answer, Published)
    assert answer.failed is not None
    assert answer.failed[1].code is Code.INVALID


# Removal and reading.


def test_queue_of_another_session_is_locked(driver: Driver) -> None:
    driver.send(OpenQueue(queue="private", exclusive=True, owner=7, session=7))
    assert code_of(driver, PurgeQueue(queue="private", owner=8)) == Code.LOCKED
    assert code_of(driver, RemoveQueue(queue="private", owner=8)) == Code.LOCKED
    assert driver.send(RemoveQueue(queue="private", owner=7)) == Dropped(0)


@pytest.mark.parametrize("name", ["other", "absent"])
def test_limited_key_cannot_tell_what_exists(driver: Driver, name: str) -> None:
    assert code_of(driver, RemoveQueue(queue=name, only=())) == Code.FORBIDDEN
    consume = Consume(session=5, queue=name, consumer="c", slots=1, only=MINE)
    assert code_of(driver, consume) == Code.FORBIDDEN
    assert (
        code_of(driver, TakeTask(session=5, queue=name, consumer="c", only=MINE)) == Code.FORBIDDEN
    )


def test_queue_that_is_needed_stays(driver: Driver) -> None:
    publish(driver, 1, "to-mine")
    assert code_of(driver, RemoveQueue(queue="mine", if_empty=True)) == Code.QUEUE_NOT_EMPTY
    driver.send(Consume(session=5, queue="mine", consumer="c", slots=1))
    assert code_of(driver, RemoveQueue(queue="mine", if_unused=True)) == Code.IN_USE
    assert code_of(driver, RemoveQueue(queue="models")) == Code.WRONG_STATE
    assert code_of(driver, RemoveQueue(queue="models-dl")) == Code.LOCKED
    driver.declare("first", result_becomes="other")
    assert code_of(driver, RemoveQueue(queue="other")) == Code.QUEUE_NOT_EMPTY
    assert driver.send(RemoveQueue(queue="absent")) == Dropped(0)


def test_requests_of_a_key_are_dropped_like_a_queue(driver: Driver) -> None:
    message = Publication(task_id(1), "models-req-xchg", "paris", b"", b"", persistent=True)
    driver.send(PublishMessages(messages=[message]))
    remove = RemoveQueue(queue="models", key="paris", if_empty=True)
    assert code_of(driver, remove) == Code.QUEUE_NOT_EMPTY
    assert driver.send(RemoveQueue(queue="models", key="paris")) == Dropped(1)
    assert "models" in driver.core.book.namespaces["default"].queues


# Arguments and copies.


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": "soon"},
        {"x-message-ttl": True},
        {"x-max-length": -1},
        {"x-expires": 0},
        {"x-single-active-consumer": 1},
        {"x-overflow": "explode"},
        {"x-queue-type": "stream"},
        {"x-dead-letter-exchange": 5},
        {"x-dead-letter-routing-key": "k"},
    ],
    ids=str,
)
def test_argument_that_no_queue_can_have_is_refused(
    driver: Driver, arguments: dict[str, Any]
) -> None:
    command = OpenQueue(queue="new", durable=True, arguments=arguments)
    assert code_of(driver, command) == Code.NOT_EQUIVALENT


def test_unused_queue_expires(driver: Driver) -> None:
    driver.send(OpenQueue(queue="brief", durable=True, arguments={"x-expires": 1_000}))
    driver.tick(SECOND - 1)
    assert driver.core.book.queue("default", "brief") is not None
    driver.tick(1)
    assert driver.core.book.queue("default", "brief") is None


def with_headers(**headers: Any) -> bytes:
    raw: dict[int, bytes] = {}
    put_headers(raw, {name: field_of(value) for name, value in headers.items()})
    return join(raw)


def test_copies_reach_their_queues_too(driver: Driver) -> None:
    properties = with_headers(CC=["other"])
    message = Publication(task_id(1), "", "mine", properties, b"body")
    answer = driver.send(PublishMessages(messages=[message]))
    assert answer == Published(1, (), (), None)
    assert {task.queue.name for task in driver.core.book.tasks.values()} == {"mine", "other"}


def test_copies_that_are_no_list_are_refused(driver: Driver) -> None:
    message = Publication(task_id(1), "", "mine", with_headers(CC="other"), b"body")
    answer = driver.send(PublishMessages(messages=[message]))
    assert isinstance(answer, Published)
    assert answer.failed is not None
    assert answer.failed[1].code is Code.INVALID
    assert not driver.core.book.tasks
