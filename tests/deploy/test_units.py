"""The systemd units: accepted by systemd, and they start what they say."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jackalope.broker.config.exposure import exposure_problems
from jackalope.broker.config.loader import load
from jackalope.cli.base import Exit

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = ["jackalope.service", "jackalope-worker@.service"]
INSTALLED = "/opt/jackalope/bin/jackalope"


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(SYSTEMD / name)
    return parser


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_it(tmp_path: Path, name: str) -> None:
    text = (SYSTEMD / name).read_text()
    assert INSTALLED in text
    here = Path(sys.executable).with_name("jackalope")
    made = tmp_path / name.replace("@.", "@1.")
    made.write_text(text.replace(INSTALLED, str(here)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", made], capture_output=True, text=True, check=False
    )
    assert name.partition(".")[0].rstrip("@") not in done.stderr, done.stderr
    made.write_text(made.read_text().replace("Restart=", "Restrt="))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", made], capture_output=True, text=True, check=False
    )
    assert "Restrt" in done.stderr


def test_broker_starts_with_its_configuration() -> None:
    service = unit("jackalope.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert (program, arguments[0]) == (INSTALLED, "serve")
    assert arguments[arguments.index("--config") + 1] == "/etc/jackalope/jackalope.yaml"
    name, _, value = service["Environment"].partition("=")
    config = load(SYSTEMD / "jackalope.yaml", {name: value}, {}).config
    assert config.data.folder == f"/var/lib/{service['StateDirectory']}"
    assert exposure_problems(config, has_keys=False) == []


def test_what_a_restart_does_not_mend_is_not_restarted() -> None:
    stopping = unit("jackalope.service")["Service"]["RestartPreventExitStatus"].split()
    assert {int(each) for each in stopping} == {Exit.USAGE, Exit.STORAGE, Exit.BUSY}


def test_worker_has_every_variable_that_it_names() -> None:
    service = unit("jackalope-worker@.service")["Service"]
    given = dict(
        line.split("=", 1)
        for line in (SYSTEMD / "worker.env").read_text().splitlines()
        if not line.startswith("#")
    )
    program, verb, app, flag, count = shlex.split(service["ExecStart"])
    assert (program, verb, flag) == (INSTALLED, "worker", "--concurrency")
    assert {app.strip("${}"), count.strip("${}")} <= set(given)
    assert "JACKALOPE_BROKER" in given
