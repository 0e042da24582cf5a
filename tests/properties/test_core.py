"""The core against the model: random commands, and after each of them nothing may differ.

After every command the records, the answer, the messages, every task in memory and the core's own
invariants are compared with what `tests.properties.model` expects. In the end the whole journal,
replayed into an empty core, must give the same book.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jackalope.core import Core
from jackalope.core import commands as c
from jackalope.core.api_key import ApiKey, Permission
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.explain import explain
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId
from jackalope.core.invariants import check
from jackalope.core.lifecycle import ENDED, LEASED, Event, State, is_legal
from jackalope.core.records import decode_batch, encode_batch
from jackalope.core.task import Error, OnDependency, Options, Retry, TaskSpec
from tests.core.driving import NOW_US, task_id
from tests.profiles import PATIENCE, examples
from tests.properties.judging import Judge, judge_effects, judge_tasks
from tests.properties.model import Model
from tests.properties.storage import Storage, apply_all, copied

pytestmark = PATIENCE

QUEUES = ("a", "b", "c")
TAGS = ("red", "blue")
WORKERS = ("w1", "w2", "w3")
#: Sessions of clients, and one that nobody has.
WATCHERS = (1_001, 1_002)
WORK = ("start", "start", "finish", "finish", "release", "progress")
NOBODY = 1_000
#: More tasks would not find more, and the model looks at all of them all the time.
ENOUGH = 16

numbers = st.integers(0, 50)
rarely = st.sampled_from((False, False, False, True))
queues = st.sampled_from(("a", "a", "b", "c"))
keys = st.sampled_from(("", "", "", "k", "l"))
#: The queues that whoever asks is limited to, if any.
seen = st.sampled_from(((), (), (), ("a",), ("b", "c")))
priorities = st.sampled_from((150, 150, 10, 200))
waits_us = st.sampled_from((0, 0, SECOND, 5 * SECOND, 60 * SECOND))

#: One field of a policy at a time, with values that make a difference soon.
policies = st.sampled_from(
    [
        {field: value}
        for field, values in {
            "on_lost": ("requeue", "pause", "dead"),
            "on_restart": ("keep", "requeue"),
            "retries": (0, 1, 3),
            "retry_base_us": (0, 0, SECOND),
            "crash_limit": (0, 1, 2),
            "interruption_limit": (0, 1, 2),
            "prefer_other_worker": (True, False),
            "priority_drop": (0, 100),
            "ageing_us": (0, 1, SECOND),
            "time_to_live_us": (0, 5 * SECOND),
            "timeout_us": (0, SECOND),
            "depth_limit": (0, 1, 2, 4),
            "batch_size": (1, 2, 100),
            "retention_us": (0, HOUR),
            "result_becomes": ("", "b", "c"),
            "held": (True, False),
            "done": ("processed", "processed", "received"),
        }.items()
        for value in values
    ]
)


class CoreMachine(RuleBasedStateMachine):
    """A core, its model and its storage."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.model = Model()
        self.storage = Storage()
        self.now_us = NOW_US
        self.session = 0
        self.ref = 0
        self.submitted = 0
        self.is_eager = False

    # How a command goes.

    def send(self, command: c.AnyCommand) -> None:
        """Handle a command in both, and compare."""
        self.ref += 1
        command.ref = self.ref
        missing = self.core.missing(command)
        if missing is not None:
            self.storage.recall(self.core, missing)
        records, effects = self.core.handle(self.now_us, command)
        body = encode_batch(records)
        self.storage.journal.append(body)
        judge = Judge(self.model, decode_batch(body))
        expected = self.model.handle(self.now_us, command, judge.follow, judge.in_order)
        judge.finish()
        judge_effects(self.model, effects, expected, (command.session, self.ref), judge.claims)
        self.compare()
        if self.is_eager:
            self.start_what_was_given(judge.claims)

    def start_what_was_given(self, claims: list[tuple[TaskId, int]]) -> None:
        """Let eager workers begin at once, as real ones do."""
        for given, _ in claims:
            task = self.model.tasks[given]
            if task.state is State.ASSIGNED:
                held = c.Held(given, task.fence)
                self.send(
                    c.StartAttempts(ref=0, session=self.session_of(task.worker), attempts=[held])
                )

    def compare(self) -> None:
        check(self.core)
        stored = {row.id: row.state for row in self.storage.rows.values()}
        judge_tasks(self.model, self.core, stored)
        assert self.model.idle() == [], "a worker with room could have a task that waits"
        deadline_us = self.core.next_deadline_us()
        for at_us in self.model.deadlines():
            assert deadline_us is not None, "a deadline was forgotten"
            assert deadline_us <= at_us, "a deadline comes too late"
        for task in self.core.book.tasks.values():
            assert explain(self.core, task).causes, "a task without an explanation"

    # Who and what a rule is about.

    def new_spec(
        self, queue: str, priority: int, key: str, options: Options | None = None
    ) -> TaskSpec:
        self.submitted += 1
        identity = task_id(self.submitted)
        name = "x" if self.submitted % 3 == 0 else ""
        return TaskSpec(identity, queue, name, key, priority, options=options)

    def a_task(self, number: int) -> TaskId:
        """Choose a task, mostly one that is there, but also one that is gone or never was."""
        known = list(self.model.tasks)
        if known and number < 40:
            return known[-1 - number % len(known)]
        return task_id(number % (self.submitted + 2))

    def a_worker(self, number: int) -> str:
        """Choose a worker, one with a session if there is one."""
        names = [worker.name for worker in self.model.workers.values() if worker.session]
        return names[number % len(names)] if names else WORKERS[number % len(WORKERS)]

    def session_of(self, worker: str) -> int:
        known = self.model.workers.get(worker)
        return known.session if known is not None and known.session else NOBODY

    def leased(self) -> list[TaskId]:
        """Return the tasks whose worker can speak for them."""
        return [
            task.id
            for task in self.model.tasks.values()
            if task.fence and self.session_of(task.worker) != NOBODY
        ]

    def report(self, what: str, session: int, attempts: list[tuple[TaskId, int]]) -> None:
        task, fence = attempts[0]
        held = [c.Held(*each) for each in attempts]
        finished = [c.Finish(*each, b"result") for each in attempts]
        failed = [c.Fail(*each, Error("E", "message")) for each in attempts]
        commands: dict[str, c.AnyCommand] = {
            "start": c.StartAttempts(ref=0, attempts=held),
            "finish": c.FinishAttempts(attempts=finished),
            "fail": c.FailAttempts(attempts=failed),
            "release": c.ReleaseAttempts(attempts=held),
            "progress": c.ReportProgress(ref=0, task=task, fence=fence, percent=50.0),
            "answer": c.AnswerSignal(ref=0, task=task, fence=fence, answer=c.Answer.STOPPED),
        }
        commands[what].session = session
        self.send(commands[what])

    # Submitting.

    @initialize(
        changes=st.lists(policies, max_size=6),
        slots=st.sampled_from((1, 2, 5)),
        is_eager=st.booleans(),
    )
    def begin(self, changes: list[dict[str, object]], slots: int, is_eager: bool) -> None:
        """Begin with something to do and somebody who does it."""
        for queue, change in zip("aaaabc", changes, strict=False):
            self.send(c.DeclareQueue(queue=queue, changes=change))
        self.is_eager = is_eager
        self.join("w1", QUEUES, (), slots, grace_us=10 * SECOND, says="all", ready=True)
        self.submit("a", 3, 150, "")

    @precondition(lambda self: len(self.model.tasks) < ENOUGH)
    @rule(queue=queues, count=st.integers(1, 3), priority=priorities, key=keys)
    def submit(self, queue: str, count: int, priority: int, key: str) -> None:
        self.send(
            c.SubmitTasks(ref=0, tasks=[self.new_spec(queue, priority, key) for _ in range(count)])
        )

    @precondition(lambda self: len(self.model.tasks) < ENOUGH)
    @rule(
        spec=st.tuples(queues, priorities, keys),
        tags=st.sampled_from(((), ("red",), ("red", "blue"), ("blue", "blue"))),
        waits=st.tuples(waits_us, waits_us, waits_us),
        is_held=rarely,
        retry=st.sampled_from((None, Retry(1, SECOND, 2.0, SECOND), Retry(5, 0, 1.0, 0))),
        alias=st.sampled_from(("", "", "", "cat", "dog")),
    )
    def submit_with_options(
        self,
        *,
        spec: tuple[str, int, str],
        tags: tuple[str, ...],
        waits: tuple[int, int, int],
        is_held: bool,
        retry: Retry | None,
        alias: str,
    ) -> None:
        run_us, expire_us, timeout_us = waits
        options = Options(
            alias=alias,
            tags=tags,
            run_at_us=self.now_us + run_us if run_us else 0,
            expires_at_us=self.now_us + expire_us if expire_us else 0,
            timeout_us=timeout_us,
            retry=retry,
            held=is_held,
        )
        self.send(c.SubmitTasks(ref=0, tasks=[self.new_spec(*spec, options)]))

    @precondition(lambda self: len(self.model.tasks) < ENOUGH)
    @rule(
        queue=queues,
        parent=st.none() | numbers,
        dependencies=st.lists(numbers, max_size=2),
        on_dependency=st.sampled_from(OnDependency),
        fence=st.sampled_from(("", "", "right", "stale")),
        is_held=rarely,
    )
    def submit_with_links(
        self,
        *,
        queue: str,
        parent: int | None,
        dependencies: list[int],
        on_dependency: OnDependency,
        fence: str,
        is_held: bool,
    ) -> None:
        """Submit a child, a dependent, or both."""
        parent_id = NO_TASK if parent is None else self.a_task(parent)
        known = self.model.tasks.get(parent_id)
        right = known.fence if known is not None else 0
        options = Options(
            depends_on=tuple(self.a_task(number) for number in dependencies),
            on_dependency=on_dependency,
            parent=parent_id,
            held=is_held,
        )
        self.send(
            c.SubmitTasks(
                ref=0,
                tasks=[self.new_spec(queue, 150, "", options)],
                fence={"": 0, "right": right, "stale": right + 1_000}[fence],
            )
        )

    # Working.

    @rule(reports=st.lists(st.tuples(numbers, st.sampled_from(WORK)), min_size=1, max_size=4))
    def work(self, reports: list[tuple[int, str]]) -> None:
        """Report on some tasks with the right fence."""
        for number, what in reports:
            leased = self.leased()
            if leased:
                task = self.model.tasks[leased[number % len(leased)]]
                self.report(what, self.session_of(task.worker), [(task.id, task.fence)])

    @precondition(lambda self: self.leased())
    @rule(
        number=numbers,
        verdict=st.sampled_from(
            (c.Verdict.RETRY, c.Verdict.RETRY, c.Verdict.DEAD, c.Verdict.REJECT)
        ),
        retry_after_us=st.sampled_from((0, 0, SECOND)),
    )
    def fail(self, number: int, verdict: c.Verdict, retry_after_us: int) -> None:
        task = self.model.tasks[self.leased()[number % len(self.leased())]]
        fail = c.Fail(task.id, task.fence, Error("E"), verdict, retry_after_us)
        self.send(c.FailAttempts(session=self.session_of(task.worker), attempts=[fail]))

    @rule(worker=numbers, what=st.sampled_from(("start", "finish", "fail", "release")))
    def work_on_all(self, worker: int, what: str) -> None:
        """Report on all that a worker holds, and on something that it does not."""
        name = self.a_worker(worker)
        attempts = [(task.id, task.fence) for task in self.model.held_by(name)]
        self.report(what, self.session_of(name), [*attempts, (task_id(0), 1)])

    @precondition(lambda self: self.leased())
    @rule(number=numbers, answer=st.sampled_from((*c.Answer, c.Answer.STOPPED)))
    def answer(self, number: int, answer: c.Answer) -> None:
        """Answer a signal, preferably one that was sent."""
        asked = [each for each in self.leased() if self.model.tasks[each].request]
        chosen = asked or self.leased()
        task = self.model.tasks[chosen[number % len(chosen)]]
        session = self.session_of(task.worker)
        self.send(
            c.AnswerSignal(ref=0, session=session, task=task.id, fence=task.fence, answer=answer)
        )

    @rule(
        number=numbers,
        worker=numbers,
        late=st.integers(0, 3),
        what=st.sampled_from(("start", "finish", "fail", "release", "progress", "answer")),
    )
    def speak_out_of_turn(self, number: int, worker: int, late: int, what: str) -> None:
        """Report on any task, by any worker, with the last fence or an older one."""
        fence = max(0, self.model.last_fence - late)
        self.report(what, self.session_of(self.a_worker(worker)), [(self.a_task(number), fence)])

    @rule(number=numbers, is_same=st.booleans())
    def submit_again(self, number: int, is_same: bool) -> None:
        """Repeat a submit, or use an id again: of a task that lives, ended or is gone."""
        known = self.model.tasks.get(self.a_task(number))
        spec = TaskSpec(self.a_task(number), "a") if known is None else copied(known.spec)
        spec.payload = spec.payload if is_same else b"other"
        self.submitted += spec.id == task_id(self.submitted + 1)
        self.send(c.SubmitTasks(ref=0, tasks=[spec]))

    # Coming and going.

    @rule(
        worker=st.sampled_from(WORKERS),
        queues=st.sampled_from((QUEUES, QUEUES, ("a",), ("a", "b"), ("c",))),
        keys=st.sampled_from(((), (), ("k",), ("", "l"))),
        slots=st.sampled_from((0, 1, 2, 5)),
        grace_us=st.sampled_from((0, 10 * SECOND)),
        says=st.sampled_from(("again", "all", "all", "some", "none", "wrong")),
        ready=st.sampled_from((True, True, False)),
        names=st.sampled_from((None, None, ("",), ("x",), ("x", ""), ())),
    )
    def join(  # noqa: PLR0917
        self,
        worker: str,
        queues: tuple[str, ...],
        keys: tuple[str, ...],
        slots: int,
        grace_us: int,
        says: str,
        ready: bool,
        names: tuple[str, ...] | None = None,
    ) -> None:
        """Join again over the same session, or over a new one and say what is still running."""
        session = self.session_of(worker)
        if session == NOBODY or says != "again":
            self.session += 1
            session = self.session
        held = [c.Held(task.id, task.fence) for task in self.model.held_by(worker)]
        wrong = [c.Held(each.task, each.fence + 1) for each in held]
        holding = {"all": held, "some": held[1:], "wrong": wrong}.get(says, [])
        self.send(
            c.JoinWorker(
                ref=0,
                session=session,
                worker=worker,
                queues=queues,
                keys=keys,
                slots=slots,
                holding=holding,
                lease_us=30 * SECOND,
                grace_us=grace_us,
                ready=ready,
                names=names,
            )
        )

    @rule(
        worker=numbers,
        how=st.sampled_from(("heartbeat", "heartbeat", "close", "close", "leave", "drain", "take")),
    )
    def come_and_go(self, worker: int, how: str) -> None:
        name = self.a_worker(worker)
        session = self.session_of(name)
        commands: dict[str, c.AnyCommand] = {
            "heartbeat": c.Heartbeat(session=session),
            "close": c.CloseSession(session=session),
            "leave": c.LeaveWorker(session=session),
            "drain": c.DrainWorker(worker=name),
            "take": c.JoinWorker(ref=0, session=session, worker="another", queues=("a",), slots=0),
        }
        self.send(commands[how])

    @rule(worker=numbers, count=st.integers(1, 3), wait_us=waits_us)
    def claim(self, worker: int, count: int, wait_us: int) -> None:
        session = self.session_of(self.a_worker(worker))
        self.send(c.ClaimTasks(ref=0, session=session, count=count, wait_us=wait_us))

    @rule(worker=numbers, claim=numbers)
    def cancel_claim(self, worker: int, claim: int) -> None:
        name = self.a_worker(worker)
        known = self.model.workers.get(name)
        refs = [each[0] for each in known.claims] if known is not None else []
        chosen = refs[claim % len(refs)] if refs else claim
        self.send(c.CancelClaim(session=self.session_of(name), claim=chosen))

    @rule(
        tasks=st.lists(numbers, max_size=3),
        session=st.sampled_from(WATCHERS),
        progress=st.booleans(),
        only=seen,
    )
    def watch(self, tasks: list[int], session: int, progress: bool, only: tuple[str, ...]) -> None:
        """Watch some tasks; none means to go away."""
        watched = tuple(dict.fromkeys(self.a_task(number) for number in tasks))
        if watched:
            command = c.WatchTasks(
                ref=0, session=session, tasks=watched, progress=progress, only=only
            )
            self.send(command)
        else:
            self.send(c.CloseSession(session=session))

    # Acting.

    @precondition(lambda self: self.model.tasks)
    @rule(number=numbers, choice=numbers)
    def act(self, number: int, choice: int) -> None:
        """Do to a task what can be done to it."""
        ids = list(self.model.tasks)
        task = self.model.tasks[ids[number % len(ids)]]
        able = [action for action in c.Action if is_legal(task.state, Event(action.value))]
        self.send(c.ActOnTasks(ref=0, action=able[choice % len(able)], tasks=(task.id,)))

    @rule(
        action=st.sampled_from(c.Action), tasks=st.lists(numbers, min_size=1, max_size=3), only=seen
    )
    def act_anyhow(self, action: c.Action, tasks: list[int], only: tuple[str, ...]) -> None:
        chosen = tuple(self.a_task(number) for number in tasks)
        self.send(c.ActOnTasks(ref=0, action=action, tasks=chosen, only=only))

    @rule(
        action=st.sampled_from(c.Action),
        tasks=st.lists(numbers, min_size=1, max_size=3),
        states=st.sampled_from((tuple(ENDED), tuple(LEASED), (State.READY,))),
    )
    def act_if(self, action: c.Action, tasks: list[int], states: tuple[State, ...]) -> None:
        chosen = tuple(self.a_task(number) for number in tasks)
        self.send(c.ActOnTasks(ref=0, action=action, tasks=chosen, filter=Filter(states=states)))

    @rule(
        action=st.sampled_from(c.Action),
        queue=st.sampled_from(("", *QUEUES)),
        key=st.sampled_from(("", "", "k")),
        states=st.sampled_from(((), (), tuple(ENDED), tuple(LEASED), (State.READY,))),
        dry_run=rarely,
        only=seen,
    )
    def act_by_filter(
        self,
        *,
        action: c.Action,
        queue: str,
        key: str,
        states: tuple[State, ...],
        dry_run: bool,
        only: tuple[str, ...],
    ) -> None:
        wanted = Filter(queue=queue, key=key, states=states)
        self.send(c.ActOnTasks(ref=0, action=action, filter=wanted, dry_run=dry_run, only=only))

    @rule(queue=queues, changes=policies)
    def declare(self, queue: str, changes: dict[str, object]) -> None:
        self.send(c.DeclareQueue(queue=queue, changes=changes))

    @rule(queue=queues, how=st.sampled_from(("pause", "resume", "resume", "delete")))
    def manage(self, queue: str, how: str) -> None:
        commands: dict[str, c.AnyCommand] = {
            "pause": c.PauseQueue(queue=queue),
            "resume": c.ResumeQueue(queue=queue),
            "delete": c.DeleteQueue(queue=queue),
        }
        self.send(commands[how])

    @rule(tag=st.sampled_from(TAGS), limit=st.integers(-1, 2))
    def limit(self, tag: str, limit: int) -> None:
        self.send(c.LimitTag(tag=tag, limit=limit))

    @rule(key=st.sampled_from("abc"), what=st.sampled_from((*Permission, "revoke", "revoke")))
    def change_api_keys(self, key: str, what: str) -> None:
        if what == "revoke":
            self.send(c.RevokeApiKey(key=key))
        else:
            made = ApiKey(key, "0" * 64, "ada", (Permission(what),))
            self.send(c.CreateApiKey(key=made, by="ada"))

    # Time, storage, restarts.

    @rule(wait_us=st.sampled_from((1, SECOND, SECOND, 5 * SECOND, 20 * SECOND, 100 * SECOND)))
    def wait(self, wait_us: int) -> None:
        """Let time pass, with a tick whenever the core asks for one."""
        until_us = self.now_us + wait_us
        deadline_us = self.core.next_deadline_us()
        while deadline_us is not None and deadline_us <= until_us:
            was_us, self.now_us = self.now_us, max(self.now_us, deadline_us)
            self.send(c.Tick())
            deadline_us = self.core.next_deadline_us()
            is_done = deadline_us is None or deadline_us > self.now_us
            assert is_done or self.now_us > was_us, "a tick leaves undone what is due"
        self.now_us = until_us
        assert all(at_us > self.now_us for at_us in self.model.deadlines())

    @rule(is_slow=st.booleans())
    def store(self, is_slow: bool) -> None:
        """Write behind: at once, or with other commands before it is done."""
        if self.storage.taken is None:
            self.storage.take(self.core)
            if is_slow:
                return
        self.core.book.stored(self.storage.write())
        memory = self.core.book.tasks
        for task in list(self.model.tasks.values()):
            if task.id not in memory and task.id not in self.storage.rows:
                assert task.has_ended, "an unfinished task was forgotten"
                assert not task.is_kept, "a task was forgotten before its time"
                del self.model.tasks[task.id]
        for left in self.storage.rows.keys() & self.model.tasks.keys() - memory.keys():
            assert self.core.book.may_have_ended(left), "a task that left is taken for new"
        self.compare()

    @rule(luck=st.integers(1, 3))
    def restart(self, luck: int) -> None:
        """Stop at any moment, not too often, and go on from what is stored."""
        if luck > 1:
            return
        before = self.core.book.snapshot()
        self.core = self.storage.rebuild()
        after = self.core.book.snapshot()
        live = [row for row in before.tasks if row.state not in ENDED]
        assert [row for row in after.tasks if row.state not in ENDED] == live
        assert after.entities == before.entities
        assert after.counters.fence == before.counters.fence
        self.model.restart()
        self.send(c.Recover())

    def teardown(self) -> None:
        """Replay all that was ever recorded."""
        core = Core()
        apply_all(core, self.storage.journal)
        check(core)
        mine, theirs = self.core.book.snapshot(), core.book.snapshot()
        assert mine.entities == theirs.entities
        assert (mine.counters.fence, mine.counters.rank) == (
            theirs.counters.fence,
            theirs.counters.rank,
        )
        replayed = {row.id: row for row in theirs.tasks}
        for row in mine.tasks:
            assert replayed.pop(row.id) == row
        assert all(row.state in ENDED for row in replayed.values())


TestCore = CoreMachine.TestCase
TestCore.settings = settings(max_examples=examples(250), stateful_step_count=50)
