"""What each block of the pages says, made from the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import msgspec

from jackalope.broker import blobs, client_session, engine, inbox, message_hub, queries
from jackalope.broker.config.schema import Names
from jackalope.broker.telemetry import meter
from jackalope.core import limits
from jackalope.core.core import STALL_US
from jackalope.core.lifecycle import ENDED, LEASED, RESTING, TRANSITIONS, Event, Reason, State
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy
from jackalope.core.records import AnyRecord
from jackalope.core.refusals import Code
from jackalope.core.shapes.exchange import AmqpTraits, Binding, Exchange, Rule
from jackalope.core.shapes.flow import (
    Compensation,
    Ends,
    FlowState,
    GroupState,
    Input,
    NodeState,
    Undo,
)
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.namespace import NamespaceSettings
from jackalope.core.shapes.needs import Needs
from jackalope.core.shapes.pace import Pace
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.request import StoredAnswer
from jackalope.core.shapes.schedule import ScheduleSettings
from jackalope.core.shapes.steps import Pending, SentEvent, Step, Steps
from jackalope.core.task import (
    Attempt,
    BlobRef,
    Envelope,
    Error,
    HistoryEntry,
    Options,
    Outcome,
    Retry,
    SignalRequest,
    TaskRow,
    TaskSpec,
)
from jackalope.storage.data_folder import HISTORY, LOGS, SERIES, Storage
from jackalope.storage.journals import DATABASE, JournalKind
from tests.docs.attributes import attributes_of
from tests.docs.blocks import Block, Table
from tests.docs.grpc import GRPC
from tests.docs.http import HTTP
from tests.docs.launchers import LAUNCHERS
from tests.docs.library import LIBRARY
from tests.docs.metrics import metrics
from tests.docs.protocol import PROTOCOL
from tests.docs.tree import packages
from tests.docs.wording import code, default_of, duration, kind_of, setting, setting_kind, size
from tests.simulation import test_planted_bugs
from tests.simulation.faults import Faults

RECORDS: tuple[type[msgspec.Struct], ...] = get_args(AnyRecord)
#: Parts of records that travel as well: the page of the protocol has them.
SHARED: tuple[type[msgspec.Struct], ...] = (
    TaskSpec,
    Options,
    Retry,
    Needs,
    Pace,
    Error,
    Envelope,
    Step,
    Input,
    Compensation,
)

#: What else records are made of.
PARTS: tuple[type[msgspec.Struct], ...] = (
    BlobRef,
    TaskRow,
    Attempt,
    SignalRequest,
    Outcome,
    HistoryEntry,
    Steps,
    Pending,
    SentEvent,
    FlowState,
    GroupState,
    Ends,
    Undo,
    NodeState,
    StoredAnswer,
    AmqpTraits,
    Exchange,
    Binding,
    Rule,
)

ASKED = (Event.HOLD, Event.PLAY, Event.PAUSE, Event.KILL, Event.RETRY, Event.PURGE)
_GROUPS = {"resting": RESTING, "ready": {State.READY}, "leased": LEASED, "ended": ENDED}


# The lifecycle.


def states() -> Table:
    groups = {state: group for group, members in _GROUPS.items() for state in members}
    rows = [
        (code(state), groups[state])
        for group in _GROUPS
        for state in State
        if groups[state] == group
    ]
    return Table(("state", "group"), rows, ("meaning",))


def events() -> Table:
    return Table(("event",), [(code(event),) for event in Event], ("meaning",))


def reasons() -> Table:
    return Table(("reason",), [(code(reason),) for reason in Reason], ("meaning",))


def transitions() -> Table:
    rows = [
        (code(state), code(event), _states(to) or "gone")
        for state, legal in TRANSITIONS.items()
        for event, to in legal.items()
    ]
    return Table(("state", "event", "can lead to"), rows)


def diagram(*, is_asked: bool) -> str:
    """Draw every change of state that actioners ask for, or every other one."""
    labels: dict[tuple[str, str], list[str]] = {}
    for state, legal in TRANSITIONS.items():
        for event, to in legal.items():
            if (event in ASKED) is is_asked:
                for target in (other for other in State if other in to and other is not state):
                    labels.setdefault((state, target), []).append(event)
                if not to:
                    labels.setdefault((state, "[*]"), []).append(event)
    lines = [f"    {begin} --> {end}: {', '.join(why)}" for (begin, end), why in labels.items()]
    begins = () if is_asked else ("held", "waiting", "scheduled", "ready")
    lines[:0] = [f"    [*] --> {state}: submit" for state in begins]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _states(states: frozenset[State]) -> str:
    return ", ".join(code(state) for state in State if state in states)


# Policies.


def settings_fields(shape: type[msgspec.Struct]) -> Table:
    meanings = attributes_of(shape)
    rows = [
        (
            code(field.name),
            setting_kind(field.name, field.type),
            setting(field.name, field.default),
            meanings[field.name],
        )
        for field in msgspec.structs.fields(shape)
    ]
    return Table(("field", "values", "default", "meaning"), rows)


def presets() -> Table:
    """Show every field in which some preset differs from the default."""
    rows = []
    for name in Policy.__struct_fields__:
        usual = getattr(DEFAULT_POLICY, name)
        values = [getattr(policy, name) for policy in PRESETS.values()]
        if any(value != usual for value in values):
            told = [setting(name, value) for value in values]
            marked = [
                f"**{text}**" if v != usual else text for text, v in zip(told, values, strict=True)
            ]
            rows.append((code(name), setting(name, usual), *marked))
    return Table(("field", "default", *map(code, PRESETS)), rows)


# Refusals and limits.


def refusals() -> Table:
    kept = ("meaning", "what to do", "waiting helps")
    return Table(("code",), [(code(each),) for each in Code], kept)


def core_limits() -> Table:
    tree = ast.parse(inspect.getsource(limits))
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    rows = [(code(name), amount(name, getattr(limits, name))) for name in names]
    return Table(("limit", "value"), rows, ("of what", "beyond it"))


def broker_limits() -> Table:
    found = {
        "TURN_BYTES_MAX": inbox.TURN_BYTES_MAX,
        "ITEMS_PER_TURN_MAX": inbox.ITEMS_PER_TURN_MAX,
        "INBOX_ITEMS_MAX": inbox.INBOX_ITEMS_MAX,
        "UNWRITTEN_TASKS_MAX": inbox.UNWRITTEN_TASKS_MAX,
        "PAGE_ROWS_MAX": queries.PAGE_ROWS_MAX,
        "OFFSET_ROWS_MAX": queries.OFFSET_ROWS_MAX,
        "EVENTS_WAITING_MAX": client_session.EVENTS_WAITING_MAX,
        "TOPICS_MAX": client_session.TOPICS_MAX,
        "TRIM_BATCHES_DEFAULT": engine.TRIM_BATCHES_DEFAULT,
        "FORGET_AT_ONCE": engine.FORGET_AT_ONCE,
        "DELETES_MAX": blobs.DELETES_MAX,
        "QUEUES_MAX": meter.QUEUES_MAX,
        "RECIPIENTS_PER_SESSION_MAX": message_hub.RECIPIENTS_PER_SESSION_MAX,
        "INTERESTS_PER_SESSION_MAX": message_hub.INTERESTS_PER_SESSION_MAX,
        "CALLS_PER_SESSION_MAX": message_hub.CALLS_PER_SESSION_MAX,
        "MESSAGE_BYTES_MAX": message_hub.MESSAGE_BYTES_MAX,
        "PENDING_PER_CALL_MAX": message_hub.PENDING_PER_CALL_MAX,
        "STALL_US": STALL_US,
    }
    rows = [(code(name), amount(name, value)) for name, value in found.items()]
    return Table(("limit", "value"), rows, ("of what", "beyond it"))


def amount(name: str, value: int) -> str:
    if "_BYTES_" in name:
        return size(value)
    return duration(value) if "_US" in name else f"{value:,}"


# Records.


def fields_of(shape: type[msgspec.Struct]) -> Table:
    """List what a record or a part of one holds, by its place in the array."""
    info = shape.__struct_config__
    first = 0 if info.tag is None else 1
    rows = [
        (code(field.name), str(place), kind_of(field.type), default_of(field))
        for place, field in enumerate(msgspec.structs.fields(shape), first)
    ]
    return Table(("field", "place", "type", "default"), rows, ("meaning",))


def record_list() -> Table:
    rows = [(code(record.__name__), code(record.__struct_config__.tag)) for record in RECORDS]
    return Table(("record", "tag"), rows, ("when it is made",))


# Storage.


def columns_of(file: str, table: str) -> Table:
    """List the columns that a table of a new data folder has."""
    with TemporaryDirectory() as folder:
        Storage.open(Path(folder), kind=JournalKind.SQLITE).close()
        with closing(sqlite3.connect(Path(folder) / file)) as connection:
            found = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    rows = [(code(name), kind or "any") for _, name, kind, *_ in found]
    return Table(("column", "type"), rows, ("meaning",))


# Tests.


def fault_model() -> Table:
    rows = [(code(field.name), f"{field.default:.1%}") for field in dataclasses.fields(Faults)]
    return Table(("fault", "chance"), rows, ("for each", "what happens"))


def planted_bugs() -> Table:
    rows = [
        (code(name), inspect.getdoc(test) or "")
        for name, test in vars(test_planted_bugs).items()
        if name.startswith("test_")
    ]
    return Table(("test", "what is broken"), rows)


#: Page, block, and what makes it.
PAGES: dict[str, dict[str, Callable[[], Block]]] = {
    "reference/lifecycle.md": {
        "states": states,
        "transitions": transitions,
        "diagram of what happens": partial(diagram, is_asked=False),
        "diagram of what is asked": partial(diagram, is_asked=True),
        "events": events,
        "reasons": reasons,
    },
    "explanation/tree.md": {"packages": packages},
    "reference/policies.md": {"fields": partial(settings_fields, Policy), "presets": presets},
    "reference/pools.md": {"fields": partial(settings_fields, PoolSettings)},
    "reference/namespaces.md": {"fields": partial(settings_fields, NamespaceSettings)},
    "reference/key-limits.md": {"fields": partial(settings_fields, LimitSettings)},
    "reference/schedules.md": {"fields": partial(settings_fields, ScheduleSettings)},
    "reference/refusals.md": {"codes": refusals},
    "reference/limits.md": {"core": core_limits, "broker": broker_limits},
    "reference/records.md": {
        "list": record_list,
        **{shape.__name__: partial(fields_of, shape) for shape in (*RECORDS, *PARTS)},
    },
    "reference/metrics.md": {
        "known": partial(metrics, "tq_", Names.TASK_QUEUE),
        "ours": partial(metrics, "jackalope_"),
    },
    "reference/grpc.md": {**GRPC},
    "reference/http.md": {**HTTP},
    "reference/launchers.md": LAUNCHERS,
    "reference/library.md": LIBRARY,
    "reference/protocol.md": PROTOCOL,
    "reference/storage.md": {
        f"{file} {table}": partial(columns_of, file, table)
        for file, tables in {
            DATABASE: ("batches", "writer"),
            HISTORY: ("tasks", "blobs", "entities", "answers", "meta"),
            SERIES: ("points",),
            LOGS: ("attempts", "lines"),
        }.items()
        for table in tables
    },
    "explanation/testing.md": {"faults": fault_model, "planted bugs": planted_bugs},
}
