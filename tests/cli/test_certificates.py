"""Certificates are replaced while a broker works: every door, with real TLS."""

import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jackalope import Jackalope
from jackalope.cli.base import Exit
from tests.certificates import Certificates, certificates, issued_by
from tests.cli.conftest import Serving
from tests.ports import free_port

DOORS = ("native", "http", "amqp", "grpc", "management", "peer")
HERE = ("127.0.0.1", "localhost")


class House:
    """A broker with all doors and TLS, whose certificate is in a file that can be replaced."""

    def __init__(self, folder: Path, watch: str) -> None:
        self.first = certificates(*HERE)
        self.cert, self.key = folder / "broker.crt", folder / "broker.key"
        self.put(self.first)
        self.ports = {door: free_port() for door in DOORS}
        config = {
            "tls": {"cert": str(self.cert), "key": str(self.key), "watch": watch},
            "native": {"port": self.ports["native"]},
            "http": {"port": self.ports["http"]},
            "amqp": {
                "enabled": True,
                "port": self.ports["amqp"],
                "management": True,
                "management_port": self.ports["management"],
            },
            "grpc": {"enabled": True, "port": self.ports["grpc"]},
            "peer": {"port": self.ports["peer"], "secret": "s" * 32, "ca": self.first.ca},
        }
        (folder / "broker.yaml").write_text(yaml.safe_dump(config))
        ports = ("--port", str(self.ports["native"]), "--http-port", str(self.ports["http"]))
        self.serving = Serving("--config", "broker.yaml", *ports, cwd=folder)
        self.log = folder / "log.txt"
        self.await_shown(self.first)

    def put(self, made: Certificates) -> None:
        """Replace the files as a tool that renews certificates does."""
        for source, place in ((made.key, self.key), (made.cert, self.cert)):
            unfinished = place.with_suffix(".new")
            shutil.copy(source, unfinished)
            unfinished.rename(place)

    def reload(self) -> None:
        os.kill(self.serving.process.pid, signal.SIGHUP)

    def shown(self, door: str, name: str | None = None) -> bytes:
        """Return the certificate that a door shows to a new connection."""
        context = ssl.create_default_context(cafile=self.first.ca)
        context.check_hostname = name is not None
        if door == "grpc":
            context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", self.ports[door]), 10) as plain,
            context.wrap_socket(plain, server_hostname=name) as link,
        ):
            return link.getpeercert(binary_form=True) or b""

    def await_shown(self, made: Certificates) -> None:
        wanted, end = der_of(made), time.monotonic() + 30
        left = set(DOORS)
        while left and time.monotonic() < end:
            for door in sorted(left):
                try:
                    if self.shown(door) == wanted:
                        left.discard(door)
                except ConnectionRefusedError:  # It is not open yet.
                    pass
            time.sleep(0.02)
        assert not left, self.log.read_text()

    def await_logged(self, text: str) -> None:
        end = time.monotonic() + 30
        while text not in self.log.read_text():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)


def der_of(made: Certificates) -> bytes:
    text = Path(made.cert).read_text()
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])


@pytest.fixture(params=["1h"])
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(tmp_path, request.param)
    yield made
    made.serving.stop()


def ask(link: ssl.SSLSocket) -> bytes:
    link.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return link.recv(65536)


def test_every_door_has_the_new_one_and_old_connections_live(house: House) -> None:
    context = ssl.create_default_context(cafile=house.first.ca)
    address = f"jackalopes://localhost:{house.ports['native']}"
    app = Jackalope(address, ca_file=house.first.ca)
    with (
        app.sync,
        socket.create_connection(("127.0.0.1", house.ports["http"]), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        assert ask(link).startswith(b"HTTP/1.1 200")
        app.sync(app.submit("q", name="before"))
        second = issued_by(house.first, *HERE)
        house.put(second)
        house.reload()
        house.await_shown(second)
        assert house.shown("native", "localhost") == der_of(second)
        assert ask(link).startswith(b"HTTP/1.1 200")
        assert link.getpeercert(binary_form=True) == der_of(house.first)
        app.sync(app.submit("q", name="after"))
    house.await_logged("certificates replaced")


def test_broken_ones_are_logged_and_the_old_ones_stay(house: House) -> None:
    house.cert.write_text("no certificate")
    house.reload()
    house.await_logged("certificates not replaced")
    house.await_shown(house.first)
    # A key that does not belong to the certificate: half of a renewal.
    house.put(house.first)
    shutil.copy(issued_by(house.first, *HERE).key, house.key)
    house.reload()
    house.await_logged("KEY_VALUES_MISMATCH")
    house.await_shown(house.first)
    house.key.unlink()
    house.reload()
    house.await_logged("No such file")
    house.await_shown(house.first)
    # And then one that can be used.
    third = issued_by(house.first, *HERE)
    house.put(third)
    house.reload()
    house.await_shown(third)


@pytest.mark.parametrize("house", ["100ms"], indirect=True)
def test_files_that_change_are_seen(house: House) -> None:
    second = issued_by(house.first, *HERE)
    house.put(second)
    house.await_shown(second)
    house.cert.write_text("no certificate")
    house.await_logged("certificates not replaced")
    house.await_shown(second)
    assert house.serving.process.poll() is None


def test_hangup_without_certificates_is_logged_and_nothing_else(tmp_path: Path) -> None:
    serving = Serving("--no-http", cwd=tmp_path)
    logged, end = tmp_path / "log.txt", time.monotonic() + 30
    os.kill(serving.process.pid, signal.SIGHUP)
    while "nothing to reload" not in logged.read_text():
        assert time.monotonic() < end, logged.read_text()
        time.sleep(0.02)
    assert serving.process.poll() is None
    code, _ = serving.stop()
    assert code == Exit.DONE
