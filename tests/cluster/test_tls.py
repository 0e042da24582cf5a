"""Clients of a follower over TLS: the leader knows them by the certificate that they have shown.

What the follower tells of it is signed with the cluster's secret; no client can tell the same.
"""

import hmac
import socket
import ssl
import struct
from collections.abc import Iterator

import httpx
import msgspec
import pika
import pytest
import yaml
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ProbableAuthenticationError

from jackalope.broker.access import hash_of, id_of, new_token
from jackalope.broker.cluster.peer_link import PeerGone
from jackalope.doors.forwarding import MAGIC, Letter
from tests.certificates import Certificates, certificates, issued_by
from tests.cluster.brokers import SECRET, TIMEOUT_S, Brokers, Process, until

pytestmark = pytest.mark.timeout(300)

HOUSE = certificates()
TOKEN, ADMIN = new_token(), new_token()
QUEUE = "letters"
KEYS = [
    {
        "id": id_of(TOKEN),
        "hash": hash_of(TOKEN),
        "name": "ada",
        "permissions": ["submit_tasks", "read_tasks", "work"],
    },
    {"id": id_of(ADMIN), "hash": hash_of(ADMIN), "name": "root", "permissions": ["admin"]},
]
START_OK, TUNE, CLOSE = (10, 11), (10, 30), (10, 50)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Return a cluster whose doors have TLS; its peer port has none, for the tests to ask."""
    brokers = Brokers(
        tmp_path_factory.mktemp("nodes"),
        auth={"keys": KEYS},
        tls={"cert": HOUSE.cert, "key": HOUSE.key},
        peer={"tls": False, "ca": HOUSE.ca},
        queues={QUEUE: {"preset": "amqp"}},
    )
    try:
        for each in brokers.all:
            each.config["amqp"]["client_ca"] = HOUSE.ca
            (each.folder / "jackalope.yaml").write_text(yaml.safe_dump(each.config))
            each.start()
        led(brokers)
        yield brokers
    finally:
        for each in brokers.all:
            each.end()


def role_of(node: Process) -> str:
    try:
        return node.status().role if node.is_up else ""
    except PeerGone:
        return ""


def led(brokers: Brokers) -> tuple[Process, Process]:
    """Return the node that leads and one that follows it, all others being up."""
    roles: dict[str, str] = {}

    def is_led() -> bool:
        roles.update((each.name, role_of(each)) for each in brokers.all)
        up = [roles[each.name] for each in brokers.all if each.is_up]
        return up.count("leading") == 1 and up.count("following") == len(up) - 1

    until(is_led, brokers.all)
    leader = next(each for each in brokers.all if roles[each.name] == "leading")
    return leader, next(each for each in brokers.all if roles[each.name] == "following")


@pytest.fixture
def nodes(brokers: Brokers) -> tuple[Process, Process]:
    """Return the leader and a follower of the whole cluster."""
    for each in brokers.all:
        if not each.is_up:
            each.start()
    return led(brokers)


def context_of(shown: Certificates | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=HOUSE.ca)
    if shown is not None:
        context.load_cert_chain(shown.cert, shown.key)
    return context


def connect(node: Process, shown: Certificates | None) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            node.config["amqp"]["port"],
            credentials=ExternalCredentials(),
            ssl_options=pika.SSLOptions(context_of(shown), "127.0.0.1"),
        )
    )


def publish(node: Process, shown: Certificates, user: str) -> None:
    """Publish a message that names its user, whom the broker compares with the one it knows."""
    with connect(node, shown) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        named = pika.BasicProperties(delivery_mode=2, user_id=user)
        channel.basic_publish("", QUEUE, b"hello", named, mandatory=True)


def test_a_certificate_counts_at_every_node_and_after_a_failover(
    brokers: Brokers, nodes: tuple[Process, Process]
) -> None:
    leader, follower = nodes
    ada = issued_by(HOUSE, "x.example", common_name="ada")
    for node in brokers.all:
        publish(node, ada, "ada")
    with pytest.raises(ChannelClosedByBroker, match="user_id"):
        publish(follower, ada, "root")
    leader.kill()

    def is_back() -> bool:
        try:
            publish(follower, ada, "ada")
        except (AMQPConnectionError, OSError):
            return False
        return True

    until(is_back, brokers.all)
    with pytest.raises(ChannelClosedByBroker, match="user_id"):
        publish(follower, ada, "root")


def test_another_certificate_or_none_is_refused_through_a_follower(
    nodes: tuple[Process, Process],
) -> None:
    _, follower = nodes
    for shown in (issued_by(HOUSE, "x.example", common_name="eve"), None):
        with pytest.raises(ProbableAuthenticationError, match="403"):
            connect(follower, shown)
    stranger = issued_by(certificates("another.example"), "x.example", common_name="ada")
    with pytest.raises((AMQPConnectionError, OSError)):
        connect(follower, stranger)


def letter(secret: str, certificate: dict[str, object]) -> bytes:
    """Return what a node says of a peer before the peer's own bytes."""
    body = msgspec.msgpack.encode(Letter("127.0.0.1", 1, certificate))
    mac = hmac.digest(secret.encode(), body, "sha256")
    return MAGIC + len(body).to_bytes(2) + body + mac


def answer_to(node: Process, head: bytes) -> tuple[int, int] | None:
    """Say something, then ask to be let in by certificate; return the method of the answer."""
    context = context_of(None)
    address = ("127.0.0.1", node.config["amqp"]["port"])
    with (
        socket.create_connection(address, TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wire,
    ):
        wire.sendall(head + b"AMQP\x00\x00\x09\x01")
        if read_method(wire) is None:
            return None
        words = struct.pack(">HHI", *START_OK, 0) + b"\x08EXTERNAL" + b"\0\0\0\0\x05en_US"
        wire.sendall(struct.pack(">BHI", 1, 0, len(words)) + words + b"\xce")
        return read_method(wire)


def read_method(wire: ssl.SSLSocket) -> tuple[int, int] | None:
    """Return class and method of the next frame; None if the connection ends."""
    try:
        head = wire.recv(7)
        while 0 < len(head) < 7:
            head += wire.recv(7 - len(head))
        if not head:
            return None
        size = struct.unpack(">BHI", head)[2] + 1
        body = b""
        while len(body) < size:
            body += wire.recv(size - len(body))
    except OSError:
        return None
    number, method = struct.unpack(">HH", body[:4])
    return number, method


def test_no_client_can_say_what_a_node_says_of_a_peer(nodes: tuple[Process, Process]) -> None:
    leader, follower = nodes
    ada: dict[str, object] = {"subject": [[["commonName", "ada"]]]}
    assert answer_to(leader, letter(SECRET, ada)) == TUNE, "a node is believed"
    assert answer_to(leader, letter("of others", ada)) == CLOSE
    assert answer_to(leader, b"") == CLOSE
    # Through a follower the letter is the client's, whoever has signed it.
    assert answer_to(follower, letter("of others", ada)) is None
    assert answer_to(follower, letter(SECRET, ada)) is None
    assert answer_to(follower, b"") == CLOSE


def test_requests_over_https_are_forwarded_over_https(
    brokers: Brokers, nodes: tuple[Process, Process]
) -> None:
    leader, follower = nodes
    context = context_of(None)
    as_ada = {"Authorization": f"Bearer {TOKEN}"}

    def ask(node: Process, method: str, path: str, **more: object) -> httpx.Response:
        url = f"https://{node.address('http')}{path}"
        return httpx.request(method, url, verify=context, timeout=30, **more)  # type: ignore[arg-type]

    task = {"queue": QUEUE, "name": "t"}
    made = ask(follower, "POST", "/api/v1/tasks", json=task, headers=as_ada)
    assert made.status_code == 201, made.text
    path = f"/api/v1/tasks/{made.json()['id']}"
    for node in brokers.all:
        assert ask(node, "GET", path, headers=as_ada).status_code == 200
        assert ask(node, "GET", path).status_code == 401
    pause = f"/api/v1/queues/{QUEUE}/pause"
    assert ask(follower, "POST", pause, json={}, headers=as_ada).status_code == 403
    # A request that says that a node has sent it, and was not sent by one, goes nowhere further.
    forged = as_ada | {"X-Jackalope-Forwarded": f"10.0.0.1 {'00' * 32}"}
    assert ask(follower, "GET", path, headers=forged).status_code == 503
    assert ask(leader, "GET", path, headers=forged).status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{follower.address('http')}{path}", timeout=10)
