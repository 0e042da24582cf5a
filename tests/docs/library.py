"""What the page on the Python library says: it follows from signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jackalope
from jackalope.client.admin import Administration
from jackalope.client.app import Jackalope, Sync
from jackalope.client.flows.flow import Flow, FlowChoices, FlowHandle
from jackalope.client.flows.parts import Part, Step, StepChoices, chain, group
from jackalope.client.handle import Handle
from jackalope.client.messages import Messaging
from jackalope.client.requests import Answer, Asked, Requests
from jackalope.client.submit_options import Choices, SubmitChoices
from jackalope.client.task import Task, TaskChoices
from jackalope.tasks.context import Running
from jackalope.tasks.inputs import NodeError
from jackalope.testing import VirtualBroker, VirtualFlow, VirtualHandle, embedded
from tests.docs.attributes import attributes_of
from tests.docs.blocks import Block, Table
from tests.docs.wording import code

#: Public for the other modules of the package; of no use to others.
_INSIDE = frozenset(
    {
        "asked",
        "find_served",
        "hello",
        "let_wait",
        "load",
        "log_page",
        "new_session",
        "outcome",
        "payload_of",
        "plan",
        "plug_in",
        "progressed",
        "read",
        "register",
        "rested",
        "served",
        "session",
        "sink_of",
        "take",
        "timeout_of",
        "traces",
        "unplug",
    }
)
#: What parts of flows have for each other.
_OF_PARTS = frozenset(
    {
        "args",
        "assemble",
        "before",
        "compensation",
        "end",
        "follow",
        "followers",
        "group",
        "heads",
        "input",
        "is_collecting",
        "is_open",
        "kwargs",
        "need",
        "parts",
        "value",
    }
)
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def names() -> Table:
    """List what `from jackalope import ...` knows."""
    public = [name for name in jackalope.__all__ if not name.startswith("_")]
    rows = [(code(name), first_line(getattr(jackalope, name))) for name in public]
    return Table(("name", "what it is"), rows)


def choices(*shapes: type) -> Table:
    rows = [
        (code(name), meaning) for shape in shapes for name, meaning in attributes_of(shape).items()
    ]
    return Table(("choice", "meaning"), rows)


def members(*shapes: type, without: frozenset[str] = frozenset()) -> Table:
    """List the public attributes, properties and methods of classes, in their order."""
    inside = _INSIDE | without
    rows: list[tuple[str, str]] = []
    for shape in shapes:
        rows += [
            (code(name), meaning)
            for name, meaning in attributes_of(shape).items()
            if name not in inside
        ]
        for name, member in vars(shape).items():
            if not name.startswith("_") and name not in inside and getattr(member, "__doc__", None):
                rows += [(code(call_of(name, member)), first_line(member))]
    return Table(("name", "what it is, or does"), list(dict.fromkeys(rows)))


def functions(*given: Callable[..., Any]) -> Table:
    rows = [(code(call_of(each.__name__, each)), first_line(each)) for each in given]
    return Table(("name", "what it does"), rows)


def call_of(name: str, member: Any) -> str:
    """Write how a function is called; properties only have a name."""
    function = inspect.unwrap(getattr(member, "__func__", member))
    if not inspect.isfunction(function):
        return name
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(shown):
            shown.append("*")
        star = _STARS.get(parameter.kind, "")
        has_default = parameter.default is not parameter.empty
        default = f"={parameter.default!r}" if has_default else ""
        shown.append(f"{star}{parameter.name}{default}")
    return f"{name}({', '.join(shown)})"


def first_line(member: Any) -> str:
    """Return the first sentence of a docstring."""
    paragraph = (inspect.getdoc(member) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


LIBRARY: dict[str, Callable[[], Block]] = {
    "names": names,
    "application": partial(members, Jackalope),
    "administration": partial(members, Administration),
    "requests": partial(members, Requests),
    "asked": partial(members, Asked),
    "answer": partial(members, Answer),
    "messaging": partial(members, Messaging),
    "task": partial(members, Task),
    "choices of a submit": partial(choices, SubmitChoices, Choices),
    "choices of a definition": partial(choices, TaskChoices),
    "handle": partial(members, Handle),
    "parts of a flow": partial(functions, chain, group),
    "step": partial(members, Part, Step, without=_OF_PARTS),
    "choices of a step": partial(choices, StepChoices),
    "flow": partial(members, Flow, without=_OF_PARTS),
    "choices of a flow": partial(choices, FlowChoices),
    "flow handle": partial(members, FlowHandle),
    "node error": partial(members, NodeError),
    "sync": partial(members, Sync),
    "context": partial(members, Running),
    "virtual broker": partial(members, VirtualBroker),
    "virtual handle": partial(members, VirtualHandle),
    "virtual flow": partial(members, VirtualFlow),
    "embedded": partial(functions, embedded),
}
