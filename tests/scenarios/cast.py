"""The cast: short names in the scripts, ids and numbers in the core."""

from __future__ import annotations

import re
from hashlib import blake2b

from jackalope.core.ids import TaskId, as_task_id
from jackalope.core.records import AnyRecord, AttemptAssigned, TaskSubmitted
from jackalope.core.shapes.callback import SOURCE_HEADER
from jackalope.core.shapes.schedule import schedule_of
from tests.scenarios.language import ScriptError

_HEX_ID = re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b")


class Cast:
    """Who is who: tasks and sessions by name, and who held each task last."""

    def __init__(self) -> None:
        self._ids: dict[str, TaskId] = {}
        self._names: dict[TaskId, str] = {}
        self._sessions: dict[str, int] = {}
        self._session_names: dict[int, str] = {}
        self._session_of_worker: dict[str, str] = {}
        self._holders: dict[TaskId, str] = {}
        self._fences: dict[tuple[TaskId, str], int] = {}
        self._closed: set[int] = set()

    # Tasks.

    def task(self, name: str, now_us: int) -> TaskId:
        """Return the id of a task, made when its name first comes up.

        It is a UUID of version 7, later ones greater; of version 4 for `v4.x`; none for `bad.x`.
        """
        if name not in self._ids:
            self._introduce(name, _make_id(name, now_us, len(self._ids) + 1))
        return self._ids[name]

    def name(self, task_id: TaskId) -> str:
        """Return the name of a task."""
        return self._names.get(task_id) or task_id.hex()

    def put_names(self, text: str) -> str:
        """Replace the ids in a text by names."""
        return _HEX_ID.sub(
            lambda found: self.name(TaskId(bytes.fromhex(found[0].replace("-", "")))), text
        )

    def follow(self, record: AnyRecord) -> None:
        """Remember who holds a task; and give names to tasks that the broker makes.

        One made of a result is `<parent>.<queue>`, a node `<flow>.<node>`; those of a schedule have
        its name and a number.
        """
        if isinstance(record, AttemptAssigned):
            self._holders[record.task] = record.worker
            self._fences[record.task, record.worker] = record.fence
        elif isinstance(record, TaskSubmitted) and record.envelope is not None:
            body = record.spec.payload
            text = body.decode() if isinstance(body, bytes) else body.blob
            self._introduce(self._fresh(f"{text}.{record.spec.queue}"), record.spec.id)
        elif isinstance(record, TaskSubmitted) and record.spec.id not in self._names:
            parent = record.spec.options.parent if record.spec.options else TaskId(b"")
            fired = schedule_of(record.spec.options) if record.spec.options else None
            node = record.spec.options.node if record.spec.options else None
            if node is not None:
                undo = ".undo" if node.undoes else ""
                self._introduce(f"{self.name(parent)}.{node.name}{undo}", record.spec.id)
                return
            if fired is not None:
                self._introduce(self._fresh(fired[0]), record.spec.id)
                return
            headers = record.spec.options.headers if record.spec.options else {}
            if source := as_task_id(str(headers.get(SOURCE_HEADER, ""))):
                name = f"{self.name(source)}.{record.spec.queue}"
                self._introduce(self._fresh(name), record.spec.id)
                return
            self._introduce(f"{self.name(parent)}.{record.spec.queue}", record.spec.id)

    def holder(self, task_id: TaskId) -> str:
        """Return the worker that was last given the task."""
        if task_id not in self._holders:
            raise ScriptError(f"{self.name(task_id)} was never assigned; say worker= and fence=")
        return self._holders[task_id]

    def fence(self, task_id: TaskId, worker: str) -> int:
        """Return the last fence of the task that the worker was given."""
        if (task_id, worker) not in self._fences:
            raise ScriptError(f"{worker} never had {self.name(task_id)}; say fence=")
        return self._fences[task_id, worker]

    def _fresh(self, name: str) -> str:
        """Return a name that no task has: the first of several has none but this."""
        numbered = (f"{name}.{number}" for number in range(2, 1_000))
        return name if name not in self._ids else next(n for n in numbered if n not in self._ids)

    def _introduce(self, name: str, task_id: TaskId) -> None:
        self._ids[name] = task_id
        self._names[task_id] = name

    # Sessions.

    def session(self, name: str) -> int:
        """Return the number of a session, given when its name first comes up."""
        if name not in self._sessions:
            number = len(self._session_names) + 1
            self._sessions[name] = number
            self._session_names[number] = name
        return self._sessions[name]

    def bind(self, worker: str, session: str) -> None:
        """Remember over which session a worker speaks from now on."""
        self._session_of_worker[worker] = session

    def session_of(self, worker: str) -> str:
        """Return the session over which a worker speaks."""
        return self._session_of_worker.get(worker, worker)

    def session_name(self, session: int) -> str:
        """Return the name of a session to which the core speaks, which must be open."""
        if session not in self._session_names or session in self._closed:
            raise ScriptError(f"the core speaks to a session that is not open: {session}")
        return self._session_names[session]

    def close(self, session: int) -> None:
        """Note that a session is closed; its name means a new one from now on."""
        self._closed.add(session)
        self._sessions.pop(self._session_names[session], None)

    def close_all(self) -> None:
        """Note that all sessions are closed."""
        for session in list(self._sessions.values()):
            self.close(session)
        self._session_of_worker.clear()


def _make_id(name: str, now_us: int, serial: int) -> TaskId:
    if name.startswith("bad."):
        return TaskId(name.encode())
    if name.startswith("v4."):
        digest = blake2b(name.encode(), digest_size=16).digest()
        return TaskId(digest[:6] + b"\x40\x00\x80" + digest[9:])
    time = (now_us // 1000).to_bytes(6, "big")
    return TaskId(time + b"\x70\x00\x80" + serial.to_bytes(7, "big"))
