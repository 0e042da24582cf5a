"""The backend of Django's tasks, held to what Django documents of backends, on both databases.

With the backport `django-tasks` on the Django of this environment, and with Django's own tasks in
`build/django`, where an interpreter is that Django 6 runs on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackalope.embedded import EmbeddedBroker
from tests.storage.shared.servers import has_postgres, postgres

WAIT_S = 120.0

DJANGO_6 = Path(__file__).resolve().parents[2] / "build" / "django" / "bin" / "python"

PYTHONS = {"backport": Path(sys.executable), "django 6": DJANGO_6}


class Project:
    """Django with a database and a broker of its own."""

    def __init__(self, python: Path, database: str, broker: EmbeddedBroker) -> None:
        self.python = str(python)
        self.variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.contrib.django_project.settings",
            "TEST_DATABASE": database,
            "TEST_BROKER": broker.address,
        }
        self.run("-m", "django", "migrate", "--verbosity", "0")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.python, *arguments],
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def drive(self, *scenarios: str) -> None:
        self.run("-m", "tests.contrib.django_project.drive", *scenarios)

    def worker(self) -> subprocess.Popen[Any]:
        command = [self.python, "-m", "django", "jackalope_worker", "--concurrency", "1"]
        return subprocess.Popen(command, env=self.variables)


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> Path:
    path = PYTHONS[request.param]
    if request.param == "backport":
        pytest.importorskip("django_tasks", reason="django-tasks is not installed")
    elif not path.exists():
        pytest.skip("no Django 6 in build/django: it needs Python 3.12 or newer; see `make django`")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def project(request: pytest.FixtureRequest, python: Path, tmp_path: Path) -> Iterator[Project]:
    broker = EmbeddedBroker()
    try:
        if request.param == "sqlite":
            yield Project(python, f"sqlite={tmp_path / 'db'}", broker)
        elif has_postgres():
            with postgres() as where:
                fields = dict(part.split("=") for part in where.split())
                yield Project(python, f"postgresql={fields['port']}", broker)
        else:
            pytest.skip("PostgreSQL is not installed")
    finally:
        broker.stop()


def test_promises_transactions_and_the_admin(project: Project) -> None:
    assert "No changes detected" in project.run("-m", "django", "makemigrations", "--check")
    project.drive("waiting")
    worker = project.worker()
    try:
        project.drive("served", "transactional", "admin")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
