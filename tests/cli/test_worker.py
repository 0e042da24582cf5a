"""`jackalope worker`: its options become the worker's settings; the rest is the worker's."""

from pathlib import Path

import pytest

import jackalope.worker
from jackalope.transport.address import Address
from jackalope.worker.settings import WorkerSettings
from tests.cli.conftest import Cli


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[WorkerSettings]:
    """Catch the settings that the worker would run with."""
    settings: list[WorkerSettings] = []

    def run_worker(given: WorkerSettings) -> int:
        settings.append(given)
        return 7

    monkeypatch.setattr(jackalope.worker, "run_worker", run_worker, raising=False)
    monkeypatch.setattr("jackalope.log_setup.set_up", lambda *_, **__: None)
    return settings


def test_nothing_but_the_application(cli: Cli, told: list[WorkerSettings]) -> None:
    assert cli("worker", "shop:app").code == 7
    (settings,) = told
    expected = WorkerSettings(application="shop:app", name=settings.name, log="info auto")
    assert settings == expected


def test_every_option(cli: Cli, told: list[WorkerSettings]) -> None:
    ran = cli(
        *("--broker", "example.org:7500", "--namespace", "team", "worker", "shop:app"),
        *("--queues", "a, b", "--keys", "k", "--concurrency", "8", "--prefetch", "4"),
        *("--name", "gpu-1", "--label", "rack=3", "--label", "gpu=a=b"),
        *("--drain-deadline", "5m", "--stop-deadline", "1s", "--lease", "60", "--grace", "2s"),
        *("--memory", "512M", "--recycle-tasks", "9", "--recycle-age", "1h"),
        *("--recycle-memory", "1GiB", "--log-level", "warn", "--log-format", "json"),
    )
    assert ran.code == 7, ran.err
    (settings,) = told
    assert settings.address == Address("example.org", 7500, namespace="team")
    assert (settings.queues, settings.keys) == (("a", "b"), ("k",))
    assert (settings.concurrency, settings.prefetch, settings.name) == (8, 4, "gpu-1")
    assert settings.labels == {"rack": "3", "gpu": "a=b"}
    assert (settings.drain_s, settings.stop_s) == (300.0, 1.0)
    assert (settings.lease_s, settings.grace_s) == (60.0, 2.0)
    assert settings.memory_bytes_max == 512 * 2**20
    assert settings.log == "warn json"
    recycling = settings.recycling
    assert (recycling.tasks, recycling.age_s, recycling.rss_bytes) == (9, 3_600.0, 2**30)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--lease", "10ms"], "lease_s: must be"),
        (["--lease", "long"], "'long' is not a duration"),
        (["--label", "rack"], "label 'rack': write it as key=value"),
        (["--memory", "lots"], "'lots' is not a size"),
        (["--log-level", "loud"], "must be error or warn or info or debug"),
        (["--concurrency", "-1"], "--concurrency"),
    ],
)
def test_bad_options(
    cli: Cli, told: list[WorkerSettings], options: list[str], problem: str
) -> None:
    ran = cli("worker", "shop:app", *options)
    assert ran.code == 2
    assert problem in ran.err
    assert told == []


@pytest.mark.feature("D40")
def test_file_of_the_task_queue_design(
    cli: Cli, told: list[WorkerSettings], tmp_path: Path
) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(
        "broker_address: 127.0.0.1:6379\nconcurrency: 4\nheartbeat_interval_secs: 15\n"
        "graceful_shutdown_timeout_secs: 90\n"
    )
    assert cli("worker", "shop:app", "--config", str(file)).code == 7
    assert cli("worker", "shop:app", "--config", str(file), "-c", "8", "--lease", "40s").code == 7
    assert cli("--broker", "other:1", "worker", "shop:app", "--config", str(file)).code == 7
    plain, chosen, elsewhere = told
    assert plain.address == Address("127.0.0.1", 6379)
    assert (plain.concurrency, plain.lease_s, plain.drain_s) == (4, 30.0, 90.0)
    assert (chosen.concurrency, chosen.lease_s, chosen.drain_s) == (8, 40.0, 90.0)
    assert elsewhere.address == Address("other", 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("concurency: 4", "concurency: unknown key; there are broker_address, concurrency"),
        ("concurrency: many", "concurrency: must be a whole number, got 'many'"),
        ("- 4", "must map keys to values"),
        ("a: [", "not valid YAML"),
    ],
)
def test_bad_file(cli: Cli, tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(text)
    ran = cli("worker", "shop:app", "--config", str(file))
    assert ran.code == 2
    assert problem in ran.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--namespaces", "a,b,a"], "'a' is named twice"),
        (["--namespaces", ","], "names none"),
        (["--namespaces", "a", "--namespace", "b"], "--namespace or --namespaces, not both"),
        (["--namespaces", ",".join(map(str, range(101)))], "at most 100, got 101"),
        (["--namespaces", "x" * 257], "at most 256 characters"),
    ],
)
def test_bad_namespaces_are_refused(
    cli: Cli, told: list[WorkerSettings], options: list[str], problem: str
) -> None:
    ran = cli("worker", "shop:app", *options)
    assert (ran.code, told) == (2, [])
    assert problem in ran.err
