"""An application whose tasks are traced, as a user would set it up."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from jackalope import Jackalope

if endpoint := os.environ.get("COLLECTOR"):
    provider = TracerProvider(resource=Resource.create({"service.name": "application"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)

app = Jackalope(os.environ.get("BROKER", "jackalope://localhost:7420"), telemetry=True)


@app.task(queue="outer")
async def outer(number: int) -> int:
    with trace.get_tracer("mine").start_as_current_span("my own"):
        return await inner.run(number) + 1


@app.task(queue="inner", isolation="process")
def inner(number: int) -> int:
    return number * 2
