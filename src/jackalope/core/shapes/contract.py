"""Contracts: what a task takes and returns, as the workers say that run it.

Owns the shapes. A contract has the parameters of a task with a JSON Schema each, so that programs
in any language, forms and people can make a call that fits. Knows nothing of payloads; see `call`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jackalope.core.limits import CONTRACT_BYTES_MAX, CONTRACT_PARAMETERS_MAX, NAME_CHARS_MAX

_encode = msgspec.msgpack.Encoder().encode

#: A JSON Schema: what a value must look like. An empty one takes anything.
Schema = dict[str, Any]


class OnMisfit(StrEnum):
    """What to do with a submitted task that does not fit the contract of its name."""

    REFUSE = "refuse"
    WARN = "warn"
    OFF = "off"


class ParameterKind(StrEnum):
    """How an argument is given."""

    ANY = "any"  # by place or by name
    PLACE = "place"  # by place alone
    NAME = "name"  # by name alone
    REST = "rest"  # takes all further arguments by place
    REST_NAMED = "rest_named"  # takes all further arguments by name


class CallContent(StrEnum):
    """How the arguments of a call are encoded; `bytes` are not looked at."""

    MSGPACK = "msgpack"
    JSON = "json"
    BYTES = "bytes"


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A parameter of a task. One that takes further arguments has the schema of each of them."""

    name: str
    kind: ParameterKind = ParameterKind.ANY
    schema: Schema = {}
    required: bool = False
    default: Any = None  # what it is if it is not given, where JSON can say that


class Contract(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one version of a task takes and returns."""

    version: str = ""  # tells it from others, such as a hash of the code
    parameters: tuple[Parameter, ...] = ()
    returns: Schema = {}
    definitions: dict[str, Schema] = {}  # what schemas refer to as `#/$defs/...`
    content: CallContent = CallContent.MSGPACK  # unless a header of the task names another
    doc: str = ""  # what the task does, for people


class TaskContracts(msgspec.Struct):
    """The contracts of a task in a queue, one for each version that is in use; the newest last."""

    queue: str
    name: str
    versions: tuple[Contract, ...]
    by: str = ""  # who declared the newest
    at_us: int = 0  # when


def contract_problems(contract: Contract) -> list[str]:
    """List everything that is invalid in a contract."""
    names = [parameter.name for parameter in contract.parameters]
    problems = [
        f"{field}: must have at most {NAME_CHARS_MAX} characters"
        for field, text in (("version", contract.version), *(("parameters", n) for n in names))
        if len(text) > NAME_CHARS_MAX
    ]
    if len(names) > CONTRACT_PARAMETERS_MAX:
        problems.append(f"parameters: at most {CONTRACT_PARAMETERS_MAX}, got {len(names)}")
    if not all(names) or len(set(names)) < len(names):
        problems.append("parameters: each needs a name of its own")
    problems += [
        f"parameters: at most one can be {kind}"
        for kind in (ParameterKind.REST, ParameterKind.REST_NAMED)
        if sum(parameter.kind is kind for parameter in contract.parameters) > 1
    ]
    if (size := len(_encode(contract))) > CONTRACT_BYTES_MAX:
        problems.append(f"{size} bytes encoded; at most {CONTRACT_BYTES_MAX}")
    return problems


def arguments_schema(contract: Contract) -> Schema:
    """Return one JSON Schema for all arguments by name, as forms and programs want it."""
    properties: Schema = {}
    further: Any = False
    for parameter in contract.parameters:
        if parameter.kind is ParameterKind.REST_NAMED:
            further = parameter.schema or True
        elif parameter.kind is ParameterKind.REST:
            properties[parameter.name] = {"type": "array", "items": parameter.schema}
        else:
            properties[parameter.name] = parameter.schema
    required = [parameter.name for parameter in contract.parameters if parameter.required]
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": further}
    if required:
        schema["required"] = required
    if contract.definitions:
        schema["$defs"] = contract.definitions
    return schema


def signature(name: str, contract: Contract) -> str:
    """Write a call in one line, as Python has it: `resize(path: string, width: integer = 320)`."""
    parts: list[str] = []
    is_named = False
    for parameter in contract.parameters:
        kind, text = parameter.kind, parameter.name
        if kind is ParameterKind.NAME and not is_named:
            is_named = True
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
        if kind is ParameterKind.REST:
            text = f"*{text}"
        elif kind is ParameterKind.REST_NAMED:
            text = f"**{text}"
        if parameter.schema:
            text += f": {type_text(parameter.schema)}"
        if not parameter.required and kind not in (ParameterKind.REST, ParameterKind.REST_NAMED):
            text += f" = {msgspec.json.encode(parameter.default).decode()}"
        parts.append(text)
    by_place = [each for each in contract.parameters if each.kind is ParameterKind.PLACE]
    if by_place:
        parts.insert(len(by_place), "/")
    returns = f" -> {type_text(contract.returns)}" if contract.returns else ""
    return f"{name}({', '.join(parts)}){returns}"


def type_text(schema: Schema) -> str:
    """Write what a schema takes in a few characters."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(msgspec.json.encode(value).decode() for value in values)
    if isinstance(choices := schema.get("anyOf"), list):
        return " | ".join(type_text(each) for each in choices if isinstance(each, dict))
    kind = schema.get("type", "any")
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and items:
        return f"array[{type_text(items)}]"
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
