"""Events: a callback as a CloudEvent 1.0 in structured JSON.

Owns the fields that receivers see. Knows nothing of HTTP.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from jackalope.core.commands import DEFAULT_NAMESPACE
from jackalope.core.durations import SECOND
from jackalope.core.ids import TaskId, id_text
from jackalope.core.shapes.callback import Notice

MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"


def encode_event(callback: TaskId, notice: Notice, base_url: str) -> bytes:
    """Return the body of a callback. Its `id` is the same whenever it is delivered again."""
    namespace, queue = quote(notice.namespace, safe=""), quote(notice.queue, safe="")
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": id_text(callback),
        "source": f"{base_url.rstrip('/')}/namespaces/{namespace}/queues/{queue}",
        "type": notice.type,
        "subject": notice.task or f"batch {notice.batch}",
        "time": _time(notice.at_us),
        "datacontenttype": "application/json",
    }
    data = _about_task(notice, base_url) if notice.task else _about_batch(notice, base_url)
    if notice.result is not None:
        try:
            return msgspec.json.encode({**event, "data": {**data, **_result(notice)}})
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            pass  # It has no form in JSON; the link leads to it.
    return msgspec.json.encode({**event, "data": data})


def _about_task(notice: Notice, base_url: str) -> dict[str, Any]:
    at, which = f"{base_url.rstrip('/')}/api/v1/tasks/{notice.task}", _which(notice, "?")
    error = {"type": notice.error_type, "message": notice.error_message}
    return {
        "task": notice.task,
        "namespace": notice.namespace,
        "queue": notice.queue,
        "name": notice.name,
        "key": notice.key,
        "state": notice.state,
        "reason": notice.reason or None,
        "error": error if notice.error_type else None,
        "created_at": _time(notice.created_us),
        "ended_at": _time(notice.at_us),
        "attempts": notice.attempts,
        "batch": notice.batch,
        "link": at + which,
        "result_size": notice.result_size,
        "result_link": f"{at}/result{which}" if notice.result_size else None,
    }


def _about_batch(notice: Notice, base_url: str) -> dict[str, Any]:
    query = f"queue={quote(notice.queue, safe='')}&batch={notice.batch}{_which(notice, '&')}"
    return {
        "namespace": notice.namespace,
        "queue": notice.queue,
        "batch": notice.batch,
        "ended_at": _time(notice.at_us),
        "link": f"{base_url.rstrip('/')}/api/v1/tasks?{query}",
    }


def _which(notice: Notice, sign: str) -> str:
    """Return the part of a link that names the namespace, unless that is the default one."""
    if notice.namespace == DEFAULT_NAMESPACE:
        return ""
    return f"{sign}namespace={quote(notice.namespace, safe='')}"


def _result(notice: Notice) -> dict[str, Any]:
    """Return the result as a value of JSON, or in base64 if it is only bytes."""
    result = notice.result or b""
    if notice.content == "bytes":
        return {"result_base64": b64encode(result).decode()}
    if notice.content == "json":
        return {"result": msgspec.json.decode(result)}
    return {"result": msgspec.msgpack.decode(result)}


def _time(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us // SECOND, UTC).replace(microsecond=at_us % SECOND)
    return moment.isoformat().replace("+00:00", "Z")
