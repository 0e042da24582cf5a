"""Traces: long sequences of commands by chance, with batches of every kind of task in them.

A trace depends on its seed alone. It drives a core as doors do: workers report on what they were
given, consumers acknowledge, time passes, storage takes what has changed. Nothing is judged here;
`digest` is what a core makes of a trace, byte for byte.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import msgspec

from jackalope.core import Core
from jackalope.core import commands as c
from jackalope.core.commands import amqp
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.effects import Assignment, SendToSession
from jackalope.core.filter import Filter
from jackalope.core.ids import TaskId
from jackalope.core.records import encode_batch
from jackalope.core.shapes.exchange import Binding, Exchange, Kind
from jackalope.core.shapes.request import Same
from jackalope.core.task import BlobRef, Error, OnDependency, Options, Retry, TaskSpec
from tests.core.driving import NOW_US, task_id
from tests.properties.storage import Storage

QUEUES = ("a", "b", "c", "d")
LETTERS = ("durable", "volatile", "short", "ranked")
TAGS = ("red", "blue")
WORKERS = ("w1", "w2", "w3", "w4")
CONSUMERS = ("c1", "c2", "c3")
CLIENT = 1_001

#: What a queue begins with. Most tasks are plain, and so are most queues.
POLICIES: tuple[dict[str, object], ...] = (
    {},
    {},
    {"depth_limit": 12},
    {"batch_size": 3, "retention_us": 0},
    {"timeout_us": 5 * SECOND, "retry_base_us": SECOND, "priority_drop": 40},
    {"time_to_live_us": 8 * SECOND, "ageing_us": SECOND},
    {"done": "received"},
    {"result_becomes": "d", "retries": 1},
    {"same": "cached", "cache_us": 20 * SECOND, "cache_entries": 3},
    {"held": True},
    {"prefer_other_worker": False, "retry_base_us": 0, "crash_limit": 2, "interruption_limit": 3},
)

#: How queues that are declared over AMQP are, beyond their names.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "durable": {"x-dead-letter-exchange": "dead"},
    "volatile": {},
    "short": {"x-max-length": 6, "x-dead-letter-exchange": "dead"},
    "ranked": {"x-max-priority": 5, "x-max-length-bytes": 300, "x-overflow": "reject-publish"},
}

_encode = msgspec.msgpack.Encoder().encode


#: Those that there were when the first traces were kept.
_VERDICTS = (c.Verdict.RETRY, c.Verdict.DEAD, c.Verdict.REJECT)


class Trace:
    """A core, and what one seed makes of it.

    Attributes:
        batches: the encoded records of every command.
    """

    def __init__(self, seed: int) -> None:
        self.core = Core()
        self.storage = Storage()
        self.batches: list[bytes] = []
        self._random = Random(seed)
        self._now_us = NOW_US
        self._submitted = 0
        self._ref = 0
        self._given: dict[int, list[tuple[TaskId, int]]] = {}  # what each session was given
        self._sum = hashlib.sha256()

    def play(self, steps: int) -> None:
        self._begin()
        acts = [
            *[self._submit] * 6,
            *[self._start] * 8,
            *[self._finish] * 6,
            *[self._publish] * 3,
            *[self._fail, self._release, self._join, self._consume, self._pass_time, self._flush]
            * 2,
            *[self._act, self._watch, self._claim, self._take, self._limit, self._pause],
            *[self._close, self._answer, self._declare, self._grant],
            *[self._step, self._suspend, self._signal],
        ]
        for _ in range(steps):
            self._random.choice(acts)()

    def digest(self) -> str:
        """Return the sum of all records, effects and rows, and of the book as it is now."""
        last = self._sum.copy()
        last.update(_encode(self.core.book.snapshot()))
        last.update(repr(self.core.next_deadline_us()).encode())
        return last.hexdigest()

    # How a command goes.

    def send(self, command: c.AnyCommand) -> None:
        self._ref += 1
        command.ref = self._ref if self._random.random() < 0.9 else 0
        missing = self.core.missing(command)
        if missing is not None:
            self.storage.recall(self.core, missing)
        records, effects = self.core.handle(self._now_us, command)
        body = encode_batch(records)
        self.batches.append(body)
        self._sum.update(body)
        for effect in effects:
            self._sum.update(type(effect).__name__.encode() + _encode(effect))
            if isinstance(effect, SendToSession) and isinstance(effect.message, Assignment):
                given = (effect.message.task, effect.message.fence)
                self._given.setdefault(effect.session, []).append(given)
        self.core.book.let_go()

    def _begin(self) -> None:
        choose = self._random.choice
        for queue in QUEUES:
            changes = dict(choose(POLICIES))
            if queue == "d":
                changes.pop("result_becomes", None)
            self.send(c.DeclareQueue(queue=queue, changes=changes))
        self.send(amqp.OpenExchange(exchange=Exchange("dead", Kind.FANOUT)))
        self.send(amqp.OpenExchange(exchange=Exchange("all", Kind.FANOUT)))
        for queue in LETTERS:
            durable = queue != "volatile"
            arguments = ARGUMENTS[queue]
            self.send(amqp.OpenQueue(queue=queue, durable=durable, arguments=arguments))
            self.send(amqp.Bind(binding=Binding("all", queue)))
        self.send(amqp.Bind(binding=Binding("dead", "durable")))
        for worker in WORKERS[: self._random.randint(1, 3)]:
            self._join(worker)

    # Clients.

    def _submit(self) -> None:
        random = self._random
        many = random.choice((1, 1, 2, 5, 20, 40))
        queue = random.choice(QUEUES)
        oddity = random.choice((0.0, 0.0, 0.1, 0.5))
        tasks = [self._spec(queue, oddity) for _ in range(many)]
        if random.random() < 0.1:
            tasks.append(random.choice(tasks))  # twice in one command
        if random.random() < 0.1 and self._submitted:
            tasks.insert(0, self._plain(queue, task_id(random.randint(1, self._submitted))))
        self.send(c.SubmitTasks(ref=0, tasks=tasks, by="client", session=CLIENT))

    def _spec(self, queue: str, oddity: float) -> TaskSpec:
        random = self._random
        self._submitted += 1
        spec = self._plain(queue, task_id(self._submitted))
        if random.random() >= oddity:
            return spec
        odd = random.randrange(7)
        if odd == 0:
            spec.queue = random.choice((*QUEUES, *LETTERS, "new", ""))
        elif odd == 1:
            spec.key = random.choice(("k", "l"))
        elif odd == 2:
            spec.priority = random.choice((0, 150, 200, 255, 256))
        elif odd == 3:
            spec.payload = BlobRef(f"blob{self._submitted}", 70_000)
        else:
            spec.options = self._options()
        return spec

    def _plain(self, queue: str, task: TaskId) -> TaskSpec:
        name = self._random.choice(("", "x", "x", "y"))
        return TaskSpec(task, queue, name, payload=self._random.choice((b"", b"p", b"pp")))

    def _options(self) -> Options:
        random = self._random
        later = self._now_us + random.choice((1, 3, 60)) * SECOND
        others = [task_id(random.randint(1, self._submitted)) for _ in range(2)]
        return random.choice(
            (
                Options(),
                Options(alias=random.choice("xyz")),
                Options(
                    tags=random.choice((("red",), ("red", "blue"), ("blue", "blue"), ("free",)))
                ),
                Options(run_at_us=later),
                Options(expires_at_us=later),
                Options(timeout_us=3 * SECOND, headers={"h": 1}),
                Options(retry=Retry(2, SECOND, 2.0, 5 * SECOND)),
                Options(depends_on=tuple(others), on_dependency=random.choice(list(OnDependency))),
                Options(parent=others[0]),
                Options(held=True),
                Options(same=random.choice(list(Same)), version="1"),
            )
        )

    def _publish(self) -> None:
        random = self._random
        messages = []
        is_persistent, exchange = random.random() < 0.5, random.choice(("", "", "", "all", "none"))
        key = random.choice((*LETTERS, *LETTERS, *QUEUES, "nowhere"))
        for _ in range(random.choice((1, 2, 10, 30))):
            self._submitted += 1
            message = amqp.Publication(task_id(self._submitted), exchange, key, b"\0\0", b"body")
            message.persistent = is_persistent
            if random.random() < 0.1:
                message.persistent = not is_persistent
                message.priority = random.randrange(10)
                message.expires_us = random.choice((-1, 0, SECOND))
                message.mandatory = True
                message.key = random.choice(LETTERS)
            messages.append(message)
        self.send(amqp.PublishMessages(messages=messages, session=CLIENT, by="publisher"))

    def _watch(self) -> None:
        known = list(self.core.book.tasks)[-6:]
        self.send(c.WatchTasks(ref=0, session=CLIENT, tasks=tuple(known), progress=True))

    def _act(self) -> None:
        random = self._random
        action = random.choice(list(c.Action))
        known = list(self.core.book.tasks)
        some = tuple(random.sample(known, min(4, len(known))))
        if random.random() < 0.3:
            wanted = Filter(queue=random.choice(QUEUES))
            self.send(c.ActOnTasks(ref=0, action=action, filter=wanted, by="person"))
        elif some:
            self.send(c.ActOnTasks(ref=0, action=action, tasks=some, by="person"))

    # Workers and consumers.

    def _join(self, worker: str = "") -> None:
        random = self._random
        worker = worker or random.choice(WORKERS)
        queues = tuple(random.sample((*QUEUES, "durable"), random.choice((1, 2, 4, 5))))
        self.send(
            c.JoinWorker(
                ref=0,
                session=WORKERS.index(worker) + 1 + 10 * random.randrange(2),
                worker=worker,
                queues=queues,
                keys=random.choice(((), (), (), ("k", ""), ("l",))),
                slots=random.choice((0, 1, 4, 30, 100)),
                names=random.choice((None, None, None, ("x", "t"), ("y", ""))),
            )
        )

    def _consume(self) -> None:
        random = self._random
        session = 100 + random.randrange(len(CONSUMERS))
        self.send(c.CloseSession(session=session))
        self._given.pop(session, None)
        self.send(
            amqp.Consume(
                queue=random.choice((*LETTERS, "a")),
                consumer=CONSUMERS[session - 100],
                session=session,
                slots=random.choice((1, 5, 50)),
                share=random.choice((0, 0, 7)),
                share_slots=8,
                credit=random.choice((None, None, 0, 3, 50)),
                priority=random.choice((0, 0, 3)),
                owner=90,
            )
        )

    def _grant(self) -> None:
        session = 100 + self._random.randrange(len(CONSUMERS))
        self.send(amqp.GrantCredit(session=session, credit=self._random.choice((1, 20))))

    def _take(self) -> None:
        queue, at_once = self._random.choice((*LETTERS, "b")), self._random.random() < 0.5
        self.send(amqp.TakeTask(queue=queue, consumer="getter", session=110, at_once=at_once))

    def _claim(self) -> None:
        session, count = self._a_session(), self._random.choice((1, 5))
        self.send(c.ClaimTasks(ref=0, session=session, count=count, wait_us=2 * SECOND))

    def _a_session(self) -> int:
        held = [session for session, given in self._given.items() if given]
        return self._random.choice(held) if held else 1

    def _some(self, session: int, *, keep: bool = False) -> list[tuple[TaskId, int]]:
        """Take some of what a session was given, mostly the oldest, and sometimes a wrong fence."""
        random, given = self._random, self._given.get(session, [])
        many = random.choice((1, 3, len(given), len(given)))
        some = given[:many]
        if not keep:
            self._given[session] = given[many:]
        if some and random.random() < 0.1:
            some.append((some[0][0], some[0][1] + random.randrange(2)))
        return some

    def _start(self) -> None:
        session = self._a_session()
        held = [c.Held(*each) for each in self._some(session, keep=True)]
        self.send(c.StartAttempts(ref=0, session=session, attempts=held))

    def _finish(self) -> None:
        session = self._a_session()
        results = (b"", b"r", b"result", BlobRef("result", 80_000))
        done = [c.Finish(*each, self._random.choice(results)) for each in self._some(session)]
        self.send(c.FinishAttempts(session=session, attempts=done))

    def _fail(self) -> None:
        random, session = self._random, self._a_session()
        error, verdicts = Error("E", "message"), (*[c.Verdict.RETRY] * 3, *_VERDICTS)
        failed = [
            c.Fail(*each, error, random.choice(verdicts), crashed=random.random() < 0.2)
            for each in self._some(session)
        ]
        self.send(c.FailAttempts(session=session, attempts=failed))

    def _release(self) -> None:
        session = self._a_session()
        held = [c.Held(*each) for each in self._some(session)]
        after_us = self._random.choice((0, 0, SECOND))
        self.send(c.ReleaseAttempts(session=session, attempts=held, after_us=after_us))

    def _step(self) -> None:
        session = self._a_session()
        for task, fence in self._some(session, keep=True)[:2]:
            index, result = self._random.randrange(3), self._random.choice((b"", b"a", b"bc"))
            self.send(c.RecordStep(0, task, fence, index, "step", result, session=session))

    def _suspend(self) -> None:
        session = self._a_session()
        for task, fence in self._some(session)[:2]:
            index, after_us = self._random.randrange(3), self._random.choice((0, SECOND))
            event = self._random.choice(("", "approved"))
            self.send(c.Suspend(0, task, fence, index, "step", after_us, event, session=session))

    def _signal(self) -> None:
        known = list(self.core.book.tasks)
        if known:
            task = self._random.choice(known)
            self.send(c.SendEvent(task=task, event="approved", data=b"data", session=CLIENT))

    def _answer(self) -> None:
        session = self._a_session()
        for task, fence in self._some(session, keep=True)[:2]:
            answer = self._random.choice(list(c.Answer))
            self.send(c.AnswerSignal(ref=0, session=session, task=task, fence=fence, answer=answer))
            report = c.ReportProgress(ref=0, session=session, task=task, fence=fence, percent=5.0)
            self.send(report)

    def _close(self) -> None:
        session = self._a_session()
        leave, close = c.LeaveWorker(session=session), c.CloseSession(session=session)
        self.send(self._random.choice((leave, close)))

    # Everything else.

    def _limit(self) -> None:
        limit = self._random.choice((-1, 0, 1, 3))
        self.send(c.LimitTag(tag=self._random.choice(TAGS), limit=limit))

    def _pause(self) -> None:
        queue = self._random.choice(QUEUES)
        self.send(self._random.choice((c.PauseQueue, c.ResumeQueue, c.ResumeQueue))(queue=queue))

    def _declare(self) -> None:
        queue, changes = self._random.choice("abc"), dict(self._random.choice(POLICIES))
        self.send(c.DeclareQueue(queue=queue, changes=changes))

    def _pass_time(self) -> None:
        self._now_us += self._random.choice((1, 1_000, SECOND, 7 * SECOND, HOUR))
        self.send(c.Tick())

    def _flush(self) -> None:
        self.storage.journal = self.batches
        self.storage.take(self.core)
        changes = self.storage.write()
        changes.tasks.sort(key=lambda row: row.id)  # A set of rows: their order means nothing.
        self._sum.update(_encode(changes))
        self.core.book.stored(changes)
