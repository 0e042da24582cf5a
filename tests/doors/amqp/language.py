"""Transcripts: what clients send, and below it all that the broker answers.

Lines with `#` are for the reader, lines with `>` are sent, and the lines below one, up to an empty
one, are what came back. `A.1` is the first channel of the connection `A`; both are opened when they
are first named, and again after they were closed.

    > A.1 queue.declare {queue: q}         a method, and its answer if it has one
    > A.1 basic.publish {routing_key: q, body: hello, properties: {priority: 3}}
    > A.1 await 2                          the next two methods, whatever they are
    > A.1 together [[basic.cancel, {consumer_tag: c}], [basic.ack, {delivery_tag: 1}]]
                                           methods in one write, and all of their answers
    > A connect {password: wrong}          a handshake whose end is told
    > A close                              an orderly end of a connection
    > A drop                               the socket is closed, without a word
    > A send 0000                          bytes
    > until {queue: q, messages: 2}        look at a queue until it is so, from outside
    > wordless                             from here on codes are told without their words

Names that the broker makes up are told as `amq.gen-1`, and can be sent so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pamqp import base, commands, frame

from tests.doors.amqp import fields
from tests.doors.amqp.wire import PATIENCE_S, Closed, Content, Heard, Wire

_MADE_UP = {
    "amq.gen-": re.compile(r"amq\.gen-[\w-]{10,}"),
    "amq.ctag-": re.compile(r"amq\.ctag-[\w-]{10,}"),
    "amq.rabbitmq.reply-to#": re.compile(r"amq\.rabbitmq\.reply-to\.[\w+/=.-]+"),
}
_UNTOLD = frozenset({"ticket"})
#: How many confirms are told together is a matter of time.
_UNTOLD_OF_CONFIRMS = frozenset({"multiple", "requeue"})
_WATCHER = "watcher"


@dataclass
class Step:
    """A line to send, with the lines above it that are for the reader, and what came back."""

    prose: list[str]
    line: str
    heard: list[str]


def read(path: Path) -> list[Step]:
    """Return the steps of a transcript."""
    steps: list[Step] = []
    prose: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            steps.append(Step(prose, line[1:].strip(), []))
            prose = []
        elif line.startswith("#") or not line:
            prose.append(line)
        else:
            steps[-1].heard.append(line)
    return steps


def text(steps: list[Step]) -> str:
    """Return the transcript that these steps make."""
    lines: list[str] = []
    for step in steps:
        prose = step.prose
        if lines and not (prose and not prose[0]):
            prose = ["", *prose]
        lines += [*prose, f"> {step.line}", *step.heard]
    return "\n".join(lines) + "\n"


class Play:
    """A transcript while it is played to one broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wires: dict[str, Wire] = {}
        self._channels: set[tuple[str, int]] = set()
        self._names: dict[str, str] = {}
        self._declared: list[base.Frame] = []
        self._untold = _UNTOLD

    def run(self, steps: list[Step]) -> list[Step]:
        """Return the same steps with what this broker says to them."""
        try:
            return [
                Step(step.prose, step.line, [self._told(line) for line in self._play(step.line)])
                for step in steps
            ]
        finally:
            self._clean_up()

    def _play(self, line: str) -> Iterator[str]:
        actor, _, rest = self._meant(line).partition(" ")
        verb, _, argument = rest.partition(" ")
        if actor == "wordless":
            self._untold = _UNTOLD | {"reply_text"}
            return
        if actor == "until":
            yield from self._until(yaml.safe_load(rest))
            return
        name, _, number = actor.partition(".")
        try:
            if number:
                yield from self._on_channel(name, int(number), verb, argument)
            else:
                yield from self._on_connection(name, verb, argument)
        except (Closed, ConnectionError):
            self._forget(name)
            yield f"{name} is closed"
        except TimeoutError:
            yield f"{actor} hears nothing"

    def _on_connection(self, name: str, verb: str, argument: str) -> Iterator[str]:
        if verb == "connect":
            self._forget(name)
            wire = self._wires[name] = Wire(self._port)
            last = wire.open(**yaml.safe_load(argument or "{}"))
            yield self._tell(name, last)
            return
        wire = self._wire(name)
        match verb:
            case "drop":
                self._forget(name)
            case "send":
                wire.send_bytes(bytes.fromhex(argument))
            case "await":
                yield self._tell(name, wire.hear(0))
            case "close":
                wire.send(0, commands.Connection.Close(200, "bye", 0, 0))
                yield self._tell(name, wire.hear(0))
                self._forget(name)
            case _:
                raise ValueError(f"{verb}: what is that?")

    def _on_channel(self, name: str, number: int, verb: str, argument: str) -> Iterator[str]:
        wire = self._wire(name)
        if verb == "send":
            wire.send_bytes(bytes.fromhex(argument))
            return
        if (name, number) not in self._channels and verb != "channel.open":
            wire.send(number, commands.Channel.Open())
            assert wire.hear(number).name == "channel.open-ok"
        self._channels.add((name, number))
        if verb == "await":
            for _ in range(int(argument)):
                yield self._tell(name, wire.hear(number))
            return
        if verb == "together":
            yield from self._together(name, number, yaml.safe_load(argument))
            return
        arguments = yaml.safe_load(argument or "{}")
        content = (arguments.pop("properties", {}), str(arguments.pop("body", "")))
        method = _method(verb, arguments)
        if isinstance(method, commands.Queue.Declare | commands.Exchange.Declare):
            self._declared.append(method)
        if isinstance(method, commands.Basic.Publish):
            properties = commands.Basic.Properties(**_mutable(content[0]))
            wire.publish(number, method, properties, content[1].encode())
            return
        wire.send(number, method)
        if not method.synchronous or getattr(method, "nowait", False):
            return
        yield from self._answer(name, number, _answers(method))
        if verb == "channel.close":
            self._channels.discard((name, number))

    def _together(self, name: str, number: int, sent: list[list[Any]]) -> Iterator[str]:
        """Send methods in one write, and wait for an answer to each that has one."""
        wire = self._wire(name)
        methods = [_method(verb, *(given or [{}])) for verb, *given in sent]
        wire.send_bytes(b"".join(frame.marshal(method, number) for method in methods))
        for method in methods:
            if method.synchronous and not getattr(method, "nowait", False):
                yield from self._answer(name, number, _answers(method))

    def _answer(self, name: str, number: int, wanted: set[str]) -> Iterator[str]:
        last = ""
        while last not in {*wanted, "channel.close", "connection.close"}:
            heard = self._wire(name).hear(number)
            last = heard.name
            yield self._tell(name, heard)

    def _until(self, wanted: dict[str, Any]) -> Iterator[str]:
        """Look at a queue until it is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        queue = wanted.pop("queue")
        look = self._is_gone if "gone" in wanted else self._numbers
        while (found := look(queue)) != {**found, **wanted}:
            if time.monotonic() > deadline:
                yield f"until it is given up: {found}"
                return
            time.sleep(0.02)

    def _numbers(self, queue: str) -> dict[str, Any]:
        wire = self._wire(_WATCHER)
        wire.send(1, commands.Channel.Open())
        wire.hear(1)
        wire.send(1, _method("queue.declare", {"queue": queue, "passive": True}))
        method = wire.hear(1).method
        assert isinstance(method, commands.Queue.DeclareOk)
        wire.send(1, commands.Channel.Close(200, "", 0, 0))
        wire.hear(1)
        return {"messages": method.message_count, "consumers": method.consumer_count}

    def _is_gone(self, queue: str) -> dict[str, Any]:
        """Publish to it: to ask for it would be a use of it."""
        wire = self._wire(_WATCHER)
        wire.send(1, commands.Channel.Open())
        wire.hear(1)
        wire.send(1, commands.Confirm.Select())
        wire.hear(1)
        message = commands.Basic.Publish(routing_key=queue, mandatory=True)
        wire.publish(1, message, commands.Basic.Properties(), b"")
        names = [wire.hear(1).name]
        if names == ["basic.return"]:
            names.append(wire.hear(1).name)
        wire.send(1, commands.Channel.Close(200, "", 0, 0))
        wire.hear(1)
        return {"gone": "basic.return" in names}

    def _wire(self, name: str) -> Wire:
        if name not in self._wires:
            self._wires[name] = Wire(self._port)
            assert self._wires[name].open().name == "connection.open-ok"
        return self._wires[name]

    def _forget(self, name: str) -> None:
        wire = self._wires.pop(name, None)
        if wire is not None:
            wire.close()
        self._channels = {each for each in self._channels if each[0] != name}

    def _tell(self, name: str, heard: Heard) -> str:
        """Return the line for a method, and answer it if it asks for no more than that."""
        wire, method = self._wires[name], heard.method
        if heard.name == "channel.close":
            wire.send(heard.channel, commands.Channel.CloseOk())
            self._channels.discard((name, heard.channel))
        elif heard.name == "connection.close":
            wire.send(0, commands.Connection.CloseOk())
            self._forget(name)
        actor = f"{name}.{heard.channel}" if heard.channel else name
        is_confirm = heard.name in {"basic.ack", "basic.nack"}
        untold = _UNTOLD_OF_CONFIRMS if is_confirm else self._untold
        values = [f"{key}={_plain(value)}" for key, value in method if key not in untold]
        return " ".join([actor, heard.name, *values, *_content(heard.content)])

    def _told(self, line: str) -> str:
        """Give the names that the broker made up names that are the same each time."""
        for stem, pattern in _MADE_UP.items():
            for real in pattern.findall(line):
                if real not in self._names:
                    number = 1 + sum(name.startswith(stem) for name in self._names.values())
                    self._names[real] = f"{stem}{number}"
        for real, name in self._names.items():
            line = line.replace(real, name)
        return line

    def _meant(self, line: str) -> str:
        for real, name in self._names.items():
            line = re.sub(re.escape(name) + r"\b", real.replace("\\", r"\\"), line)
        return line

    def _clean_up(self) -> None:
        for name in list(self._wires):
            self._forget(name)
        wire = Wire(self._port)
        wire.open()
        for number, method in enumerate(self._declared, start=1):
            wire.send(number, commands.Channel.Open())
            wire.hear(number)
            if isinstance(method, commands.Queue.Declare):
                wire.send(number, _method("queue.delete", {"queue": method.queue}))
            elif isinstance(method, commands.Exchange.Declare):
                wire.send(number, _method("exchange.delete", {"exchange": method.exchange}))
            if wire.hear(number).name == "channel.close":
                wire.send(number, commands.Channel.CloseOk())
        wire.send(0, commands.Connection.Close(200, "", 0, 0))
        wire.hear(0)
        wire.close()


def _method(verb: str, arguments: dict[str, Any]) -> base.Frame:
    kind, _, name = verb.partition(".")
    words = name.replace("-", " ").title().replace(" ", "")
    known = getattr(getattr(commands, kind.title()), words)
    # The codec has an opinion on names that no broker shares.
    unchecked = type(known.__name__, (known,), {"validate": lambda _: None})
    method: base.Frame = unchecked(**arguments)
    return method


def _mutable(value: Any) -> Any:
    """Make byte arrays of bytes: only those does the codec send as such."""
    if isinstance(value, dict):
        return {name: _mutable(each) for name, each in value.items()}
    return bytearray(value) if isinstance(value, bytes) else value


def _answers(method: base.Frame) -> set[str]:
    names = {name.lower() for name in method.valid_responses}
    return {name.replace("ok", "-ok").replace("empty", "-empty") for name in names}


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _content(content: Content | None) -> list[str]:
    if content is None:
        return []
    told = fields.properties(content.raw_properties)
    return [*(f"{name}={value}" for name, value in told.items()), f"body={content.body.decode()!r}"]
