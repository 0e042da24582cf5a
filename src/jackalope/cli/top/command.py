"""The command `top`: keys become actions, and answers become what is shown."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from jackalope.cli.base import Exit, Failure
from jackalope.cli.formatting import age, id_text, now_us, plural, size
from jackalope.cli.options import Every, seconds

if TYPE_CHECKING:
    from jackalope.cli.output import Screen
    from jackalope.cli.top.model import Model
    from jackalope.cli.top.terminal import Terminal
    from jackalope.client.app import Jackalope
    from jackalope.wire.views import QueueView, WorkerView

_EVERY_S_MIN = 0.1
_TICK_S = 1.0


async def top(client: "Jackalope", screen: "Screen", every: Every = "1s") -> int:
    """Watch a broker on the whole terminal: queues, workers, rates, slow and failing tasks.

    Keys filter what is shown, pause queues and tasks, kill, retry and explain tasks; `?` lists
    them. Only what changes is sent to the terminal, so that it works over a slow link too.

    Examples:
        jackalope top
        jackalope top --every 5s
    """
    from jackalope.cli.top.model import Model
    from jackalope.cli.top.terminal import Terminal, is_usable

    if not screen.is_human or not is_usable():
        raise Failure(
            "top needs a terminal", "use `jackalope stats --watch --format json`", code=Exit.USAGE
        )
    every_s = max(seconds(every), _EVERY_S_MIN)
    connection = await client.session().connected()
    address = connection.address
    where = f"{address.host}:{address.port}/{address.namespace}"
    with Terminal() as terminal:
        return await View(client, screen, terminal, Model(where), every_s).run()


class View:
    """A live view: what it knows, and what keys do to it."""

    def __init__(
        self,
        client: "Jackalope",
        screen: "Screen",
        terminal: "Terminal",
        model: "Model",
        every_s: float,
    ) -> None:
        self._client, self._screen = client, screen
        self._terminal, self._model = terminal, model
        self._every_s = every_s
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()  # a new look is wanted at once
        self._code: int | None = None
        self._failure: BaseException | None = None  # a bug of ours
        self._tasks: set[asyncio.Task[None]] = set()
        self._sure: Coroutine[Any, Any, None] | None = None  # what a y does

    async def run(self) -> int:
        """Show the broker until the user quits, and return the exit code."""
        loop = asyncio.get_running_loop()
        # What the client logs would be written over the view.
        handler = logging.Handler()
        handler.emit = self._on_log  # type: ignore[method-assign]
        logging.getLogger("jackalope.client").handlers = [handler]
        loop.add_reader(self._terminal.fd, self._on_keys)
        # uvloop makes what it reads non-blocking, and with it what is written to the terminal, by
        # the shell too: of a large frame a part would be lost.
        os.set_blocking(self._terminal.fd, True)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, 128 + number)
        loop.add_signal_handler(signal.SIGWINCH, self._on_resize)
        self._start(self._refresh())
        self._start(self._tick())
        try:
            while self._code is None:
                self._changed.clear()
                self._paint()
                await self._changed.wait()
        finally:
            loop.remove_reader(self._terminal.fd)
            if self._sure is not None:
                self._sure.close()
            for task in list(self._tasks):
                task.cancel()
        if self._failure is not None:
            raise self._failure
        return self._code

    # What comes in.

    async def _refresh(self) -> None:
        from jackalope.cli.top.model import look
        from jackalope.errors import JackalopeError

        while True:
            self._hurry.clear()
            try:
                self._model.update(await look(self._client), now_us())
            except JackalopeError as error:
                self._model.trouble = str(error)
            self._changed.set()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    async def _tick(self) -> None:
        """Show how long there has been no answer, also if none comes."""
        while True:
            await asyncio.sleep(_TICK_S)
            if now_us() - self._model.seen_us > 5_000_000:
                self._changed.set()

    def _on_log(self, record: logging.LogRecord) -> None:
        self._model.trouble = record.getMessage()
        self._changed.set()

    def _on_resize(self) -> None:
        self._terminal.forget()
        self._changed.set()

    def _on_keys(self) -> None:
        for key in self._terminal.read():
            self._press(key)
        self._changed.set()

    def _paint(self) -> None:
        from jackalope.cli.top.drawing import draw

        columns, lines = self._screen.size()
        drawn = draw(self._model, columns, lines, now_us())
        self._terminal.paint(self._screen.lines_of(drawn)[:lines])

    # Keys.

    def _press(self, key: str) -> None:
        model = self._model
        if key == "end":
            self._end(Exit.DONE)
        elif model.is_typing:
            self._type(key)
        elif self._sure is not None:
            self._answer(key)
        else:
            model.message = ""
            self._command(key)

    def _type(self, key: str) -> None:
        model = self._model
        if key in {"enter", "escape"}:
            model.is_typing = False
            model.narrow(model.filter if key == "enter" else "")
        elif key == "backspace":
            model.narrow(model.filter[:-1])
        elif len(key) == 1 and key.isprintable():
            model.narrow(model.filter + key)

    def _answer(self, key: str) -> None:
        sure, self._sure, self._model.asking = self._sure, None, ""
        if sure is not None and key in {"y", "Y"}:
            self._start(sure)
        elif sure is not None:
            sure.close()
            self._model.message = "nothing was changed"

    def _command(self, key: str) -> None:
        from jackalope.cli.top.drawing import HELP

        model = self._model
        match key:
            case "q" | "Q":
                self._end(Exit.DONE)
            case "?" | "h":
                model.overlay = ("", "") if model.overlay[0] == "Keys" else ("Keys", HELP)
            case "escape":
                if model.overlay[0]:
                    model.overlay = ("", "")
                else:
                    model.narrow("")
            case "/":
                model.overlay, model.is_typing = ("", ""), True
            case "up" | "down":
                model.move(-1 if key == "up" else 1)
            case "tab" | "right" | "back tab" | "left":
                model.turn(1 if key in {"tab", "right"} else -1)
            case "e" | "enter" | "p" | "k" | "r":
                self._act(key)
            case _:
                model.message = "? lists the keys"

    def _act(self, key: str) -> None:
        from jackalope.cli.top.model import Panel

        model, row = self._model, self._model.selected()
        if row is None:
            model.message = "no row is selected"
            return
        is_task = model.panel in {Panel.SLOWEST, Panel.FAILING}
        if key in {"e", "enter"}:
            self._start(self._explain(row, is_task=is_task))
        elif key == "p" and model.panel is Panel.QUEUES:
            self._start(self._pause_queue(row))
        elif not is_task:
            model.message = "that works on tasks; tab goes to them"
        elif key == "p":
            self._start(self._order("play" if row.state == "paused" else "pause", row))
        elif key == "r":
            self._start(self._order("retry", row))
        else:
            model.asking = f"kill {row.name or 'task'} {id_text(row.id)}?"
            self._sure = self._order("kill", row)

    # Actions.

    async def _explain(self, row: Any, *, is_task: bool) -> None:
        from jackalope.cli.top.model import Panel

        model = self._model
        if is_task:
            view = await self._client.handle(row.id).explain()
            text = "\n".join(f"{cause.why}: {cause.text}" for cause in view.causes)
            if row.error is not None:
                text += f"\n\n{row.error.type}: {row.error.message}\n{row.error.trace[-1_500:]}"
            name = f"{row.name} " if row.name else ""
            model.overlay = (f"{name}{id_text(row.id)} is {view.state}", text)
        elif model.panel is Panel.QUEUES:
            model.overlay = (f"queue {row.queue}", queue_text(row))
        else:
            model.overlay = (f"worker {row.worker} is {row.state}", worker_text(row))

    async def _pause_queue(self, row: "QueueView") -> None:
        if row.paused_by:
            await self._client.resume_queue(row.queue)
        else:
            await self._client.pause_queue(row.queue)
        done = "is resumed" if row.paused_by else "is paused: its tasks are not given out"
        self._model.message = f"queue {row.queue} {done}"

    async def _order(self, action: Any, row: Any) -> None:
        acted = await self._client.act(action, [row.id])
        if acted.refused:
            self._model.message = next(iter(acted.refused.values())).message
        elif acted.requested:
            self._model.message = f"{action}: asked the worker of {id_text(row.id)}"
        else:
            self._model.message = f"{action}: done, {id_text(row.id)}"

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            from jackalope.errors import JackalopeError

            try:
                await work
            except JackalopeError as error:
                self._model.message = getattr(error, "message", "") or str(error)
            self._hurry.set()
            self._changed.set()

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            self._end(Exit.FAILED)

    def _end(self, code: int) -> None:
        self._code = code
        self._changed.set()


def queue_text(row: "QueueView") -> str:
    """Say of a queue what keeps its tasks from running."""
    lines = [f"{plural(row.depth, 'task')} waiting, {plural(row.workers, 'worker')}"]
    lines += [f"{name}: {count:,}" for name, count in row.counts.items() if count]
    if row.oldest_ready_us:
        lines.append(f"the oldest that is ready waits since {age(row.oldest_ready_us)}")
    if row.paused_by:
        lines.append(f"paused by {row.paused_by}: p resumes it")
    elif row.depth and not row.workers:
        lines.append(f"no worker serves it: start one that serves the queue {row.queue}")
    if row.policy.depth_limit:
        lines.append(f"takes at most {row.policy.depth_limit:,} waiting tasks")
    return "\n".join(lines)


def worker_text(row: "WorkerView") -> str:
    """Say of a worker what it does."""
    lines = [
        f"{row.load} of {row.slots} slots in use",
        f"{row.succeeded:,} attempts succeeded, {row.failed:,} failed",
        f"queues: {', '.join(row.queues) or '-'}",
        f"keys: {', '.join(row.keys) or 'any'}",
        f"joined {age(row.joined_us)} ago, heard {age(row.heard_us)} ago",
    ]
    if rss := row.stats.get("rss_bytes"):
        lines.append(f"memory: {size(int(rss))}")
    lines += [f"{name}: {value}" for name, value in row.labels.items()]
    return "\n".join(lines)
