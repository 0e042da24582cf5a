"""Marks: when a process passes the places that matter to one request.

The places are functions of Jackalope that are replaced from outside, in a process that is started
for this benchmark. The product has no timer of its own, so that nothing is paid when nobody looks.
A place that no longer exists is reported, and its stage counts as a part of the next one.

The clock is the same for all processes of a machine. A mark costs about half a microsecond.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

When = Literal["before", "after"]


class Mark(NamedTuple):
    """That a process passed a place."""

    what: str
    at_ns: int
    whose: int = 0  # the connection, where there are several


class Place(NamedTuple):
    """A function that marks before it begins, or after it has returned."""

    what: str
    where: str  # module:class.function, or module:function
    when: When = "before"


#: The classes whose connections mark what they read and write.
CONNECTIONS = {
    "broker": "jackalope.doors.native.connection:Connection",
    "worker": "jackalope.transport.connection:Connection",
    "client": "jackalope.transport.connection:Connection",
}

PLACES = {
    "broker": (
        Place("decoded", "jackalope.doors.native.connection:Connection._on_message"),
        Place("posted", "jackalope.broker.service:Broker.post", "after"),
        Place("turn", "jackalope.broker.engine:Engine.decide"),
        Place("core", "jackalope.core.core:Core.handle", "after"),
        Place("decided", "jackalope.broker.engine:Engine.decide", "after"),
        Place("sync", "os:fdatasync"),
        Place("synced", "os:fdatasync", "after"),
        Place("deliver", "jackalope.doors.native.connection:Connection.deliver"),
    ),
    "worker": (
        Place("assigned", "jackalope.worker.workload:Workload.assign"),
        Place("called", "jackalope.worker.attempt:Attempt.call"),
        Place("ended", "jackalope.worker.workload:Mailbox.ended"),
    ),
    "client": (),
}


class Marks:
    """The marks of this process."""

    def __init__(self) -> None:
        self.made: list[Mark] = []
        self.missing: list[str] = []

    def place(self, role: str) -> None:
        """Replace the functions of a role by ones that mark."""
        for place in PLACES[role]:
            self._replace(place)
        self._watch(CONNECTIONS[role])

    def write(self, folder: Path, role: str) -> None:
        """Leave the marks where the benchmark finds them."""
        text = json.dumps({"missing": self.missing, "made": self.made})
        (folder / f"{role}-{os.getpid()}.marks").write_text(text)

    def _replace(self, place: Place) -> None:
        owner, name = found = self._find(place.where)
        if owner is None:
            return
        original = getattr(owner, name)
        marking = self._before if place.when == "before" else self._after
        setattr(*found, functools.wraps(original)(marking(place.what, original)))

    def _before(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        add = self.made.append

        def marked(*args: Any, **kwargs: Any) -> Any:
            add(Mark(what, perf_counter_ns()))
            return original(*args, **kwargs)

        return marked

    def _after(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        add = self.made.append

        def marked(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            add(Mark(what, perf_counter_ns()))
            return result

        return marked

    def _watch(self, where: str) -> None:
        """Mark what the connections of a class read and write, whoever writes for them."""
        owner, name = self._find(f"{where}.connection_made")
        if owner is None:
            return
        add, made, received = self.made.append, getattr(owner, name), owner.data_received

        def connection_made(self: Any, transport: Any) -> None:
            made(self, _Transport(transport, add, id(self)))

        def data_received(self: Any, data: bytes) -> None:
            add(Mark("read", perf_counter_ns(), id(self)))
            received(self, data)

        owner.connection_made, owner.data_received = connection_made, data_received

    def look_for(self, role: str) -> None:
        """Note the places of a role that are gone, and leave all functions as they are."""
        for where in (
            *(place.where for place in PLACES[role]),
            f"{CONNECTIONS[role]}.data_received",
        ):
            self._find(where)

    def _find(self, where: str) -> tuple[Any, str]:
        """Return what has the function as an attribute, and its name; note one that is gone."""
        module, _, path = where.partition(":")
        *owners, name = path.split(".")
        try:
            owner = functools.reduce(getattr, owners, import_module(module))
            getattr(owner, name)
        except (ImportError, AttributeError):
            self.missing.append(where)
            return None, name
        return owner, name


class _Transport:
    """A transport that marks its writes, and is the real one in everything else."""

    def __init__(self, transport: Any, add: Callable[[Mark], None], whose: int) -> None:
        self._transport = transport
        write = transport.write

        def marked(data: bytes) -> None:
            add(Mark("write", perf_counter_ns(), whose))
            write(data)

        self.write = marked
        # The ones that a connection uses again and again.
        self.is_closing = transport.is_closing
        self.get_write_buffer_size = transport.get_write_buffer_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
