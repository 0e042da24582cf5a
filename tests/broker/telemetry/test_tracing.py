"""One trace from the submit to the code that runs, in one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from jackalope import Jackalope, TaskFailed

_exporter = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def set_up_telemetry() -> None:
    """Do what a user does; it can be done only once in a process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_exporter))
    trace.set_tracer_provider(provider)


@pytest.fixture
def app() -> Iterator[Jackalope]:
    _exporter.clear()
    app = Jackalope.embedded(telemetry=True)
    yield app
    app.sync.close()
    app.stop()


def spans(app: Jackalope, count: int) -> dict[str, ReadableSpan]:
    """Return every span by name, once so many have ended."""

    async def wait() -> None:
        async with asyncio.timeout(10):
            while len(_exporter.get_finished_spans()) < count:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.005)

    app.sync(wait())
    found = _exporter.get_finished_spans()
    assert len(found) == count
    return {span.name: span for span in found}


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == id_of(parent)


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


@pytest.mark.feature("O32")
@pytest.mark.parametrize("is_async", [True, False])
def test_worker_continues_the_trace_of_the_submitter(app: Jackalope, is_async: bool) -> None:
    seen = []

    def note() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    if is_async:

        @app.task(queue="mails")
        async def send() -> None:
            await asyncio.sleep(0)
            note()

    else:

        @app.task(queue="mails")
        def send() -> None:
            note()

    app.work()

    async def call() -> None:
        with trace.get_tracer("test").start_as_current_span("request"):
            await (await send.submit()).result(timeout=10)

    app.sync(call())
    found = spans(app, 3)
    submit, run = found["submit mails"], found["run mails"]
    assert is_child(submit, found["request"])
    assert is_child(run, submit)
    assert len({trace_of(span) for span in found.values()}) == 1
    assert (submit.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert seen == [id_of(run)], "the span of the attempt is the current one while it runs"
    for span in (submit, run):
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "mails"
        assert span.attributes["messaging.system"] == "jackalope"
    assert submit.attributes is not None
    assert run.attributes is not None
    assert submit.attributes["messaging.message.id"] == run.attributes["messaging.message.id"]


def test_task_that_submits_another(app: Jackalope) -> None:
    @app.task(queue="inner")
    async def inner() -> int:
        return 1

    @app.task(queue="outer")
    async def outer() -> int:
        return await inner.run()

    app.work()
    assert app.sync(outer.run()) == 1
    found = spans(app, 4)
    assert is_child(found["submit inner"], found["run outer"])
    assert is_child(found["run inner"], found["submit inner"])
    assert len({trace_of(span) for span in found.values()}) == 1


def test_failure_shows(app: Jackalope) -> None:
    @app.task(queue="bad", retries=0)
    async def fail() -> None:
        raise ValueError("no such cat")

    app.work()
    with pytest.raises(TaskFailed):
        app.sync(fail.run())
    span = spans(app, 2)["run bad"]
    assert span.status.status_code is StatusCode.ERROR
    assert "no such cat" in str(span.status.description)


def test_every_task_of_a_bulk_submit_has_its_own(app: Jackalope) -> None:
    @app.task(queue="many")
    async def one(number: int) -> int:
        return number

    app.work()

    async def call() -> None:
        for handle in await one.submit_many((n,) for n in range(5)):
            await handle.result(timeout=10)

    app.sync(call())
    spans_found = spans_of_all(app, 10)
    submits = {id_of(span) for span in spans_found if span.name == "submit many"}
    parents = {span.parent.span_id for span in spans_found if span.parent is not None}
    assert len(submits) == 5
    assert parents == submits


def spans_of_all(app: Jackalope, count: int) -> list[ReadableSpan]:
    spans(app, count)
    return list(_exporter.get_finished_spans())


def test_own_headers_stay(app: Jackalope) -> None:
    async def call() -> dict[str, object]:
        handle = await app.submit("plain", b"x", headers={"mine": 1})
        return (await app.find(handle.id)).headers

    headers = app.sync(call())
    assert headers["mine"] == 1
    assert str(headers["traceparent"]).startswith("00-")


def test_nothing_is_traced_unless_asked_for() -> None:
    _exporter.clear()
    app = Jackalope.embedded()

    @app.task(queue="quiet")
    async def quiet() -> None: ...

    app.work()

    async def call() -> dict[str, object]:
        handle = await quiet.submit()
        await handle.result(timeout=10)
        return (await app.find(handle.id)).headers

    assert app.sync(call()) == {}
    app.sync.close()
    app.stop()
    assert _exporter.get_finished_spans() == ()


def test_nothing_is_loaded_unless_asked_for() -> None:
    code = (
        "import sys, jackalope; jackalope.Jackalope(); import jackalope.cli.serving;"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import jackalope\n"
        "try: jackalope.Jackalope(telemetry=True)\n"
        "except jackalope.ConfigError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'jackalope[telemetry]'" in told.stdout
