"""The backend of `django-tasks`, held to what Django documents of backends, on both databases."""

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

pytest.importorskip("django_tasks", reason="django-tasks is not installed")

WAIT_S = 120.0


class Project:
    """Django with a database and a broker of its own."""

    def __init__(self, database: str, broker: EmbeddedBroker) -> None:
        self.variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.contrib.django_project.settings",
            "TEST_DATABASE": database,
            "TEST_BROKER": broker.address,
        }
        self.run("-m", "django", "migrate", "--verbosity", "0")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def drive(self, scenario: str) -> None:
        self.run("-m", "tests.contrib.django_project.drive", scenario)

    def worker(self, backend: str = "default") -> subprocess.Popen[Any]:
        command = [sys.executable, "-m", "django", "jackalope_worker", "--backend", backend]
        return subprocess.Popen(command, env=self.variables)


@pytest.fixture(params=["sqlite", "postgresql"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    broker = EmbeddedBroker()
    try:
        if request.param == "sqlite":
            yield Project(f"sqlite={tmp_path / 'db'}", broker)
        elif has_postgres():
            with postgres() as where:
                fields = dict(part.split("=") for part in where.split())
                yield Project(f"postgresql={fields['port']}", broker)
        else:
            pytest.skip("PostgreSQL is not installed")
    finally:
        broker.stop()


def test_results_transactions_and_the_admin(project: Project) -> None:
    assert "No changes detected" in project.run("-m", "django", "makemigrations", "--check")
    project.drive("choices")
    worker = project.worker()
    try:
        project.drive("results")
        project.drive("asynchronous")
        project.drive("transactional")
        project.drive("admin")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
