"""Workers over HTTP: the list of them, and the socket through which each comes."""

from __future__ import annotations

from typing import Any

from litestar import Response, get, websocket

from jackalope.broker.access import acting, sees
from jackalope.broker.engine import Engine
from jackalope.broker.queries import Refused
from jackalope.core.access import Permission
from jackalope.core.must import must
from jackalope.doors.http.bodies import AnyRequest
from jackalope.doors.http.errors import Rejected, turn_away
from jackalope.doors.http.exchange import answer, to_text
from jackalope.doors.http.gridlike import problem
from jackalope.doors.http.gridlike.grid import Grid
from jackalope.doors.http.gridlike.problems import Problem
from jackalope.doors.http.gridlike.roll import WorkerShown, counts_of, show
from jackalope.doors.http.gridlike.socket import AnySocket, WorkerSocket
from jackalope.doors.http.websocket import EXTENSION

_PATHS = ["/api/worker", "/api/worker/{job_type:str}"]


def handlers(grid: Grid) -> list[Any]:
    """Return the routes of workers."""

    # Anonymous as far as HTTP goes: a worker proves who it is when it registers.
    @websocket(_PATHS, opt={"permission": None})
    async def work(socket: AnySocket) -> None:
        """Take a worker in."""
        await socket.receive()  # That it wants to connect.
        try:
            queue = await grid.queue_of(socket.path_params.get("job_type"))
        except Problem as error:
            rejected = Rejected(error.status, str(error))
            await turn_away(rejected, socket.scope, socket.send, problem)
            return
        must(EXTENSION in (socket.scope.get("extensions") or {}), "sockets come in pieces")
        await WorkerSocket(grid, socket, queue).run()

    @get(_PATHS, opt={"permission": None})
    async def not_a_socket(request: AnyRequest) -> Response[Any]:
        """Tell whoever does not ask for a WebSocket to do so."""
        message = f"{request.url.path} is for workers; connect with a WebSocket"
        headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
        return answer({"problem": message}, 426, headers)

    @get("/api/workers", opt={"permission": "read_tasks"})
    async def list_workers() -> Response[Any]:
        """List the workers that are connected, or were a moment ago, and what they have done."""
        refusal = acting.get().refuse(Permission.READ_TASKS, grid.namespace)
        if refusal is not None:
            raise Refused(refusal)
        return answer(await grid.broker.read(lambda engine: _shown(grid, engine)))

    return [work, not_a_socket, list_workers]


def _shown(grid: Grid, engine: Engine) -> list[WorkerShown]:
    book = engine.core.book
    return [
        show(
            entry,
            to_text(entry.job) if entry.job else None,
            counts_of(book, grid.namespace, entry.id) if entry.id else (0, 0),
        )
        for entry in grid.roll.entries()
        if sees(entry.queue)
    ]
