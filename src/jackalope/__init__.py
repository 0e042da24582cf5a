"""Jackalope: a durable task broker.

It accepts tasks, stores them durably, gives each to one worker at a time, and reports exactly what
happened. The packages below this one stand in layers, and imports point one way only:
`cli -> doors, pools, worker, client -> broker -> storage, wire -> core`.

The names below are loaded when they are first used, so that a broker does not load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackalope.client.admin import Acted
    from jackalope.client.app import Jackalope
    from jackalope.client.flows.flow import Flow, FlowHandle
    from jackalope.client.flows.parts import Group, Step, chain, group
    from jackalope.client.handle import Handle, as_completed, gather
    from jackalope.client.limits import Limit
    from jackalope.client.messages import BroadcastMessage
    from jackalope.client.paces import Debounce, Replace, Throttle
    from jackalope.client.requests import Answer, Asked
    from jackalope.client.session.outbox import Uploaded
    from jackalope.client.task import Task
    from jackalope.core.filter import Filter
    from jackalope.core.lifecycle import Reason, State
    from jackalope.core.shapes.callback import Callback
    from jackalope.errors import (
        CallExpired,
        CallFailed,
        CallRejected,
        ConfigError,
        ConnectionLost,
        DeadLetter,
        DeliveryLimit,
        JackalopeError,
        MaxLength,
        PartlyRejected,
        ProtocolError,
        Rejected,
        TaskFailed,
        Timeout,
    )
    from jackalope.tasks.context import current
    from jackalope.tasks.dependencies import INJECTED, Depends
    from jackalope.tasks.inputs import NodeError
    from jackalope.tasks.middleware import Middleware, Submission
    from jackalope.tasks.serialization import DecodeFailed, EncodeFailed, Stream
    from jackalope.worker.attempt import Reject, RetryLater, StepRefused, Suspension, Throttled
    from jackalope.worker.context import Cancelled, SoftTimeout, TaskContext
    from jackalope.worker.fanout.ledger import ItemError

__version__ = "0.1.0"

#: Where each public name lives.
_HOMES = {
    "Acted": "jackalope.client.admin",
    "Answer": "jackalope.client.requests",
    "Asked": "jackalope.client.requests",
    "BroadcastMessage": "jackalope.client.messages",
    "CallExpired": "jackalope.errors",
    "CallFailed": "jackalope.errors",
    "CallRejected": "jackalope.errors",
    "Callback": "jackalope.core.shapes.callback",
    "Cancelled": "jackalope.worker.context",
    "ConfigError": "jackalope.errors",
    "ConnectionLost": "jackalope.errors",
    "DeadLetter": "jackalope.errors",
    "Debounce": "jackalope.client.paces",
    "DecodeFailed": "jackalope.tasks.serialization",
    "DeliveryLimit": "jackalope.errors",
    "Depends": "jackalope.tasks.dependencies",
    "EncodeFailed": "jackalope.tasks.serialization",
    "Filter": "jackalope.core.filter",
    "Flow": "jackalope.client.flows.flow",
    "FlowHandle": "jackalope.client.flows.flow",
    "Group": "jackalope.client.flows.parts",
    "Handle": "jackalope.client.handle",
    "INJECTED": "jackalope.tasks.dependencies",
    "ItemError": "jackalope.worker.fanout.ledger",
    "Jackalope": "jackalope.client.app",
    "JackalopeError": "jackalope.errors",
    "Limit": "jackalope.client.limits",
    "MaxLength": "jackalope.errors",
    "Middleware": "jackalope.tasks.middleware",
    "NodeError": "jackalope.tasks.inputs",
    "PartlyRejected": "jackalope.errors",
    "ProtocolError": "jackalope.errors",
    "Reason": "jackalope.core.lifecycle",
    "Reject": "jackalope.worker.attempt",
    "Rejected": "jackalope.errors",
    "Replace": "jackalope.client.paces",
    "RetryLater": "jackalope.worker.attempt",
    "SoftTimeout": "jackalope.worker.context",
    "State": "jackalope.core.lifecycle",
    "Step": "jackalope.client.flows.parts",
    "StepRefused": "jackalope.worker.attempt",
    "Stream": "jackalope.tasks.serialization",
    "Submission": "jackalope.tasks.middleware",
    "Suspension": "jackalope.worker.attempt",
    "Task": "jackalope.client.task",
    "TaskContext": "jackalope.worker.context",
    "TaskFailed": "jackalope.errors",
    "Throttle": "jackalope.client.paces",
    "Throttled": "jackalope.worker.attempt",
    "Timeout": "jackalope.errors",
    "Uploaded": "jackalope.client.session.outbox",
    "as_completed": "jackalope.client.handle",
    "chain": "jackalope.client.flows.parts",
    "current": "jackalope.tasks.context",
    "gather": "jackalope.client.handle",
    "group": "jackalope.client.flows.parts",
}

__all__ = [
    "INJECTED",
    "Acted",
    "Answer",
    "Asked",
    "BroadcastMessage",
    "CallExpired",
    "CallFailed",
    "CallRejected",
    "Callback",
    "Cancelled",
    "ConfigError",
    "ConnectionLost",
    "DeadLetter",
    "Debounce",
    "DecodeFailed",
    "DeliveryLimit",
    "Depends",
    "EncodeFailed",
    "Filter",
    "Flow",
    "FlowHandle",
    "Group",
    "Handle",
    "ItemError",
    "Jackalope",
    "JackalopeError",
    "Limit",
    "MaxLength",
    "Middleware",
    "NodeError",
    "PartlyRejected",
    "ProtocolError",
    "Reason",
    "Reject",
    "Rejected",
    "Replace",
    "RetryLater",
    "SoftTimeout",
    "State",
    "Step",
    "StepRefused",
    "Stream",
    "Submission",
    "Suspension",
    "Task",
    "TaskContext",
    "TaskFailed",
    "Throttle",
    "Throttled",
    "Timeout",
    "Uploaded",
    "__version__",
    "as_completed",
    "chain",
    "current",
    "gather",
    "group",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jackalope' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
