"""A session with middleware: hooks run around every submit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from jackalope.client import option_checks
from jackalope.client.session.session import Session
from jackalope.core.effects import Served, TaskEnded
from jackalope.core.task import TaskSpec
from jackalope.errors import Rejected
from jackalope.tasks.middleware import HookedSubmit, Middleware
from jackalope.transport.address import Address
from jackalope.transport.connector import Dial
from jackalope.wire.messages import Hello

if TYPE_CHECKING:
    from jackalope.tasks.tracing import Traces


class HookedSession(Session):
    """A session that runs the hooks of an application, and makes spans if that is wanted."""

    def __init__(
        self,
        address: Address,
        hello: Hello,
        dial: Dial,
        traces: Traces | None,
        middleware: Sequence[Middleware],
    ) -> None:
        super().__init__(address, hello, dial=dial)
        self._traces = traces
        self._middleware = middleware

    async def submit(self, spec: TaskSpec, fence: int = 0, **more: Any) -> Served | None:
        """Submit a task, with the hooks around that."""
        with ExitStack() as stack:
            if self._traces is not None:
                stack.enter_context(self._traces.submitting(spec))
            async with HookedSubmit(self._middleware, option_checks.headers) as hooks:
                await hooks.begin(spec)
                return await super().submit(spec, fence, **more)

    async def serve(
        self, spec: TaskSpec, fence: int = 0, **more: Any
    ) -> tuple[Served | None, TaskEnded]:
        """Submit a task and wait for its end, with the hooks around both."""
        with ExitStack() as stack:
            if self._traces is not None:
                stack.enter_context(self._traces.submitting(spec))
            async with HookedSubmit(self._middleware, option_checks.headers) as hooks:
                await hooks.begin(spec)
                return await super().serve(spec, fence, **more)

    async def submit_many(
        self, specs: Iterable[TaskSpec], fence: int = 0, **more: Any
    ) -> dict[int, Rejected]:
        """Submit any number of tasks, with the hooks around all of it."""
        async with HookedSubmit(self._middleware, option_checks.headers) as hooks:
            ready = []
            for spec in specs:
                await hooks.begin(spec)
                ready.append(spec if self._traces is None else self._traces.submitted(spec))
            return await super().submit_many(ready, fence, **more)
