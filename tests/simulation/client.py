"""Simulated clients: they submit, act, configure and watch, and repeat what was not answered."""

from __future__ import annotations

import msgspec

from jackalope.core.commands import (
    Action,
    ActOnAnswers,
    ActOnTasks,
    AnswerAction,
    Command,
    DeclareQueue,
    LimitTag,
    PauseQueue,
    ResumeQueue,
    SubmitTasks,
    WatchTasks,
)
from jackalope.core.commands.amqp import Publication, PublishMessages
from jackalope.core.durations import MILLISECOND, SECOND
from jackalope.core.effects import Accepted, AcceptedRequests, Effect, Reply, TaskEnded
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId, volatile_id
from jackalope.core.lifecycle import State
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.request import Same
from jackalope.core.task import OnDependency, Options, TaskSpec
from tests.simulation.node import Node
from tests.simulation.world import Link, World

TAGS = ("red", "green")

#: What tasks are called. Not every worker knows all of these.
NAMES = ("old", "", "new")

#: Queues with policies that disagree, so that every branch is walked.
QUEUES: dict[str, dict[str, object]] = {
    "plain": {"retry_base_us": SECOND, "depth_limit": 30},
    "careful": {"on_lost": "pause", "retries": 0, "crash_limit": 3, "retention_us": 3 * SECOND},
    "hasty": {"on_lost": "dead", "on_restart": "requeue", "priority_drop": 10, "retries": 1},
    "shared": {
        "same": "cached",
        "cache_us": 20 * SECOND,
        "cache_entries": 3,
        "retries": 0,
        "retry_base_us": SECOND,
    },
    "aged": {"ageing_us": SECOND, "time_to_live_us": 40 * SECOND, "result_becomes": "plain"},
}


class SimClient:
    """Somebody who gives the broker work, and cannot leave it alone."""

    ahead_us = 20 * SECOND  # how far ahead tasks begin, and how long they may take, at most

    def __init__(self, world: World, node: Node, name: str, total: int) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.left = total
        self.link: Link | None = None
        self.outbox: dict[int, Command] = {}
        self.known: list[TaskId] = []
        self.specs: list[TaskSpec] = []
        self.messages: list[TaskId] = []
        self.requests: dict[TaskId, TaskSpec] = {}
        self.is_tidying = False
        self._refs = 0
        self._declare()
        world.after(world.rng.randrange(SECOND), self._live)

    def _declare(self) -> None:
        for queue, policy in QUEUES.items():
            self._ask(DeclareQueue(queue=queue, changes=dict(policy)))
        for tag in TAGS:
            self._ask(LimitTag(tag=tag, limit=self.world.rng.randrange(1, 4)))

    def _live(self) -> None:
        """Now and then: connect, repeat what is not answered, do something."""
        world = self.world
        world.after(world.rng.randrange(100 * MILLISECOND, 2 * SECOND), self._live)
        if self.link is None:
            self.link = self.node.connect(self)
        for command in list(self.outbox.values()):
            self._send(command)
        if self.requests and world.rng.random() < 0.5:
            self._ask(WatchTasks(ref=0, tasks=tuple(self.requests)))
        if self.is_tidying:
            self._tidy()
        else:
            self._do_something()

    def _do_something(self) -> None:  # noqa: C901  a list
        world = self.world
        chance = world.rng.random()
        if self.left and chance < 0.55:
            count = min(self.left, world.rng.randrange(1, 12))
            self.left -= count
            specs = [self._spec() for _ in range(count)]
            self.specs += specs
            self._ask(SubmitTasks(ref=0, tasks=specs, by=self.name))
        elif self.left and chance < 0.68:
            self.left -= 1
            requests = [self._request() for _ in range(world.rng.randrange(1, 4))]
            self._ask(SubmitTasks(ref=0, tasks=requests, by=self.name))
        elif chance < 0.2:
            self._publish()
        elif chance < 0.7:
            done = world.rng.choice(list(AnswerAction))
            self._ask(ActOnAnswers(action=done, queue="shared", by=self.name))
        elif chance < 0.75 and self.known:
            action = world.rng.choice(list(Action))
            tasks = tuple(world.rng.sample(self.known, min(3, len(self.known))))
            self._ask(ActOnTasks(ref=0, action=action, tasks=tasks, by=self.name))
        elif chance < 0.8:
            self._ask(LimitTag(tag=world.rng.choice(TAGS), limit=world.rng.randrange(-1, 4)))
        elif chance < 0.84:
            queue = world.rng.choice(list(QUEUES))
            command = world.rng.choice((PauseQueue, ResumeQueue))
            self._ask(command(queue=queue, by=self.name))
        elif chance < 0.9 and self.known:
            tasks = tuple(world.rng.sample(self.known, 1))
            self._ask(WatchTasks(ref=0, tasks=tasks, progress=world.rng.random() < 0.5))
        elif chance < 0.92:
            states = (State.DEAD,)
            self._ask(
                ActOnTasks(ref=0, action=Action.RETRY, filter=Filter(states=states), by=self.name)
            )
        elif chance < 0.96:
            self._publish()
        else:
            self._repeat()

    def _repeat(self) -> None:
        """Submit once more what was submitted long ago."""
        again = self.world.rng.sample(self.specs, min(3, len(self.specs)))
        self._ask(SubmitTasks(ref=0, tasks=again, by=self.name))

    def _publish(self) -> None:
        """Publish messages, most of them transient, over a connection that doubles nothing."""
        rng = self.world.rng
        if self.link is None or self.link.is_doomed:
            return
        queue = rng.choice(list(QUEUES))
        messages = [
            Publication(self.world.new_id(), "", queue, b"", b"m", persistent=rng.random() < 0.3)
            for _ in range(rng.randrange(1, 5))
        ]
        self.node.receive(self.link, PublishMessages(session=self.link.session, messages=messages))
        self.messages += [volatile_id(each.id) for each in messages if not each.persistent]

    def _tidy(self) -> None:
        """Let go of everything that waits for a person, so that it can end."""
        if self.outbox:
            return  # What was sent before is sent again.
        for queue in QUEUES:
            self._ask(ResumeQueue(queue=queue, by=self.name))
        for tag in TAGS:
            self._ask(LimitTag(tag=tag, limit=2))
        for state in (State.HELD, State.PAUSED):
            self._ask(
                ActOnTasks(ref=0, action=Action.PLAY, filter=Filter(states=(state,)), by=self.name)
            )

    def _spec(self) -> TaskSpec:
        rng, now_us = self.world.rng, self.world.now_us
        options = Options()
        if rng.random() < 0.6:
            options = Options(
                alias=f"a{rng.randrange(50)}" if rng.random() < 0.2 else "",
                tags=tuple(rng.sample(TAGS, rng.randrange(3))),
                run_at_us=now_us + rng.randrange(self.ahead_us) if rng.random() < 0.3 else 0,
                expires_at_us=now_us + rng.randrange(3 * self.ahead_us)
                if rng.random() < 0.1
                else 0,
                timeout_us=rng.randrange(1, self.ahead_us) if rng.random() < 0.2 else 0,
                depends_on=self._some_known(0.3) + self._some_message(),
                on_dependency=rng.choice(list(OnDependency)),
                parent=(*self._some_known(0.2), NO_TASK)[0],
                held=rng.random() < 0.1,
            )
        task_id = self.world.new_id()
        return TaskSpec(
            task_id,
            rng.choice(list(QUEUES)),
            NAMES[sum(task_id) % len(NAMES)],
            key=rng.choice(("", "", "k1", "k2")),
            priority=rng.choice((50, 150, 150, 200)),
            payload=b"x" * rng.randrange(20),
            options=options,
        )

    def _request(self) -> TaskSpec:
        """Ask for one of a few things, so that others ask for the same."""
        rng = self.world.rng
        same = rng.choice((None, None, None, Same.CACHED, Same.REFRESH, Same.UNIQUE, Same.RUN))
        payload = b"r%d" % rng.randrange(6)
        return TaskSpec(self.world.new_id(), "shared", payload=payload, options=Options(same=same))

    def _some_known(self, probability: float) -> tuple[TaskId, ...]:
        rng = self.world.rng
        if not self.known or rng.random() >= probability:
            return ()
        return tuple(rng.sample(self.known, min(len(self.known), rng.randrange(1, 3))))

    def _some_message(self) -> tuple[TaskId, ...]:
        """Return now and then a message that was published: nothing may wait for it."""
        is_one = bool(self.messages) and self.world.rng.random() < 0.2
        return (self.messages[-1],) if is_one else ()

    def _ask(self, command: Command) -> None:
        self._refs += 1
        command.ref = self._refs
        self.outbox[self._refs] = command
        self._send(command)

    def _send(self, command: Command) -> None:
        if self.link is not None:
            self.link.up(command)

    def cut_off(self, link: Link) -> None:
        """Notice a dead connection."""
        if link is self.link:
            self.link = None

    def hear(self, link: Link, effect: Effect) -> None:
        """Take an answer."""
        if link is not self.link:
            return
        if not isinstance(effect, Reply):
            if isinstance(effect.message, TaskEnded):
                self.world.say(self.name, effect.message)
                self.requests.pop(effect.message.task, None)
            return
        if isinstance(effect.body, Refusal) and effect.body.code is Code.STORAGE_FAILED:
            return
        command = self.outbox.pop(effect.ref, None)
        if isinstance(command, SubmitTasks) and isinstance(effect.body, Accepted):
            refused = {index for index, _ in effect.body.refused}
            served = dict(effect.body.served) if isinstance(effect.body, AcceptedRequests) else {}
            ids = [
                served[i].task if i in served else spec.id
                for i, spec in enumerate(command.tasks)
                if i not in refused
            ]
            self.node.checker.on_accepted(ids)
            self.known += ids
            self.requests |= {served[i].task: command.tasks[i] for i in served}
        elif isinstance(command, WatchTasks) and isinstance(effect.body, Accepted):
            self._ask_again([command.tasks[i] for i, _ in effect.body.refused])

    def _ask_again(self, gone: list[TaskId]) -> None:
        """Repeat requests whose tasks somebody has purged before the answer was heard."""
        lost = [self.requests.pop(task) for task in gone if task in self.requests]
        if lost:
            again = [msgspec.structs.replace(spec, id=self.world.new_id()) for spec in lost]
            self._ask(SubmitTasks(ref=0, tasks=again, by=self.name))
