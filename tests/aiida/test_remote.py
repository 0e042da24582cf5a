"""AiiDA end to end with a broker elsewhere: over TLS, with a key that may do no more than it must.

Elsewhere is another folder of this machine. The profile comes to that broker, and lost tasks are
repaired, before there is a daemon.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from jackalope.broker.access import hash_of, id_of, new_token
from tests.aiida.lab import NEEDS_AIIDA, Lab
from tests.certificates import certificates
from tests.cli.conftest import Serving

pytestmark = NEEDS_AIIDA

#: What the documentation says that the key of a profile needs, but for the first time.
PERMISSIONS = ["submit_tasks", "read_tasks", "work", "cancel_tasks"]


def key(name: str, token: str, permissions: list[str]) -> dict[str, object]:
    return {"id": id_of(token), "hash": hash_of(token), "name": name, "permissions": permissions}


class Elsewhere:
    """A broker over TLS that knows two keys."""

    def __init__(self, folder_of: pytest.TempPathFactory) -> None:
        folder = folder_of.mktemp("elsewhere")
        self.root, self.token = new_token(), new_token()
        keys = [key("root", self.root, ["admin"]), key("lab", self.token, PERMISSIONS)]
        (folder / "jackalope.yaml").write_text(yaml.safe_dump({"auth": {"keys": keys}}))
        files = certificates()
        self.ca = files.ca
        self.serving = Serving(
            "--no-http", "--tls-cert", files.cert, "--tls-key", files.key, cwd=folder
        )
        self.address = f"jackalopes://127.0.0.1:{self.serving.address.port}"

    def reach(self, token: str) -> tuple[str, ...]:
        return ("--broker", self.address, "--ca", self.ca, "--token", token)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(tmp_path_factory)
    yield elsewhere
    elsewhere.serving.stop()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, elsewhere: Elsewhere) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.make_profile("core.zeromq", {"supervised_by_daemon": True})
        lab.open_gate()
        yield lab
    finally:
        lab.close()


def test_a_profile_uses_a_broker_elsewhere(lab: Lab, elsewhere: Elsewhere) -> None:
    assert lab.quickly("jackalope", "aiida", "use", "lab", *elsewhere.reach(elsewhere.root)).well
    # From now on the queue is there, and a key will do that may not declare one.
    lab.jackalope("aiida", "use", "lab", *elsewhere.reach(elsewhere.token))
    lab.furnish()
    config = json.loads((lab.folder / ".aiida" / "config.json").read_text())
    assert config["profiles"]["lab"]["process_control"]["config"]["key"] == elsewhere.token


@pytest.mark.feature("T25")
def test_lost_tasks_are_repaired_and_run_elsewhere(lab: Lab, elsewhere: Elsewhere) -> None:
    *pks, over = lab.ask("submit_adds", 4)
    assert "No inconsistencies" in lab.quickly("verdi", "process", "repair").well
    lost, other, _ = (str(pk) for pk in pks)
    assert "no worker" in lab.look_at("explain", other)
    lab.look_at("kill", lost, "--yes")
    lab.ask("end", over)
    said = lab.verdi("process", "repair")
    assert f"Revived process `{lost}`" in said
    assert f"Acknowledged task `{over}`" in said  # The database says that it has ended.
    [row] = [row for row in lab.look_at("list").splitlines() if f" {lost} " in row]
    assert "ArithmeticAdd" in row
    lab.verdi("daemon", "start", "2")
    said = lab.quickly("verdi", "status").well
    assert "Jackalope v" in said
    assert f"@ {elsewhere.address}" in said
    lab.wait_until_ended(pks)
    lab.assert_run_once(pks)
    assert len(lab.runs.read_text().split()) == len(pks)
    assert lab.quickly("verdi", "daemon", "stop").well
    assert not lab.has_own_broker()
