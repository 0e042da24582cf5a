"""What of a code base with Celery becomes what, from its source alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jackalope.contrib.celery_survey import _OPTIONS, survey

CODE = """
from celery import Celery, chain, shared_task
from celery.schedules import crontab
from celery.signals import task_prerun

app = Celery("shop", broker="amqp://")
app.conf.beat_schedule = {"nightly": {"task": "report", "schedule": crontab(hour=3)}}

@app.task(bind=True, max_retries=3, rate_limit="10/m")
def charge(self, order):
    try:
        pay(order)
    except OSError as error:
        raise self.retry(exc=error, countdown=5)

@shared_task
def report():
    raise RuntimeError("this code is never run")

def buy(order):
    charge.delay(order)
    charge.apply_async(args=[order], countdown=10, link=report.s())
    chain(charge.s(order), report.si())()
"""

OTHER = """
def delay(x): ...
class Clock:
    def s(self): ...
Clock().s()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(CODE)
    (tmp_path / "shop" / "clock.py").write_text(OTHER)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text(CODE)
    return tmp_path


def test_every_place_is_listed_with_its_line(shop: Path) -> None:
    findings, unread = survey(shop)
    assert unread == []
    assert {each.file for each in findings} == {"shop/tasks.py"}
    lines = CODE.split("\n")
    by_what = {each.what: each for each in findings}
    for what, text, becomes in [
        ("Celery(...)", "app = Celery", "Jackalope(address)"),
        ("setting beat_schedule", "app.conf.beat_schedule", "@app.schedule"),
        ("crontab(...)", "app.conf.beat_schedule", "cron expression"),
        ("signal task_prerun", "task_prerun", "Middleware"),
        ("@task on charge", "@app.task(bind", "@app.task"),
        ("option bind of charge", "@app.task(bind", "current()"),
        ("option max_retries of charge", "@app.task(bind", "retries="),
        ("option rate_limit of charge", "@app.task(bind", "by hand"),
        ("@shared_task on report", "@shared_task", "@app.task"),
        ("self.retry(...)", "self.retry", "RetryLater"),
        (".delay(...)", "charge.delay", "submit(...)"),
        (".apply_async(...)", "apply_async", "options(...).submit"),
        ("option countdown of apply_async", "apply_async", "delay="),
        ("option link of apply_async", "apply_async", "Flow"),
        ("chain(...)", "    chain(", ">>"),
        (".si(...)", "    chain(", "after(other)"),
    ]:
        assert text in lines[by_what[what].line - 1], what
        assert becomes in by_what[what].becomes, what


def test_a_file_that_is_no_python_is_named_and_the_rest_is_read(shop: Path) -> None:
    (shop / "broken.py").write_text("def (")
    findings, unread = survey(shop)
    assert findings
    assert len(unread) == 1
    assert "broken.py" in unread[0]


def test_the_command_prints_a_line_for_each_place(shop: Path) -> None:
    command = [sys.executable, "-m", "jackalope", "migrate", "celery", str(shop)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    findings, _ = survey(shop)
    by_hand = sum(each.is_by_hand for each in findings)
    assert f"{len(findings)} places in 1 files, {by_hand} of them by hand" in done.stdout
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [
        each.line for each in findings
    ]
    for wrong in (["rq", str(shop)], ["celery", str(shop / "nowhere")]):
        wrong_command = [sys.executable, "-m", "jackalope", "migrate", *wrong]
        assert subprocess.run(wrong_command, capture_output=True, check=False).returncode == 2


def test_options_of_tasks_are_those_of_celery() -> None:
    task = pytest.importorskip("celery").Task
    assert {"max_retries", "rate_limit", "time_limit"} <= set(_OPTIONS)
    unknown = {"bind", "queue", "autoretry_for", "dont_autoretry_for", "base", "pydantic"}
    unknown |= {name for name in _OPTIONS if name.startswith("retry_")}
    assert all(hasattr(task, name) for name in set(_OPTIONS) - unknown)
