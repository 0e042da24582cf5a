"""The description of the API as others read it: `/api/openapi.json`, and a page at `/api/docs`.

The page is plain HTML that the broker writes; it loads nothing from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import MediaType, Response, get
from litestar.types import ControllerRouterHandler

from jackalope.doors.http.description import describe
from jackalope.doors.http.exchange import Answer, Asked, answer

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

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


@get("/api/openapi.json", opt={"permission": None})
async def read_description(request: Asked) -> Answer:
    """Return the description of the API, OpenAPI 3.1."""
    return answer(_description(request))


@get("/api/docs", opt={"permission": None})
async def read_page(request: Asked) -> Response[str]:
    """Return the description of the API as a page."""
    page = "".join(_page(_description(request)))
    return Response(page, media_type=MediaType.HTML, headers=_HEADERS)


def _description(request: Asked) -> dict[str, Any]:
    state = request.app.state
    if "description" not in state:
        state.description = describe(request.app)
    described: dict[str, Any] = state.description
    return described


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
            yield from _operation(path, method, operation)
    yield "<h2>shapes</h2>"
    for name, schema in described["components"]["schemas"].items():
        yield f"<details id='{escape(name)}'><summary><code>{escape(name)}</code> "
        yield f"{escape(schema.get('description', ''))}</summary>{_json(schema)}</details>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
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


def routes(_: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the description."""
    return [read_description, read_page]
