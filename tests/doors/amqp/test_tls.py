"""pika over TLS, and who says that its certificate is its proof."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator

import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

from jackalope.broker.tokens import hash_of, id_of, new_token
from tests.certificates import certificates
from tests.doors.amqp.house import Broker, Serving

TOKEN = new_token()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder, made = tmp_path_factory.mktemp("tls"), certificates()
    key = {"id": id_of(TOKEN), "hash": hash_of(TOKEN), "name": "ada", "permissions": ["admin"]}
    config = folder / "jackalope.yaml"
    config.write_text(json.dumps({"auth": {"keys": [key]}}))
    serving = Serving(
        folder, "--config", str(config), "--tls-cert", made.cert, "--tls-key", made.key
    )
    yield serving.broker
    serving.stop()


def parameters(
    broker: Broker,
    credentials: pika.PlainCredentials | ExternalCredentials,
    trusted: str | None,
) -> pika.ConnectionParameters:
    options = None
    if trusted is not None:
        options = pika.SSLOptions(ssl.create_default_context(cafile=trusted), "localhost")
    return pika.ConnectionParameters(
        "127.0.0.1", broker.port, credentials=credentials, ssl_options=options
    )


def test_messages_go_over_tls(broker: Broker) -> None:
    credentials = pika.PlainCredentials("ada", TOKEN)
    asked = parameters(broker, credentials, certificates().ca)
    large = bytes(range(256)) * 4_000
    with pika.BlockingConnection(asked) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("secrets", durable=True)
        for body in (b"small", large):
            channel.basic_publish("", "secrets", body, pika.BasicProperties(delivery_mode=2))
            method, _, got = channel.basic_get("secrets")
            assert got == body
            channel.basic_ack(method.delivery_tag)


def test_a_broker_that_is_not_trusted_and_plain_text_come_to_nothing(broker: Broker) -> None:
    credentials = pika.PlainCredentials("ada", TOKEN)
    for trusted in (certificates("another.example").ca, None):
        with pytest.raises((AMQPConnectionError, ssl.SSLCertVerificationError)):
            pika.BlockingConnection(parameters(broker, credentials, trusted))


def test_a_certificate_of_a_client_is_no_key(broker: Broker) -> None:
    asked = parameters(broker, ExternalCredentials(), certificates().ca)
    with pytest.raises(
        ProbableAuthenticationError, match="use PLAIN, with the token of an API key"
    ):
        pika.BlockingConnection(asked)
