"""Who may send which command: every command, with every permission and every limit of a key.

The matrix is made of the types: a new command fails here until it declares what it needs and has a
sample. What an API key of some queues is not told is tried on a core: whatever it sends about a
queue that is not its own is answered as if the queue were not there, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast, get_args

import msgspec
import pytest

from jackalope.broker.access import Principal
from jackalope.broker.queries import QUESTIONS
from jackalope.core import commands as c
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.audit import Act
from jackalope.core.commands import amqp, limits
from jackalope.core.commands import contracts as k
from jackalope.core.commands import flows as f
from jackalope.core.commands import namespaces as n
from jackalope.core.commands import schedules as s
from jackalope.core.commands.base import Command, Limited, Namespaced, Report, Scope, Signed
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.durations import HOUR
from jackalope.core.effects import Reply
from jackalope.core.filter import Filter
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.exchange import Binding, Exchange, Kind, Rule
from jackalope.core.shapes.flow import Compensation, FlowSettings, NodeSettings
from jackalope.core.task import Error
from tests.core.driving import Driver, spec, task_id

#: What only the broker itself sends.
OWN = {
    c.Tick,
    c.Recover,
    c.ForgetTasks,
    c.CloseSession,
    c.DeclareAll,
    c.FollowPools,
    c.ReportLaunches,
    ServeCallbacks,
    n.NoteAct,
}

#: The sessions: of the client whose key is limited, and of those that it must not meet.
STRANGER, HOLDER, OWNER = 7, 8, 9

MINE, THEIRS, NOWHERE = "mine", "theirs", "nowhere"

#: One task waits and one is held in each queue that there is.
WAITING = {MINE: 1, THEIRS: 2, NOWHERE: 8}
HELD = {MINE: 3, THEIRS: 4, NOWHERE: 9}

NEW, NAME = 20, "new"


class About(msgspec.Struct):
    """What a sample is about."""

    queue: str = MINE
    fence: int = 0

    @property
    def waiting(self) -> Any:
        return task_id(WAITING[self.queue])

    @property
    def held(self) -> Any:
        return task_id(HELD[self.queue])


def _binding(about: About) -> Binding:
    return Binding(f"to-{about.queue}", about.queue, key="k")


def _key(key_id: str) -> ApiKey:
    return ApiKey(key_id, "0" * 64, "new", (Permission.WORK,))


def _submit(about: About, **options: Any) -> c.SubmitTasks:
    return c.SubmitTasks(ref=0, tasks=[spec(NEW, options.pop("queue", MINE), **options)])


def _node(queue: str = MINE, undone_in: str = MINE) -> f.FlowNode:
    node = NodeSettings("a", compensation=Compensation(undone_in, "undo"))
    return f.FlowNode(spec(NEW, queue), node)


def _hourly(queue: str) -> dict[str, object]:
    return {"queue": queue, "every_us": HOUR}


SAMPLES: dict[type[Command], list[Callable[[About], Command]]] = {
    c.SubmitTasks: [
        lambda a: _submit(a, queue=a.queue),
        lambda a: _submit(a, depends_on=(a.waiting,)),
        lambda a: _submit(a, parent=a.held),
    ],
    f.SubmitFlow: [
        lambda a: f.SubmitFlow(0, spec(NEW, a.queue), FlowSettings(), [_node()]),
        lambda a: f.SubmitFlow(0, spec(NEW, MINE), FlowSettings(), [_node(a.queue)]),
        lambda a: f.SubmitFlow(0, spec(NEW, MINE), FlowSettings(), [_node(undone_in=a.queue)]),
        lambda a: f.SubmitFlow(0, spec(NEW, MINE, parent=a.held), FlowSettings(), [_node()]),
    ],
    f.AddNodes: [
        lambda a: f.AddNodes(0, task_id(NEW), [_node(a.queue)]),
        lambda a: f.AddNodes(0, a.waiting, [_node()]),
    ],
    c.DeclareQueue: [
        lambda a: c.DeclareQueue(queue=a.queue, changes={"depth_limit": 3}),
        lambda a: c.DeclareQueue(queue="mine", changes={"result_becomes": a.queue}),
    ],
    c.DeleteQueue: [lambda a: c.DeleteQueue(queue=a.queue)],
    c.PauseQueue: [lambda a: c.PauseQueue(queue=a.queue)],
    c.ResumeQueue: [lambda a: c.ResumeQueue(queue=a.queue)],
    c.LimitTag: [lambda _: c.LimitTag(tag="gpu", limit=1)],
    limits.DeclareLimits: [lambda _: limits.DeclareLimits(limits={"l": {"concurrency": 1}})],
    limits.DeleteLimit: [lambda _: limits.DeleteLimit(name="l")],
    c.CreateApiKey: [lambda _: c.CreateApiKey(key=_key("ab"))],
    c.RevokeApiKey: [lambda _: c.RevokeApiKey(key="ab")],
    n.DeclareNamespace: [lambda _: n.DeclareNamespace(name="default")],
    n.DeleteNamespace: [lambda _: n.DeleteNamespace(name="default", force=True)],
    c.JoinWorker: [
        lambda a: c.JoinWorker(ref=0, worker="w-new", queues=(a.queue,)),
        lambda a: c.JoinWorker(ref=0, worker="w-theirs", queues=(a.queue,)),
        lambda a: c.JoinWorker(ref=0, worker="w-new", queues=(MINE,), helps=a.fence),
    ],
    c.Heartbeat: [lambda _: c.Heartbeat()],
    c.ClaimTasks: [lambda _: c.ClaimTasks(ref=0)],
    c.CancelClaim: [lambda _: c.CancelClaim(claim=1)],
    c.LeaveWorker: [lambda _: c.LeaveWorker()],
    c.DrainWorker: [lambda _: c.DrainWorker(worker="w-theirs")],
    c.StartAttempts: [lambda a: c.StartAttempts(ref=0, attempts=[c.Held(a.held, a.fence)])],
    c.FinishAttempts: [lambda a: c.FinishAttempts(attempts=[c.Finish(a.held, a.fence)])],
    c.FailAttempts: [lambda a: c.FailAttempts(attempts=[c.Fail(a.held, a.fence, Error("E", ""))])],
    c.ReleaseAttempts: [lambda a: c.ReleaseAttempts(attempts=[c.Held(a.held, a.fence)])],
    c.ReportProgress: [lambda a: c.ReportProgress(ref=0, task=a.held, fence=a.fence, percent=1.0)],
    c.RecordStep: [lambda a: c.RecordStep(0, a.held, a.fence, 0, "charge")],
    c.Suspend: [lambda a: c.Suspend(0, a.held, a.fence, 0, "sleep", 1)],
    c.SendEvent: [lambda a: c.SendEvent(task=a.held, event="approved")],
    c.AnswerSignal: [
        lambda a: c.AnswerSignal(ref=0, task=a.held, fence=a.fence, answer=c.Answer.STOPPED)
    ],
    c.RequestHelpers: [
        lambda a: _helpers(a, count=2),
        lambda a: _helpers(a, count=2, queue=MINE),
        lambda a: _helpers(a, count=0),
    ],
    c.EndHelp: [lambda a: c.EndHelp(ref=0, fence=a.fence)],
    c.ActOnTasks: [
        lambda a: c.ActOnTasks(ref=0, action=c.Action.KILL, tasks=(a.waiting, a.held)),
        lambda a: c.ActOnTasks(ref=0, action=c.Action.KILL, filter=Filter(queue=a.queue)),
    ],
    c.ActOnAnswers: [lambda a: c.ActOnAnswers(action=c.AnswerAction.PURGE, queue=a.queue)],
    c.WatchTasks: [lambda a: c.WatchTasks(ref=0, tasks=(a.waiting,))],
    c.DeclarePool: [lambda a: c.DeclarePool(queue=a.queue, changes={"launcher": "none"})],
    c.DeletePool: [lambda a: c.DeletePool(queue=a.queue)],
    c.ActOnGroup: [lambda a: c.ActOnGroup(queue=a.queue, key="k", action=c.GroupAction.START)],
    s.DeclareSchedule: [
        lambda a: s.DeclareSchedule(name=NAME, changes=_hourly(a.queue)),
        lambda a: s.DeclareSchedule(name=a.queue, changes={"every_us": 1}),
    ],
    s.DeclareSchedules: [
        lambda a: s.DeclareSchedules(app="a", schedules={NAME: _hourly(a.queue)}),
        lambda _: s.DeclareSchedules(app="app", schedules={NAME: _hourly(MINE)}),
    ],
    s.PauseSchedule: [lambda a: s.PauseSchedule(name=a.queue)],
    s.ResumeSchedule: [lambda a: s.ResumeSchedule(name=a.queue)],
    s.TriggerSchedule: [lambda a: s.TriggerSchedule(name=a.queue)],
    s.BackfillSchedule: [lambda a: s.BackfillSchedule(name=a.queue, since_us=0, until_us=9)],
    s.DeleteSchedule: [lambda a: s.DeleteSchedule(name=a.queue)],
    k.DeclareContracts: [lambda a: k.DeclareContracts(queues=(a.queue,), contracts={NAME: {}})],
    k.DeleteContract: [lambda a: k.DeleteContract(queue=a.queue, name=NAME)],
    amqp.OpenQueue: [
        lambda a: amqp.OpenQueue(queue=a.queue),
        lambda a: amqp.OpenQueue(queue=a.queue, passive=True),
        lambda a: amqp.OpenQueue(queue=a.queue, durable=True),
    ],
    amqp.RemoveQueue: [lambda a: amqp.RemoveQueue(queue=a.queue, owner=STRANGER)],
    amqp.PurgeQueue: [lambda a: amqp.PurgeQueue(queue=a.queue, owner=STRANGER)],
    amqp.OpenExchange: [
        lambda a: amqp.OpenExchange(exchange=Exchange(f"new-{a.queue}", Kind.DIRECT))
    ],
    amqp.RemoveExchange: [lambda a: amqp.RemoveExchange(exchange=f"to-{a.queue}")],
    amqp.Bind: [
        lambda a: amqp.Bind(binding=_binding(a)),
        lambda a: amqp.Bind(binding=Binding("to-theirs", a.queue, key="other")),
        lambda a: amqp.Bind(binding=Binding("amq.topic", a.queue, key="#")),
        lambda a: amqp.Bind(binding=Binding(f"to-{a.queue}", "amq.fanout", is_to_exchange=True)),
    ],
    amqp.Unbind: [lambda a: amqp.Unbind(binding=_binding(a))],
    amqp.SetRule: [lambda _: amqp.SetRule(rule=Rule("r", ".*", {"max-length": 1}))],
    amqp.ClearRule: [lambda _: amqp.ClearRule(rule="r")],
    amqp.Consume: [
        lambda a: amqp.Consume(queue=a.queue, consumer="c-new", slots=1, owner=STRANGER)
    ],
    amqp.TakeTask: [lambda a: amqp.TakeTask(queue=a.queue, consumer="c-new", owner=STRANGER)],
    amqp.StopConsuming: [lambda _: amqp.StopConsuming()],
    amqp.HoldConsumer: [lambda _: amqp.HoldConsumer(is_held=True)],
    amqp.GrantCredit: [lambda _: amqp.GrantCredit(credit=1)],
    amqp.LimitShare: [lambda _: amqp.LimitShare(share=1, slots=1)],
    amqp.WaitForReplies: [lambda _: amqp.WaitForReplies(address="a")],
    amqp.PublishMessages: [
        lambda a: _publish("", a.queue),
        lambda a: _publish(f"to-{a.queue}", "k") if a.queue != NOWHERE else _publish("to-mine", ""),
    ],
}


def _helpers(about: About, **terms: Any) -> c.RequestHelpers:
    return c.RequestHelpers(
        ref=0, task=about.held, fence=about.fence, where="tcp://1.2.3.4", token=NAME, **terms
    )


def _publish(exchange: str, key: str) -> amqp.PublishMessages:
    return amqp.PublishMessages(
        messages=[amqp.Publication(task_id(NEW), exchange, key, b"\0\0", b"x")]
    )


_BASES = (Limited, Namespaced, n.OfNamespace, Report, Signed)


def types() -> Iterator[type[Command]]:
    """Yield every type of command that there is."""
    left: list[type[Command]] = [Command]
    while left:
        # Those of the product: tests may have made some of their own.
        found = left.pop().__subclasses__()
        below = [each for each in found if each.__module__.startswith("jackalope.")]
        left += below
        yield from (each for each in below if each not in _BASES)


def samples() -> list[tuple[str, Callable[[About], Command]]]:
    return [
        (f"{kind.__name__}-{number}", make)
        for kind, makers in SAMPLES.items()
        for number, make in enumerate(makers)
    ]


every_sample = pytest.mark.parametrize(
    "make", [make for _, make in samples()], ids=[name for name, _ in samples()]
)


def who(*permissions: Permission, **limits: Any) -> Principal:
    return Principal(ApiKey("ab", "0" * 64, "ada", permissions, **limits))


def test_every_command_declares_what_it_needs_and_has_a_sample() -> None:
    every = set(types())
    assert every == set(get_args(c.AnyCommand))
    assert {kind for kind in every if not kind.needs} == OWN
    assert set(SAMPLES) == every - OWN
    for kind in every - OWN:
        about = {"namespace", "only", "may_make"} & set(kind.__struct_fields__)
        about |= {"namespace", "within"} & set(dir(kind))
        assert about or kind.scope in (Scope.SESSION, Scope.BROKER), kind
        if kind.scope is Scope.NARROWED:
            assert about - {"namespace"}, kind


def test_the_broker_s_own_commands_are_for_no_key() -> None:
    needed: dict[type, dict[str, Any]] = {
        c.ReportLaunches: {"launcher": "l"},
        c.DeclareAll: {"declarations": []},
        c.ForgetTasks: {"through_us": 1},
        ServeCallbacks: {"slots": 1},
        n.NoteAct: {"act": Act("sign_in")},
    }
    for kind in OWN:
        command = kind(**needed.get(kind, {}))
        refusal = who(*Permission).admit(command)
        assert refusal is not None
        assert refusal.code is Code.FORBIDDEN


@every_sample
def test_a_command_is_permitted_by_what_it_needs_and_by_nothing_else(
    make: Callable[[About], Command],
) -> None:
    for permission in Permission:
        command = make(About())
        refusal = who(permission).admit(command)
        if permission in (*command.needs, Permission.ADMIN):
            assert refusal is None
        else:
            assert refusal is not None
            assert refusal.code is Code.FORBIDDEN
            assert all(str(each) in refusal.message for each in command.needs)


@every_sample
def test_a_key_of_another_namespace_permits_nothing(make: Callable[[About], Command]) -> None:
    command = make(About())
    refusal = who(*Permission, namespace="elsewhere").admit(command)
    if command.scope is Scope.SESSION:
        assert refusal is None  # The session is of that namespace; its door has seen to it.
    elif isinstance(command, c.RevokeApiKey):
        assert refusal is None  # It is told by the core that there is no such key.
        assert command.within == "elsewhere"
    else:
        assert refusal is not None
        assert refusal.code is Code.FORBIDDEN


class World(Driver):
    """A core with two queues, their exchanges, workers and tasks.

    Args:
        theirs: the namespace of all that is not one's own; none if there is nothing else.
    """

    def __init__(self, theirs: str = c.DEFAULT_NAMESPACE) -> None:
        super().__init__()
        for queue, place in ((MINE, c.DEFAULT_NAMESPACE), (THEIRS, theirs)):
            if place:
                self._fill(queue, place)
        hourly = {queue: _hourly(queue) for queue in (MINE, THEIRS)}
        if theirs == c.DEFAULT_NAMESPACE:
            self.say(s.DeclareSchedules(app="app", schedules=hourly))
            self.say(k.DeclareContracts(queues=(MINE, THEIRS), contracts={NAME: {}}))
        elif theirs:
            declared = s.DeclareSchedules(app="app", schedules={THEIRS: hourly[THEIRS]})
            self.say(declared, place=theirs)
            contracts = k.DeclareContracts(queues=(THEIRS,), contracts={NAME: {}})
            self.say(contracts, place=theirs)

    def _fill(self, queue: str, place: str) -> None:
        exchange = Exchange(f"to-{queue}", Kind.DIRECT)
        self.say(amqp.OpenExchange(exchange=exchange), place=place)
        self.say(c.DeclareQueue(queue=queue), place=place)
        self.say(amqp.Bind(binding=Binding(exchange.name, queue, key="k")), place=place)
        held = spec(HELD[queue], queue, priority=200)
        self.say(c.SubmitTasks(ref=0, tasks=[held]), place=place)
        join = c.JoinWorker(ref=0, worker=f"w-{queue}", queues=(queue,), secret=f"{queue}-secret")
        self.say(join, HOLDER if queue == MINE else OWNER, place)
        waiting = spec(WAITING[queue], queue, priority=100)
        self.say(c.SubmitTasks(ref=0, tasks=[waiting]), place=place)

    def say(self, command: Command, session: int = 1, place: str = "") -> Any:
        command.session = session
        if place:
            cast("Any", command).namespace = place
        return self.send(cast("c.AnyCommand", command))


def outcome(make: Callable[[About], Command], queue: str) -> tuple[Any, list[Any]]:
    """Return what a key of the queue `mine` is answered, and what is written down."""
    world = World()
    fence = world.fence(HELD[queue]) if queue != NOWHERE else 99
    command = make(About(queue, fence))
    refusal = who(*Permission, queues=(MINE,)).admit(command)
    if refusal is not None:
        return plain(refusal, queue), []
    answer = world.say(command, STRANGER)
    told = [each for each in world.effects if not isinstance(each, Reply)]
    return plain(answer, queue), [*world.records, *told]


def plain(answer: Any, queue: str) -> Any:
    """Return an answer without what names the queue and the tasks that were asked for."""
    text = str(answer).replace(queue, "QUEUE")
    for numbers in (WAITING, HELD):
        number = task_id(numbers[queue])
        text = text.replace(number.hex(), "TASK").replace(str(number), "TASK")
    return text


@every_sample
def test_for_a_key_of_some_queues_others_are_as_if_they_were_not_there(
    make: Callable[[About], Command],
) -> None:
    theirs, changed = outcome(make, THEIRS)
    nowhere, _ = outcome(make, NOWHERE)
    fence = World().fence(HELD[THEIRS])
    assert theirs.replace(f"fence {fence}", "fence 99") == nowhere
    of_theirs = [each for each in changed if THEIRS in str(each)]
    assert not of_theirs


@every_sample
def test_what_another_namespace_has_is_answered_as_if_it_did_not_exist(
    make: Callable[[About], Command],
) -> None:
    fence = World("elsewhere").fence(HELD[THEIRS])

    def told(theirs: str) -> tuple[str, list[str]]:
        world = World(theirs)
        command = make(About(THEIRS, fence))
        assert who(*Permission).admit(command) is None
        answer = world.say(command, STRANGER)
        known = [each for each in world.effects if not isinstance(each, Reply)]
        return str(answer), [str(each) for each in (*world.records, *known)]

    assert told("elsewhere") == told("")


# What remains for a key of some queues, and for one that administers none.


def test_a_client_that_submits_has_private_queues_and_nothing_else() -> None:
    world, principal = World(), who(Permission.SUBMIT_TASKS)

    def try_to(command: Command) -> Any:
        return principal.admit(command) or world.say(command, STRANGER)

    private = amqp.OpenQueue(queue="amq.gen-x", generated=True, exclusive=True, owner=STRANGER)
    assert not isinstance(try_to(private), Refusal)
    take = amqp.TakeTask(queue="amq.gen-x", consumer="c", owner=STRANGER)
    assert not isinstance(try_to(take), Refusal)
    bind = amqp.Bind(binding=Binding("amq.topic", "amq.gen-x", key="#"), owner=STRANGER)
    assert try_to(bind).code is Code.FORBIDDEN
    loud = amqp.OpenQueue(
        queue="amq.gen-y",
        generated=True,
        exclusive=True,
        arguments={"x-dead-letter-exchange": "to-theirs"},
        owner=STRANGER,
    )
    assert try_to(loud).code is Code.FORBIDDEN
    for command in (
        amqp.OpenQueue(queue="new"),
        amqp.OpenQueue(queue="amq.gen-z", generated=True),
        amqp.RemoveQueue(queue=THEIRS, owner=STRANGER),
        amqp.Consume(queue=THEIRS, consumer="c2", slots=1, owner=STRANGER),
        amqp.TakeTask(queue=THEIRS, consumer="c3", owner=STRANGER),
        amqp.Bind(binding=Binding("to-theirs", THEIRS, key="other"), owner=STRANGER),
        amqp.Unbind(binding=Binding("to-theirs", THEIRS, key="k"), owner=STRANGER),
        amqp.OpenExchange(exchange=Exchange("new", Kind.FANOUT)),
        amqp.RemoveExchange(exchange="to-theirs"),
    ):
        refused = try_to(command)
        assert isinstance(refused, Refusal), command
        assert refused.code is Code.FORBIDDEN
    # What is there as it is declared is found, as clients do at their start.
    found = [
        amqp.OpenQueue(queue=THEIRS, durable=True),
        amqp.OpenExchange(exchange=Exchange("to-theirs", Kind.DIRECT)),
        amqp.Bind(binding=Binding("to-theirs", THEIRS, key="k")),
    ]
    assert not any(isinstance(try_to(command), Refusal) for command in found)
    assert not isinstance(try_to(amqp.RemoveQueue(queue="amq.gen-x", owner=STRANGER)), Refusal)


def test_a_key_that_administers_some_queues_binds_between_them_alone() -> None:
    world, principal = World(), who(Permission.ADMIN, queues=(MINE, "mine-too"))
    world.say(c.DeclareQueue(queue="mine-too"))

    def bind(exchange: str, queue: str = "mine-too", key: str = "#") -> Any:
        command = amqp.Bind(binding=Binding(exchange, queue, key=key))
        return principal.admit(command) or world.say(command, STRANGER)

    def is_refused(answer: Any) -> bool:
        return isinstance(answer, Refusal) and answer.code is Code.FORBIDDEN

    assert not isinstance(bind("to-mine"), Refusal)
    assert all(map(is_refused, (bind("to-theirs"), bind("amq.topic"), bind("nowhere"))))
    assert is_refused(bind("to-mine", THEIRS))
    # As soon as an exchange is fed from elsewhere, what comes out of it is not the key's own.
    world.say(amqp.Bind(binding=Binding("to-theirs", "to-mine", is_to_exchange=True, key="k")))
    assert is_refused(bind("to-mine", key="another"))
    gone = amqp.Unbind(binding=Binding("to-theirs", THEIRS, key="k"))
    assert is_refused(principal.admit(gone) or world.say(gone, STRANGER))


def test_an_exchange_that_gets_dead_letters_of_others_is_not_one_s_own() -> None:
    world, principal = World(), who(Permission.ADMIN, queues=(MINE,))
    arguments = {"x-dead-letter-exchange": "to-mine"}
    world.say(amqp.OpenQueue(queue="source", durable=True, arguments=arguments))
    command = amqp.Bind(binding=Binding("to-mine", MINE, key="#"))
    refused = principal.admit(command) or world.say(command, STRANGER)
    assert isinstance(refused, Refusal)


@pytest.mark.parametrize("what", QUESTIONS)
def test_every_question_needs_what_it_declares(what: str) -> None:
    question = QUESTIONS[what]
    assert question.needs
    for permission in Permission:
        is_refused = question.refuse(who(permission), "default") is not None
        assert is_refused is (permission not in (*question.needs, Permission.ADMIN))
    foreign = who(*Permission, namespace="elsewhere")
    assert question.refuse(foreign, "default") is not None
    limited = question.refuse(who(*Permission, queues=(MINE,)), "default")
    assert (limited is not None) is (question.scope in (Scope.BROKER, Scope.NAMESPACE))
