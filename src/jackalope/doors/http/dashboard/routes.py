"""The routes of the dashboard, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litestar.types import ControllerRouterHandler

from jackalope.doors.http.dashboard import live_state, page, sign_in

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor


def routes(_: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the dashboard."""
    return [*page.ROUTES, *sign_in.ROUTES, *live_state.ROUTES]
