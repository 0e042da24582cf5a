"""The routes of the REST API, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litestar import Router
from litestar.types import ControllerRouterHandler

from jackalope.doors.http.request import with_options
from jackalope.doors.http.rest import (
    actions,
    events,
    pools,
    queues,
    requests,
    stats,
    tasks,
    workers,
)
from jackalope.doors.http.rest import api_keys as keys
from jackalope.doors.http.rest import time_series as series
from jackalope.doors.http.rest import upload_links as blobs
from jackalope.doors.http.rest import worker_api as working

if TYPE_CHECKING:
    from jackalope.doors.http.server import HttpDoor

PATH = "/api/v1"

_NOUNS = (
    *(tasks, requests, blobs, actions, queues, pools, workers, working),
    *(stats, series, events, keys),
)


def routes(_: HttpDoor) -> Sequence[ControllerRouterHandler]:
    """Return the routes of the REST API."""
    handlers = with_options([handler for noun in _NOUNS for handler in noun.ROUTES])
    return [Router(PATH, route_handlers=handlers, opt={"namespace": True}), *events.UPDATES]
