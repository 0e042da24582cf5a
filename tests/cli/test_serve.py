"""`jackalope serve` as a real process: starting, stopping, and what its exit codes mean."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from jackalope.broker.config.schema import Config, DataConfig, HttpConfig, NativeConfig
from jackalope.broker.service import Broker
from jackalope.cli.base import Exit, Failure
from jackalope.cli.serving import run_broker
from jackalope.log_setup import LEVELS
from jackalope.storage import Level, SyncFailed
from jackalope.storage.sqlite.history import History
from tests.cli.conftest import JACKALOPE, Cli, Serving, clean_environment

START_S_MAX = 10.0


def refused(*flags: str, cwd: Path) -> tuple[int, str]:
    """Start a broker that cannot start, and return its exit code and what it says."""
    ran = subprocess.run(
        [JACKALOPE, "serve", *flags],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_starts_quickly_and_stops_as_asked(tmp_path: Path, number: int) -> None:
    begin = time.monotonic()
    serving = Serving(cwd=tmp_path)
    assert time.monotonic() - begin < START_S_MAX
    assert serving.address.host == "127.0.0.1"
    assert serving.folder == str(tmp_path / "jackalope-data")
    assert serving.durability == "fsync"
    code, log = serving.stop(number)
    assert code == 0
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert messages == ["broker started", "broker stops", "broker stopped"]


def test_tasks_outlive_a_restart(tmp_path: Path, cli: Cli) -> None:
    first = Serving(cwd=tmp_path)
    submitted = cli("-b", str(first.address), "submit", "-q", "images", "--name", "x").out.strip()
    first.process.kill()
    assert first.stop()[0] == -signal.SIGKILL
    second = Serving(cwd=tmp_path)
    (task,) = cli("-b", str(second.address), "list", "-f", "json").json
    assert (task["id"], task["state"]) == (submitted, "ready")
    assert second.stop()[0] == 0


def writer_of(serving: Serving) -> int:
    """Return the process that writes history for a broker."""
    pid = serving.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def test_broker_whose_writer_is_killed_goes_on(tmp_path: Path, cli: Cli) -> None:
    serving = Serving(cwd=tmp_path)
    os.kill(writer_of(serving), signal.SIGKILL)
    broker = ("-b", str(serving.address))
    submitted = cli(*broker, "submit", "-q", "images", "--name", "x").out.strip()
    (task,) = cli(*broker, "list", "-f", "json").json
    assert task["id"] == submitted
    code, log = serving.stop()
    assert code == 0
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert "the history writer process was lost; writing history in the broker process" in messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_both_processes_loses_nothing(tmp_path: Path, cli: Cli, number: int) -> None:
    serving = Serving(cwd=tmp_path)
    writer = writer_of(serving)
    submitted = cli("-b", str(serving.address), "submit", "-q", "a", "--name", "x").out.strip()
    os.kill(writer, number)
    code, log = serving.stop(number)
    assert (code, "lost" in log) == (0, False)
    assert not Path(f"/proc/{writer}").exists()
    with closing(History(tmp_path / "jackalope-data" / "tasks.db")) as history:
        assert [row.id.hex() for row in history.load().tasks] == [submitted.replace("-", "")]


def test_second_broker_on_the_folder_is_refused(tmp_path: Path) -> None:
    serving = Serving("--data", "data", cwd=tmp_path)
    code, err = refused("--port", "0", "--data", "data", cwd=tmp_path)
    assert code == 4
    assert f"process {serving.process.pid}" in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert serving.stop()[0] == 0


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = refused("--port", str(port), cwd=tmp_path)
    assert code == 4
    assert err == (
        f"error: cannot listen on 127.0.0.1:{port}: another program listens there; stop it, or "
        "choose another with --port\n"
    )


def test_address_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    code, err = refused("--host", "192.0.2.1", "--insecure", cwd=tmp_path)
    assert code == 1
    assert "cannot listen on 192.0.2.1:7420" in err


def test_bad_configuration_lists_every_problem(tmp_path: Path) -> None:
    (tmp_path / "jackalope.yaml").write_text("native: {prt: 1}\nlog: {level: loud}\n")
    code, err = refused("--durability", "hope", cwd=tmp_path)
    assert code == 2
    assert err.splitlines() == [
        "error: invalid configuration: 3 problems",
        "  native.prt: unknown key; did you mean port? (file jackalope.yaml)",
        f"  log.level: must be {' or '.join(LEVELS)}, got 'loud' (file jackalope.yaml)",
        "  data.durability: must be fsync or interval or memory, got 'hope' (flag --durability)",
    ]
    assert not (tmp_path / "jackalope-data").exists()


def test_results_that_go_in_a_circle_are_a_bad_configuration(tmp_path: Path) -> None:
    (tmp_path / "jackalope.toml").write_text(
        '[queues.a]\nresult_becomes = "b"\n[queues.b]\nresult_becomes = "a"\n'
    )
    code, err = refused("--port", "0", cwd=tmp_path)
    assert code == 2
    assert "queues.b: results would form a cycle: b -> a -> b" in err
    assert not (tmp_path / "jackalope-data").exists()


def test_a_refused_configuration_leaves_nothing_behind(tmp_path: Path, cli: Cli) -> None:
    """Also not in a folder that is there, and the corrected one is accepted."""
    file = tmp_path / "jackalope.toml"
    assert Serving(cwd=tmp_path).stop()[0] == 0
    file.write_text(
        '[limits]\ngpu = 3\n[queues.a]\nresult_becomes = "b"\n[queues.b]\nresult_becomes = "a"\n'
    )
    assert cli("config", "check", "--config", str(file)).code == 2
    assert refused("--port", "0", "--http-port", "0", cwd=tmp_path)[0] == 2
    file.write_text('[queues.b]\nresult_becomes = "a"\n')
    assert cli("config", "check", "--config", str(file)).code == 0
    serving = Serving(cwd=tmp_path)
    queues = cli("-b", str(serving.address), "queues", "-f", "json").json
    assert sorted(queue["queue"] for queue in queues) == ["a", "b"]
    assert cli("-b", str(serving.address), "limits", "-f", "json").json == []
    serving.stop()


@pytest.mark.parametrize(
    "flags",
    [
        ("--host", "0.0.0.0"),  # noqa: S104  it is refused
        ("--tls-cert", "none.crt", "--tls-key", "none.key"),
    ],
)
def test_a_refused_start_makes_no_folder(tmp_path: Path, flags: tuple[str, ...]) -> None:
    code, _ = refused("--port", "0", *flags, cwd=tmp_path)
    assert code == 2
    assert not (tmp_path / "jackalope-data").exists()


@pytest.mark.parametrize("flag", ["--port", "--http-port", "--amqp-port"])
def test_a_port_that_is_taken_makes_no_folder(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"--port": "0", "--http-port": "0", flag: str(other.getsockname()[1])}
        more = ["--amqp"] if flag == "--amqp-port" else []
        words = [word for pair in ports.items() for word in pair]
        code, err = refused(*words, *more, cwd=tmp_path)
    assert code == 4
    assert f"choose another with {flag}" in err
    assert not (tmp_path / "jackalope-data").exists()


def test_damaged_storage_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    assert Serving(cwd=tmp_path).stop()[0] == 0
    (tmp_path / "jackalope-data" / "tasks.db").write_bytes(b"this is no database" * 100)
    code, err = refused("--port", "0", cwd=tmp_path)
    assert code == 3
    assert "tasks.db" in err
    assert "jackalope check" in err
    code, err = refused("--port", "0", "--accept-loss", cwd=tmp_path)
    assert code == 3
    assert "not limited to indexes. Restore it" in err


def test_folder_that_cannot_be_made_is_a_storage_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, err = refused("--port", "0", "--data", "file/data", cwd=tmp_path)
    assert code == 3
    assert "file" in err


def test_configured_queues_and_limits_are_there(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "jackalope.yaml").write_text(
        "queues: {images: {preset: rpc, retries: 7}, plain: {}}\n"
        "limits: {gpu: 4}\n"
        "namespaces: {team: {queues: {reports: {on_lost: pause}}, limits: {licence: 2}}}\n"
    )
    for _ in range(2):
        serving = Serving(cwd=tmp_path)
        at = ("-b", str(serving.address), "-f", "json")
        queues = {each["queue"]: each["policy"] for each in cli(*at, "queues").json}
        assert set(queues) == {"images", "plain"}
        assert queues["images"]["retries"] == 7
        assert queues["images"]["time_to_live"] == "3m"
        assert cli(*at, "limits").json == [{"tag": "gpu", "limit": 4, "in_flight": 0, "waiting": 0}]
        (reports,) = cli(*at, "-n", "team", "queues").json
        assert reports["policy"]["on_lost"] == "pause"
        assert [each["tag"] for each in cli(*at, "-n", "team", "limits").json] == ["licence"]
        assert serving.stop()[0] == 0


def test_configured_limits_by_key_are_as_in_the_file(tmp_path: Path, cli: Cli) -> None:
    """A change while the broker works holds until it starts again."""
    file = tmp_path / "jackalope.yaml"
    file.write_text(
        "key_limits: {per-user: {keys: [user], concurrency: 2, on_full: cancel_newest}}"
    )
    serving = Serving(cwd=tmp_path)
    at = ("-b", str(serving.address), "-f", "json")
    cli(*at, "limits", "set", "per-user", "--concurrency", "9", "--queue", "mail")
    cli(*at, "limits", "set", "other", "--concurrency", "9")
    assert serving.stop()[0] == 0
    # What is no longer in the file is gone as well: with the `on_full` of before it were refused.
    file.write_text("key_limits: {per-user: {keys: [user], rate: 5, per: 1m}}")
    serving = Serving(cwd=tmp_path)
    limits = cli("-b", str(serving.address), "-f", "json", "limits").json
    settings = {each["name"]: each["settings"] for each in limits}
    assert settings["other"]["concurrency"] == 9
    expected = {"queue": "", "keys": ["user"], "rate": 5, "per": "1m", "concurrency": -1}
    assert settings["per-user"] | expected == settings["per-user"]
    assert serving.stop()[0] == 0


def test_every_problem_of_configured_limits_is_listed(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "jackalope.yaml"
    file.write_text(
        "queues: {images: {}}\n"
        "key_limits: {a: {rate: 5, cost: 9}, b: {keys: [x, x], burst: 3}}\n"
        "namespaces: {team: {key_limits: {c: {on_full: cancel_newest}}}}\n"
    )
    code, err = refused("--port", "0", "--http-port", "0", cwd=tmp_path)
    checked = cli("config", "check", "--config", str(file))
    assert code == checked.code == 2
    for problem in (
        "key_limits.a: limits not changed. cost: 9 is more than a full bucket has, 5",
        "key_limits.b: limits not changed. keys: one comes twice; burst: is for a limit with",
        "namespaces.team.key_limits.c: limits not changed. on_full: cancel_newest is for",
    ):
        assert problem in err
        assert problem in checked.err
    assert not (tmp_path / "jackalope-data").exists()


@pytest.mark.feature("D6", "D40")
def test_file_of_the_task_queue_design_is_obeyed(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "tq.yaml").write_text(
        "broker: {port: 6379, queue_depth_threshold: 10}\n"
        "persistence: {data_dir: ./tq-data, wal_sync_interval_ms: 100, retention_days: 3}\n"
        "raft: {enabled: true, node_id: node1, peers: [node2:6379, node3:6379]}\n"
    )
    serving = Serving("--config", "tq.yaml", "--log-format", "json", cwd=tmp_path)
    assert (serving.folder, serving.durability) == (str(tmp_path / "tq-data"), "interval")
    at = ("-b", str(serving.address))
    for _ in range(10):
        assert cli(*at, "submit", "-q", "resize", "--name", "x").code == 0
    refused = cli(*at, "submit", "-q", "resize", "--name", "x")
    assert refused.code == 1
    assert "holds 10 waiting tasks, its depth limit" in refused.err
    (queue,) = cli(*at, "-f", "json", "queues").json
    policy = queue["policy"]
    assert (policy["depth_limit"], policy["timeout"]) == (10, "5m")
    assert policy["retention"] == "3d"
    code, log = serving.stop()
    assert code == 0
    notes = [json.loads(line) for line in log.splitlines() if "setting translated" in line]
    assert {note["level"] for note in notes if note["key"].startswith("raft.")} == {"warn"}
    assert any(note["key"] == "broker.queue_depth_threshold" for note in notes)


def test_environment_names_the_file_and_the_settings(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("data: {folder: from-file, durability: interval}\n")
    serving = Serving(
        cwd=tmp_path,
        environment={"JACKALOPE_CONFIG": "other.yaml", "JACKALOPE_DATA__FOLDER": "from-variable"},
    )
    assert serving.folder == str(tmp_path / "from-variable")
    assert serving.durability == "interval"
    assert serving.stop()[0] == 0


def test_log_tells_of_tasks(tmp_path: Path, cli: Cli) -> None:
    serving = Serving("--log-level", "info", cwd=tmp_path)
    submitted = cli("-b", str(serving.address), "submit", "-q", "images", "--name", "x").out.strip()
    _, log = serving.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    (line,) = [each for each in lines if each["message"] == "task submitted"]
    assert line["task_id"] == submitted
    assert line["queue"] == "images"


def test_open_address_is_warned_of(tmp_path: Path) -> None:
    flags = ("--host", "0.0.0.0", "--insecure", "--log-level", "warn")  # noqa: S104
    serving = Serving(*flags, cwd=tmp_path)
    _, log = serving.stop()
    assert [json.loads(line)["level"] for line in log.splitlines()] == ["warn"]


def test_console_log_is_for_people(tmp_path: Path) -> None:
    serving = Serving("--log-format", "console", cwd=tmp_path)
    _, log = serving.stop()
    assert "broker started" in log
    assert not log.startswith("{")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_of_somebody_else_is_a_storage_fault(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    assert refused("--port", "0", "--data", str(folder), cwd=tmp_path)[0] == 3


def test_wait_bears_a_restart(tmp_path: Path, cli: Cli) -> None:
    first = Serving(cwd=tmp_path)
    at = ("-b", str(first.address))
    task = cli(*at, "submit", "-q", "images", "--name", "x", "--held").out.strip()
    waiting = subprocess.Popen(
        [JACKALOPE, *at, "wait", task, "-f", "json"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    while cli(*at, "stats", "-f", "json").json["sessions"] < 2:
        time.sleep(0.05)
    first.process.kill()
    first.stop()
    second = Serving("--port", str(first.address.port), cwd=tmp_path)
    assert cli(*at, "cancel", task).code == 0
    out, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    assert json.loads(out)[0]["state"] == "killed"
    assert second.stop()[0] == 0


def test_storage_that_fails_later_has_the_same_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Broker) -> None:
        raise SyncFailed("journal.db: writing failed; check the disk")

    monkeypatch.setattr(Broker, "failed", fail)
    config = Config(
        data=DataConfig(durability=Level.MEMORY),
        native=NativeConfig(port=0),
        http=HttpConfig(port=0),
    )
    with pytest.raises(Failure, match="check the disk") as caught:
        asyncio.run(run_broker(config))
    assert caught.value.code is Exit.STORAGE
