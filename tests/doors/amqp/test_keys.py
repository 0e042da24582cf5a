"""Who is let in over AMQP and to the management API once a broker has API keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.core.api_key import Permission
from tests.doors.amqp.harness import Broker, Serving

ADMIN, LIMITED, READER = new_token(), new_token(), new_token()


def key(token: str, name: str, permission: Permission, **limits: str) -> dict[str, Any]:
    known = {"id": id_of(token), "hash": hash_of(token), "name": name}
    return {**known, "permissions": [str(permission)], **limits}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("keys")
    keys = [
        key(ADMIN, "ada", Permission.ADMIN),
        key(LIMITED, "bob", Permission.ADMIN, namespace="shop"),
        key(READER, "eve", Permission.READ_TASKS),
    ]
    config = folder / "jackalope.yaml"
    config.write_text(json.dumps({"auth": {"keys": keys}}))
    serving = Serving(folder, "--config", str(config))
    yield serving.broker
    serving.stop()


def connect(broker: Broker, password: str, vhost: str = "/") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("anybody", password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, vhost, credentials)
    )


def test_the_password_is_the_token_of_a_key(broker: Broker) -> None:
    with connect(broker, ADMIN) as connection:
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", name, b"hello")
        assert channel.basic_get(name, auto_ack=True)[2] == b"hello"
    for password in ("guest", "", new_token()):
        with pytest.raises(ProbableAuthenticationError):
            connect(broker, password)


def test_a_key_of_one_namespace_has_one_virtual_host(broker: Broker) -> None:
    with connect(broker, LIMITED, "shop") as connection:
        connection.channel().queue_declare("inside", durable=True)
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker)):
        connect(broker, LIMITED)
    with connect(broker, ADMIN, "/") as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker, match="no queue 'inside'"):
            channel.queue_declare("inside", passive=True)


def test_a_key_that_may_only_read(broker: Broker) -> None:
    with connect(broker, READER) as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as error:
            channel.queue_declare("forbidden")
        assert error.value.reply_code == 403


def test_the_management_api_takes_the_same_tokens(broker: Broker) -> None:
    def ask(token: str, path: str, method: str = "GET") -> httpx.Response:
        return httpx.request(method, f"{broker.management_url}{path}", auth=("any", token), json={})

    assert ask(ADMIN, "/whoami").json() == {"name": "ada", "tags": ["administrator"]}
    assert ask(READER, "/whoami").json() == {"name": "eve", "tags": ["management"]}
    assert ask("guest", "/whoami").status_code == 401
    assert ask(READER, "/queues").status_code == 200
    assert ask(READER, "/queues/%2F/forbidden", "PUT").status_code == 401
    assert ask(LIMITED, "/queues/shop/own", "PUT").status_code == 201
    assert ask(LIMITED, "/queues/%2F/other", "PUT").status_code == 401
    assert ask(LIMITED, "/queues/%2F").status_code == 404
    seen = ask(LIMITED, "/queues?columns=vhost,name").json()
    assert {each["vhost"] for each in seen} == {"shop"}
    assert "own" in {each["name"] for each in seen}
    assert ask(LIMITED, "/vhosts?columns=name").json() == [{"name": "shop"}]
