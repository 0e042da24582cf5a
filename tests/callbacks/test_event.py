"""Callbacks as receivers see them: CloudEvents, and their signatures."""

from __future__ import annotations

import hmac
from typing import Any

import msgspec
import pytest

from jackalope.broker.config.callbacks import SigningKey
from jackalope.callbacks.event import encode_event
from jackalope.callbacks.signature import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from jackalope.core.ids import TaskId
from jackalope.core.shapes.callback import BATCH_EVENT, Notice

CALLBACK = TaskId(bytes(range(16)))
ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
NOTICE = Notice(
    url="https://example.org/",
    type="jackalope.task.succeeded",
    namespace="default",
    queue="images of cats",
    at_us=1_700_000_000_123_456,
    task="018bcfe5-0000-7000-8000-000000000000",
    name="resize",
    key="k",
    state="succeeded",
    created_us=1_699_999_999_000_000,
    attempts=2,
    batch=3,
)


def shown(base_url: str = "", **changes: Any) -> dict[str, Any]:
    notice = msgspec.structs.replace(NOTICE, **changes)
    event: dict[str, Any] = msgspec.json.decode(encode_event(CALLBACK, notice, base_url))
    return event


def test_an_event_has_what_cloudevents_asks_for() -> None:
    event = shown("https://broker.example/")
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": ID,
        "source": "https://broker.example/namespaces/default/queues/images%20of%20cats",
        "type": "jackalope.task.succeeded",
        "subject": NOTICE.task,
        "time": "2023-11-14T22:13:20.123456Z",
        "datacontenttype": "application/json",
    }
    link = f"https://broker.example/api/v1/tasks/{NOTICE.task}"
    assert data == {
        "task": NOTICE.task,
        "namespace": "default",
        "queue": "images of cats",
        "name": "resize",
        "key": "k",
        "state": "succeeded",
        "reason": None,
        "error": None,
        "created_at": "2023-11-14T22:13:19Z",
        "ended_at": "2023-11-14T22:13:20.123456Z",
        "attempts": 2,
        "batch": 3,
        "link": link,
        "result_size": 0,
        "result_link": None,
    }


def test_another_namespace_is_named_in_links() -> None:
    data = shown(namespace="a b", result_size=9)["data"]
    assert data["link"] == f"/api/v1/tasks/{NOTICE.task}?namespace=a%20b"
    assert data["result_link"] == f"/api/v1/tasks/{NOTICE.task}/result?namespace=a%20b"


def test_a_batch() -> None:
    event = shown(type=BATCH_EVENT, task="")
    assert event["subject"] == "batch 3"
    assert event["data"] == {
        "namespace": "default",
        "queue": "images of cats",
        "batch": 3,
        "ended_at": "2023-11-14T22:13:20.123456Z",
        "link": "/api/v1/tasks?queue=images%20of%20cats&batch=3",
    }


def test_an_error() -> None:
    data = shown(state="dead", reason="failed", error_type="Oh", error_message="no")["data"]
    assert (data["reason"], data["error"]) == ("failed", {"type": "Oh", "message": "no"})


@pytest.mark.parametrize(
    ("content", "result", "found"),
    [
        ("", msgspec.msgpack.encode({"a": [1, None, "ü"]}), {"result": {"a": [1, None, "ü"]}}),
        ("msgpack", msgspec.msgpack.encode(b"\x00\x01"), {"result": "AAE="}),
        ("json", b'{"a": 1}', {"result": {"a": 1}}),
        ("bytes", b"\xff\x00", {"result_base64": "/wA="}),
        ("", b"\xc1", {}),
        ("", msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")), {}),
        ("json", b"{", {}),
    ],
)
def test_a_result_as_json_where_it_has_a_form(
    content: str, result: bytes, found: dict[str, Any]
) -> None:
    data = shown(result=result, result_size=len(result), content=content)["data"]
    assert {name: data[name] for name in data if name in ("result", "result_base64")} == found
    assert data["result_link"]


# Signatures.

OLD, NEW = SigningKey("old", b"o" * 16), SigningKey("new", b"n" * 16)


def test_every_key_signs() -> None:
    headers = sign((NEW, OLD), 1_700_000_000, b"{}")
    assert headers[TIMESTAMP_HEADER] == "1700000000"
    signed = b"1700000000.{}"
    assert headers[SIGNATURE_HEADER].split(", ") == [
        f"{key.name}={hmac.new(key.secret, signed, 'sha256').hexdigest()}" for key in (NEW, OLD)
    ]


def test_without_a_key_nothing_is_signed() -> None:
    assert sign((), 1, b"") == {}
