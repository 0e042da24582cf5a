"""The event log: log lines about tasks, workers and queues.

Owns the texts and their levels. It receives every durable record, and checks workers and queues
once a second. At tens of thousands of tasks a second a line for each of them is of no use, and
would cost more than the tasks: what exceeds some lines a second is counted, and the count is one
line. That a volatile task, such as a call or its answer, came and succeeded is logged at debug.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any, get_args

import structlog

from jackalope.broker.config.schema import LogConfig
from jackalope.broker.engine import Engine, Turn
from jackalope.broker.service import Broker
from jackalope.core import Core
from jackalope.core.durations import SECOND
from jackalope.core.effects import Reply
from jackalope.core.ids import id_text
from jackalope.core.lifecycle import Event, State
from jackalope.core.records import (
    AnswerPinned,
    AnswersDropped,
    AnswerStored,
    AnswerUsed,
    AnyRecord,
    ApiKeyCreated,
    ApiKeyRevoked,
    AttemptAssigned,
    AttemptEnded,
    AttemptFinished,
    AttemptStarted,
    Bound,
    FencesReserved,
    Forgotten,
    RequestJoined,
    SignalAdvanced,
    TaskMoved,
    TaskReplaced,
    TasksDropped,
    TaskSubmitted,
    ThrottlesEnded,
    Unbound,
    is_lasting,
    task_of,
)
from jackalope.core.shapes.task_log import LogLevel
from jackalope.core.task import Task, last_start_us, last_worker
from jackalope.log_setup import trace

log = structlog.get_logger(component="broker")

LINES_PER_SECOND_MAX = 100

#: A queue is reported to fill up from this part of its depth limit on.
DEPTH_WARNING = 0.8

_WATCH_EVERY_S = 1.0

_ERROR, _WARN, _INFO, _DEBUG, _TRACE = range(5)
_RANKS = {
    LogLevel.ERROR: _ERROR,
    LogLevel.WARN: _WARN,
    LogLevel.INFO: _INFO,
    LogLevel.DEBUG: _DEBUG,
    LogLevel.TRACE: _TRACE,
}

#: The texts of records that are not the words of their names.
_TEXTS: dict[type, str] = {
    AttemptAssigned: "task assigned",
    AttemptStarted: "task started",
    AttemptFinished: "task succeeded",
    ApiKeyCreated: "API key created",
    ApiKeyRevoked: "API key revoked",
    AnswerStored: "answer kept",
    AnswerPinned: "answer pinned or unpinned",
    Bound: "binding made",
    Unbound: "binding removed",
    Forgotten: "tasks past their retention forgotten",
}
#: Records that are of interest in detail only.
_DETAILS = {
    AttemptAssigned,
    SignalAdvanced,
    RequestJoined,
    AnswerStored,
    AnswerUsed,
    Bound,
    Unbound,
    FencesReserved,
    Forgotten,
    TaskReplaced,
    ThrottlesEnded,
}
#: The level and the text of every record but those of `_BY_EVENT`, which depend on what happened.
_WORDS: dict[type, tuple[int, str]] = {
    kind: (
        _DEBUG if kind in _DETAILS else _INFO,
        _TEXTS.get(kind) or re.sub(r"(?<=.)([A-Z])", r" \1", kind.__name__).lower(),
    )
    for kind in get_args(AnyRecord)
    if kind not in (AttemptEnded, TaskMoved)
}
_BY_EVENT: dict[Event, tuple[int, str]] = {
    Event.HOLD: (_INFO, "task held"),
    Event.PLAY: (_INFO, "task played"),
    Event.PAUSE: (_INFO, "task paused"),
    Event.KILL: (_INFO, "task killed"),
    Event.RETRY: (_INFO, "task tried again at once"),
    Event.UNBLOCK: (_DEBUG, "task waits for no other"),
    Event.DUE: (_DEBUG, "task is due"),
    Event.ABANDON: (_WARN, "task dead"),
    Event.EXPIRE: (_WARN, "task dead"),
    Event.FAIL: (_WARN, "attempt failed"),
    Event.LOSE: (_WARN, "attempt lost with its worker"),
    Event.RELEASE: (_INFO, "attempt handed back"),
    Event.STOP: (_INFO, "attempt stopped"),
}


#: Where the level and the text depend on what happened.
_UNSURE = (_WARN, "")

#: Up to so many records are not sorted by kind first.
_FEW_RECORDS = 8

#: What happens to every task that nothing happens to.
_ROUTINE = frozenset({TaskSubmitted, AttemptAssigned, AttemptStarted, AttemptFinished})


class EventLog:
    """Logs what happens in turns, and changes of workers and queues."""

    def __init__(self, config: LogConfig) -> None:
        self._rank = _RANKS[config.level]
        self._slow_us = config.slow_task_us
        self._since_us = 0
        self._lines = [0] * len(_RANKS)
        self._left_out: Counter[str] = Counter()
        self._workers: dict[tuple[str, str], str] = {}
        self._gone_us = 0
        self._filling: set[tuple[str, str]] = set()

    def take(self, turn: Turn, core: Core) -> None:
        if self._rank == _TRACE:
            _trace(turn)
        records = turn.records
        if self._rank == _ERROR or not records:
            return
        if core.book.has_volatile and self._rank < _DEBUG and not self._slow_us:
            records = [
                record for record in records if type(record) not in _ROUTINE or is_lasting(record)
            ]
            if not records:
                return
        if records[-1].at_us - self._since_us >= SECOND:
            self.settle(records[-1].at_us)
        if len(records) < _FEW_RECORDS:
            for record in records:
                self._tell_or_count(record, core)
            return
        wanted = self._wanted(records)
        for record in records if wanted else ():
            if type(record) in wanted:
                self._tell(record, core)

    def _tell_or_count(self, record: AnyRecord, core: Core) -> None:
        """Log a record, or count it if only the limit keeps it out."""
        level, message = _WORDS.get(type(record), _UNSURE)
        if level > self._rank and not self._slow_us:
            return
        if message and not self._slow_us and not self._has_room(level):
            self._left_out[message] += 1
        else:
            self._tell(record, core)

    def _wanted(self, records: list[AnyRecord]) -> set[type]:
        """Return the kinds of records to log one by one; count those beyond the limit.

        Under load this is all that is done: counting kinds takes a fraction of what a line takes.
        """
        wanted = set()
        for kind, count in Counter(map(type, records)).items():
            level, message = _WORDS.get(kind, _UNSURE)
            if level > self._rank and not (self._slow_us and kind is AttemptFinished):
                continue
            if message and not self._slow_us and not self._has_room(level):
                self._left_out[message] += count
            else:
                wanted.add(kind)
        return wanted

    def _has_room(self, level: int) -> bool:
        return self._lines[level] < LINES_PER_SECOND_MAX or self._rank >= _DEBUG

    def _tell(self, record: AnyRecord, core: Core) -> None:
        level, message = _words(record)
        if level <= self._rank:
            if self._has_room(level):
                self._lines[level] += 1
                getattr(log, _METHODS[level])(message, **_facts(record, core))
            else:
                self._left_out[message] += 1
        if self._slow_us and isinstance(record, AttemptFinished):
            self._warn_if_slow(record, core)

    def settle(self, now_us: int) -> None:
        """Begin a new second, and log how many lines the last one left out."""
        if self._left_out:
            counts = {message.replace(" ", "_"): n for message, n in self._left_out.items()}
            log.info("lines left out", **counts)
            self._left_out.clear()
        self._since_us, self._lines = now_us, [0] * len(_RANKS)

    def _warn_if_slow(self, record: AttemptFinished, core: Core) -> None:
        task = core.book.tasks.get(record.task)
        took_us = 0 if task is None else _took_us(task)
        if took_us > self._slow_us:
            log.warning("slow task", **_facts(record, core))

    # Workers and queues.

    async def watch(self, broker: Broker) -> None:
        """Check workers and queues once a second, until cancelled."""
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            self.settle(broker.now_us())
            broker.health.shortage()  # Logs when the disk runs low, even if nothing is submitted.
            await broker.read(self.look)

    def look(self, engine: Engine) -> None:
        """Log which workers came and went, and which queues fill up."""
        roster = engine.core.roster
        for name in self._workers.keys() - roster.workers.keys():
            del self._workers[name]
        for (namespace, worker_id), worker in roster.workers.items():
            state = "draining" if worker.is_draining else "joined" if worker.session else "away"
            before = self._workers.get((namespace, worker_id), "")
            if state != before:
                self._workers[namespace, worker_id] = state
                facts = {"queues": worker.queues, "slots": worker.slots, "holds": len(worker.held)}
                say = log.warning if state == "away" else log.info
                say(f"worker {state}", worker_id=worker_id, namespace=namespace, **facts)
        for left in roster.departed:
            if left.at_us > self._gone_us:
                log.info(
                    "worker gone", worker_id=left.worker, namespace=left.namespace, why=left.why
                )
        if roster.departed:
            self._gone_us = max(self._gone_us, roster.departed[-1].at_us)
        self._look_at_queues(engine)

    def _look_at_queues(self, engine: Engine) -> None:
        for namespace in engine.core.book.namespaces.values():
            for queue in namespace.queues.values():
                limit, name = queue.policy.depth_limit, (namespace.name, queue.name)
                is_filling = bool(limit) and queue.depth >= limit * DEPTH_WARNING
                if is_filling and name not in self._filling:
                    self._filling.add(name)
                    log.warning(
                        "queue fills up",
                        queue=queue.name,
                        namespace=namespace.name,
                        depth=queue.depth,
                        depth_limit=limit,
                    )
                elif not is_filling:
                    self._filling.discard(name)


#: The logger's methods by name: taken from it when something is logged, not before it is set up.
_METHODS = {_WARN: "warning", _INFO: "info", _DEBUG: "debug"}


def _trace(turn: Turn) -> None:
    """Log the commands and effects of a turn, without bodies."""
    for command in turn.commands:
        items = [getattr(command, name, None) for name in ("tasks", "attempts", "messages")]
        count = next((len(many) for many in items if many), 0)
        trace(log, "command", **_parties(command, command), **({"items": count} if count else {}))
    for effect in turn.effects:
        if isinstance(effect, Reply):
            trace(log, "answer", **_parties(effect, effect.body))
        else:
            trace(log, "message", **_parties(effect, effect.message))


def _words(record: AnyRecord) -> tuple[int, str]:
    if isinstance(record, AttemptEnded | TaskMoved):
        if record.to is State.DEAD:
            return _WARN, "task dead"
        return _BY_EVENT.get(record.event, (_DEBUG, f"task {record.event}"))
    return _WORDS[type(record)]


def _facts(record: AnyRecord, core: Core) -> dict[str, Any]:
    """Return the ids and the details of a record, as far as they are known."""
    facts: dict[str, Any] = {}
    task_id = task_of(record)
    if task_id:
        facts["task_id"] = id_text(task_id)
    task = core.book.tasks.get(task_id)
    if task is not None:
        facts |= {"queue": task.queue.name, "name": task.name, "state": task.state.value}
        facts["namespace"] = task.queue.namespace.name
        facts["worker_id"] = task.attempt.worker if task.attempt else last_worker(task)
    for name in ("queue", "namespace", "tag", "limit", "by", "reason", "signal", "stage", "detail"):
        if value := getattr(record, name, None):
            facts[name] = str(value)
    if isinstance(record, ApiKeyCreated):
        key = record.key
        facts |= {"api_key": key.id, "name": key.name, "by": key.by}
        facts["permissions"] = " ".join(key.permissions)
    elif isinstance(record, ApiKeyRevoked):
        facts["api_key"] = record.key
    elif isinstance(record, AnswersDropped):
        facts |= {"answers": len(record.tasks), "why": record.why}
    if isinstance(record, AttemptFinished) and task is not None:
        facts["seconds"] = _took_us(task) / SECOND
    if isinstance(record, AttemptEnded) and record.error is not None:
        facts["error"] = f"{record.error.type}: {record.error.message}"
    facts |= _facts_of_topology(record)
    return {name: value for name, value in facts.items() if value not in ("", None)}


def _parties(carrier: Any, what: Any) -> dict[str, Any]:
    """Return the name, the session and the task of a command or effect."""
    facts = {"kind": type(what).__name__, "session": carrier.session}
    facts["ref"] = getattr(carrier, "ref", 0)
    for name in ("worker", "queue", "code", "namespace"):
        facts[name] = getattr(what, name, "")
    facts["worker_id"] = facts.pop("worker")
    task_id = getattr(what, "task", b"")
    facts["task_id"] = id_text(task_id) if len(task_id) == 16 else ""
    return {name: value for name, value in facts.items() if value}


def _facts_of_topology(record: AnyRecord) -> dict[str, Any]:
    if isinstance(record, TasksDropped):
        return {"count": len(record.tasks)}
    for what in ("exchange", "rule"):
        if (named := getattr(record, what, None)) is not None:
            return {what: getattr(named, "name", named)}
    return {}


def _took_us(task: Task) -> int:
    ended_us = task.outcome.ended_us if task.outcome else 0
    return max(0, ended_us - (last_start_us(task) or ended_us))
