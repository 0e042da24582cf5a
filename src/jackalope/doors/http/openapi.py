"""The description of the API: OpenAPI 3.1, made of the shapes that the routes read and write.

Owns how what routes declare about themselves (`Spec`) becomes one document. A route without it is
left out. The schemas come from the same structs that check requests, so they are true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from inspect import cleandoc
from typing import Any

import msgspec

from jackalope import __version__
from jackalope.core.commands import Action
from jackalope.core.limits import NAME_CHARS_MAX, TAG_CHARS_MAX
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.errors import MEANINGS, ErrorBody
from jackalope.doors.http.request import NAMESPACE_HEADER, Request, answer
from jackalope.doors.http.router import Route, Routes, Spec

routes = Routes()


#: What every route can answer, whatever it does.
_ALWAYS = (400, 401, 403, 429, 431, 500, 503)

_REF = "#/components/schemas/{name}"
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


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Describe every route that declares a `spec`."""
    described = [
        (route, route.spec) for route in routes if route.spec is not None and route.method != "HEAD"
    ]
    shapes = {shape for _, spec in described for shape in _shapes_of(spec)}
    schemas, components = msgspec.json.schema_components(sorted(shapes, key=str), ref_template=_REF)
    by_shape = dict(zip(sorted(shapes, key=str), schemas, strict=True))
    paths: dict[str, Any] = {}
    for route, spec in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, spec, by_shape)
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


def _shapes_of(spec: Spec) -> Iterable[Any]:
    shapes = (spec.answer, spec.body, ErrorBody)
    return (shape for shape in shapes if shape is not None and shape is not bytes)


def _operation(route: Route, spec: Spec, schemas: dict[Any, Any]) -> dict[str, Any]:
    path = route.path
    about = cleandoc(route.handler.__doc__ or "")
    summary, _, rest = about.partition("\n")
    parameters = [_path_parameter(name) for name in route.parameters()]
    parameters += _query_parameters(spec)
    if route.has_namespace:
        parameters.append(_namespace_parameter())
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": summary.rstrip("."),
        "tags": [path.split("/")[3] if path.count("/") > 2 else path.strip("/")],
        "parameters": parameters,
        "responses": _responses(spec, schemas, has_names="{" in path),
        "x-permission": route.needs or "",
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
        good["content"] |= {other: {} for other in spec.other_types}
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


# The description of the API as others read it: `/api/openapi.json`, and a page at `/api/docs`.

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-weight:600}h2{border-bottom:1px solid #8884;margin-top:2.5rem}
summary{cursor:pointer;padding:.3rem 0}summary b{display:inline-block;width:4.5rem}
code,pre,b{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:#8881;padding:.8rem;overflow-x:auto;border-radius:.4rem}
table{border-collapse:collapse;width:100%}td{padding:.2rem .8rem .2rem 0;vertical-align:top}
details>*:not(summary){margin-left:1.2rem}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}a{color:#9cf}}
"""

_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@routes.get("/api/openapi.json", "")
async def read_description(request: Request) -> Response:
    """Return the description of the API, OpenAPI 3.1."""
    return answer(_description(request))


@routes.get("/api/docs", "")
async def read_page(request: Request) -> Response:
    """Return the description of the API as a page."""
    page = "".join(_page(_description(request)))
    return Response(page.encode(), headers=_HEADERS, media_type="text/html; charset=utf-8")


def _description(request: Request) -> dict[str, Any]:
    app = request.app
    if app.description is None:
        app.description = describe(app.routes)
    return app.description


def _page(described: dict[str, Any]) -> Iterator[str]:
    info = described["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
    yield f"<p>{escape(info['description'])} For programs: "
    yield "<a href='/api/openapi.json'>openapi.json</a>.</p>"
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((path, method, operation))
    for tag, operations in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        for path, method, operation in operations:
            yield from _operation_lines(path, method, operation)
    yield "<h2>shapes</h2>"
    for name, schema in described["components"]["schemas"].items():
        yield f"<details id='{escape(name)}'><summary><code>{escape(name)}</code> "
        yield f"{escape(schema.get('description', ''))}</summary>{_json(schema)}</details>"


def _operation_lines(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
    yield f"{escape(operation['summary'])}</summary>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    yield f"<p>Permission: <code>{escape(str(operation['x-permission']))}</code></p><table>"
    for parameter in operation["parameters"]:
        yield f"<tr><td><code>{escape(parameter['name'])}</code><td>{parameter['in']}"
        yield f"<td>{escape(parameter.get('description', ''))}"
    for status, response in operation["responses"].items():
        yield f"<tr><td><b>{status}</b><td>{_shapes(response)}<td>{escape(response['description'])}"
    yield "</table>"
    if "requestBody" in operation:
        yield f"<p>Body: {_shapes(operation['requestBody'])}</p>"
    yield "</details>"


def _shapes(part: dict[str, Any]) -> str:
    """Name what a body is made of, with a link to its shape."""
    words = []
    for media_type, content in part.get("content", {}).items():
        reference = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        link = f" <a href='#{escape(reference)}'>{escape(reference)}</a>" if reference else ""
        words.append(f"<code>{escape(media_type)}</code>{link}")
    return ", ".join(words)


def _json(schema: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(schema), indent=1).decode()
    return f"<pre>{escape(text)}</pre>"
