"""The description of the API: OpenAPI 3.1, made of the shapes that the routes read and write.

Owns what a route says about itself (`spec`) and how that becomes one document. A route that says
nothing is left out. The schemas come from the same structs that check requests, so they are true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from jackalope import __version__
from jackalope.core.commands import Action
from jackalope.core.limits import NAME_CHARS_MAX, TAG_CHARS_MAX
from jackalope.doors.http.errors import MEANINGS, ErrorBody
from jackalope.doors.http.exchange import NAMESPACE_HEADER

#: What every route can answer, whatever it does.
_ALWAYS = (400, 401, 403, 429, 431, 500, 503)

_REF = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"

_BYTES: dict[str, Any] = {"application/octet-stream": {}}

#: What the parts of paths are.
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "task_id": {"type": "string", "pattern": _UUID},
    "identity": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "number": {"type": "integer", "minimum": 1, "maximum": 2**61},
    "tag": {"type": "string", "maxLength": TAG_CHARS_MAX, "pattern": "^[^\\x00/]+$"},
    "action": {"type": "string", "enum": [*(str(action) for action in Action), "cancel"]},
}
_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX}


class Spec(msgspec.Struct, frozen=True):
    """What a route takes and answers.

    Attributes:
        answer: the shape of a good answer; bytes for raw bytes; None for an empty one.
        status: the status of that.
        body: the shape of the body that it takes; bytes for raw bytes.
        query: the shape of its parameters.
        errors: statuses of errors beside those that every route has.
        also: other answers that are no errors, and what they mean; from 400 on of the same shape.
        needs_body: whether it can do without one.
    """

    answer: Any = None
    status: int = 200
    body: Any = None
    query: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()
    also: dict[int, str] = {}
    needs_body: bool = True
    media_type: str = "application/octet-stream"

    def __deepcopy__(self, _: dict[int, Any]) -> Spec:
        """Return itself: the framework copies handlers, and this never changes."""
        return self


def spec(permission: str, answer: Any = None, **more: Any) -> dict[str, Any]:
    """Say what a route needs and what it does; for the `opt` of its handler."""
    return {"permission": permission, "spec": Spec(answer, **more)}


def describe(app: Litestar) -> dict[str, Any]:
    """Describe every route that says something about itself."""
    described = list(_routes(app))
    shapes = {shape for _, _, handler in described for shape in _shapes_of(handler.opt["spec"])}
    schemas, components = msgspec.json.schema_components(sorted(shapes, key=str), ref_template=_REF)
    by_shape = dict(zip(sorted(shapes, key=str), schemas, strict=True))
    paths: dict[str, Any] = {}
    for path, method, handler in described:
        shown = _PATH_PARAMETER.sub(r"{\1}", path)
        paths.setdefault(shown, {})[method.lower()] = _operation(path, handler, by_shape)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Jackalope",
            "version": __version__,
            "description": "A durable task broker. Every error has the same body.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-KEY"},
            },
        },
        "security": [{}, {"key": []}, {"header": []}],
    }


def _routes(app: Litestar) -> Iterable[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if "spec" in handler.opt:
                    for method in handler.http_methods - {"HEAD"}:
                        yield route.path_format, method, handler


def _shapes_of(spec: Spec) -> Iterable[Any]:
    shapes = (spec.answer, spec.body, ErrorBody)
    return (shape for shape in shapes if shape is not None and shape is not bytes)


def _operation(path: str, handler: HTTPRouteHandler, schemas: dict[Any, Any]) -> dict[str, Any]:
    spec: Spec = handler.opt["spec"]
    about = cleandoc(handler.fn.__doc__ or "")
    summary, _, rest = about.partition("\n")
    parameters = [_path_parameter(name) for name in _PATH_PARAMETER.findall(path)]
    parameters += _query_parameters(spec)
    if handler.opt.get("namespace"):
        parameters.append(_namespace_parameter())
    operation: dict[str, Any] = {
        "operationId": handler.handler_name.split(".")[-1],
        "summary": summary.rstrip("."),
        "tags": [path.split("/")[3] if path.count("/") > 2 else path.strip("/")],
        "parameters": parameters,
        "responses": _responses(spec, schemas, has_names="{" in path),
        "x-permission": handler.opt["permission"],
    }
    if rest.strip():
        operation["description"] = rest.strip()
    if spec.body is not None:
        is_raw = spec.body is bytes
        content = _BYTES if is_raw else {"application/json": {"schema": schemas[spec.body]}}
        operation["requestBody"] = {"content": content, "required": spec.needs_body}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    schema = _PATH_SCHEMAS.get(name, _NAME_SCHEMA)
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(spec: Spec) -> Iterable[dict[str, Any]]:
    if spec.query is None:
        return
    _, components = msgspec.json.schema_components([spec.query], ref_template=_REF)
    shape = components[spec.query.__name__]
    for name, schema in shape["properties"].items():
        inlined = _inlined(schema, components)
        about = inlined.pop("description", "")
        is_needed = name in shape.get("required", ())
        yield {
            "name": name,
            "in": "query",
            "required": is_needed,
            "schema": inlined,
            **({"description": about} if about else {}),
        }


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """Put referred schemas in place: those of parameters are small, and used once."""
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(components[schema["$ref"].rpartition("/")[2]], components)
    return {key: _inlined(value, components) for key, value in schema.items()}


def _namespace_parameter() -> dict[str, Any]:
    about = "The namespace; else `namespace` in the query, else `default`."
    schema = {**_NAME_SCHEMA, "pattern": "^[!-~]+$"}
    return {"name": NAMESPACE_HEADER, "in": "header", "description": about, "schema": schema}


def _responses(spec: Spec, schemas: dict[Any, Any], *, has_names: bool) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if spec.answer is bytes:
        good["content"] = {spec.media_type: {}}
    elif spec.answer is not None:
        good["content"] = {"application/json": {"schema": schemas[spec.answer]}}
    responses = {str(spec.status): good}
    for status, about in spec.also.items():
        responses[str(status)] = (
            {**good, "description": about} if status >= 400 else {"description": about}
        )
    bad = {*spec.errors, *_ALWAYS, *((413, 415) if spec.body is not None else ())}
    if has_names:
        bad |= {404, 405}  # A name with a slash in it leads elsewhere.
    for status in sorted(bad - spec.also.keys()):
        content = {"application/json": {"schema": schemas[ErrorBody]}}
        responses[str(status)] = {"description": MEANINGS[status], "content": content}
        if status in (429, 503):
            seconds = {"schema": {"type": "integer", "minimum": 1}}
            responses[str(status)]["headers"] = {"Retry-After": seconds}
    return responses
