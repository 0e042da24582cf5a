"""Callbacks and triggers: what follows from the end of a task, or of a batch.

Owns the shapes, what is wrong with one by itself, to which addresses a callback may go, and the id
of the task that delivers it. How they are submitted is in `callbacks`, how they are delivered is
not the core's.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from jackalope.core.ids import TaskId, successor_id
from jackalope.core.limits import (
    CALLBACK_URL_CHARS_MAX,
    CALLBACKS_MAX,
    NAME_CHARS_MAX,
    TRIGGERS_PER_QUEUE_MAX,
)

#: The queue of a namespace whose tasks are callbacks. The broker itself is its only worker.
CALLBACKS_QUEUE = "jackalope.callbacks"

#: The name of that worker.
CALLBACKS_WORKER = "jackalope.callbacks"

#: The header that names the task from whose end another one follows.
SOURCE_HEADER = "jackalope.source"

#: Why no client submits to that queue, and no other worker serves it.
OWN_QUEUE = f"{CALLBACKS_QUEUE!r} is the broker's own; its tasks can be listed, retried and killed"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class End(StrEnum):
    """How a task can end."""

    SUCCEEDED = "succeeded"
    DEAD = "dead"
    KILLED = "killed"


class CallbackOn(StrEnum):
    """What a callback can be about: the end of a task, or that of a whole batch."""

    SUCCEEDED = "succeeded"
    DEAD = "dead"
    KILLED = "killed"
    BATCH = "batch"


class Callback(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the end of a task is posted."""

    url: str
    on: tuple[CallbackOn, ...] = ()  # at which ends; none for every end of a task

    def is_about(self, state: str) -> bool:
        """Return whether the end of a task in this state is posted."""
        return state in self.on if self.on else True


class TriggerPayload(StrEnum):
    """What the payload of a triggered task is."""

    RESULT = "result"  # the result of the task that ended
    PAYLOAD = "payload"  # its payload
    EVENT = "event"  # a call with one argument, which tells of the end


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task that is submitted to another queue when one of this queue ends."""

    queue: str
    on: tuple[End, ...] = (End.SUCCEEDED,)
    name: str = ""  # of the task; empty for that of the task that ended
    key: str = ""  # the same
    priority: int | None = None  # the same
    payload: TriggerPayload = TriggerPayload.RESULT

    def is_about(self, state: str) -> bool:
        """Return whether it submits a task when one ends in this state."""
        return state in self.on


class AllowedTargets(msgspec.Struct, frozen=True):
    """Where callbacks may go besides public addresses."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()  # names, in small letters: whatever their addresses are


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is posted, as the payload of the task that delivers it."""

    url: str
    type: str  # such as `jackalope.task.succeeded`
    namespace: str
    queue: str
    at_us: int
    task: str = ""  # the id, as a UUID; empty if it is about a batch
    name: str = ""
    key: str = ""
    state: str = ""
    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    created_us: int = 0
    attempts: int = 0
    batch: int = 0
    result_size: int = 0
    result: bytes | None = None  # None if it is too large, or there is none
    content: str = ""  # how the result is encoded, as the header of the task names it


TASK_EVENT = "jackalope.task"
BATCH_EVENT = "jackalope.batch.ended"


def callback_id(task: TaskId, ended_us: int, url: str) -> TaskId:
    """Return the id of the task that posts an end; each end has its own."""
    return successor_id(task, f"callback {ended_us} {url}")


def batch_callback_id(task: TaskId, queue: str, batch: int, ended_us: int, url: str) -> TaskId:
    """Return the same for a batch, which ends with this task."""
    return successor_id(task, f"batch {queue} {batch} {ended_us} {url}")


def trigger_id(task: TaskId, ended_us: int, number: int, trigger: Trigger) -> TaskId:
    """Return the id of the task that a trigger submits; `number` is its place in the policy."""
    return successor_id(task, f"trigger {ended_us} {number} {trigger.queue} {trigger.name}")


# What is wrong with them.


def callback_problems(
    callbacks: tuple[Callback, ...], allowed: AllowedTargets, *, is_of_queue: bool
) -> list[str]:
    """List what is invalid in the callbacks of a task or a queue."""
    problems = []
    if len(callbacks) > CALLBACKS_MAX:
        problems.append(f"callbacks: {len(callbacks)}; at most {CALLBACKS_MAX}")
    for number, callback in enumerate(callbacks[:CALLBACKS_MAX]):
        where = f"callbacks[{number}]"
        if problem := url_problem(callback.url, allowed):
            problems.append(f"{where}.url: {problem}")
        if CallbackOn.BATCH in callback.on and not is_of_queue:
            problems.append(f"{where}.on: `batch` is for the callbacks of a queue")
        if len(set(callback.on)) < len(callback.on):
            problems.append(f"{where}.on: name each end once")
    return problems


def trigger_problems(triggers: tuple[Trigger, ...], priority_max: int) -> list[str]:
    """List what is invalid in the triggers of a queue."""
    problems = []
    if len(triggers) > TRIGGERS_PER_QUEUE_MAX:
        problems.append(f"triggers: {len(triggers)}; at most {TRIGGERS_PER_QUEUE_MAX}")
    for number, trigger in enumerate(triggers[:TRIGGERS_PER_QUEUE_MAX]):
        where = f"triggers[{number}]"
        if not 0 < len(trigger.queue) <= NAME_CHARS_MAX:
            problems.append(f"{where}.queue: must have 1 to {NAME_CHARS_MAX} characters")
        elif trigger.queue == CALLBACKS_QUEUE:
            problems.append(f"{where}.queue: {OWN_QUEUE}")
        problems += [
            f"{where}.{field}: longer than {NAME_CHARS_MAX} characters"
            for field in ("name", "key")
            if len(getattr(trigger, field)) > NAME_CHARS_MAX
        ]
        if trigger.priority is not None and not 0 <= trigger.priority <= priority_max:
            problems.append(f"{where}.priority: must be 0 to {priority_max}")
        if not trigger.on or len(set(trigger.on)) < len(trigger.on):
            problems.append(f"{where}.on: name one or more ends, each once")
    return problems


def url_problem(url: str, allowed: AllowedTargets) -> str:
    """Return why a URL cannot be called; empty if it can, as far as its text shows."""
    if not 0 < len(url) <= CALLBACK_URL_CHARS_MAX:
        return f"must have 1 to {CALLBACK_URL_CHARS_MAX} characters, got {len(url)}"
    if not all("!" <= char <= "~" for char in url):
        return "must be printable ASCII without spaces; encode the rest with %"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL; write it as https://host:port/path"
    is_callable = parts.scheme in ("http", "https") and bool(parts.hostname)
    wrong = (
        (not is_callable, "must begin with http:// or https:// and a host"),
        (
            parts.username is not None or parts.password is not None,
            "must not have a user or a password; requests are signed instead",
        ),
        (bool(parts.fragment), "must not have a fragment"),
        (port == 0, "port 0 cannot be called"),
    )
    found = next((problem for is_wrong, problem in wrong if is_wrong), "")
    return found or _host_problem(parts, allowed)


def _host_problem(parts: SplitResult, allowed: AllowedTargets) -> str:
    host = host_of(parts)
    if host in allowed.hosts:
        return ""
    if "%" in host or "\\" in parts.netloc:
        return "is no host that can be called"
    try:
        address = ip_address(host)
    except ValueError:
        last = host.rpartition(".")[2]
        if not last or last.isdigit() or last.startswith("0x"):
            return f"{host!r} is no host; write an address as four decimal numbers"
        if host == "localhost" or host.endswith(".localhost"):
            return address_problem(IPv4Address("127.0.0.1"), allowed)
        return ""
    return address_problem(address, allowed)


def host_of(parts: SplitResult) -> str:
    """Return the host of a URL as it is compared with others."""
    return (parts.hostname or "").removesuffix(".")


def address_problem(address: Address, allowed: AllowedTargets) -> str:
    """Return why an address must not be called; empty if it may."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed.networks):
        return ""
    if kind := _kind_of(address):
        return (
            f"{address} is {kind}, which callbacks must not reach; allow its network or host in "
            "the broker's configuration (`callbacks.allow`)"
        )
    return ""


def _kind_of(address: Address) -> str:
    """Return what an address is that does not belong to the public internet."""
    kinds: tuple[tuple[str, bool], ...] = (
        ("an unspecified address", address.is_unspecified),
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("a multicast address", address.is_multicast),
        ("a private address", address.is_private),
        ("a reserved address", address.is_reserved or not address.is_global),
    )
    for kind, is_so in kinds:
        if is_so:
            return kind
    if isinstance(address, IPv6Address):
        if address.is_site_local:
            return "a private address"
        within = address.sixtofour or (address.teredo and address.teredo[1])
        if within and _kind_of(within):
            return f"a way to {within}"
    return ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Notice)


def encode_notice(notice: Notice) -> bytes:
    return _encoder.encode(notice)


def decode_notice(payload: bytes) -> Notice:
    """Read a notice; raises `msgspec.DecodeError` if it is none."""
    try:
        return _decoder.decode(payload)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"text that is none: {error}") from None


def event_call(notice: Notice) -> bytes:
    """Encode a notice as a call with one argument, as functions are called."""
    event: dict[str, Any] = msgspec.to_builtins(notice, builtin_types=(bytes,))
    del event["url"]
    if notice.result and notice.content in ("", "msgpack"):
        event["result"] = msgspec.Raw(notice.result)
    return _encoder.encode(([event], {}))
