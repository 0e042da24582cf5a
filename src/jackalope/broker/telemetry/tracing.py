"""The tracer: report to a collector of traces how long tasks waited and ran.

Owns the spans of the broker. A submitter that traces puts the W3C trace context into the headers of
its task; to that trace the broker adds, when an attempt ends, one span for the wait and one for the
run. Tasks without a context, or of a trace that is not recorded, cost a look into their headers.

The spans are sent by a thread of the OpenTelemetry SDK, over OTLP/HTTP. What it cannot send in time
is dropped: no task ever waits for a collector.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jackalope import __version__
from jackalope.broker.engine import Turn
from jackalope.broker.telemetry.meter import stages_of
from jackalope.core import Core
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import Event
from jackalope.core.records import AttemptEnded, AttemptFinished
from jackalope.core.task import TRACE_HEADERS, TRACE_PARENT, Task

#: How long a collector may take over what it is sent, tries included.
_SEND_S = 2.0

_STOP_MS = 3_000


class Tracer:
    """Creates spans of attempts, and exports them."""

    def __init__(self, endpoint: str) -> None:
        resource = Resource.create({"service.name": "jackalope", "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_SEND_S))
        )
        self._tracer = self._provider.get_tracer("jackalope", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def take(self, turn: Turn, core: Core) -> None:
        for record in turn.records:
            if isinstance(record, AttemptFinished | AttemptEnded):
                task = core.book.tasks.get(record.task)
                if task is not None and TRACE_PARENT in task.options.headers:
                    self._tell(record, task)

    def stop(self) -> None:
        """Export what is pending, within a time limit. Blocks; not for the loop."""
        self._provider.force_flush(_STOP_MS)
        self._provider.shutdown()

    def _tell(self, record: AttemptFinished | AttemptEnded, task: Task) -> None:
        headers = task.options.headers
        carrier = {name: str(headers[name]) for name in TRACE_HEADERS if name in headers}
        context = self._propagator.extract(carrier)
        if not get_current_span(context).get_span_context().trace_flags.sampled:
            return
        event = Event.FINISH if isinstance(record, AttemptFinished) else record.event
        stages = stages_of(task, event, record.at_us)
        queued = self._begin("queued", context, task, stages.ready_us)
        queued.end(stages.assigned_us * 1_000)
        if stages.started_us:
            running = self._begin("running", context, task, stages.started_us)
            if isinstance(record, AttemptEnded):
                what = record.error.message if record.error is not None else str(record.event)
                running.set_status(Status(StatusCode.ERROR, what))
            running.end(stages.ended_us * 1_000)

    def _begin(self, stage: str, context: Context, task: Task, at_us: int) -> Span:
        attributes: dict[str, Any] = {
            "messaging.system": "jackalope",
            "messaging.destination.name": task.queue.name,
            "messaging.message.id": id_text(task.id),
            "jackalope.namespace": task.queue.namespace.name,
            "jackalope.task.name": task.name,
            "jackalope.attempts": task.attempts,
        }
        return self._tracer.start_span(
            f"{stage} {task.queue.name}", context, attributes=attributes, start_time=at_us * 1_000
        )
