"""Errors: everything that Jackalope raises to its users.

One tree, so that `except JackalopeError` catches it all. Each says what happened, to what, and what
to do. Nothing here is raised for a bug in Jackalope itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jackalope.core.effects import Served
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import Reason, State
from jackalope.core.task import Error


class JackalopeError(Exception):
    """Anything that Jackalope has to tell."""


class ConfigError(JackalopeError, ValueError):
    """A setting, an address or an option that cannot be used."""


class ConnectionLost(JackalopeError, ConnectionError):
    """The broker could not be reached, or the connection to it is over."""


class Misread(ConnectionLost):
    """The broker closed the connection because it could not read something that was sent.

    What was sent and not answered must not be sent again as it was: one frame of it is the reason.
    """


class ProtocolError(JackalopeError):
    """The other end does not speak this protocol."""


class Timeout(JackalopeError, TimeoutError):
    """The time that the caller allowed is over."""


#: Of a refusal that has nothing to do with quotas: no name, no limit, no use.
NO_QUOTA = ("", 0, 0)


class Rejected(JackalopeError):
    """The broker said no."""

    def __init__(
        self,
        code: str,
        message: str,
        retry_after_us: int = 0,
        quota: tuple[str, int, int] = NO_QUOTA,
    ) -> None:
        super().__init__(code, message, retry_after_us, *([quota] * (quota != NO_QUOTA)))
        # what kind of no this is: a stable string such as `queue_full` or `unknown_task`
        self.code = code
        self.message = message  # what happened, to what, and what to do
        self.retry_after_us = retry_after_us  # when asking again may help; 0 when it will not
        # the quota of the namespace that is used up, if that is why, its limit and its use
        self.quota, self.limit, self.used = quota

    @property
    def retry_after_s(self) -> float:
        """Return `retry_after_us` in seconds."""
        return self.retry_after_us / 1_000_000

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class TaskFailed(JackalopeError):
    """A task ended without success.

    The remote traceback, where there is one, is a note of the exception, so that Python prints it.
    """

    def __init__(
        self, task: TaskId, state: State, reason: Reason | None = None, error: Error | None = None
    ) -> None:
        super().__init__(task, state, reason, error)
        self.task = task  # the task's id
        self.state = state  # `dead` or `killed`
        self.reason = reason  # why it is dead
        self.error = error  # what its last attempt raised: type, message and traceback text
        if error is not None and error.trace:
            self.add_note("In the worker:\n" + error.trace.rstrip())

    def __str__(self) -> str:
        text = f"task {self.task.hex()} is {self.state}"
        if self.reason is not None:
            text += f" ({self.reason})"
        if self.error is None:
            return text
        message = f": {self.error.message}" if self.error.message else ""
        return f"{text}: {self.error.type}{message}"


class CallFailed(JackalopeError):
    """A call was taken and not answered well.

    The remote traceback, where there is one, is a note of the exception, so that Python prints it.
    """

    def __init__(self, recipient: str, error: Error) -> None:
        super().__init__(recipient, error)
        self.recipient = recipient  # who was called
        self.error = error  # what it raised: type, message and traceback text
        if error.trace:
            self.add_note("At the recipient:\n" + error.trace.rstrip())

    def __str__(self) -> str:
        message = f": {self.error.message}" if self.error.message else ""
        return f"call to {self.recipient!r} failed: {self.error.type}{message}"


class DeadLetter(JackalopeError):
    """A call that no worker answered."""

    status = ""  # why, as one word: `expired`, `delivery_limit`, `maxlen` or `rejected`

    def __init__(self, task: TaskId, message: str) -> None:
        super().__init__(task, message)
        self.task = task  # the id of the task that the call was
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.status})"


class CallExpired(DeadLetter):
    """No worker began to answer a call in time."""

    status = "expired"


class DeliveryLimit(DeadLetter):
    """A call cost as many workers as one may."""

    status = "delivery_limit"


class MaxLength(DeadLetter):
    """So many calls wait already that no more are taken."""

    status = "maxlen"


class CallRejected(DeadLetter):
    """The worker refused to answer a call."""

    status = "rejected"


class PartlyRejected(Rejected):
    """Some tasks of a bulk submit were not accepted. Says no with the first refusal's words."""

    def __init__(self, refused: dict[int, Rejected], handles: list[Any]) -> None:
        first = refused[min(refused)]
        message = f"{len(refused)} of {len(handles)} tasks were not accepted: {first.message}"
        about = (first.quota, first.limit, first.used)
        super().__init__(first.code, message, first.retry_after_us, about)
        self.args = (refused, handles)
        self.refused = refused  # the refusal of each task that was not accepted, by its index
        self.handles = handles  # one for each task, None for those that were not accepted


#: How much of a value stands in a message.
_SHOWN_CHARS_MAX = 80


def shown(value: object) -> str:
    """Show a value in a message, whatever it is: cut, or by its type if it cannot be shown."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  such as a number of more digits than Python prints
        return kind_of(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


def kind_of(value: object) -> str:
    """Name the type of a value, for messages."""
    return "None" if value is None else type(value).__name__


# Answers: what the body of an ACK says.


def to_rejected(refusal: Mapping[str, Any]) -> Rejected:
    """Make an error of a refusal as it stands in an answer."""
    about = (refusal.get("quota", ""), refusal.get("limit", 0), refusal.get("used", 0))
    wait_us = refusal.get("retry_after_us", 0)
    return Rejected(refusal["code"], refusal["message"], wait_us, about)


def refusals(body: Mapping[str, Any]) -> dict[int, Rejected]:
    """Return which items of a list were refused, by their index in the request."""
    return {index: to_rejected(refusal) for index, refusal in body.get("refused") or ()}


def served(body: Mapping[str, Any]) -> dict[int, Served]:
    """Return how those items of a list are served that are requests, by their index."""
    return {
        index: msgspec.convert(how, Served, builtin_types=(bytes,))
        for index, how in body.get("served") or ()
    }
