"""API keys and TLS from the command line, against real brokers."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jackalope.broker.access import hash_of, id_of
from tests.certificates import certificates
from tests.cli.conftest import JACKALOPE, Cli, Serving, clean_environment
from tests.cli.test_serve import refused

TASKS = """
from jackalope import Jackalope

app = Jackalope()

@app.task
def double(number: int) -> int:
    return 2 * number
"""


@pytest.fixture
def root(cli: Cli, tmp_path: Path) -> str:
    """Write a configuration with one key, and return its token."""
    made = cli("keys", "new", "root", "--permission", "admin", "-f", "json").json
    (tmp_path / "jackalope.yaml").write_text(yaml.safe_dump({"auth": made["auth"]}))
    return str(made["token"])


@pytest.fixture
def broker(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Serve with that key; the command line finds the broker, but not the key."""
    serving = Serving("--durability", "memory", cwd=tmp_path)
    monkeypatch.setenv("JACKALOPE_BROKER", str(serving.address))
    yield serving
    _, log = serving.stop()
    assert root not in log
    assert hash_of(root) not in log


def test_a_key_can_be_there_before_the_first_start(cli: Cli, root: str, broker: Serving) -> None:
    ran = cli("stats")
    assert (ran.code, ran.err) == (1, "error: an API key is required; send its token\n")
    assert broker.process.poll() is None
    assert cli("stats", "--token", root).code == 0
    host = f"jackalope://{root}@127.0.0.1:{broker.address.port}"
    assert cli("-b", host, "stats").code == 0


def test_keys_are_made_listed_and_revoked(
    cli: Cli, root: str, broker: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKALOPE_TOKEN", root)
    made = cli(
        *("keys", "create", "ci", "-p", "submit_tasks", "-p", "read_tasks"),
        *("--queue", "images", "--in-namespace", "default", "--expires", "90d", "-f", "json"),
    ).json
    token = made["token"]
    assert made == {"id": id_of(token), "name": "ci", "token": token}

    listed = cli("keys", "list")
    assert "ci" in listed.out
    assert "submit" in listed.out
    shown = cli("keys", "list", "-f", "json").out
    assert token not in shown
    assert hash_of(token) not in shown
    assert [key["name"] for key in json.loads(shown)] == ["root", "ci"]

    assert cli("--token", token, "submit", "-q", "images", "--name", "x").code == 0
    ran = cli("--token", token, "submit", "-q", "sounds", "--name", "x")
    assert (ran.code, "does not cover queue 'sounds'" in ran.err) == (1, True)
    ran = cli("--token", token, "kill", "--queue", "images", "--yes")
    assert (ran.code, "lacks the permission cancel_tasks" in ran.err) == (1, True)
    assert "forbidden" not in cli("--token", token, "list").err

    assert cli("keys", "revoke", made["id"]).code == 1  # Nobody is there to be asked.
    assert cli("keys", "revoke", made["id"], "--yes").code == 0
    assert "no such API key" in cli("--token", token, "stats").err
    assert cli("keys", "revoke", made["id"], "--yes").code == 1
    refused_one = cli("keys", "revoke", id_of(root), "--yes")
    assert "remove it from auth.keys" in refused_one.err


def test_what_cannot_be_is_said(cli: Cli) -> None:
    assert "unknown permission 'all'" in cli("keys", "new", "x", "-p", "all").err
    assert "the key needs a permission" in cli("keys", "new", "x").err
    ran = cli("keys", "new", "n" * 300, "-p", "work")
    assert (ran.code, "name: must have" in ran.err) == (2, True)


def test_the_hash_of_a_token_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(root + "\n"))
    assert cli("keys", "hash", "-f", "json").json == {"id": id_of(root), "hash": hash_of(root)}
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    ran = cli("keys", "hash")
    assert (ran.code, "secret" in ran.err) == (2, False)


def test_no_secret_is_shown_with_the_configuration(cli: Cli, root: str, tmp_path: Path) -> None:
    file = tmp_path / "jackalope.yaml"
    tree = yaml.safe_load(file.read_text()) | {"gridlike": {"token": "grid-secret"}}
    file.write_text(yaml.safe_dump(tree))
    for form in ("json", "yaml", "table"):
        shown = cli("config", "show", "--config", str(file), "-f", form).out
        assert hash_of(root)[:16] not in shown
        assert "grid-secret" not in shown
    settings = cli("config", "show", "--config", str(file), "-f", "json").json
    values = {each["key"]: each["value"] for each in settings}
    assert values["auth.keys"] == [f"{id_of(root)} (root)"]
    assert values["gridlike.token"] == "(hidden)"


ADDRESSES = {
    "launch": {"address": "jackalope://grid-secret@broker:7420"},
    "telemetry": {"endpoint": "https://user:grid-secret@traces:4317/v1?api_key=grid-secret"},
    "blobs": {"endpoint": "https://key:grid-secret@minio:9000"},
    "http": {"cors_origins": ["https://user:grid-secret@page.example"]},
    "launchers": {"docker": {"type": "docker", "host": "tcp://user:grid-secret@docker:2376"}},
}


@pytest.mark.parametrize("form", ["json", "yaml", "table"])
def test_no_address_is_shown_with_its_credentials(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)  # With a short name nothing in the table is cut or wrapped.
    file = Path("a.yaml")
    shown = {}
    for component, settings in ADDRESSES.items():
        file.write_text(yaml.safe_dump({component: settings}))
        ran = cli("config", "show", "--changed", "--config", str(file), "-f", form)
        shown[component] = ran.out + ran.err
    assert not [name for name, text in shown.items() if "grid-secret" in text]
    assert all("(hidden)" in shown[name] for name in ("launch", "telemetry", "blobs"))
    assert "traces:4317" in shown["telemetry"] or form == "table"


def test_a_secret_in_the_wrong_place_is_not_repeated(cli: Cli, root: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    bad = {"id": id_of(root), "hash": root, "name": "x", "permissions": ["work"]}
    for keys in ([bad], root, [bad | {"permissions": ["no"]}], [root]):
        file.write_text(yaml.safe_dump({"auth": {"keys": keys}}))
        ran = cli("config", "check", "--config", str(file))
        assert (ran.code, root in ran.err) == (2, False)
        assert "auth.keys" in ran.err


# Listening beyond this machine.


def test_nobody_is_served_on_a_network_by_accident(cli: Cli, root: str, tmp_path: Path) -> None:
    code, said = refused("--host", "0.0.0.0", "--port", "0", "--no-http", cwd=tmp_path)  # noqa: S104
    assert code == 2
    assert "set tls.cert and tls.key" in said
    assert "jackalope keys new" not in said  # There is a key.
    (tmp_path / "jackalope.yaml").unlink()
    made = certificates()
    tls = ("--tls-cert", made.cert, "--tls-key", made.key)
    code, said = refused("--host", "::", "--port", "0", "--no-http", *tls, cwd=tmp_path)
    assert code == 2
    assert "jackalope keys new" in said
    assert "--insecure" in said
    assert "tls.cert" not in said
    file = tmp_path / "http.yaml"
    file.write_text("http: {host: 0.0.0.0, port: 0}\nnative: {port: 0}\n")
    code, said = refused("--config", str(file), cwd=tmp_path)
    assert (code, "http.host is 0.0.0.0" in said) == (2, True)


def test_a_stored_key_counts_as_well(cli: Cli, tmp_path: Path) -> None:
    first = Serving(cwd=tmp_path)
    token = cli("-b", str(first.address), "keys", "create", "x", "-p", "admin", "-f", "json").json[
        "token"
    ]
    first.stop()
    made = certificates()
    tls = ("--tls-cert", made.cert, "--tls-key", made.key)
    second = Serving("--host", "0.0.0.0", *tls, cwd=tmp_path)  # noqa: S104
    try:
        port = second.address.port
        address = f"jackalopes://127.0.0.1:{port}"
        assert cli("-b", address, "--ca", made.ca, "--token", token, "stats").code == 0
        assert "an API key is required" in cli("-b", address, "--ca", made.ca, "stats").err
        ran = cli("-b", address, "--token", token, "stats")
        assert (ran.code, "is not trusted" in ran.err) == (1, True)
        skipping = ("--insecure-skip-verify", "--token", token)
        assert cli("-b", address, "stats", *skipping).code == 0
        # The last key is gone, and still nobody else is let in.
        with_ca = ("-b", address, "--ca", made.ca, "--token", token)
        assert cli(*with_ca, "keys", "revoke", id_of(token), "--yes").code == 0
        assert "an API key is required" in cli("-b", address, "--ca", made.ca, "stats").err
    finally:
        second.stop()


def test_files_of_a_certificate_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    made = certificates()
    code, said = refused("--tls-cert", made.cert, cwd=tmp_path)
    assert (code, "must be set together" in said) == (2, True)
    code, said = refused("--tls-cert", "none.pem", "--tls-key", "none.key", cwd=tmp_path)
    assert (code, "none.pem" in said) == (2, True)
    code, said = refused("--tls-cert", made.key, "--tls-key", made.cert, cwd=tmp_path)
    assert code == 2


def test_a_worker_comes_with_its_key_over_tls(cli: Cli, root: str, tmp_path: Path) -> None:
    made = certificates()
    broker = Serving("--tls-cert", made.cert, "--tls-key", made.key, cwd=tmp_path)
    (tmp_path / "shop.py").write_text(TASKS)
    address = f"jackalopes://127.0.0.1:{broker.address.port}"
    reach = ("-b", address, "--ca", made.ca, "--token", root)
    token = cli(*reach, "keys", "create", "w", "-p", "work", "-f", "json").json["token"]
    environment = clean_environment() | {"JACKALOPE_TOKEN": token, "JACKALOPE_CA": made.ca}
    worker = subprocess.Popen(
        [JACKALOPE, "-b", address, "worker", "shop:app", "--lease", "2s"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": os.fspath(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ran = cli(*reach, "submit", "--name", "shop.double", "--json", "21", "--wait")
        assert (ran.code, "42" in ran.out) == (0, True), ran.err
    finally:
        worker.terminate()
        _, log = worker.communicate(timeout=30)
        broker.stop()
    assert worker.returncode == 0, log
    assert token not in log
