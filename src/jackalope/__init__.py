"""Jackalope: a durable task broker.

It takes work in, keeps it safe, gives each piece to one worker at a time, and tells the truth about
what happened. The packages below this one stand in layers, and imports point one way only:
`cli -> doors, pools, worker, client -> broker -> storage, wire -> core`.

The names below are loaded when they are first used, so that a broker does not load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackalope.client.administration import Acted
    from jackalope.client.app import Jackalope
    from jackalope.client.handle import Handle, as_completed, gather
    from jackalope.client.messaging import BroadcastMessage
    from jackalope.client.requests import Answer, Asked
    from jackalope.client.task import Task
    from jackalope.client.uploads import Uploaded
    from jackalope.core.filter import Filter
    from jackalope.core.lifecycle import Reason, State
    from jackalope.link.errors import (
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
    from jackalope.tasks.streams import Stream
    from jackalope.tasks.values import DecodeFailed, EncodeFailed
    from jackalope.worker.attempt import Reject, RetryLater
    from jackalope.worker.context import Cancelled, SoftTimeout, TaskContext
    from jackalope.worker.fanout.ledger import ItemError

__version__ = "0.1.0"

#: Where each public name lives.
_HOMES = {
    "Acted": "jackalope.client.administration",
    "Answer": "jackalope.client.requests",
    "Asked": "jackalope.client.requests",
    "BroadcastMessage": "jackalope.client.messaging",
    "CallExpired": "jackalope.link.errors",
    "CallFailed": "jackalope.link.errors",
    "CallRejected": "jackalope.link.errors",
    "Cancelled": "jackalope.worker.context",
    "ConfigError": "jackalope.link.errors",
    "ConnectionLost": "jackalope.link.errors",
    "DeadLetter": "jackalope.link.errors",
    "DecodeFailed": "jackalope.tasks.values",
    "DeliveryLimit": "jackalope.link.errors",
    "EncodeFailed": "jackalope.tasks.values",
    "Filter": "jackalope.core.filter",
    "Handle": "jackalope.client.handle",
    "ItemError": "jackalope.worker.fanout.ledger",
    "Jackalope": "jackalope.client.app",
    "JackalopeError": "jackalope.link.errors",
    "MaxLength": "jackalope.link.errors",
    "PartlyRejected": "jackalope.link.errors",
    "ProtocolError": "jackalope.link.errors",
    "Reason": "jackalope.core.lifecycle",
    "Reject": "jackalope.worker.attempt",
    "Rejected": "jackalope.link.errors",
    "RetryLater": "jackalope.worker.attempt",
    "SoftTimeout": "jackalope.worker.context",
    "State": "jackalope.core.lifecycle",
    "Stream": "jackalope.tasks.streams",
    "Task": "jackalope.client.task",
    "TaskContext": "jackalope.worker.context",
    "TaskFailed": "jackalope.link.errors",
    "Timeout": "jackalope.link.errors",
    "Uploaded": "jackalope.client.uploads",
    "as_completed": "jackalope.client.handle",
    "current": "jackalope.tasks.context",
    "gather": "jackalope.client.handle",
}

__all__ = [
    "Acted",
    "Answer",
    "Asked",
    "BroadcastMessage",
    "CallExpired",
    "CallFailed",
    "CallRejected",
    "Cancelled",
    "ConfigError",
    "ConnectionLost",
    "DeadLetter",
    "DecodeFailed",
    "DeliveryLimit",
    "EncodeFailed",
    "Filter",
    "Handle",
    "ItemError",
    "Jackalope",
    "JackalopeError",
    "MaxLength",
    "PartlyRejected",
    "ProtocolError",
    "Reason",
    "Reject",
    "Rejected",
    "RetryLater",
    "SoftTimeout",
    "State",
    "Stream",
    "Task",
    "TaskContext",
    "TaskFailed",
    "Timeout",
    "Uploaded",
    "__version__",
    "as_completed",
    "current",
    "gather",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jackalope' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
