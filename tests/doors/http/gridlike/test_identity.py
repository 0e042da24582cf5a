"""Who is whom among workers that share ids, by chance: no result may end another job.

The real core and the real roll, without sockets. Honest workers of one id compute on while their
connections break, their jobs are deleted and the broker restarts; some of them name their attempt
when they come back, as the protocol allows, the others cannot. A worker that has a job says so.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from jackalope.broker.config.schema import GridlikeConfig
from jackalope.broker.views.workers import Leases
from jackalope.core import commands as c
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, Assignment, Joined, SessionReplaced, SignalAsked
from jackalope.doors.http.gridlike.context import Entry, Roll
from tests.core.driving import Driver, number_of
from tests.profiles import PATIENCE, examples

pytestmark = PATIENCE

QUEUE = "jobs"
IDS = ("same", "same", "own")
ENOUGH = 6


class Worker:
    """A worker: what it really computes, and what the broker believes."""

    def __init__(self, worker_id: str) -> None:
        self.id = worker_id
        self.session = 0
        self.entry: Entry | None = None
        #: The attempt that it computes, whatever became of it.
        self.computes: c.Held | None = None
        #: The attempt that its connection stands for in the broker.
        self.given: c.Held | None = None


class IdentityMachine(RuleBasedStateMachine):
    """A core, a roll and workers; a result is accepted only for the job it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(is_checked=False)
        self.roll = Roll(GridlikeConfig())
        self.workers = [Worker(worker_id) for worker_id in IDS]
        self.sessions = 0
        self.submitted = 0
        self.driver.declare(QUEUE, "gridlike", crash_limit=0, interruption_limit=0)
        for number in range(len(IDS)):
            self.submit()
            self.register(number, names_its_attempt=False)

    def send(self, command: c.AnyCommand) -> object:
        """Send a command, and let the workers take what comes of it."""
        answer = self.driver.send(command)
        self.take()
        return answer

    def take(self) -> None:
        connected = [worker for worker in self.workers if worker.session]
        told = [(worker, self.driver.messages(worker.session)) for worker in connected]
        for worker, message in [(worker, each) for worker, those in told for each in those]:
            if isinstance(message, Assignment):
                assert worker.computes is None, "a job while it has one"
                worker.given = worker.computes = c.Held(message.task, message.fence)
            elif isinstance(message, SignalAsked):
                self.stop(worker, message)
            elif isinstance(message, SessionReplaced):
                self.leave(worker)

    def stop(self, worker: Worker, asked: SignalAsked) -> None:
        """Take the job from a worker, which is not told."""
        if worker.given == c.Held(asked.task, asked.fence):
            worker.given = None
            self.join(worker, [], is_ready=False)
        stopped = c.Answer.STOPPED
        self.post(worker, c.AnswerSignal(ref=0, task=asked.task, fence=asked.fence, answer=stopped))

    def post(self, worker: Worker, command: c.AnyCommand) -> object:
        command.session = worker.session
        return self.send(command)

    def join(self, worker: Worker, holding: list[c.Held], *, is_ready: bool) -> object:
        assert worker.entry is not None
        name, grace_us = worker.entry.worker, 5 * SECOND
        return self.post(
            worker,
            c.JoinWorker(
                ref=0,
                worker=name,
                queues=(QUEUE,),
                holding=holding,
                ready=is_ready,
                grace_us=grace_us,
            ),
        )

    def leave(self, worker: Worker) -> None:
        assert worker.entry is not None
        self.roll.leave(worker.entry, self.driver.now_us)
        worker.session, worker.entry, worker.given = 0, None, None

    @precondition(lambda self: self.submitted < ENOUGH)
    @rule()
    def submit(self) -> None:
        self.submitted += 1
        self.driver.submit(self.submitted, QUEUE)
        self.take()

    @rule(number=st.integers(0, 2), names_its_attempt=st.booleans())
    def register(self, number: int, names_its_attempt: bool) -> None:
        worker = self.workers[number]
        if worker.session:
            return
        self.sessions += 1
        entry = Entry(QUEUE, self.driver.now_us)
        entry.id = worker.id
        entry.names_attempts = names_its_attempt
        entry.claim = worker.computes if names_its_attempt else None
        worker.session, worker.entry = self.sessions, entry
        self.roll.enter(entry)
        holding = self.roll.identify(Leases(self.driver.core, "default"), entry)
        answer = self.join(worker, holding, is_ready=False)
        assert isinstance(answer, Joined)
        assert not answer.resumed or names_its_attempt, "resumed without proof"
        worker.given = answer.resumed[0] if answer.resumed else None
        self.be_ready(worker)

    def be_ready(self, worker: Worker) -> None:
        if worker.computes is None:
            self.join(worker, [], is_ready=True)

    @rule(number=st.integers(0, 2))
    def finish(self, number: int) -> None:
        worker = self.workers[number]
        if not worker.session or worker.computes is None:
            return
        computed, given = worker.computes, worker.given
        worker.computes = worker.given = None
        if given is not None:
            result = b"%d" % number_of(computed.task)
            finish = c.Finish(given.task, given.fence, result)
            answer = self.post(worker, c.FinishAttempts(attempts=[finish]))
            assert isinstance(answer, Accepted)
            if not answer.refused:
                assert given.task == computed.task, "completed with the result of another job"
        if worker.session:
            self.be_ready(worker)

    @rule(number=st.integers(0, 2))
    def lose_the_connection(self, number: int) -> None:
        worker = self.workers[number]
        if worker.session:
            session = worker.session
            self.leave(worker)
            self.send(c.CloseSession(session=session))

    @rule(number=st.integers(0, 2))
    def die(self, number: int) -> None:
        """A process ends, and another takes its place."""
        worker = self.workers[number]
        if not worker.session:
            worker.computes = None

    @rule(number=st.integers(0, 2))
    def delete(self, number: int) -> None:
        """Delete a job that a worker has."""
        given = self.workers[number].given
        if given is not None:
            for action in (c.Action.KILL, c.Action.PURGE):
                self.send(c.ActOnTasks(ref=0, action=action, tasks=(given.task,), by="ada"))

    @rule(order=st.permutations(range(len(IDS))), name_their_attempts=st.booleans())
    def restart(self, order: list[int], name_their_attempts: bool) -> None:
        """Restart the broker. The workers come back one after the other."""
        self.driver.core = self.driver.replayed()
        self.roll = Roll(GridlikeConfig())
        for worker in self.workers:
            worker.session, worker.entry, worker.given = 0, None, None
        self.send(c.Recover())
        for number in order:
            self.register(number, name_their_attempts)

    @rule(seconds=st.sampled_from((1, 10, 60)))
    def wait(self, seconds: int) -> None:
        for worker in [worker for worker in self.workers if worker.session]:
            self.post(worker, c.Heartbeat())
        self.driver.tick(seconds * SECOND)
        self.take()
        for worker in [worker for worker in self.workers if worker.session]:
            if self.driver.core.roster.sessions.get(worker.session) is None:
                self.leave(worker)


TestIdentity = IdentityMachine.TestCase
TestIdentity.settings = settings(max_examples=examples(400), stateful_step_count=20)
