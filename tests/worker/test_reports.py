"""What tasks return, raise and say: whatever it is, it is reported, or it is their own failure."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackalope.core.commands import Fail, Finish, Held, ReportProgress
from jackalope.core.effects import Assignment
from jackalope.core.limits import TIME_US_MAX
from jackalope.core.task import NO_OPTIONS, Error
from jackalope.errors import JackalopeError
from jackalope.task_ids import new_task_id
from jackalope.tasks.definition import TaskDefinition
from jackalope.transport.address import Address
from jackalope.wire.frames import Kind
from jackalope.wire.messages import Result, broker_codec, peer_codec
from jackalope.worker.attempt import Attempt, Failed, RetryLater
from jackalope.worker.context import TaskContext
from jackalope.worker.executors.asyncio_loop import LoopExecutor
from jackalope.worker.executors.threads import ThreadExecutor
from jackalope.worker.workload import Workload
from tests.worker.executors.stage import Ear, attempt_at

MOMENT_S = 20.0


class Odd:
    """An application whose tasks return and raise what the test puts there."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1")
        self.acts: dict[int, Callable[[], Any]] = {}
        self.functions = {
            "loop": TaskDefinition(self.on_loop, name="loop"),
            "thread": TaskDefinition(self.in_thread, name="thread"),
        }

    async def on_loop(self, number: int) -> Any:
        return self.acts[number]()

    def in_thread(self, number: int) -> Any:
        return self.acts[number]()


class CodedLine:
    """A connection that encodes and decodes every frame as a real one does, and says yes."""

    is_congested = False

    def __init__(self) -> None:
        self.reports: dict[int, Finish | Fail | Held] = {}
        self._out, self._in = peer_codec(), broker_codec()

    def ask(self, message: Any, answered: Callable[[Any, JackalopeError | None], None]) -> None:
        frame = self._out.encode(message)
        if isinstance(message, Result):
            heard = self._in.decode(Kind.RESULT, frame[5:])
            assert isinstance(heard, Result)
            ends: list[Finish | Fail | Held] = [*heard.finished, *heard.failed, *heard.released]
            for report in ends:
                assert report.fence not in self.reports
                self.reports[report.fence] = report
        asyncio.get_running_loop().call_soon(answered, {"count": 1, "refused": []}, None)

    def send(self, message: ReportProgress) -> None:
        self._out.encode(message)

    def flush(self) -> bool:
        return True


class LoudMeta(type):
    """A metaclass that gives no name."""

    def __getattribute__(cls, name: str) -> Any:
        if name in {"__module__", "__qualname__"}:
            raise SystemExit(name)
        return super().__getattribute__(name)


def a_type(name: str) -> type[Exception]:
    kind = type("Named", (Exception,), {"__module__": name})
    kind.__qualname__ = name
    return kind


class Mute(Exception):
    """An exception that ends the program when it is shown."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Nameless(Exception, metaclass=LoudMeta):
    """An exception of a type without a name."""


class Sly(RetryLater):
    """A delay that was replaced after it was checked."""

    def __init__(self, after: Any) -> None:
        super().__init__("later", after=1)
        self.after_s = after


class Unsendable:
    """An object whose encoding ends the program."""

    def model_dump(self) -> Any:
        raise SystemExit(3)


numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([10**15, 2**63, 2**64, 10**400]))
durations = st.one_of(numbers, st.timedeltas(), st.sampled_from([timedelta.max, timedelta.min]))
texts = st.one_of(st.text(), st.text(st.characters(categories=["Cs", "L"])))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, st.binary(), st.builds(Unsendable)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(texts, inner), st.tuples(inner)),
    max_leaves=8,
)
errors: st.SearchStrategy[Callable[[], BaseException]] = st.one_of(
    durations.map(lambda after: lambda: RetryLater("x", after=after)),
    st.one_of(durations, values).map(lambda after: lambda: Sly(after)),
    values.map(lambda after: lambda: RetryLater("x", after=after)),
    values.map(lambda value: lambda: ValueError(value)),
    texts.map(lambda name: lambda: a_type(name)("x")),
    st.sampled_from([Mute, Nameless, SystemExit, KeyboardInterrupt, asyncio.CancelledError]),
    st.sampled_from([MemoryError, RecursionError, GeneratorExit]),
)


def act(value: Any) -> Callable[[], Any]:
    return lambda: value


def raising(error: Callable[[], BaseException]) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error()

    return raise_it


@pytest.fixture(scope="module")
def executors() -> Iterator[dict[str, Any]]:
    loop, threads = LoopExecutor(), ThreadExecutor()
    loop.start()
    yield {"async": loop, "thread": threads}
    loop.close()
    threads.close()
    loop.join(5)


def run(executors: dict[str, Any], acts: list[Callable[[], Any]], name: str) -> CodedLine:
    """Run one task for each act, all at once, and return what was reported."""

    async def play() -> CodedLine:
        source, line = Odd(), CodedLine()
        source.acts = dict(enumerate(acts))
        workload = Workload(source, executors, concurrency=100)
        workload.reports.resume(line, [])
        workload.assign(
            [
                Assignment(
                    task=new_task_id(),
                    fence=number,
                    queue="default",
                    name=name,
                    key="",
                    payload=source.functions[name].payload((number,), {}),
                    options=NO_OPTIONS,
                    attempt=1,
                    timeout_us=0,
                )
                for number in source.acts
            ]
        )
        async with asyncio.timeout(MOMENT_S):
            await workload.emptied.wait()
        assert not workload.running
        return line

    return asyncio.run(play())


@given(
    odd=st.lists(st.one_of(values.map(act), errors.map(raising)), min_size=1, max_size=4),
    name=st.sampled_from(["loop", "thread"]),
)
def test_whatever_a_task_does_is_reported_and_harms_no_other(
    executors: dict[str, Any], odd: list[Callable[[], Any]], name: str
) -> None:
    line = run(executors, [act("good"), *odd, act("good")], name)
    assert sorted(line.reports) == list(range(len(odd) + 2))
    for number in (0, len(odd) + 1):
        good = line.reports[number]
        assert isinstance(good, Finish)
        assert good.result == msgspec.msgpack.encode("good")
    for number in range(1, len(odd) + 1):
        assert isinstance(line.reports[number], Finish | Fail)


@pytest.mark.parametrize("after", [timedelta.max, 10**15, float("inf"), float("nan"), "5", None])
def test_delay_that_cannot_be_is_a_clear_failure(executors: dict[str, Any], after: Any) -> None:
    line = run(executors, [raising(lambda: RetryLater("x", after=after)), act(1)], "loop")
    failed = line.reports[0]
    assert isinstance(failed, Fail)
    assert failed.error.type in {"ValueError", "TypeError"}
    assert "RetryLater: after must be" in failed.error.message
    assert isinstance(line.reports[1], Finish)


def test_delays_up_to_the_limit_are_reported(executors: dict[str, Any]) -> None:
    longest = timedelta(microseconds=TIME_US_MAX)
    acts = [raising(lambda a=a: RetryLater(after=a)) for a in (longest, 0, -5, 0.25)]  # type: ignore[misc]
    line = run(executors, acts, "thread")
    delays = [report.retry_after_us for _, report in sorted(line.reports.items())]  # type: ignore[union-attr]
    assert delays == [TIME_US_MAX, 1, 1, 250_000]


def test_report_that_cannot_be_encoded_is_found_before_it_joins_a_frame() -> None:
    """The last line of defence: an outcome that is wrong itself."""

    async def play() -> CodedLine:
        source, line = Odd(), CodedLine()
        workload = Workload(source, {}, concurrency=2)
        workload.reports.resume(line, [])
        for fence, broken in ((1, Error("Oops", "\ud800")), (2, Error("Oops", "fine"))):
            given = msgspec.structs.replace(attempt_at(Ear(), "add", 1, 2).assignment, fence=fence)
            attempt = Attempt(given, source.functions["loop"], Ear())
            attempt.report = Fail(given.task, fence, broken)
            workload.reports.end(attempt)
        workload.reports.flush()
        return line

    reports = asyncio.run(play()).reports
    first, second = reports[1], reports[2]
    assert isinstance(first, Fail)
    assert isinstance(second, Fail)
    assert first.error.type == "Unreportable"
    assert second.error == Error("Oops", "fine")


@given(percent=st.one_of(numbers, values), note=st.one_of(texts, values))
def test_progress_is_checked_where_it_is_said(percent: Any, note: Any) -> None:
    ear = Ear()
    context = TaskContext(attempt_at(ear, "add", 1, 2))
    try:
        context.progress(percent, note)
    except (TypeError, ValueError):
        assert not ear.progress
        return
    [(told, line)] = ear.progress
    assert told is None or 0 <= told <= 100
    peer_codec().encode(ReportProgress(0, new_task_id(), 1, told, line))


def test_failure_of_any_exception_can_be_encoded() -> None:
    for error in (Mute(), Nameless("x"), a_type("\ud800" * 10_000)("x"), Sly("never")):
        outcome = attempt_at(Ear(), "add", 1, 2).raised(error)
        assert isinstance(outcome, Failed)
        assert len(msgspec.msgpack.encode(outcome)) < 100_000
