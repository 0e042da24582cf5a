"""Tracing: one trace from the submitter of a task to the code that runs it.

Owns the spans of client and worker, by way of OpenTelemetry. The context travels in the headers of
the task. Where the spans go is decided by the program that sets OpenTelemetry up; if it does not,
they go nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jackalope import __version__
from jackalope.core.effects import Assignment
from jackalope.core.ids import id_text
from jackalope.core.task import NO_OPTIONS, TRACE_HEADERS, TaskSpec

_FLUSH_MS = 2_000


class Traces:
    """Makes spans."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("jackalope", __version__)
        self._propagator = TraceContextTextMapPropagator()

    # The submitter's half.

    @contextmanager
    def submitting(self, spec: TaskSpec) -> Iterator[None]:
        """Make the span of a submit, and let the task belong to it."""
        with self._tracer.start_as_current_span(
            f"submit {spec.queue}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("send", spec.queue, spec.id, spec.name),
        ):
            self._inject(spec)
            yield

    def submitted(self, spec: TaskSpec) -> TaskSpec:
        """Make the span of one task of a bulk submit, which has no end of its own."""
        with self.submitting(spec):
            return spec

    def _inject(self, spec: TaskSpec) -> None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        if carrier:
            options = spec.options or NO_OPTIONS
            headers = {**options.headers, **carrier}
            spec.options = msgspec.structs.replace(options, headers=headers)

    # The worker's half.

    def run(self, assignment: Assignment, call: Callable[[], Any], *, is_async: bool) -> Any:
        """Call a function within the span of its attempt; a coroutine if it is async."""
        if is_async:
            return self._run_async(assignment, call)
        with self._running(assignment):
            return call()

    async def _run_async(
        self, assignment: Assignment, call: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        with self._running(assignment):
            return await call()

    @contextmanager
    def _running(self, assignment: Assignment) -> Iterator[None]:
        headers = assignment.options.headers
        carrier = {name: str(headers[name]) for name in TRACE_HEADERS if name in headers}
        attributes = _attributes("process", assignment.queue, assignment.task, assignment.name)
        with self._tracer.start_as_current_span(
            f"run {assignment.queue}",
            self._propagator.extract(carrier),
            kind=SpanKind.CONSUMER,
            attributes={**attributes, "jackalope.attempts": assignment.attempt},
        ):
            yield

    def flush(self) -> None:
        """Send what waits, before a process ends that runs no exit handlers."""
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(_FLUSH_MS)


def _attributes(operation: str, queue: str, task: bytes, name: str) -> dict[str, Any]:
    return {
        "messaging.system": "jackalope",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": id_text(task),
        "jackalope.task.name": name,
    }
