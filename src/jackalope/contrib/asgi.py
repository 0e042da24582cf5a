"""For Starlette, FastAPI and Litestar: a connection that lives as long as the application.

Owns nothing but the order: connected before the first request, closed after the last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from jackalope.client.app import Jackalope

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app: Jackalope, inner: Lifespan | None = None) -> Lifespan:
    """Return a lifespan that connects an application to its broker, and closes it at the end.

        api = FastAPI(lifespan=lifespan(jackalope))       # Starlette likewise
        api = Litestar(..., lifespan=[lifespan(jackalope)])

    With Starlette and FastAPI, `request.state.jackalope` is the application.

    Args:
        app: the application.
        inner: a lifespan of your own, which runs within.
    """

    @asynccontextmanager
    async def manage(web: Any) -> AsyncIterator[dict[str, Any]]:
        async with app:
            if inner is None:
                yield {"jackalope": app}
            else:
                async with inner(web) as state:
                    yield {**(state or {}), "jackalope": app}

    return manage
