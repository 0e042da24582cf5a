"""pika over TLS, and certificates of clients as their proof."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator

import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ProbableAuthenticationError

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.config.exposure import server_context
from jackalope.broker.config.schema import TlsConfig
from tests.certificates import Certificates, certificates, issued_by
from tests.doors.amqp.harness import Broker, Serving

TOKEN = new_token()
#: Who signs for the clients; the broker trusts nobody else.
OURS = certificates("ours.example")


def api_key(name: str, token: str) -> dict[str, object]:
    permissions = ["submit_tasks", "work"]
    return {"id": id_of(token), "hash": hash_of(token), "name": name, "permissions": permissions}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder, made = tmp_path_factory.mktemp("tls"), certificates()
    names = ("worker.example", "twins", "twins")
    keys = [api_key("ada", TOKEN), *(api_key(name, new_token()) for name in names)]
    config = folder / "jackalope.yaml"
    # These keys make no queues: only administrators do.
    queues = {name: {"preset": "amqp"} for name in ("secrets", "certified")}
    amqp = {"client_ca": OURS.ca}
    config.write_text(json.dumps({"auth": {"keys": keys}, "amqp": amqp, "queues": queues}))
    serving = Serving(
        folder, "--config", str(config), "--tls-cert", made.cert, "--tls-key", made.key
    )
    yield serving.broker
    serving.stop()


def parameters(
    broker: Broker,
    credentials: pika.PlainCredentials | ExternalCredentials,
    trusted: str | None,
    shown: Certificates | None = None,
) -> pika.ConnectionParameters:
    options = None
    if trusted is not None:
        context = ssl.create_default_context(cafile=trusted)
        if shown is not None:
            context.load_cert_chain(shown.cert, shown.key)
        options = pika.SSLOptions(context, "localhost")
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


@pytest.mark.parametrize(
    ("names", "common_name", "user"),
    [(("ada.example",), "ada", "ada"), (("other.example", "worker.example"), "", "worker.example")],
)
def test_a_certificate_proves_who_a_client_is(
    broker: Broker, names: tuple[str, ...], common_name: str, user: str
) -> None:
    shown = issued_by(OURS, *names, common_name=common_name)
    asked = parameters(broker, ExternalCredentials(), certificates().ca, shown)
    with pika.BlockingConnection(asked) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("certified", durable=True)
        # Whose name it is, the broker knows too: it refuses every other.
        channel.basic_publish("", "certified", b"x", pika.BasicProperties(user_id=user))
        with pytest.raises(ChannelClosedByBroker, match=r"403.*lacks the permission"):
            channel.queue_purge("certified")


@pytest.mark.parametrize(
    ("common_name", "problem"),
    [
        ("nobody", "no valid API key has"),
        ("twins", "more than one"),
        (None, "no trusted client certificate"),
    ],
)
def test_another_certificate_or_none_is_refused(
    broker: Broker, common_name: str | None, problem: str
) -> None:
    shown = None if common_name is None else issued_by(OURS, "x.example", common_name=common_name)
    asked = parameters(broker, ExternalCredentials(), certificates().ca, shown)
    with pytest.raises(ProbableAuthenticationError, match=f"403.*EXTERNAL.*{problem}"):
        pika.BlockingConnection(asked)


def test_a_certificate_of_another_authority_comes_to_nothing(broker: Broker) -> None:
    shown = issued_by(certificates("another.example"), "ada.example", common_name="ada")
    asked = parameters(broker, ExternalCredentials(), certificates().ca, shown)
    with pytest.raises((AMQPConnectionError, ssl.SSLError, OSError)):
        pika.BlockingConnection(asked)


def test_an_authority_that_cannot_be_read_is_named() -> None:
    made = certificates()
    with pytest.raises(ValueError, match=r"amqp\.client_ca /nowhere\.pem: No such file"):
        server_context(made.config, "/nowhere.pem")
    with pytest.raises(ValueError, match=r"amqp\.client_ca .*key\.pem: "):
        server_context(made.config, made.key)
    with pytest.raises(ValueError, match=r"amqp\.client_ca needs TLS"):
        server_context(TlsConfig(), made.ca)
