"""The management API: the same requests to RabbitMQ's plugin and to ours, field by field."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest

from tests.doors.amqp.harness import PATIENCE_S, Broker

#: What tools read of each kind of thing. Both have these fields, and of the same types.
FIELDS = {
    "overview": (
        "management_version rabbitmq_version cluster_name node object_totals queue_totals "
        "exchange_types listeners rates_mode product_name product_version"
    ),
    "connections": (
        "name vhost user state protocol host port peer_host peer_port channels channel_max "
        "frame_max timeout client_properties connected_at ssl node type auth_mechanism"
    ),
    "channels": (
        "name number vhost user state confirm transactional consumer_count prefetch_count "
        "global_prefetch_count messages_unacknowledged connection_details node"
    ),
    "consumers": (
        "consumer_tag queue ack_required exclusive prefetch_count active activity_status "
        "arguments channel_details"
    ),
    "queues": (
        "name vhost durable auto_delete exclusive arguments node state type messages "
        "messages_ready messages_unacknowledged consumers effective_policy_definition"
    ),
    "exchanges": "name vhost type durable auto_delete internal arguments",
    "bindings": "source vhost destination destination_type routing_key arguments properties_key",
    "vhosts": "name tracing cluster_state messages messages_ready messages_unacknowledged tags",
    "nodes": "name type running os_pid uptime processors mem_alarm disk_free_alarm partitions",
}


#: What is inside these is the peer's own, or the broker's.
NESTED = frozenset(
    {
        "arguments",
        "channel_details",
        "client_properties",
        "cluster_state",
        "exchange_types",
        "listeners",
        "object_totals",
        "queue_totals",
    }
)


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=broker.management_url, auth=("guest", "guest"), timeout=PATIENCE_S
    ) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"m-{uuid.uuid4().hex}"


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """Look until it is so: RabbitMQ shows its numbers a little late."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def kinds(value: Any) -> Any:
    """Return the types of an object's values; a number is a number."""
    if isinstance(value, dict):
        return {key: kinds(each) for key, each in value.items()}
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
    )


@pytest.mark.parametrize("kind", FIELDS)
def test_things_have_the_fields_that_tools_read(
    kind: str, ours: Broker, rabbitmq: Broker, name: str
) -> None:
    shown = [seen(broker, kind, name) for broker in (ours, rabbitmq)]
    assert shown[0] == shown[1]


def seen(broker: Broker, kind: str, name: str) -> dict[str, Any]:
    """Return the types of the fields of a thing, while somebody is connected."""
    wanted = FIELDS[kind].split()
    with (
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
        httpx.Client(base_url=broker.management_url, auth=("guest", "guest")) as client,
    ):
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.basic_consume(name, lambda *_: None)

        def look() -> Any:
            found = client.get(f"/{kind}").json()
            items = [found] if isinstance(found, dict) else found
            mine = [each for each in items if name in str(each)]
            return (mine or items or [{}])[0]

        item = until(look, lambda item: all(key in item for key in wanted))
    return {key: kinds(item[key]) for key in wanted if key not in NESTED}


@pytest.mark.parametrize("odd", ["a/b", "/", "%2F", "100%", "a b", "a?b", "a#b", "a+b", "ü/日"])
def test_any_name_is_one_part_of_a_path(api: httpx.Client, name: str, odd: str) -> None:
    called = f"{name}{odd}"
    for kind, body in (("queues", {"durable": True}), ("exchanges", {"type": "fanout"})):
        path = f"/{kind}/%2F/{quote(called, safe='')}"
        assert api.put(path, json=body).status_code == 201
        assert api.get(path).json()["name"] == called
        assert api.delete(path).status_code == 204
        assert api.get(path).status_code == 404


def test_queues(api: httpx.Client, name: str) -> None:
    path = f"/queues/%2F/{name}"
    body = {"durable": True, "arguments": {"x-max-length": 5}}
    assert api.put(path, json=body).status_code == 201
    assert api.put(path, json=body).status_code == 204
    other = api.put(path, json={"durable": False})
    assert other.status_code == 400
    assert other.json()["error"] == "bad_request"
    assert other.json()["reason"] == (
        f"inequivalent arg 'durable' for queue '{name}' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    found = until(lambda: api.get(path).json(), lambda found: "messages" in found)
    assert found["arguments"] == {"x-max-length": 5}
    assert (found["durable"], found["auto_delete"], found["exclusive"]) == (True, False, False)
    assert (found["name"], found["vhost"], found["type"]) == (name, "/", "classic")
    assert api.get(path, params={"columns": "name,durable"}).json() == {
        "name": name,
        "durable": True,
    }
    assert name in [each["name"] for each in api.get("/queues").json()]
    assert api.delete(f"{path}/contents").status_code == 204
    assert api.delete(path, params={"if-unused": "true"}).status_code == 204
    gone = api.delete(path)
    assert (gone.status_code, gone.json()) == (
        404,
        {"error": "Object Not Found", "reason": "Not Found"},
    )
    assert api.get(path).status_code == 404


def test_the_list_without_numbers(api: httpx.Client, name: str) -> None:
    """What osrdyne asks for, field by field."""
    assert api.put(f"/queues/%2F/{name}", json={}).status_code == 201
    found = api.get("/queues/%2F", params={"disable_stats": "true"}).json()
    mine = [each for each in found if each["name"] == name]
    assert [{key: value for key, value in each.items() if key != "node"} for each in mine] == [
        {
            "arguments": {},
            "auto_delete": False,
            "durable": False,
            "exclusive": False,
            "name": name,
            "state": "live",
            "type": "classic",
            "vhost": "/",
        }
    ]
    api.delete(f"/queues/%2F/{name}")


def test_pages(api: httpx.Client, name: str) -> None:
    for number in range(3):
        api.put(f"/queues/%2F/{name}-{number}", json={})
    asked = {"page": "2", "page_size": "2", "name": name, "columns": "name"}
    found = api.get("/queues/%2F", params=asked).json()
    total = found.pop("total_count")
    assert total >= 3
    assert found == {
        "filtered_count": 3,
        "item_count": 1,
        "items": [{"name": f"{name}-2"}],
        "page": 2,
        "page_count": 2,
        "page_size": 2,
    }
    assert api.get("/queues", params={"page": "999", "page_size": "2"}).status_code == 400
    for number in range(3):
        api.delete(f"/queues/%2F/{name}-{number}")


def test_exchanges_and_bindings(api: httpx.Client, name: str) -> None:
    exchange, queue = f"/exchanges/%2F/{name}", f"/queues/%2F/{name}"
    assert api.put(exchange, json={"type": "topic"}).status_code == 201
    assert api.put(exchange, json={"type": "topic"}).status_code == 204
    assert api.put(exchange, json={"type": "fanout"}).status_code == 400
    assert api.put(f"{exchange}-x", json={"type": "spiral"}).json()["reason"] == (
        "unknown exchange type 'spiral'"
    )
    api.put(queue, json={})
    between = f"/bindings/%2F/e/{name}/q/{name}"
    bound = api.post(between, json={"routing_key": "a.#"})
    assert (bound.status_code, bound.headers["location"]) == (201, f"{name}/a.%2523")
    assert api.post(between, json={}).headers["location"] == f"{name}/~"
    assert api.post(f"/bindings/%2F/e/{name}/q/nowhere", json={}).status_code == 404
    assert api.post(f"/bindings/%2F/e/{name}/e/amq.fanout", json={}).status_code == 201
    plain = {
        "source": name,
        "vhost": "/",
        "destination": name,
        "destination_type": "queue",
        "routing_key": "",
        "arguments": {},
        "properties_key": "~",
    }
    keyed = plain | {"routing_key": "a.#", "properties_key": "a.%23"}
    assert api.get(between).json() == [plain, keyed]
    assert api.get(f"{between}/~").json() == plain
    own = plain | {"source": "", "routing_key": name, "properties_key": name}
    assert api.get(f"{queue}/bindings").json() == [own, plain, keyed]
    assert len(api.get(f"{exchange}/bindings/source").json()) == 3
    assert api.delete(f"{between}/a.%2523").status_code == 204
    assert api.get(between).json() == [plain]
    assert api.delete(f"{between}/nothing").status_code == 404
    assert api.delete(exchange).status_code == 204
    assert api.get(exchange).status_code == 404
    assert api.get(between).json() == []
    api.delete(queue)


def test_publish_and_get(api: httpx.Client, name: str) -> None:
    queue, publish = f"/queues/%2F/{name}", "/exchanges/%2F/amq.default/publish"
    api.put(queue, json={})
    message = {
        "properties": {"headers": {"a": 1}, "delivery_mode": 2, "type": "greeting"},
        "routing_key": name,
        "payload": "hello",
        "payload_encoding": "string",
    }
    assert api.post(publish, json=message).json() == {"routed": True}
    raw = message | {"properties": {}, "payload": "/w==", "payload_encoding": "base64"}
    assert api.post(publish, json=raw).json() == {"routed": True}
    assert api.post(publish, json=raw | {"routing_key": "nowhere"}).json() == {"routed": False}
    nowhere = api.post("/exchanges/%2F/nowhere/publish", json=raw)
    assert nowhere.status_code == 400
    assert nowhere.json()["reason"] == "404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    missing = api.post(publish, json={"routing_key": "k", "payload": "x"})
    assert missing.json()["reason"] == "[{key_missing,properties},{key_missing,payload_encoding}]"
    look = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first = {
        "payload_bytes": 5,
        "redelivered": False,
        "exchange": "",
        "routing_key": name,
        "message_count": 1,
        "properties": {"delivery_mode": 2, "headers": {"a": 1}, "type": "greeting"},
        "payload": "hello",
        "payload_encoding": "string",
    }
    second = first | {
        "payload_bytes": 1,
        "message_count": 0,
        "properties": [],
        "payload": "/w==",
        "payload_encoding": "base64",
    }
    assert api.post(f"{queue}/get", json=look).json() == [first, second]
    take = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 2}
    assert api.post(f"{queue}/get", json=take).json() == [
        first | {"redelivered": True, "payload": "he"}
    ]
    assert [each["payload"] for each in api.post(f"{queue}/get", json=look).json()] == ["/w=="]
    api.delete(queue)


def test_policies(api: httpx.Client, broker: Broker, name: str) -> None:
    policy, queue = f"/policies/%2F/{name}", f"/queues/%2F/{name}"
    api.put(queue, json={})
    wanted = {
        "pattern": f"^{name}",
        "definition": {"message-ttl": 50, "max-length": 9},
        "priority": 3,
    }
    assert api.put(policy, json=wanted | {"apply-to": "queues"}).status_code == 201
    assert api.put(policy, json=wanted | {"apply-to": "queues"}).status_code == 204
    assert api.get(policy).json() == wanted | {"vhost": "/", "name": name, "apply-to": "queues"}
    until(lambda: api.get(queue).json().get("policy"), lambda policy: policy == name)
    assert api.get(queue).json()["effective_policy_definition"] == wanted["definition"]
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_publish("", name, b"short-lived")
        until(
            lambda: channel.queue_declare(name, passive=True).method.message_count, lambda n: not n
        )
    for bad in (
        {"definition": {"message-ttl": 1}},
        wanted | {"pattern": "("},
        wanted | {"definition": {"message-ttl": "soon"}},
        wanted | {"definition": {"unheard-of": 1}},
    ):
        assert api.put(policy, json=bad).status_code == 400
    assert api.delete(policy).status_code == 204
    assert api.delete(policy).status_code == 404
    until(lambda: api.get(queue).json().get("policy"), lambda policy: policy is None)
    api.delete(queue)


def test_a_policy_of_osrdyne(api: httpx.Client, broker: Broker, name: str) -> None:
    """It writes `apply_to`, which RabbitMQ overlooks; we heed it."""
    body = {
        "pattern": f"{name}-req-xchg",
        "definition": {"dead-letter-exchange": "dl", "alternate-exchange": "orphans"},
        "priority": 10,
        "apply_to": "exchanges",
    }
    path = f"/policies/%2F/{name}-req-xchg"
    assert api.put(path, json=body).status_code == 201
    heeded = "exchanges" if broker.name == "ours" else "all"
    assert api.get(path).json()["apply-to"] == heeded
    assert api.delete(path).status_code == 204


def test_definitions_go_from_one_broker_to_another(
    api: httpx.Client, broker: Broker, name: str
) -> None:
    sent = {
        "queues": [
            {
                "name": name,
                "vhost": "/",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-max-length": 7},
            }
        ],
        "exchanges": [
            {
                "name": name,
                "vhost": "/",
                "type": "topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
        ],
        "bindings": [
            {
                "source": name,
                "vhost": "/",
                "destination": name,
                "destination_type": "queue",
                "routing_key": "a.#",
                "arguments": {},
            }
        ],
        "policies": [
            {
                "vhost": "/",
                "name": name,
                "pattern": f"^{name}$",
                "apply-to": "queues",
                "definition": {"max-length": 5},
                "priority": 0,
            }
        ],
    }
    assert api.post("/definitions", json=sent).status_code == 204
    got = api.get("/definitions").json()
    mine = {kind: [each for each in got[kind] if name in str(each)] for kind in sent}
    assert mine == sent
    if broker.name == "ours":
        # What it exports, it takes. RabbitMQ does so too, but takes its time over users.
        assert api.post("/definitions", json=got).status_code == 204
    for path in ("queues", "exchanges", "policies"):
        assert api.delete(f"/{path}/%2F/{name}").status_code == 204


def test_virtual_hosts(api: httpx.Client, broker: Broker, name: str) -> None:
    assert api.put(f"/vhosts/{name}").status_code == 201
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/{name}"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("inside", durable=True)
        assert [each["name"] for each in api.get(f"/queues/{name}").json()] == ["inside"]
        assert name in [each["name"] for each in api.get("/vhosts").json()]
        assert "inside" not in [each["name"] for each in api.get("/queues/%2F").json()]
    assert api.delete(f"/vhosts/{name}").status_code == 204
    assert api.delete(f"/vhosts/{name}").status_code == 404


def test_what_is_connected(api: httpx.Client, broker: Broker, name: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare(name, auto_delete=True)
        channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        found = until(
            lambda: [each for each in api.get("/consumers").json() if each["consumer_tag"] == name],
            lambda found: found and found[0]["channel_details"],
        )[0]
        assert (found["ack_required"], found["prefetch_count"]) == (True, 7)
        assert found["queue"] == {"name": name, "vhost": "/"}
        where = found["channel_details"]["connection_name"]
        link = until(lambda: api.get(f"/connections/{where}"), lambda told: told.status_code == 200)
        assert link.json()["client_properties"]["product"] == "Pika Python Client Library"
        detail = until(
            lambda: api.get(f"/queues/%2F/{name}").json(), lambda each: each.get("consumer_details")
        )
        assert detail["consumer_details"][0]["consumer_tag"] == name
        closed = api.delete(f"/connections/{where}", headers={"X-Reason": "enough"})
        assert closed.status_code == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as error:
            connection.process_data_events(PATIENCE_S)
        assert (error.value.reply_code, "enough" in error.value.reply_text) == (320, True)


def test_health_and_who_asks(api: httpx.Client, broker: Broker) -> None:
    assert api.get("/whoami").json() == {"name": "guest", "tags": ["administrator"]}
    assert api.get("/aliveness-test/%2F").json() == {"status": "ok"}
    assert api.get("/health/checks/alarms").json() == {"status": "ok"}
    nobody = httpx.get(f"{broker.management_url}/whoami")
    assert nobody.status_code == 401
    assert nobody.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


def test_what_makes_no_sense(api: httpx.Client, name: str) -> None:
    nowhere = api.get("/no/such/thing")
    assert (nowhere.status_code, nowhere.json()["error"]) == (404, "Object Not Found")
    bad = api.put(f"/queues/%2F/{name}", content=b"garbage")
    assert (bad.status_code, bad.json()) == (400, {"error": "bad_request", "reason": "not_json"})
    assert api.put(f"/queues/%2F/{name}", json={"durable": "maybe"}).status_code == 400
    assert api.delete("/exchanges/%2F/amq.direct").status_code == 401
