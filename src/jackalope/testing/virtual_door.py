"""The door of a virtual broker: the native protocol without a network.

Owns the way from an application's frames to the commands of the virtual core, and back. Frames are
decoded, translated and encoded by the code of the native door; only the socket is missing. It must
not know of attempts or of time: those are the virtual broker's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from jackalope import __version__
from jackalope.broker.queries import About, Refused
from jackalope.broker.views.flows import flow_view, node_views
from jackalope.broker.views.tasks import explanation_of, history_of, view_of_task
from jackalope.core import Core
from jackalope.core.commands import AnyCommand, SubmitTasks, WatchTasks
from jackalope.core.commands.flows import AnyFlow, SubmitFlow
from jackalope.core.effects import Effect, Reply
from jackalope.core.explain import explain
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.task_log import LogPage
from jackalope.core.task import Task, TaskSpec, to_row
from jackalope.doors.native.commands import ForCore, commands_of
from jackalope.doors.native.outgoing import Outgoing, answer, codec
from jackalope.errors import ConnectionLost
from jackalope.transport.connection import Connection
from jackalope.wire.frames import FRAME_BYTES_MAX, VERSION, FrameReader
from jackalope.wire.messages import Ack, AnyMessage, Hello, Query, Welcome
from jackalope.wire.views import FlowView

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope
    from jackalope.client.session.session import SessionOwner
    from jackalope.testing.virtual_broker import VirtualBroker
    from jackalope.transport.address import Address
    from jackalope.transport.connector import Dial

_NO_MESSAGES = (
    "a virtual broker has tasks and nothing else: no events, calls, broadcasts or lists; "
    "use jackalope.testing.embedded for those"
)


class VirtualLine:
    """Takes the applications of this process to a virtual broker."""

    def __init__(self, broker: VirtualBroker) -> None:
        self._broker = broker
        self.apps: list[Jackalope] = []  # those that have used it

    def note(self, app: Jackalope) -> None:
        """Remember an application, whose tasks can be run here."""
        if app not in self.apps:
            self.apps.append(app)

    def dial_for(self, app: SessionOwner) -> Dial:
        """Return what opens an application's connections to the virtual broker."""
        self.note(cast("Jackalope", app))
        return self._dial

    async def _dial(
        self,
        address: Address,
        hello: Hello,
        *,
        heard: Callable[[AnyMessage], None],
        lost: Callable[[ConnectionLost], None],
        timeout_s: float,  # noqa: ARG002  it is there at once
    ) -> Connection:
        """Return a connection that ends in this process."""
        connection = Connection(address, heard, lost)
        wire = Wire(self._broker, connection, hello.name)
        connection.connection_made(wire)
        server = f"jackalope {__version__} (virtual)"
        connection.welcome = Welcome(VERSION, wire.session, "", 0, FRAME_BYTES_MAX, server)
        return connection


class Wire(asyncio.Transport):
    """What stands in the place of a socket: one session of an application."""

    def __init__(self, broker: VirtualBroker, connection: Connection, name: str) -> None:
        super().__init__()
        self._broker = broker
        self._connection = connection
        self._name = name
        self._reader = FrameReader()
        self._outgoing = Outgoing(FRAME_BYTES_MAX)
        self._is_closing = False
        self.loop = asyncio.get_running_loop()  # the event loop of the application
        self.has_news = False  # something was sent since this was last set to False
        self.session = broker.plug_in(self)  # its number

    def deliver(self, effects: list[Effect]) -> None:
        """Send what the core has to say."""
        self._outgoing.add(effects, lambda reply: reply)
        self._send(self._outgoing.take())

    def send(self, message: AnyMessage) -> None:
        """Send one frame."""
        self._send(codec.encode(message))

    def cut(self) -> None:
        """Lose the connection, as when the broker restarts."""
        if not self._is_closing:
            self._is_closing = True
            self._later(self._connection.connection_lost, None)

    # The connection's side.

    def write(self, data: Any) -> None:
        """Take frames, and act on each."""
        for kind, body in self._reader.feed(bytes(data)):
            self._on_message(codec.decode(kind, body))

    def close(self) -> None:
        """End the session."""
        if not self._is_closing:
            self._broker.unplug(self)
            self.cut()

    def abort(self) -> None:
        """End the session."""
        self.close()

    def is_closing(self) -> bool:
        """Tell whether it is over."""
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """No-op: nothing is ever unsent."""

    def get_write_buffer_size(self) -> int:
        """Return how much is unsent."""
        return 0

    def _on_message(self, message: AnyMessage) -> None:
        ref = getattr(message, "ref", 0)
        try:
            if isinstance(message, Query) and message.what == "logs":
                about = msgspec.convert(message.about, About)
                look = partial(self._broker.log_page, about.id, about)
                self._broker.let_wait(LogWait(self, ref, about, look))
            elif isinstance(message, Query):
                body = self._broker.read(lambda core: _answer(core, message))
                self.send(Ack(ref, body))
            elif isinstance(message, ForCore):
                # A virtual broker is one namespace, whatever those of the applications.
                for command in commands_of(message, self.session, "default", self._name)[0]:
                    self._broker.take(self, on_virtual_clock(command, self._broker.now_us))
            elif ref:
                self.send(answer(ref, Refusal(Code.INVALID, _NO_MESSAGES)))
        except Refused as refused:
            self.send(answer(ref, refused.refusal))

    def _send(self, data: bytes) -> None:
        if data:
            self.has_news = True
            self._later(self._connection.data_received, data)

    def _later(self, call: Callable[[Any], object], given: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, given)


def on_virtual_clock(command: AnyCommand, now_us: int) -> AnyCommand:
    """Move the times that a client has counted from the real clock."""
    ahead_us = now_us - time.time_ns() // 1_000
    for spec in specs_in(command):
        _move(spec, ahead_us)
    return command


def specs_in(command: AnyCommand) -> Sequence[TaskSpec]:
    """Return the tasks that a command submits."""
    if isinstance(command, SubmitTasks):
        return command.tasks
    nodes = [each.spec for each in command.nodes] if isinstance(command, AnyFlow) else []
    return [command.flow, *nodes] if isinstance(command, SubmitFlow) else nodes


def _move(spec: TaskSpec, by_us: int) -> None:
    options = spec.options
    if options is not None and (options.run_at_us or options.expires_at_us):
        spec.options = msgspec.structs.replace(
            options,
            run_at_us=options.run_at_us and options.run_at_us + by_us,
            expires_at_us=options.expires_at_us and options.expires_at_us + by_us,
        )


def _answer(core: Core, query: Query) -> Any:
    """Answer a question about one task."""
    show = _QUESTIONS.get(query.what)
    if show is None:
        raise Refused(Refusal(Code.INVALID, _NO_MESSAGES))
    return show(core, task_in(core, query.about.get("id") or b""))


def task_in(core: Core, task_id: bytes) -> Task:
    """Return a task; raises `Refused` if it is not there."""
    task = core.book.tasks.get(TaskId(task_id))
    if task is None:
        raise Refused(Refusal(Code.UNKNOWN_TASK, f"no task {task_id.hex()} in the virtual broker"))
    return task


def _flow(core: Core, flow: Task) -> FlowView:
    if flow.options.flow is None:
        raise Refused(Refusal(Code.UNKNOWN_TASK, f"task {flow.id.hex()} is not a flow"))
    tasks = core.book.tasks.values()
    nodes = node_views([to_row(task) for task in tasks if task.options.parent == flow.id])
    return msgspec.structs.replace(flow_view(flow), nodes=nodes)


_QUESTIONS: dict[str, Callable[[Core, Task], Any]] = {
    "task": view_of_task,
    "flow": _flow,
    "explain": explanation_of,
    "history": history_of,
}


class Wait:
    """A session that waits for something that happens to tasks."""

    def __init__(self, wire: Wire, ref: int, tasks: Sequence[TaskId]) -> None:
        self.wire = wire
        self._ref = ref
        self._tasks = tasks

    def is_over(self, core: Core) -> bool:
        """Tell whether all have ended."""
        tasks = core.book.tasks
        return not any(task in tasks and tasks[task].state not in ENDED for task in self._tasks)

    def settle(self) -> None:
        """Send the answer."""
        raise NotImplementedError

    def refuse(self, core: Core) -> None:
        """Report that nothing can happen any more that would end them."""
        tasks = core.book.tasks
        texts = [
            f"task {task.hex()} is {tasks[task].state}: "
            + "; ".join(cause.text for cause in explain(core, tasks[task]).causes)
            for task in self._tasks
            if task in tasks and tasks[task].state not in ENDED
        ]
        message = f"it never ends by itself: {', '.join(texts)}"
        refusal = Refusal(Code.WRONG_STATE, message)
        self.wire.deliver([Reply(self.wire.session, self._ref, refusal)])


class EndWait(Wait):
    """A session that waits for the ends of tasks, and the answer that it gets meanwhile."""

    def __init__(self, wire: Wire, command: WatchTasks, reply: Reply) -> None:
        super().__init__(wire, reply.ref, command.tasks)
        self._reply = reply

    def settle(self) -> None:
        """Send the answer."""
        self.wire.deliver([self._reply])


class LogWait(Wait):
    """A session that waits for lines of a task, or its end."""

    def __init__(self, wire: Wire, ref: int, about: About, look: Callable[[], LogPage]) -> None:
        super().__init__(wire, ref, [about.id])
        self._may_wait = about.wait_us > 0
        self._look = look
        self._page = look()

    def is_over(self, core: Core) -> bool:
        """Tell whether there are lines, or will be none."""
        del core  # The page knows.
        page = self._page = self._look()
        return bool(page.lines) or page.ended or not self._may_wait

    def settle(self) -> None:
        """Send the page."""
        self.wire.send(Ack(self._ref, self._page))
