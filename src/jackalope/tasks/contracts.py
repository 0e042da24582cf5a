"""Contracts of tasks: what a function takes and returns, as a broker is told.

Owns the way from annotations to JSON Schema. What has no schema may be anything: then the worker is
the first that looks at it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import suppress
from inspect import Parameter as PythonParameter
from pathlib import PurePath
from typing import Any

import msgspec

from jackalope.core.limits import CONTRACT_BYTES_MAX
from jackalope.core.shapes.contract import (
    CallContent,
    Contract,
    Parameter,
    ParameterKind,
    Schema,
    contract_problems,
)
from jackalope.tasks.definition import TaskDefinition

_KINDS = {
    PythonParameter.POSITIONAL_ONLY: ParameterKind.PLACE,
    PythonParameter.POSITIONAL_OR_KEYWORD: ParameterKind.ANY,
    PythonParameter.KEYWORD_ONLY: ParameterKind.NAME,
    PythonParameter.VAR_POSITIONAL: ParameterKind.REST,
    PythonParameter.VAR_KEYWORD: ParameterKind.REST_NAMED,
}
_REST = (ParameterKind.REST, ParameterKind.REST_NAMED)

_DOC_CHARS_MAX = 2_000
_REF_TEMPLATE = "#/$defs/{name}"


def contracts_of(definitions: Iterable[TaskDefinition]) -> dict[str, dict[str, Any]]:
    """Return the contracts of tasks by their names, as a broker takes them."""
    return {
        definition.name: msgspec.to_builtins(contract_of(definition)) for definition in definitions
    }


def contract_of(definition: TaskDefinition) -> Contract:
    """Return what a task takes and returns."""
    shape, definitions = definition.shape, dict[str, Schema]()
    parameters = tuple(
        _parameter(each, shape.kinds[each.name], definitions) for each in shape.parameters
    )
    doc = inspect.getdoc(definition.function) or ""
    contract = Contract(
        version=definition.fingerprint,
        parameters=parameters,
        returns=_schema(shape.returns, definitions),
        definitions=definitions,
        content=CallContent(definition.content),
        doc=doc[:_DOC_CHARS_MAX],
    )
    with suppress(TypeError, ValueError, OverflowError):  # Such as a bound beyond 64 bits.
        if not contract_problems(contract):
            return contract
    # Types that are too large to be told: the names of the parameters are left.
    plain = tuple(msgspec.structs.replace(each, schema={}, default=None) for each in parameters)
    return Contract(version=contract.version, parameters=plain, content=contract.content)


def _parameter(parameter: PythonParameter, kind: Any, definitions: dict[str, Schema]) -> Parameter:
    how = _KINDS[parameter.kind]
    is_required = parameter.default is PythonParameter.empty and how not in _REST
    default = None if parameter.default is PythonParameter.empty else parameter.default
    schema = _schema(kind, definitions)
    return Parameter(parameter.name, how, schema, is_required, _plain(default))


def _plain(value: Any) -> Any:
    """Return a default as JSON and MessagePack can say it; None where they cannot."""
    try:
        data = msgspec.json.encode(value)
        plain = msgspec.json.decode(data)
        msgspec.msgpack.encode(plain)
    except Exception:  # noqa: BLE001  a type of the application may raise anything
        return None
    return plain if len(data) < CONTRACT_BYTES_MAX else None


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type; an empty one if it has none, or another has its name."""
    if kind in (Any, PythonParameter.empty):
        return {}
    try:
        [schema], found = msgspec.json.schema_components(
            [kind], schema_hook=_foreign, ref_template=_REF_TEMPLATE
        )
        for name, each in [*found.items(), *dict(schema.pop("$defs", {})).items()]:
            if definitions.setdefault(name, each) != each:
                return {}
    except Exception:  # noqa: BLE001  a foreign `model_json_schema` may raise anything
        return {}
    return schema


def _foreign(kind: type) -> Schema:
    """Return the schema of a type that msgspec does not know; see `serialization.from_plain`."""
    if issubclass(kind, PurePath):
        return {"type": "string"}
    describe = getattr(kind, "model_json_schema", None)
    return {} if describe is None else dict(describe())
