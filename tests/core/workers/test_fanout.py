"""Who helps whom, over long random stories: what the invariants say holds after every step."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from jackalope.core.commands import (
    Action,
    AnyCommand,
    EndHelp,
    Heartbeat,
    LeaveWorker,
    RequestHelpers,
)
from jackalope.core.durations import SECOND
from jackalope.core.effects import Answered, Effect, HelpAsked, HelpRecalled, SendToSession
from tests.core.driving import Driver, task_id

OWNERS = 10_000
STEPS = 400


class Heard(Driver):
    """A driver whose effects somebody hears, whatever command they came of."""

    def __init__(self, hear: Callable[[list[Effect]], None]) -> None:
        super().__init__()
        self.hear = hear

    def send(self, command: AnyCommand) -> Answered | None:
        answer = super().send(command)
        self.hear(self.effects)
        return answer


class Story:
    """Workers that come and go, tasks that fan out, and helpers that obey."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.driver = Heard(self.hear)
        self.sessions = 0
        self.submitted = 0
        self.helping: dict[int, int] = {}  # Whom the worker of a session believes to help.
        self.asks = 0

    def step(self) -> None:
        acts = [self.join, self.submit, self.ask, self.ask, self.free, self.free]
        acts += [self.finish, self.close, self.leave, self.pass_time, self.kill]
        self.chance.choice(acts)()

    def hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToSession) and isinstance(effect.message, HelpAsked):
                assert effect.session not in self.helping, "asked while it helps"
                self.helping[effect.session] = effect.message.fence
                self.asks += 1
            elif isinstance(effect, SendToSession) and isinstance(effect.message, HelpRecalled):
                assert self.helping[effect.session] == effect.message.fence

    def join(self) -> None:
        self.sessions += 1
        name, slots = f"w{self.chance.randrange(8)}", self.chance.choice((1, 1, 2))
        known = self.driver.core.roster.workers.get(("default", name))
        helps = 0
        if known is not None and known.session:
            helps = self.helping.pop(known.session, 0)
        keys = self.chance.choice(((), (), ("k",)))
        if helps:
            self.helping[self.sessions] = helps
        self.driver.join(name, self.sessions, keys=keys, slots=slots, helps=helps)

    def submit(self) -> None:
        self.submitted += 1
        self.driver.submit(self.submitted, key=self.chance.choice(("", "k")))

    def ask(self) -> None:
        leased = self.leased()
        if leased:
            number = self.chance.choice(leased)
            self.driver.send(
                RequestHelpers(
                    ref=0,
                    session=OWNERS + number,
                    task=task_id(number),
                    fence=self.driver.fence(number),
                    count=self.chance.choice((0, 1, 3, 9)),
                    where="here",
                    secret=self.driver.worker(number),
                )
            )

    def free(self) -> None:
        if self.helping:
            session = self.chance.choice(list(self.helping))
            why = self.chance.choice(("", "", "", "cannot"))
            fence = self.helping.pop(session)
            self.driver.send(EndHelp(ref=0, session=session, fence=fence, why=why))

    def finish(self) -> None:
        if leased := self.leased():
            self.driver.finish(self.chance.choice(leased))

    def kill(self) -> None:
        if self.submitted:
            self.driver.act(Action.KILL, self.chance.randint(1, self.submitted))

    def close(self) -> None:
        """Close the session of a worker, or of an owner."""
        session = self.chance.choice([*self.driver.core.roster.sessions, OWNERS + 1, OWNERS + 2])
        self.helping.pop(session, None)
        self.driver.close(session)

    def leave(self) -> None:
        if self.driver.core.roster.sessions and self.chance.random() < 0.3:
            session = self.chance.choice(list(self.driver.core.roster.sessions))
            self.helping.pop(session, None)
            self.driver.send(LeaveWorker(session=session))

    def pass_time(self) -> None:
        self.driver.tick(self.chance.choice((0, 1, 20)) * SECOND)
        for session in list(self.driver.core.roster.sessions):
            self.driver.send(Heartbeat(session=session))

    def leased(self) -> list[int]:
        """Return the tasks that run on a worker that is there."""
        return [
            number
            for number in range(1, self.submitted + 1)
            if (task := self.driver.core.book.tasks.get(task_id(number))) is not None
            and task.attempt is not None
            and (worker := self.driver.core.roster.workers.get(("default", task.attempt.worker)))
            and worker.session
        ]


@pytest.mark.parametrize("seed", range(20))
def test_what_must_hold_holds_whatever_happens(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    assert story.asks


@pytest.mark.parametrize("owners", [2, 3, 5])
def test_helpers_end_up_shared_evenly_whoever_came_first(owners: int) -> None:
    driver = Driver()
    for number in range(1, owners + 1):
        driver.join(f"o{number}", number)
        driver.submit(number)
    helpers: dict[int, int] = {}
    for session in range(101, 111):
        driver.join(f"w{session}", session, helps=0)
    for number in range(1, owners + 1):
        driver.send(
            RequestHelpers(
                ref=0,
                session=200 + number,
                task=task_id(number),
                fence=driver.fence(number),
                count=100,
                where="here",
                secret=driver.worker(number),
            )
        )
        while recalled := [e for e in driver.effects if is_recall(e)]:
            for effect in recalled:
                fence = helpers[effect.session]
                driver.send(EndHelp(ref=0, session=effect.session, fence=fence))
                helpers |= asked(driver)
        helpers |= asked(driver)
    for worker in driver.core.roster.workers.values():
        if worker.helps > 0:
            helpers[worker.session] = worker.helps
    counts = Counter(helpers.values())
    assert len(counts) == owners
    assert max(counts.values()) - min(counts.values()) <= 1


def is_recall(effect: object) -> bool:
    return isinstance(effect, SendToSession) and isinstance(effect.message, HelpRecalled)


def asked(driver: Driver) -> dict[int, int]:
    return {
        effect.session: effect.message.fence
        for effect in driver.effects
        if isinstance(effect, SendToSession) and isinstance(effect.message, HelpAsked)
    }
