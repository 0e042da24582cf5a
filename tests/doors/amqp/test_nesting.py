"""Values at and past every depth, over the management API. RabbitMQ has no such limit."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from jackalope.core.limits import DEPTH_MAX
from tests.doors.amqp.harness import PATIENCE_S, Broker
from tests.wire.shapes import DEPTHS, nested_json


@pytest.fixture
def api(ours: Broker) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{ours.management_port}/api"
    with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=PATIENCE_S) as client:
        yield client


@pytest.mark.parametrize("depth", DEPTHS)
def test_nested_values(api: httpx.Client, depth: int) -> None:
    """A value is taken or refused, whatever request carries it."""
    name, value = uuid4().hex, nested_json(depth, "map")
    answers = {
        # By how many levels the body itself is deeper.
        2: api.put(f"/queues/%2F/{name}", content=b'{"arguments":{"h":%b}}' % value),
        1: api.put(f"/exchanges/%2F/{name}", content=b'{"type":"fanout","arguments":%b}' % value),
        3: api.post(
            "/exchanges/%2F/amq.fanout/publish",
            content=b'{"properties":{"headers":{"h":%b}},"routing_key":"","payload":"",'
            b'"payload_encoding":"string"}' % value,
        ),
    }
    for more, answer in answers.items():
        is_taken = depth + more <= DEPTH_MAX
        assert answer.status_code in ((200, 201, 204) if is_taken else (400,)), answer.text
    rule = api.put(f"/policies/%2F/{name}", content=b'{"pattern":"x","definition":%b}' % value)
    assert rule.status_code in (201, 400)
    assert api.get("/overview").status_code == 200


@pytest.mark.parametrize("value", ["1180591620717411303424", "-1180591620717411303424"])
def test_numbers_beyond_64_bits(api: httpx.Client, value: str) -> None:
    body = f'{{"arguments":{{"h":{value}}}}}'.encode()
    assert api.put(f"/queues/%2F/{uuid4().hex}", content=body).status_code == 400
    assert api.get("/overview").status_code == 200
