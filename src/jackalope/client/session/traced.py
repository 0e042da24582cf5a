"""A session whose submits are traced.

Owns where spans begin and end on the client's side. Loaded only where traces are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jackalope.client.session.session import Session
from jackalope.core.effects import Served, TaskEnded
from jackalope.core.task import TaskSpec
from jackalope.errors import Rejected
from jackalope.tasks.tracing import Traces
from jackalope.transport.address import Address
from jackalope.transport.connector import Dial
from jackalope.wire.messages import Hello


class TracedSession(Session):
    """A session that makes a span of every submit."""

    def __init__(self, address: Address, hello: Hello, traces: Traces, dial: Dial) -> None:
        super().__init__(address, hello, dial=dial)
        self._traces = traces

    async def submit(self, spec: TaskSpec, fence: int = 0, **more: Any) -> Served | None:
        """Submit a task; the span ends when it is durable."""
        with self._traces.submitting(spec):
            return await super().submit(spec, fence, **more)

    async def serve(
        self, spec: TaskSpec, fence: int = 0, **more: Any
    ) -> tuple[Served | None, TaskEnded]:
        """Submit a task and wait for its end; the span ends with it."""
        with self._traces.submitting(spec):
            return await super().serve(spec, fence, **more)

    async def submit_many(
        self, specs: Iterable[TaskSpec], fence: int = 0, **more: Any
    ) -> dict[int, Rejected]:
        """Submit any number of tasks, each with a span of its own."""
        return await super().submit_many(map(self._traces.submitted, specs), fence, **more)
