"""Methods: the answer to OPTIONS, which says what a path knows.

The framework's own answer names only the methods that were registered first.
"""

from __future__ import annotations

from collections.abc import Sequence

from litestar import HttpMethod, Response, route
from litestar.handlers import HTTPRouteHandler
from litestar.types import ControllerRouterHandler

from jackalope.doors.http.exchange import Asked


def with_options(handlers: Sequence[ControllerRouterHandler]) -> list[ControllerRouterHandler]:
    """Return handlers, and before them one that answers OPTIONS for all their paths."""
    paths = {path for each in handlers if isinstance(each, HTTPRouteHandler) for path in each.paths}
    options = route(sorted(paths), http_method=HttpMethod.OPTIONS, opt={"permission": None})
    return [options(read_methods), *handlers]


async def read_methods(request: Asked) -> Response[None]:
    """Return the methods that a path knows."""
    template = request.scope["path_template"]
    methods = next(each.methods for each in request.app.routes if each.path_format == template)
    return Response(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})
