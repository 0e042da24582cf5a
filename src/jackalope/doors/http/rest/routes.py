"""The routes of the REST API, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litestar import Router
from litestar.types import ControllerRouterHandler

from jackalope.doors.http.request import with_options
from jackalope.doors.http.rest import (
    actions,
    api_keys,
    events,
    pools,
    queues,
    requests,
    stats,
    tasks,
    time_series,
    upload_links,
    worker_api,
    workers,
)

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

PATH = "/api/v1"

_NOUNS = (
    *(tasks, requests, upload_links, actions, queues, pools, workers, worker_api),
    *(stats, time_series, events, api_keys),
)


def routes(_: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the REST API."""
    handlers = with_options([handler for noun in _NOUNS for handler in noun.ROUTES])
    return [Router(PATH, route_handlers=handlers, opt={"namespace": True}), *events.UPDATES]
