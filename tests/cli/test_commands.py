"""Every command that talks to a broker, against a real one."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from jackalope.transport.address import Address
from tests.cli.conftest import JACKALOPE, Cli, clean_environment
from tests.cli.stub_worker import working

pytestmark = pytest.mark.usefixtures("address")


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def submit(cli: Cli, *options: str) -> str:
    named = () if {"--name", "--payload", "--payload-file"} & set(options) else ("--name", "any")
    ran = cli("submit", *options, *named)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def state_of(cli: Cli, task: str) -> str:
    return str(cli("status", task, "-f", "json").json["state"])


@pytest.fixture
def worker(address: Address) -> Iterator[None]:
    with working(address, "w1", "images"):
        yield


# Every command in every format.

SHOWING = [
    ("status", "cat"),
    ("list",),
    ("wait", "cat"),
    ("explain", "cat"),
    ("history", "cat"),
    ("workers",),
    ("queues",),
    ("queues", "show", "images"),
    ("queues", "set", "images", "retries=4"),
    ("queues", "pause", "images"),
    ("queues", "resume", "images"),
    ("limits",),
    ("limits", "list", "--wide"),
    ("limits", "show", "per-user"),
    ("limits", "show", "gpu"),
    ("limits", "set", "gpu", "3"),
    ("limits", "set", "per-user", "--concurrency", "2"),
    ("limits", "remove", "gpu"),
    ("schedules", "set", "nightly", "queue=images", "task=resize", "cron=0 3 * * *"),
    ("schedules", "list"),
    ("schedules", "show", "nightly"),
    ("schedules", "pause", "nightly"),
    ("schedules", "resume", "nightly"),
    ("schedules", "backfill", "nightly", "2020-01-01T00:00", "2020-01-05T00:00"),
    ("batches", "images"),
    ("stats",),
    ("queue-depth",),
    ("cluster-status",),
    ("submit", "-q", "other", "--name", "any"),
    ("hold", "--queue", "images", "--dry-run"),
    ("purge", "--state", "succeeded", "--dry-run"),
    ("cache", "list"),
    ("cache", "purge", "--name", "other"),
]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
@pytest.mark.feature("D31")
def test_every_format(cli: Cli, command: tuple[str, ...]) -> None:
    cli("limits", "set", "gpu", "3")
    cli("limits", "set", "per-user", "--key", "user", "--rate", "100", "--per", "1m")
    cli("schedules", "set", "nightly", "queue=images", "every=1h")
    submit(cli, "-q", "images", "--name", "finish", "--alias", "cat", "--tag", "gpu")
    assert cli("wait", "cat").code == 0
    table = cli(*command)
    assert table.code == 0, table.err
    assert table.out.strip()
    assert max(len(line) for line in table.out.splitlines()) <= 100
    as_json = cli(*command, "--format", "json")
    assert as_json.code == 0, as_json.err
    as_yaml = cli("--format", "yaml", *command)
    assert as_yaml.code == 0, as_yaml.err
    if command[0] not in {"submit", "stats", "workers"}:
        assert as_json.json == as_yaml.yaml
    assert type(as_json.json) is type(as_yaml.yaml)


def test_a_list_shows_the_alias_beside_the_name(cli: Cli) -> None:
    submit(cli, "-q", "images", "--name", "resize")
    assert "alias" not in cli("list").out
    submit(cli, "-q", "images", "--name", "resize", "--alias", "cat")
    [row] = [row for row in cli("list").out.splitlines() if "cat" in row]
    assert "resize" in row


def test_brackets_and_colons_are_shown_as_they_are(cli: Cli) -> None:
    name = "[b]a:smile:"
    submit(cli, "-q", name, "--name", name, "--alias", name, "--tag", name, "--json", '["[/x]"]')
    cli("limits", "set", name, "1")
    for command in (["list"], ["status", name], ["explain", name], ["queues"], ["limits"]):
        assert name in cli(*command).out
    assert name in cli("queues", "pause", name).out
    assert name in cli("status", name + "!").err


# Submitting.


def test_submit_prints_an_id_that_every_command_understands(cli: Cli) -> None:
    task = submit(cli, "-q", "images", "--alias", "cat")
    assert UUID(task).version == 7
    for name in (task, task.replace("-", ""), task[:30], "cat", task.upper()):
        assert cli("status", name, "-f", "json").json["id"] == task


def test_submit_takes_every_option(cli: Cli) -> None:
    first = submit(cli, "-q", "images", "--held")
    second = submit(
        cli,
        *("--queue", "images", "--name", "app.resize", "--json", '["cat.png", 320]'),
        *("--priority", "220", "--key", "paris", "--tag", "gpu", "--tag", "big"),
        *("--alias", "cat", "--expires", "1h", "--timeout", "5m", "--retries", "2"),
        *("--depends-on", first, "--held"),
    )
    shown = cli("status", second, "-f", "json").json
    assert (shown["queue"], shown["name"], shown["key"]) == ("images", "app.resize", "paris")
    assert (shown["priority"], shown["tags"], shown["alias"]) == (220, ["gpu", "big"], "cat")
    assert shown["payload"] == [["cat.png", 320], {}]
    assert shown["headers"] == {"content": "json"}
    assert shown["waiting_for"] == [first]
    made, expires = (datetime.fromisoformat(shown[each]) for each in ("created_at", "expires_at"))
    assert expires > made + timedelta(minutes=59)
    assert shown["state"] == "held"


@pytest.mark.parametrize(
    ("options", "payload"),
    [
        (["--json", '{"a": 1}'], [[], {"a": 1}]),
        (["--json", "[1, 2]"], [[1, 2], {}]),
        (["--json", "5"], [[5], {}]),
        ([], [[], {}]),
        (["--payload", "hello"], "hello"),
    ],
    ids=["named", "in order", "only one", "none", "raw"],
)
def test_payload(cli: Cli, options: list[str], payload: object) -> None:
    task = submit(cli, "-q", "images", *options)
    assert cli("status", task, "-f", "json").json["payload"] == payload


def test_payload_from_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "picture.raw"
    file.write_bytes(bytes(range(256)))
    task = submit(cli, "-q", "images", "--payload-file", str(file))
    shown = cli("status", task, "-f", "json").json
    assert shown["payload_size"] == 256
    assert shown["payload"]["base64"].startswith("AAECAw")
    assert "256 B" in cli("status", task).out


def test_many_from_lines(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f'["{n}.png"]\n' for n in range(2_500)) + "\n")
    ids = submit(cli, "-q", "images", "--from-lines", str(file)).split()
    assert len(ids) == 2_500
    assert cli("queue-depth", "-f", "json").json["queues"] == {"images": 2_500}
    assert cli("status", ids[7], "-f", "json").json["payload"] == [["7.png"], {}]
    raw = submit(cli, "-q", "raw", "--from-lines", str(file), "--raw").split()
    assert cli("status", raw[7], "-f", "json").json["payload"] == '["7.png"]'


def test_delayed_task_is_scheduled(cli: Cli) -> None:
    for when in (["--delay", "10m"], ["--at", "2100-01-01T08:00"]):
        assert state_of(cli, submit(cli, "-q", "images", *when)) == "scheduled"
    task = submit(cli, "-q", "images", "--at", "1h")
    assert "is due to start at" in cli("explain", task).out
    assert "in 59 m" in cli("explain", task).out


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--json", "{"], 2, "--json is not JSON"),
        (["--json", "1", "--payload", "x"], 2, "give one of --json, --payload"),
        (["--delay", "1s", "--at", "08:00"], 2, "use either --delay or --at"),
        (["--delay", "soon"], 2, "'soon' is not a duration"),
        (["--at", "25:61"], 2, "'25:61' is not a time"),
        (["--depends-on", "nobody"], 1, "no task has the alias 'nobody'"),
        (["--payload-file", "/no/such/file"], 1, "No such file"),
        (["--priority", "256"], 2, "--priority"),
        (["--queue", ""], 1, "1 of 1 tasks were refused"),
    ],
)
def test_submit_refuses(cli: Cli, options: list[str], code: int, problem: str) -> None:
    ran = cli("submit", "--name", "any", *options)
    assert ran.code == code
    assert problem in ran.err
    assert ran.out.strip() == ""


@pytest.mark.parametrize("options", [[], ["-q", "images"], ["--json", "[1]"]])
def test_submit_without_a_task_is_refused(cli: Cli, options: list[str]) -> None:
    ran = cli("submit", *options)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "no task named: name it with --name, such as --name app.resize" in ran.err
    assert "raw payload, with --payload" in ran.err
    assert cli("list", "-f", "json").json == []
    assert cli("submit", "-q", "images", "--payload", "for a worker that needs no name").code == 0


@pytest.mark.usefixtures("worker")
def test_submit_and_wait_shows_the_outcome(cli: Cli) -> None:
    ran = cli("submit", "-q", "images", "--name", "finish", "--json", "[1]", "--wait", "-f", "json")
    assert ran.code == 0
    assert ran.json[0]["result"] == {"echo": "[[1],{}]"}
    ran = cli("submit", "-q", "images", "--name", "fail", "--retries", "0", "--wait")
    assert ran.code == 1
    assert "ValueError: no cat in it" in ran.out
    assert "dead" in ran.out


# Looking.


@pytest.mark.usefixtures("worker")
def test_status_of_a_running_and_a_failed_task(cli: Cli) -> None:
    running = submit(cli, "-q", "images", "--name", "stay")
    eventually(lambda: state_of(cli, running) == "running")
    shown = cli("status", running).out
    assert "42 %" in shown
    assert "tile 21 of 50" in shown
    assert "w1  (fence" in shown
    failed = submit(cli, "-q", "images", "--name", "fail", "--retries", "0")
    assert cli("wait", failed).code == 1
    shown = cli("status", failed).out
    assert "dead (failed)" in shown
    assert "ValueError: no cat in it" in shown
    assert "Traceback: in resize" in shown


@pytest.mark.feature("T6", "T27", "T33")
def test_list_filters_and_sorts(cli: Cli) -> None:
    for number in range(5):
        submit(cli, "-q", "images", "--name", f"n{number}", "--priority", str(100 + number))
    submit(cli, "-q", "mail", "--name", "send", "--held")

    def names(*options: str) -> list[str]:
        return [each["name"] for each in cli("list", *options, "-f", "json").json]

    assert names() == ["send", "n4", "n3", "n2", "n1", "n0"]
    assert names("--queue", "images", "--sort", "created") == ["n0", "n1", "n2", "n3", "n4"]
    assert names("--sort", "-priority", "--limit", "2") == ["send", "n4"]
    assert names("--state", "held") == ["send"]
    assert names("--state", "unfinished", "--text", "N3") == ["n3"]
    assert names("--state", "ended") == []
    assert names("--name", "n1") == ["n1"]
    assert names("--older-than", "1h") == []
    assert names("--queue", "images", "--batch", "1", "--limit", "1") == ["n4"]
    assert "no tasks" in cli("list", "--state", "dead").out
    assert "more match" in cli("list", "--limit", "2").out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--state", "lost"], "unknown state 'lost'; use held, waiting"),
        (["--sort", "name"], "unknown order 'name'"),
        (["--older-than", "long"], "'long' is not a duration"),
        (["--batch", "1"], "--batch needs --queue"),
    ],
)
def test_list_refuses(cli: Cli, options: list[str], problem: str) -> None:
    ran = cli("list", *options)
    assert ran.code == 2
    assert problem in ran.err


def test_unknown_and_ambiguous_tasks(cli: Cli) -> None:
    first, second = submit(cli, "-q", "a"), submit(cli, "-q", "a")
    ran = cli("status", "nobody")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "no task has the alias 'nobody'" in ran.err
    ran = cli("status", "00000000-0000-7000-8000-000000000000")
    assert ran.code == 1
    assert "no task" in ran.err
    ran = cli("status", first[:6])
    assert ran.code == 1
    assert first in ran.err
    assert second in ran.err


def test_explain_and_history(cli: Cli) -> None:
    submit(cli, "-q", "images", "--alias", "cat", "--held")
    assert "play it to let it run" in cli("explain", "cat").out
    assert cli("play", "cat").code == 0
    assert cli("explain", "cat", "-f", "json").json["causes"][0]["why"] == "no_worker"
    happened = cli("history", "cat", "-f", "json").json
    assert [each["what"] for each in happened] == ["submit", "play"]
    assert "@" in happened[1]["by"]


@pytest.mark.usefixtures("worker")
def test_wait(cli: Cli) -> None:
    staying = submit(cli, "-q", "images", "--name", "stay")
    ran = cli("wait", staying, "--timeout", "100ms")
    assert ran.code == 1
    assert "1 task did not end in time: they continue" in ran.err
    good, bad = (
        submit(cli, "-q", "images", "--name", name, "--retries", "0") for name in ("finish", "fail")
    )
    ran = cli("wait", good, bad, "-f", "json")
    assert ran.code == 1
    assert [each["state"] for each in ran.json] == ["succeeded", "dead"]
    assert ran.json[1]["error"]["message"] == "no cat in it"


@pytest.mark.usefixtures("worker")
def test_wait_shows_how_far_the_task_is_on_a_terminal(cli: Cli, address: Address) -> None:
    staying = submit(cli, "-q", "images", "--name", "stay")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [JACKALOPE, "-b", str(address), "wait", staying],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=clean_environment() | {"COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while b"42 %  tile 21 of 50" not in shown:
        shown += os.read(ours, 65_536)  # Fails when the process has ended.
    assert cli("kill", staying).code == 0
    with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
        while terminal.read(65_536):
            pass
    assert process.wait(20) == 1


def test_watch_shows_it_again(address: Address) -> None:
    command = [JACKALOPE, "-b", str(address), "stats", "--watch", "--every", "50ms"]
    process = subprocess.Popen(
        [*command, "-f", "json"], env=clean_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    shown = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.terminate()
    process.communicate()
    times = [datetime.fromisoformat(each["now"]) for each in shown]
    assert times == sorted(set(times))


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_tail_shows_what_happens(cli: Cli, address: Address, form: str) -> None:
    command = [JACKALOPE, "-b", str(address), "tail", "--queue", "images", "--limit", "2"]
    process = subprocess.Popen(
        [*command, "-f", form],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "listening" in process.stderr.readline()
    eventually(lambda: cli("stats", "-f", "json").json["sessions"] >= 2)
    while process.poll() is None:
        submit(cli, "-q", "images")
        submit(cli, "-q", "other")
    out, _ = process.communicate(timeout=30)
    if form == "table":
        lines = out.splitlines()
    elif form == "json":
        lines = [json.loads(line)["queue"] for line in out.splitlines()]
    else:
        lines = [each["queue"] for each in yaml.safe_load_all(out)]
    assert len(lines) == 2
    assert all("images" in line for line in lines)


# Acting.


@pytest.mark.usefixtures("worker")
def test_cancel_leaves_alone_what_runs(cli: Cli) -> None:
    running = submit(cli, "-q", "images", "--name", "stay")
    eventually(lambda: state_of(cli, running) == "running")
    waiting = submit(cli, "-q", "nobody-serves-it")
    ran = cli("cancel", running, waiting)
    assert ran.code == 1
    assert f"{running} is running on w1: it was not cancelled" in ran.err
    assert f"`jackalope kill {running}`" in ran.err
    assert ran.out == "1 task cancelled\n"
    assert state_of(cli, running) == "running"
    assert state_of(cli, waiting) == "killed"
    assert "has ended already: killed" in cli("cancel", waiting).err


@pytest.mark.usefixtures("worker")
def test_kill_asks_the_worker(cli: Cli) -> None:
    running = submit(cli, "-q", "images", "--name", "stay")
    eventually(lambda: state_of(cli, running) == "running")
    ran = cli("kill", running)
    assert (ran.code, ran.out) == (0, "asked the worker of a task that runs\n")
    eventually(lambda: state_of(cli, running) == "killed")
    assert cli("retry", running).out == "1 task tried again\n"


@pytest.mark.feature("T27")
def test_actions_by_name(cli: Cli) -> None:
    task = submit(cli, "-q", "images")
    for action, state in (
        ("hold", "held"),
        ("play", "ready"),
        ("pause", "paused"),
        ("play", "ready"),
        ("kill", "killed"),
        ("retry", "ready"),
        ("cancel", "killed"),
    ):
        assert cli(action, task, "-f", "json").json["changed"] == 1
        assert state_of(cli, task) == state
    refused = cli("play", task)
    assert refused.code == 1
    assert "killed" in refused.err
    assert cli("purge", task).out == "1 task purged\n"
    assert cli("status", task).code == 1


@pytest.mark.feature("T27")
def test_actions_by_filter(cli: Cli) -> None:
    for number in range(3):
        submit(cli, "-q", "images", "--name", f"n{number}")
    submit(cli, "-q", "mail")
    assert cli("hold", "-q", "images", "--dry-run").out == "3 tasks would be held\n"
    assert cli("list", "-s", "held", "-f", "json").json == []
    unsure = cli("hold", "-q", "images")
    assert unsure.code == 1
    assert "nothing was changed: confirm with --yes" in unsure.err
    assert cli("hold", "-q", "images", "--yes").out == "3 tasks held\n"
    assert cli("hold", "-q", "images", "--yes").out == "0 tasks held\n"
    assert len(cli("list", "-s", "held", "-f", "json").json) == 3
    assert cli("play", "--state", "held", "--name", "n1", "-y").out == "1 task played\n"


def test_more_than_one_command_may_change_are_changed(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("0\n" * 10_001)
    submit(cli, "-q", "images", "--from-lines", str(file))
    dry = cli("kill", "-q", "images", "--dry-run")
    assert dry.out == "10,000 tasks and more would be killed\n"
    assert cli("kill", "-q", "images", "--yes").out == "10,001 tasks killed\n"


def test_action_must_know_which_tasks(cli: Cli) -> None:
    ran = cli("kill")
    assert ran.code == 2
    assert "no tasks to kill: name them" in ran.err
    ran = cli("kill", "cat", "--queue", "images")
    assert ran.code == 2
    assert "not both" in ran.err
    assert cli("purge").code == 2


@pytest.mark.usefixtures("worker")
def test_purge(cli: Cli) -> None:
    done = submit(cli, "-q", "images", "--name", "finish")
    waiting = submit(cli, "-q", "nobody")
    assert cli("wait", done).code == 0
    assert (
        cli("purge", "--state", "succeeded", "--older-than", "7d", "-y").out == "0 tasks purged\n"
    )
    assert cli("purge", "--all", "--yes").out == "1 task purged\n"
    assert [each["id"] for each in cli("list", "-f", "json").json] == [waiting]


def test_purge_asks_on_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    task = submit(cli, "-q", "images")
    assert cli("kill", task).code == 0
    for answer, code in (("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Typed(answer))
        ran = cli("purge", "--queue", "images")
        assert "purge 1 task? [y/N]" in ran.err
        assert ran.code == code


class Typed:
    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._answer


# The broker.


@pytest.mark.feature("T5", "T27", "J31")
def test_workers_and_drain(cli: Cli, address: Address) -> None:
    assert "no workers" in cli("workers").out
    with working(address, "w1", "images", "mail"):
        (worker,) = cli("workers", "-f", "json").json
        assert (worker["worker"], worker["state"], worker["slots"]) == ("w1", "idle", 4)
        assert "images,mail" in cli("workers").out
        ran = cli("drain", "w1", "--wait")
        assert (ran.code, ran.out) == (0, "w1 is gone\n")
    assert cli("workers", "-f", "json").json == []
    assert cli("workers", "--all", "-f", "json").json[0]["state"] == "gone"
    ran = cli("drain", "nobody")
    assert ran.code == 1
    assert "no worker 'nobody'" in ran.err


@pytest.mark.feature("T33")
def test_queues(cli: Cli) -> None:
    assert "no queues" in cli("queues").out
    ran = cli("queues", "set", "images", "--preset", "rpc", "retries=7", "retention=1d", "held=yes")
    assert ran.code == 2
    assert "held: must be true or false, got 'yes'" in ran.err
    ran = cli(
        "queues", "set", "images", "--preset", "rpc", "retries=7", "retention=1d", "-f", "json"
    )
    assert (ran.json["retries"], ran.json["retention"]) == (7, "1d")
    assert ran.json["time_to_live"] == "3m"
    shown = cli("queues", "show", "images").out
    assert "retention" in shown
    assert "1d" in shown
    assert cli("queues", "pause", "images").code == 0
    assert "paused by" in cli("queues").out
    assert cli("queues", "resume", "images").code == 0
    assert "confirm with --yes" in cli("queues", "delete", "images").err
    assert cli("queues", "delete", "images", "--yes").out == "queue images is deleted\n"
    assert cli("queues", "show", "images").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["set", "images", "retires=1"], 2, "retires: unknown key; did you mean retries?"),
        (["set", "images", "retries"], 2, "retries: write it as key=value"),
        (["set", "images", "timeout=soon", "held=2"], 2, "held: must be true or false"),
        (["set", "images", "retries=-1"], 2, "retries: must be 0 to 1000000000, got -1"),
        (["set", "images", "--preset", "nonsense"], 1, "nonsense"),
        (["pause", "nowhere"], 1, "no queue 'nowhere'"),
        (["delete", "nowhere", "--yes"], 1, "no queue 'nowhere'"),
    ],
)
def test_queues_refuse(cli: Cli, arguments: list[str], code: int, problem: str) -> None:
    ran = cli("queues", *arguments)
    assert ran.code == code
    assert problem in ran.err
    assert ran.err.count("\n") == 1


def test_options_of_a_group_hold_for_its_commands(cli: Cli, address: Address) -> None:
    elsewhere = ("--namespace", "elsewhere-" + address.namespace)
    cli("queues", *elsewhere, "set", "images", "retries=9")
    assert cli("queues", "-f", "json").json == []
    for arguments in (
        ("queues", *elsewhere, "show", "images", "-f", "json"),
        ("queues", "-f", "json", "show", "images", *elsewhere),
        (*elsewhere, "-f", "json", "queues", "show", "images"),
    ):
        assert cli(*arguments).json["policy"]["retries"] == 9


@pytest.mark.feature("J31")
def test_stats_depth_and_cluster(cli: Cli) -> None:
    for priority in ("220", "150", "150", "50"):
        submit(cli, "-q", "images", "--priority", priority)
    stats = cli("stats", "-f", "json").json
    assert stats["counts"] == {"ready": 4}
    assert stats["durability"] == "memory"
    depth = cli("queue-depth", "-f", "json").json
    assert depth == {
        "queues": {"images": 4},
        "depth_by_tier": {"high": 1, "normal": 2, "low": 1},
        "total": 4,
    }
    assert "█" in cli("queue-depth").out
    cluster = cli("cluster-status", "-f", "json").json
    assert cluster["is_replicated"] is False
    assert [node["role"] for node in cluster["nodes"]] == ["single"]


def test_batches(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("0\n" * 250)
    submit(cli, "-q", "images", "--from-lines", str(file))
    batches = cli("batches", "images", "-f", "json").json
    assert [(each["number"], each["is_full"]) for each in batches] == [
        (3, False),
        (2, True),
        (1, True),
    ]
    assert [
        each["number"] for each in cli("batches", "images", "--before", "2", "-f", "json").json
    ] == [1]
    assert cli("batches", "nowhere").code == 1


@pytest.mark.feature("D41")
def test_bench_measures_and_cleans_up(cli: Cli) -> None:
    ran = cli("bench", "--tasks", "500", "--trips", "5", "-f", "json")
    assert ran.code == 0, ran.err
    assert ran.json["tasks"] == 500
    for key in ("submit_one_per_s", "submit_bulk_per_s", "run_per_s", "round_trip_p99_ms"):
        assert ran.json[key] > 0
    assert cli("queues", "-f", "json").json == []
    assert "tasks/s" in cli("bench", "--tasks", "100", "--trips", "5").out


def test_reader_that_has_enough_is_no_error(address: Address) -> None:
    command = f"{JACKALOPE} -b {address} config show -f json | head -1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""


# Answers.


@pytest.mark.usefixtures("worker")
def test_submit_asks_once_and_says_how_it_was_served(cli: Cli) -> None:
    ask = ("submit", "-q", "images", "--name", "finish", "--same", "cached", "--version", "7")
    first = cli(*ask, "--wait")
    assert (first.code, first.err) == (0, "miss: a task of its own\n")
    second = cli(*ask)
    assert second.err.startswith("hit: made ")
    assert second.err.endswith(" by w1\n")
    task = second.out.strip()
    shown = cli("status", task)
    assert "used 1 time, last " in shown.out
    assert "miss" in shown.out
    view = cli("status", task, "-f", "json").json
    assert (view["how"], view["answer"]["version"]) == ("miss", "7")
    assert (view["answer"]["task"], len(view["answer"]["identity"])) == (task, 64)
    lines = cli("history", task, "-f", "json").json
    assert (lines[0]["what"], lines[0]["detail"]) == ("submit", "request: miss")
    assert (lines[-1]["what"], lines[-1]["detail"]) == ("hit", "1")
    assert cli(*ask, "--same", "refresh", "--wait").err == "refresh: a task of its own\n"
    assert cli(*ask, "--same", "run", "--wait").err == "bypass: a task of its own\n"
    under_way = ("submit", "-q", "nobody", "--name", "any", "--same", "unique")
    joined = cli(*under_way).out.strip()
    assert cli(*under_way).err == f"joined: task {joined} is under way\n"
    assert "awaited by 2 requests" in cli("status", joined).out


def test_submit_with_a_pace(cli: Cli) -> None:
    ask = ("submit", "-q", "nobody", "--name", "digest", "--pace-key", "ada")
    first = cli(*ask, "--debounce", "1h", "--at-most", "2h").out.strip()
    again = cli(*ask, "--debounce", "1h", "--json", "[7]")
    assert again.out.strip() == first
    assert again.err == f"replaced: task {first} was queued, and has the new arguments\n"
    assert "was replaced by a later submit" in cli("explain", first).out
    kept = cli(*ask, "--throttle", "1h").out.strip()
    assert "is accepted in 1h" in cli(*ask, "--throttle", "1h").err
    dropped = cli(*ask, "--throttle", "1h", "--drop")
    assert (dropped.out.strip(), dropped.code) == (kept, 0)
    assert dropped.err == f"dropped: task {kept} was accepted shortly before\n"
    assert cli(*ask, "--replace").out.strip() == cli(*ask, "--replace").out.strip()
    assert cli(*ask, "--replace", "--throttle", "1h").code == 2
    assert cli(*ask).code == 2
    assert "span: must be more than 0" in cli(*ask, "--debounce", "0s").err


def test_payload_that_fits_into_no_frame(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(17 * 1024 * 1024))
    task = submit(cli, "-q", "large", "--payload-file", str(file))
    assert state_of(cli, task) == "ready"


@pytest.mark.usefixtures("worker")
def test_answers_are_listed_shown_pinned_and_purged(cli: Cli) -> None:
    cli("queues", "set", "images", "same=cached")
    submit(cli, "-q", "images", "--name", "finish", "--wait")
    again = submit(cli, "-q", "images", "--name", "finish")
    [answer] = cli("cache", "list", "-q", "images", "-f", "json").json
    assert (answer["task"], answer["uses"], answer["worker"]) == (again, 1, "w1")
    identity = answer["identity"]
    assert identity in cli("cache", "list").out.splitlines()  # All of it: the next needs it.
    assert identity in cli("cache", "show", identity).out
    assert cli("cache", "pin", identity).out == "pin: 1 answers\n"
    assert cli("cache", "show", identity, "-f", "json").json["pinned_by"]
    assert cli("cache", "unpin", identity).code == 0
    assert cli("cache", "purge", "--older-than", "1d").out == "purge: 0 answers\n"
    assert cli("cache", "purge", "--name", "finish").out == "purge: 1 answers\n"
    assert cli("cache", "list", "-f", "json").json == []
    unknown = cli("cache", "purge", identity)
    assert (unknown.code, "no request" in unknown.err) == (1, True)
    assert cli("cache", "show", "abc").code == 2
    assert cli("cache", "purge").code == 1
    assert cli("cache", "purge", "--yes").code == 0
    assert cli("cache", "purge", identity, "--name", "finish").code == 2


def test_a_schedule_from_its_making_to_its_end(cli: Cli) -> None:
    when = ("cron=0 3 * * *", "zone=Europe/Berlin", "overlap=skip")
    made = cli("schedules", "set", "nightly", "queue=q", "task=t", *when, "--json", "[1]")
    assert made.code == 0, made.err
    assert "0 3 * * * Europe/Berlin" in made.out
    view = cli("schedules", "show", "nightly", "-f", "json").json
    assert len(view["upcoming"]) == 10
    task = cli("schedules", "trigger", "nightly", "-f", "json").json["task"]
    explained = cli("explain", task)
    assert "is a run of schedule 'nightly'" in explained.out.replace("\n", " ")
    refused = cli("schedules", "trigger", "nightly")
    assert (refused.code, "wait for it, or kill it" in refused.err) == (1, True)
    done = cli("schedules", "backfill", "nightly", "2026-01-01", "2026-01-03T12:00", "-f", "json")
    assert len(done.json["tasks"]) == 3
    bad = cli("schedules", "set", "nightly", "cron=0 99 * * *", "zone=Mars", "overlap=x")
    assert bad.code == 2
    assert "overlap" in bad.err
    bad = cli("schedules", "set", "nightly", "cron=0 99 * * *", "zone=Mars")
    assert bad.code == 1
    assert "bad hour" in bad.err.replace("\n", " ")
    assert "no time zone 'Mars'" in bad.err.replace("\n", " ")
    assert cli("schedules", "list", "--orphaned", "-f", "json").json == []
    assert cli("schedules", "delete", "nightly", "--yes").code == 0
    assert cli("schedules", "show", "nightly").code == 1


def test_signal_sends_an_event(cli: Cli) -> None:
    task = submit(cli, "-q", "unserved", "--name", "wait")
    assert "sent approved" in cli("signal", task, "approved").out
    assert cli("signal", task, "approved", "--data", '{"by": "Ann"}').code == 0
    refused = cli("signal", task, "approved", "--data", "Ann")
    assert (refused.code, "write JSON" in refused.err) == (2, True)
    assert cli("history", task, "-f", "json").out.count("approved") == 2
    shown = cli("status", task).out
    assert shown.count("event approved") == 2
    assert "not asked for yet" in shown
