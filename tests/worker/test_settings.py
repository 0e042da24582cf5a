"""What a worker is told, and what it makes of an application."""

import asyncio
import os
import re
import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from jackalope.core.limits import ITEMS_PER_COMMAND_MAX
from jackalope.errors import ConfigError
from jackalope.tasks.definition import TaskDefinition, find_task
from jackalope.worker.attempt import CannotLoad, load_application, unknown_task
from jackalope.worker.executors.child_process import Exit, exit_error, oom_kill_count, signal_name
from jackalope.worker.executors.processes import Recycling
from jackalope.worker.runtime import Runtime
from jackalope.worker.settings import WorkerSettings, default_name, fitting_concurrency
from tests.worker.application import app

APPLICATION = "tests.worker.application:app"


def test_settings_that_are_left_out_are_fine() -> None:
    assert WorkerSettings(application=APPLICATION).problems() == []


def test_every_problem_is_listed() -> None:
    settings = WorkerSettings(application=APPLICATION, name="", concurrency=-1, lease_s=0.5)
    assert len(settings.problems()) == 4
    assert any(problem.startswith("lease_s: must be 1 to 86400") for problem in settings.problems())


@pytest.mark.parametrize(("more", "is_fine"), [(0, True), (1, False)])
def test_holds_no_more_than_one_message_can_name(more: int, is_fine: bool) -> None:
    settings = WorkerSettings(
        application=APPLICATION, concurrency=ITEMS_PER_COMMAND_MAX - 10, prefetch=10 + more
    )
    assert (settings.problems() == []) == is_fine


@pytest.mark.feature("D21")
def test_concurrency_fits_the_kind_of_tasks() -> None:
    assert fitting_concurrency([app.functions["add"]]) == 100
    mixed = [app.functions["add"], app.functions["multiply"]]
    assert fitting_concurrency(mixed) == max(2, os.cpu_count() or 1)


def test_caps_that_have_no_effect_are_told_of() -> None:
    settings = WorkerSettings(
        application=APPLICATION, memory_bytes_max=2**29, recycling=Recycling(tasks=100)
    )
    functions = app.functions.values()
    memory, recycle = settings.warnings(functions)
    assert memory.startswith("--memory has no effect on tasks that do not run in processes")
    assert recycle.startswith("--recycle-tasks has no effect")
    assert "more; define them with isolation" in memory
    isolated = [each for each in functions if each.isolation == "process"]
    assert isolated
    assert settings.warnings(isolated) == []
    assert WorkerSettings(application=APPLICATION).warnings(functions) == []


def test_worker_warns_of_a_cap_without_effect() -> None:
    settings = WorkerSettings(application=APPLICATION, memory_bytes_max=2**29)

    async def start() -> None:
        Runtime(settings, app)

    with capture_logs() as lines:
        asyncio.run(start())
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("setting without effect", "warning")


def test_limit_of_memory_needs_a_process() -> None:
    with pytest.raises(ConfigError, match="memory_limit: only a process can have one"):
        TaskDefinition(os.getcwd, memory_bytes_max=1)


@pytest.mark.feature("D12")
def test_default_names_have_host_process_and_chance() -> None:
    names = {default_name() for _ in range(100)}
    assert len(names) == 100
    shape = rf"{re.escape(socket.gethostname())}-{os.getpid()}-[0-9a-f]{{8}}"
    assert all(re.fullmatch(shape, name) for name in names)


def test_application_is_found() -> None:
    assert load_application(APPLICATION) is app


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tests.worker.application", "module:name"),
        ("no_such_module:app", "No module named 'no_such_module'"),
        ("tests.worker.application:missing", "missing"),
        ("tests.worker.application:WAIT", "WAIT"),
        ("os:path", "not a Jackalope application"),
    ],
)
def test_application_that_cannot_be_used_says_why_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(CannotLoad, match=r".") as caught:
        load_application(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_module_that_raises_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no\\nluck')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CannotLoad, match="RuntimeError: no luck"):
        load_application("broken_module:app")


def test_unknown_task_names_what_is_known() -> None:
    message = unknown_task(app, "nothing").error.message
    assert "'nothing'" in message
    assert "add_later" in message
    assert "more" in message


def test_a_task_without_a_name_is_for_the_only_function_of_its_queue() -> None:
    functions = {
        name: TaskDefinition(lambda: None, name=name, queue=queue)
        for name, queue in (("one", "single"), ("two", "several"), ("three", "several"))
    }
    assert find_task(functions, "", "single") is functions["one"]
    assert find_task(functions, "two", "single") is functions["two"]
    assert find_task(functions, "", "several") is None
    assert find_task(functions, "four", "single") is None
    assert "the task has no name" in unknown_task(app, "").error.message


def test_exit_causes() -> None:
    assert exit_error(Exit(3)).message == "the process exited with code 3"
    assert "9 (SIGKILL)" in exit_error(Exit(-9)).message
    assert exit_error(Exit(-9), oom_kills=1).type == "OutOfMemory"
    assert exit_error(Exit(-11), oom_kills=1).type == "Crashed"
    used = exit_error(Exit(3, 50 * 2**20, 1.25, "the last line"), trace="File x")
    assert used.message.endswith("; peak memory 50 MiB, CPU 1.25 s")
    assert used.trace == "File x\n\nThe last lines that it wrote:\nthe last line"
    assert signal_name(63) == "63"
    assert oom_kill_count() >= 0
