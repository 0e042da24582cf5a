"""The stage: a core on a virtual clock, played by the commands of a script.

Gives the verbs of the language their meaning, delivers time, stands in for the engine, and checks
after each command that every invariant holds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TypedDict

from jackalope.calendar import CronCalendar
from jackalope.core import Core, commands, invariants
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.commands import AnyCommand, Fail, Finish, Held
from jackalope.core.durations import SECOND
from jackalope.core.explain import explain, whole_history
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.lifecycle import State
from jackalope.core.policy import DEFAULT_POLICY, Policy
from jackalope.core.records import is_lasting
from jackalope.core.shapes.pool import Phase, PoolSettings
from jackalope.core.shapes.request import IDENTITY_BYTES, Same
from jackalope.core.state.groups import Launch
from jackalope.core.task import BlobRef, Body, Error, OnDependency, Options, Retry, Task, TaskSpec
from tests.scenarios.cast import Cast
from tests.scenarios.contracting import CONTRACTING
from tests.scenarios.flowing import FLOWING
from tests.scenarios.following import FOLLOWING, read_callbacks, read_following
from tests.scenarios.language import Order, ScriptError, parse_duration_us, tell_duration
from tests.scenarios.limiting import LIMITING, read_keys
from tests.scenarios.messaging import MESSAGING
from tests.scenarios.needing import policy_needs, read_resources, read_task_needs
from tests.scenarios.pacing import read_pace
from tests.scenarios.phrases import DEFAULT, Teller, join, option, tell_task
from tests.scenarios.scheduling import SCHEDULING, tell_schedules
from tests.scenarios.settings import read_field
from tests.scenarios.shelf import Shelf
from tests.scenarios.stepping import STEPPING
from tests.scenarios.tenants import TENANTS

#: When every script begins.
START_US = 1_750_000_000 * SECOND

_MOMENT = re.compile(r"\b17\d{14}\b")
_LEASE_US, _GRACE_US = 30 * SECOND, 10 * SECOND


class Stage:
    """One core, its clock, its storage and everybody who speaks with it."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.calendar = CronCalendar()
        self._clock_us = START_US
        self._cast = Cast()
        self._shelf = Shelf()
        self._commands: dict[int, AnyCommand] = {}

    def act(self, line: str) -> list[str]:
        """Do what a line of the script says, and tell what came of it."""
        order = Order(shlex.split(line))
        verb = _VERBS.get(order.verb)
        if order.verb in _SENT:
            lines = self.send(_SENT[order.verb](self, order), order)
            order.finish()
            invariants.check(self.core)
            return lines
        if verb is None:
            raise ScriptError(f"no verb {order.verb!r}; there are {', '.join(sorted(_VERBS))}")
        lines = verb(self, order)
        order.finish()
        invariants.check(self.core)
        return lines

    def check_replay(self) -> None:
        """Make sure that the records alone give the state that is in memory."""
        self._shelf.check(self.core)

    # What the engine does.

    def send(self, command: AnyCommand, order: Order | None = None) -> list[str]:
        """Give the core a command that wants an answer."""
        command.ref = len(self._commands) + 1
        self._commands[command.ref] = command
        return self._handle(command, is_quiet=order is not None and order.is_quiet)

    def _handle(self, command: AnyCommand, *, is_quiet: bool = False) -> list[str]:
        self._shelf.recall(self.core, command)
        self.core.book.let_go()
        records, effects = self.core.handle(self._clock_us, command)
        self._shelf.append([record for record in records if is_lasting(record)])
        if not records and not effects:
            return []
        for record in records:
            self._cast.follow(record)
        teller = Teller(self._cast, self.core.now_us)
        lines = [teller.record(record, command) for record in records]
        if is_quiet:
            lines = [f"{len(records)} records"]
        for effect in effects:
            ref = getattr(effect, "ref", 0)
            if not is_quiet or ref:
                lines += teller.effect(effect, self._commands.get(ref))
        return [line for line in lines if line]

    # Submitting and configuring.

    def submit(self, order: Order) -> list[str]:
        tasks = self._specs(order)
        while order.further is not None:
            further, order.further = order.further, order.further.further
            tasks += self._specs(further)
            further.further = None
            further.finish()
        command = commands.SubmitTasks(
            ref=0,
            tasks=tasks,
            session=self.client(order),
            namespace=order.text("namespace", DEFAULT),
            by=order.text("by"),
            fence=order.number("fence"),
        )
        return self.send(command, order)

    def _specs(self, order: Order) -> list[TaskSpec]:
        ids = [self.task(name) for name in order.names("the names of tasks")]
        queue, name, key = order.text("queue"), order.text("name"), order.text("key")
        priority, payload = order.number("priority", 150), _body(order.text("payload"))
        options = self._options(order)
        return [TaskSpec(it, queue, name, key, priority, payload, options) for it in ids]

    def _options(self, order: Order) -> Options:
        headers = dict(header.split(":", 1) for header in order.list("headers"))
        return Options(
            alias=order.text("alias"),
            headers=headers,
            tags=order.list("tags"),
            run_at_us=self.moment(order, "run_in"),
            expires_at_us=self.moment(order, "expires_in"),
            timeout_us=order.duration_us("timeout"),
            retry=_retry(order),
            depends_on=tuple(self.task(name) for name in order.list("depends_on")),
            on_dependency=OnDependency(order.text("on_dependency", "dead")),
            parent=self._task_or_none(order.text("parent")),
            held=order.flag("held"),
            same=Same(same) if (same := order.text("same")) else None,
            version=order.text("version"),
            identity=_identity(order.text("identity")),
            pace=read_pace(order),
            callbacks=read_callbacks(order.list("callbacks")),
            needs=read_task_needs(order),
            keys=read_keys(order),
        )

    def declare(self, order: Order) -> list[str]:
        queue = order.word("a queue")
        following = read_following(order) | policy_needs(order)
        command = commands.DeclareQueue(
            queue=queue,
            preset=order.text("preset"),
            session=self.client(order),
            namespace=order.text("namespace", DEFAULT),
            by=order.text("by"),
            changes=following | dict(read_field(Policy, *each) for each in order.rest().items()),
        )
        return self.send(command)

    def delete_queue(self, order: Order) -> list[str]:
        return self.send(commands.DeleteQueue(queue=order.word("a queue"), **self.actor(order)))

    def pause_queue(self, order: Order) -> list[str]:
        return self.send(commands.PauseQueue(queue=order.word("a queue"), **self.actor(order)))

    def resume_queue(self, order: Order) -> list[str]:
        return self.send(commands.ResumeQueue(queue=order.word("a queue"), **self.actor(order)))

    def limit_tag(self, order: Order) -> list[str]:
        tag, limit = order.word("a tag"), order.word("a limit")
        number = -1 if limit == "none" else int(limit)
        return self.send(commands.LimitTag(tag=tag, limit=number, **self.actor(order)))

    # Pools.

    def declare_pool(self, order: Order) -> list[str]:
        queue, actor = order.word("a queue"), self.actor(order)
        changes = dict(read_field(PoolSettings, *each) for each in order.rest().items())
        return self.send(commands.DeclarePool(queue=queue, changes=changes, **actor))

    def delete_pool(self, order: Order) -> list[str]:
        return self.send(commands.DeletePool(queue=order.word("a queue"), **self.actor(order)))

    def act_on_group(self, order: Order) -> list[str]:
        action = commands.GroupAction(order.verb.removesuffix("-group"))
        queue, key = order.word("a queue"), order.text("key")
        actor = self.actor(order)
        return self.send(commands.ActOnGroup(queue=queue, key=key, action=action, **actor))

    def follow_pools(self, order: Order) -> list[str]:
        session = self._cast.session(order.text("session", "loops"))
        launchers = tuple(order.names("launchers"))
        scaling = order.list("scaling")
        command = commands.FollowPools(session=session, launchers=launchers, scaling=scaling)
        return self.send(command)

    def report(self, order: Order) -> list[str]:
        """Report what a launcher sees: `seen=id:queue:key[:phase[:version]]`."""
        launcher, session = order.word("a launcher"), order.text("session", "loops")
        command = commands.ReportLaunches(
            session=self._cast.session(session),
            launcher=launcher,
            seen=[_seen(text) for text in order.list("seen")],
            failed=dict(text.split(":", 1) for text in order.list("failed")),
            ids=order.list("ids"),
            trouble=order.text("trouble"),
        )
        return self.send(command)

    def groups(self, _order: Order) -> list[str]:
        return [
            join(
                f"{queue} {group.key or '(none)'}: {group.state}",
                option("wanted", group.wanted),
                option("launches", ",".join(map(_launch, group.launches.values()))),
                option("workers", ",".join(group.workers)),
                option("failures", group.failures),
                "pinned" if pool.is_pinned(group.key) else "",
            )
            for (_, queue), pool in self.core.pools.by_name.items()
            for group in pool.groups.values()
        ]

    def create_key(self, order: Order) -> list[str]:
        key_id = order.word("an id")
        key = ApiKey(
            id=key_id,
            hash=order.text("hash", "0" * 64),
            name=order.text("name", "ada"),
            permissions=tuple(Permission(each) for each in order.list("permissions")),
            queues=order.list("queues"),
            namespace=order.text("namespace"),
            expires_us=self.moment(order, "expires_in"),
        )
        by, session = order.text("by"), self.client(order)
        return self.send(commands.CreateApiKey(key=key, by=by, session=session))

    def revoke_key(self, order: Order) -> list[str]:
        key = order.word("an id")
        by, session = order.text("by"), self.client(order)
        return self.send(commands.RevokeApiKey(key=key, by=by, session=session))

    # Workers.

    def join(self, order: Order) -> list[str]:
        worker = order.word("a worker")
        session = order.text("session", self._cast.session_of(worker))
        command = commands.JoinWorker(
            ref=0,
            worker=worker,
            session=self._cast.session(session),
            queues=order.list("queues"),
            keys=order.list("keys"),
            names=tuple("" if name == "none" else name for name in order.list("names")) or None,
            slots=order.number("slots", 1),
            labels=dict(text.split(":", 1) for text in order.list("labels")),
            holding=[self._held(name, worker) for name in order.list("holding")],
            namespace=order.text("namespace", DEFAULT),
            lease_us=order.duration_us("lease", _LEASE_US),
            grace_us=order.duration_us("grace", _GRACE_US),
            generation=order.number("generation"),
            ready=not order.flag("unready"),
            only=order.list("only"),
            helps=-1 if order.flag("helpless") else self._fence_of(order.text("helps")),
            secret=order.text("secret", f"{worker}-secret"),
            resources=read_resources(order),
        )
        self._cast.bind(worker, session)
        return self.send(command)

    def heartbeat(self, order: Order) -> list[str]:
        return self.send(commands.Heartbeat(session=self._worker(order.word("a worker"), order)))

    def claim(self, order: Order) -> list[str]:
        command = commands.ClaimTasks(
            ref=0,
            session=self._worker(order.word("a worker"), order),
            count=order.number("count", 1),
            wait_us=order.duration_us("wait"),
        )
        return self.send(command)

    def cancel_claim(self, order: Order) -> list[str]:
        """Cancel the latest claim of a worker."""
        session = self._worker(order.word("a worker"), order)
        claims = [
            ref
            for ref, command in self._commands.items()
            if isinstance(command, commands.ClaimTasks) and command.session == session
        ]
        return self.send(commands.CancelClaim(session=session, claim=max(claims, default=0)))

    def leave(self, order: Order) -> list[str]:
        return self.send(commands.LeaveWorker(session=self._worker(order.word("a worker"), order)))

    def close(self, order: Order) -> list[str]:
        name = order.text("session")
        session = self._cast.session(name or self._cast.session_of(order.word("whom")))
        self._cast.close(session)
        return self.send(commands.CloseSession(session=session))

    def drain(self, order: Order) -> list[str]:
        worker = order.word("a worker")
        return self.send(commands.DrainWorker(worker=worker, **self.actor(order)))

    # Attempts.

    def start(self, order: Order) -> list[str]:
        held, session = self.attempts(order)
        return self.send(commands.StartAttempts(ref=0, attempts=held, session=session))

    def finish(self, order: Order) -> list[str]:
        held, session = self.attempts(order)
        result = _body(order.text("result"))
        attempts = [Finish(it.task, it.fence, result) for it in held]
        return self.send(commands.FinishAttempts(attempts=attempts, session=session))

    def fail(self, order: Order) -> list[str]:
        held, session = self.attempts(order)
        error = Error(order.text("error", "ValueError"), order.text("message"))
        verdict = commands.Verdict(order.text("verdict", "retry"))
        after_us = order.duration_us("retry_after")
        crashed, key = order.flag("crashed"), order.text("key")
        attempts = [Fail(it.task, it.fence, error, verdict, after_us, crashed, key) for it in held]
        return self.send(commands.FailAttempts(attempts=attempts, session=session))

    def release(self, order: Order) -> list[str]:
        held, session = self.attempts(order)
        after_us = order.duration_us("after")
        return self.send(
            commands.ReleaseAttempts(attempts=held, session=session, after_us=after_us)
        )

    def progress(self, order: Order) -> list[str]:
        [held], session = self.attempts(order)
        command = commands.ReportProgress(
            0,
            held.task,
            held.fence,
            session=session,
            percent=float(order.text("percent")),
            note=order.text("note"),
        )
        return self.send(command)

    def answer(self, order: Order) -> list[str]:
        [held], session = self.attempts(order)
        command = commands.AnswerSignal(
            0,
            held.task,
            held.fence,
            session=session,
            answer=commands.Answer(order.word("an answer")),
            detail=order.text("detail"),
        )
        return self.send(command)

    # Fan-out.

    def helpers(self, order: Order) -> list[str]:
        """Ask for helpers, as the owner of a fan-out does, over a session of its own."""
        task = order.word("a task")
        count = int(order.word("how many"))
        command = commands.RequestHelpers(
            ref=0,
            task=self.task(task),
            fence=order.number("fence") or self._fence_of(task),
            count=count,
            session=self._cast.session(order.text("session", f"{task}-owner")),
            function=order.text("function", "f"),
            where=order.text("where", f"{task}-place") if count else "",
            queue=order.text("queue"),
            token=order.text("token", f"{task}-token"),
            namespace=order.text("namespace", DEFAULT),
            secret=order.text("secret", f"{self._cast.holder(self.task(task))}-secret"),
            only=order.list("only"),
        )
        return self.send(command)

    def free(self, order: Order) -> list[str]:
        """Let a helper say that it is free again."""
        session = self._worker(order.word("a worker"), order)
        fence = self._fence_of(order.word("a task"))
        return self.send(commands.EndHelp(0, fence, order.text("why"), session=session))

    def _fence_of(self, task: str) -> int:
        task_id = self._task_or_none(task)
        return self._cast.fence(task_id, self._cast.holder(task_id)) if task_id else 0

    # Actions.

    def act_on(self, order: Order) -> list[str]:
        action = commands.Action(order.verb)
        wanted = self._filter(order) if order.flag("where") else None
        command = commands.ActOnTasks(
            ref=0,
            action=action,
            tasks=tuple(map(self.task, order.list("tasks")))
            if wanted is not None
            else tuple(map(self.task, order.names("tasks, or where"))),
            filter=wanted,
            dry_run=order.flag("dry_run"),
            only=order.list("only"),
            terms=self._terms(order) if order.flag("on_terms") else None,
            **self.actor(order),
        )
        return self.send(command, order)

    def _terms(self, order: Order) -> commands.RetryTerms:
        numbers = {
            name: int(text) for name in ("retries", "priority") if (text := order.text(name))
        }
        timeout_us = order.duration_us("timeout")
        return commands.RetryTerms(timeout_us=timeout_us or None, **numbers)

    def _filter(self, order: Order) -> Filter:
        older_us = order.duration_us("older_than")
        return Filter(
            states=tuple(State(state) for state in order.list("states")),
            queue=order.text("queue"),
            name=order.text("name"),
            key=order.text("key"),
            tag=order.text("tag"),
            parent=self._task_or_none(order.text("parent")),
            batch=order.number("batch"),
            text=order.text("text"),
            older_than_us=self._clock_us - older_us if older_us else 0,
        )

    def answers(self, order: Order) -> list[str]:
        """Look at the answers that are kept; or pin, unpin or purge some."""
        if not order.has_words():
            return [
                self._moments(
                    join(
                        f"{self._cast.name(it.task)}: {it.queue} {it.state}",
                        option("name", it.name),
                        option("version", it.version),
                        option("uses", it.uses),
                        option("used_by", it.used_by),
                        option("pinned_by", it.pinned_by),
                    )
                )
                for it in self.core.book.snapshot().answers
            ]
        action = commands.AnswerAction(order.word("an action"))
        older_us = order.duration_us("older_than")
        command = commands.ActOnAnswers(
            action=action,
            identities=tuple(self._identity(name) for name in order.list("of")),
            queue=order.text("queue"),
            name=order.text("name"),
            version=order.text("version"),
            older_than_us=self._clock_us - older_us if older_us else 0,
            only=order.list("only"),
            **self.actor(order),
        )
        return self.send(command, order)

    def _identity(self, name: str) -> bytes:
        """Return the identity of the answer of a task; of nothing if there is none."""
        answer = self.core.book.answers.by_task.get(self.task(name))
        return b"?" * IDENTITY_BYTES if answer is None else answer.identity

    def watch(self, order: Order) -> list[str]:
        tasks = tuple(self.task(name) for name in order.names("the names of tasks"))
        namespace = order.text("namespace", DEFAULT)
        command = commands.WatchTasks(
            ref=0,
            tasks=tasks,
            session=self.client(order),
            namespace=namespace,
            progress=order.flag("progress"),
            only=order.list("only"),
        )
        return self.send(command)

    # Time and storage.

    def wait(self, order: Order) -> list[str]:
        """Let time pass, with a tick at every deadline; a worker may send heartbeats meanwhile."""
        begin_us = self._clock_us
        until_us = begin_us + parse_duration_us(order.word("a duration"))
        workers, every_us = order.list("heartbeat"), order.duration_us("every", 10 * SECOND)
        beat_us = begin_us + every_us
        lines: list[str] = []
        while True:
            deadline_us = self.core.next_deadline_us() or until_us + 1
            if workers and beat_us <= min(deadline_us, until_us):
                self._clock_us, beat_us = beat_us, beat_us + every_us
                for worker in workers:
                    session = self._cast.session(self._cast.session_of(worker))
                    lines += self._handle(commands.Heartbeat(session=session))
                continue
            if deadline_us > until_us:
                break
            self._clock_us = max(self._clock_us, deadline_us)
            told = self._handle(commands.Tick())
            if told:
                lines += [f"after {tell_duration(self._clock_us - begin_us)}", *told]
        self._clock_us = until_us
        return lines

    def jump(self, order: Order) -> list[str]:
        """Move the clock, and let nobody act meanwhile."""
        self._clock_us += parse_duration_us(order.word("a duration"))
        return []

    def tick(self, _order: Order) -> list[str]:
        return self._handle(commands.Tick())

    def store(self, _order: Order) -> list[str]:
        left, forgotten = self._shelf.store(self.core.book)
        told_of_record: list[str] = []
        if self._shelf.overdue(self._clock_us):
            told_of_record = self.forget(_order)
            forgotten += self._shelf.store(self.core.book)[1]
        told = (("left memory:", left), ("forgotten:", forgotten))
        return told_of_record + [
            f"{what} {','.join(self._cast.name(task) for task in tasks)}"
            for what, tasks in told
            if tasks
        ]

    def forget(self, _order: Order) -> list[str]:
        """Let go of what has been kept for long enough; storage removes it when it stores again."""
        return self._handle(commands.ForgetTasks(through_us=self._clock_us))

    def restart(self, order: Order) -> list[str]:
        """Stop the broker, and start it again from what is stored."""
        self.check_replay()
        self._clock_us += order.duration_us("after")
        self._cast.close_all()
        self.core = self._shelf.rebuild()
        is_set_back = order.flag("set_back")
        if not is_set_back:
            self._clock_us = max(self._clock_us, self.core.book.counters.latest_us)
        return self._handle(commands.Recover(is_clock_set_back=is_set_back))

    # Looking.

    def explain(self, order: Order) -> list[str]:
        task = self._find(order)
        explanation = explain(self.core, task)
        causes = [f"{cause.why}: {cause.text}" for cause in explanation.causes]
        return [self._moments(line) for line in (explanation.state, *causes)]

    def history(self, order: Order) -> list[str]:
        return [
            self._moments(
                join(
                    f"{it.at_us} {it.what}",
                    f"by {it.by}" if it.by else "",
                    f"({it.detail})" if it.detail else "",
                )
            )
            for it in whole_history(self.core, self._find(order))
        ]

    def show(self, order: Order) -> list[str]:
        task = self._find(order)
        told = (task.state, *tell_task(task), *self._progress(task))
        return [self._moments(join(*told))]

    def queues(self, _order: Order) -> list[str]:
        lines = []
        for world in self.core.book.namespaces.values():
            for queue in world.queues.values():
                where = "" if world.name == DEFAULT else f"{world.name}/"
                counts = ", ".join(f"{n} {state}" for state, n in queue.counts.items() if n)
                paused = f"(paused by {queue.paused_by})" if queue.paused_by else ""
                lines.append(join(f"{where}{queue.name}:", counts or "empty", paused))
        return lines

    def keys(self, _order: Order) -> list[str]:
        return [f"{key.id}: {key.name}" for key in self.core.book.api_keys.values()]

    def workers(self, _order: Order) -> list[str]:
        lines = []
        for (namespace, name), worker in self.core.roster.workers.items():
            where = "" if namespace == DEFAULT else f"{namespace}/"
            held = ",".join(self._cast.name(task) for task in worker.held)
            state = "draining" if worker.is_draining else ""
            away = "" if worker.session else "away"
            fanout = self.core.fanouts.get(worker.helps)
            whom = self._cast.name(fanout.task.id) if fanout else "somebody"
            helps = f"helps {whom}" if worker.helps > 0 else ""
            holds = f"holds {held or 'nothing'}"
            lines.append(join(f"{where}{name}:", holds, helps, state, away))
        departed = self.core.roster.departed
        return lines + [f"{departure.worker}: gone, {departure.why}" for departure in departed]

    def tallies(self, _order: Order) -> list[str]:
        return [
            f"{name}: {tally.succeeded} succeeded, {tally.failed} failed"
            for world in self.core.book.namespaces.values()
            for name, tally in sorted(world.tallies.items())
        ]

    def _find(self, order: Order) -> Task:
        """Look at a task, wherever it is; looking puts nothing back into memory."""
        task_id = self.task(order.word("a task"))
        task = self.core.book.tasks.get(task_id) or self._shelf.find(self.core.book, task_id)
        if task is None:
            raise ScriptError("there is no such task")
        return task

    def _progress(self, task: Task) -> list[str]:
        progress = self.core.progress.get(task.id)
        if progress is None:
            return []
        percent = "" if progress.percent is None else f"progress={progress.percent:g}%"
        return [percent, f"({progress.note})" if progress.note else ""]

    def _moments(self, text: str) -> str:
        """Put names for ids, and the time since the beginning for moments."""

        def tell(found: re.Match[str]) -> str:
            since_us = int(found[0]) - START_US
            return f"{'+' if since_us >= 0 else ''}{tell_duration(since_us)}"

        return _MOMENT.sub(tell, self._cast.put_names(text))

    # For other verbs.

    def session(self, name: str) -> int:
        self._cast.bind(name, name)
        return self._cast.session(name)

    # Who and what a command means.

    def task(self, name: str) -> TaskId:
        return self._cast.task(name, self._clock_us)

    def _task_or_none(self, name: str) -> TaskId:
        return self.task(name) if name else NO_TASK

    def moment(self, order: Order, name: str) -> int:
        span_us = order.duration_us(name)
        return self._clock_us + span_us if span_us else 0

    def client(self, order: Order) -> int:
        return self._cast.session(order.text("session", "client"))

    def actor(self, order: Order) -> Actor:
        return Actor(
            session=self.client(order),
            namespace=order.text("namespace", DEFAULT),
            by=order.text("by"),
        )

    def _worker(self, worker: str, order: Order) -> int:
        return self._cast.session(order.text("session", self._cast.session_of(worker)))

    def attempts(self, order: Order) -> tuple[list[Held], int]:
        """Return the attempts that a worker speaks of, by default its own."""
        tasks = [self.task(name) for name in order.names("the names of tasks")]
        worker = order.text("worker") or self._cast.holder(tasks[0])
        fence = order.number("fence")
        held = [Held(task, fence or self._cast.fence(task, worker)) for task in tasks]
        return held, self._worker(worker, order)

    def _held(self, text: str, worker: str) -> Held:
        name, _, fence = text.partition(":")
        task = self.task(name)
        return Held(task, int(fence) if fence else self._cast.fence(task, worker))


class Actor(TypedDict):
    """Who acts from outside, and where."""

    session: int
    namespace: str
    by: str


def _body(text: str) -> Body:
    """Read a payload or result; `blob:name:size` is kept in the blob store."""
    if text.startswith("blob:"):
        _, blob, size = text.split(":")
        return BlobRef(blob, int(size))
    return text.encode()


def _identity(text: str) -> bytes:
    """Read an identity; a word is the one of a request of its own."""
    if not text or len(text) < IDENTITY_BYTES:
        return text.encode()
    return bytes.fromhex(text)


def _retry(order: Order) -> Retry | None:
    """Read a task's own retry settings; what is left out is as in the default policy."""
    retries, factor = order.text("retries"), order.text("retry_factor")
    base_us, cap_us = order.duration_us("retry_base", -1), order.duration_us("retry_cap", -1)
    if not retries and not factor and base_us < 0 and cap_us < 0:
        return None
    return Retry(
        int(retries or DEFAULT_POLICY.retries),
        base_us if base_us >= 0 else DEFAULT_POLICY.retry_base_us,
        float(factor or DEFAULT_POLICY.retry_factor),
        cap_us if cap_us >= 0 else DEFAULT_POLICY.retry_cap_us,
    )


def _seen(text: str) -> commands.Seen:
    launch, queue, key, phase, version = (*text.split(":"), "", "")[:5]
    return commands.Seen(launch, DEFAULT, queue, key, version, Phase(phase or "running"))


def _launch(launch: Launch) -> str:
    retired = "(retired)" if launch.is_retired else ""
    return f"{launch.id}{retired}"


_SENT = {**MESSAGING, **SCHEDULING, **CONTRACTING}

_VERBS: dict[str, Callable[[Stage, Order], list[str]]] = {
    "schedules": lambda stage, _: tell_schedules(stage.core, START_US),
    # Submitting and configuring.
    "submit": Stage.submit,
    "declare": Stage.declare,
    "delete-queue": Stage.delete_queue,
    "pause-queue": Stage.pause_queue,
    "resume-queue": Stage.resume_queue,
    "limit-tag": Stage.limit_tag,
    # Pools.
    "declare-pool": Stage.declare_pool,
    "delete-pool": Stage.delete_pool,
    "start-group": Stage.act_on_group,
    "stop-group": Stage.act_on_group,
    "pin-group": Stage.act_on_group,
    "unpin-group": Stage.act_on_group,
    "follow-pools": Stage.follow_pools,
    "report": Stage.report,
    "groups": Stage.groups,
    "create-key": Stage.create_key,
    "revoke-key": Stage.revoke_key,
    # Workers.
    "join": Stage.join,
    "heartbeat": Stage.heartbeat,
    "claim": Stage.claim,
    "helpers": Stage.helpers,
    "free": Stage.free,
    "cancel_claim": Stage.cancel_claim,
    "leave": Stage.leave,
    "close": Stage.close,
    "drain": Stage.drain,
    # Attempts.
    "start": Stage.start,
    "finish": Stage.finish,
    "fail": Stage.fail,
    "release": Stage.release,
    "progress": Stage.progress,
    **(STEPPING | FOLLOWING | FLOWING | TENANTS | LIMITING),
    "answer": Stage.answer,
    # Actions.
    "hold": Stage.act_on,
    "play": Stage.act_on,
    "pause": Stage.act_on,
    "kill": Stage.act_on,
    "retry": Stage.act_on,
    "purge": Stage.act_on,
    "watch": Stage.watch,
    "answers": Stage.answers,
    # Time and storage.
    "wait": Stage.wait,
    "jump": Stage.jump,
    "tick": Stage.tick,
    "store": Stage.store,
    "forget": Stage.forget,
    "restart": Stage.restart,
    # Looking.
    "explain": Stage.explain,
    "history": Stage.history,
    "show": Stage.show,
    "queues": Stage.queues,
    "keys": Stage.keys,
    "workers": Stage.workers,
    "tallies": Stage.tallies,
}
