from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope.broker.config.loader import (
    FILES,
    ConfigError,
    Origin,
    Place,
    find_file,
    known_settings,
    load,
)
from jackalope.broker.config.schema import Config, LimitsConfig, LogFormat
from jackalope.cli.formatting import setting
from jackalope.core.durations import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    NEVER,
    SECOND,
    format_duration,
    parse_duration,
)
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, OnLost
from jackalope.core.settings import keys_of, plain
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.task_log import LogLevel
from jackalope.storage import Level

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"

YAML = """
data: {folder: here, durability: interval, interval: 250ms}
native:
  port: 7500
  heartbeat: 5
log: {level: debug, format: json}
queues:
  images: {preset: gridlike, retries: 5, retry_base: 1m30s, on_lost: pause}
  plain: {}
limits: {gpu: 4}
key_limits:
  per-user: {queue: mail, keys: [user, tenant], rate: 100, per: 1m, on_full: wait}
namespaces:
  team:
    queues: {reports: {retention: forever, held: true}}
    limits: {licence: 0}
    key_limits: {all: {}}
"""

TOML = """
[data]
folder = "here"
durability = "interval"
interval = "250ms"
[native]
port = 7500
heartbeat = 5
[log]
level = "debug"
format = "json"
[queues.images]
preset = "gridlike"
retries = 5
retry_base = "1m30s"
on_lost = "pause"
[queues.plain]
[limits]
gpu = 4
[key_limits.per-user]
queue = "mail"
keys = ["user", "tenant"]
rate = 100
per = "1m"
on_full = "wait"
[namespaces.team.queues.reports]
retention = "forever"
held = true
[namespaces.team.limits]
licence = 0
[namespaces.team.key_limits.all]
"""


def write(folder: Path, text: str, name: str = "jackalope.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def meant(name: str) -> str:
    return f"; did you mean {name}?"


def problems_of(file: Path | None = None, **places: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, **places)
    return [str(problem) for problem in caught.value.problems]


# Where values come from.


def test_defaults_make_a_configuration(tmp_path: Path) -> None:
    loaded = load(folder=tmp_path)
    assert loaded.config == Config()
    assert {each.origin for each in loaded.settings} == {Origin(Place.DEFAULT)}
    assert len(loaded.settings) == len(list(known_settings()))


@pytest.mark.parametrize(("name", "text"), [("a.yaml", YAML), ("a.yml", YAML), ("a.toml", TOML)])
def test_both_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    config = load(write(tmp_path, text, name)).config
    assert config.data.folder == "here"
    assert config.data.durability is Level.INTERVAL
    assert config.data.interval_us == 250 * MILLISECOND
    assert config.native.port == 7500
    assert config.native.heartbeat_us == 5 * SECOND
    assert config.log.level is LogLevel.DEBUG
    assert config.log.format is LogFormat.JSON
    default, team = config.namespaces["default"], config.namespaces["team"]
    assert default.queues["images"].preset == "gridlike"
    assert default.queues["images"].changes == {
        "retries": 5,
        "retry_base_us": 90 * SECOND,
        "on_lost": OnLost.PAUSE,
    }
    assert default.queues["plain"].changes == {}
    assert default.limits == {"gpu": 4}
    assert team.queues["reports"].changes == {"retention_us": NEVER, "held": True}
    assert team.limits == {"licence": 0}
    assert team.key_limits["all"].changes == {}
    assert LimitSettings(**default.key_limits["per-user"].changes) == LimitSettings(
        queue="mail", keys=("user", "tenant"), rate=100, per_us=MINUTE
    )


def test_later_places_win(tmp_path: Path) -> None:
    file = write(tmp_path, "native: {host: a, port: 1, max_connections: 1}")
    environment = {"JACKALOPE_NATIVE__PORT": "2", "JACKALOPE_NATIVE__MAX_CONNECTIONS": "2"}
    flags = {"--max": ("native.max_connections", 3), "--none": ("native.host", None)}
    loaded = load(file, environment, flags)
    native = loaded.config.native
    assert (native.host, native.port, native.max_connections) == ("a", 2, 3)
    origins = {each.key: str(each.origin) for each in loaded.settings}
    assert origins["native.host"] == f"file {file}"
    assert origins["native.port"] == "environment JACKALOPE_NATIVE__PORT"
    assert origins["native.max_connections"] == "flag --max"
    assert origins["native.heartbeat"] == "default"


def test_the_limits_of_the_broker_stand_beside_those_of_tags(tmp_path: Path) -> None:
    file = tmp_path / "jackalope.yaml"
    file.write_text(
        "limits: {unread_bytes: 2097152, gpu: 4}\n"
        "namespaces: {default: {limits: {queues_by_use: 3}}}\n"
    )
    environment = {"JACKALOPE_LIMITS__NAMESPACES_BY_USE": "7"}
    config = load(file, environment=environment).config
    assert (config.limits.unread_bytes, config.limits.namespaces_by_use) == (2097152, 7)
    assert config.limits.queues_by_use == LimitsConfig().queues_by_use
    assert config.namespaces["default"].limits == {"gpu": 4, "queues_by_use": 3}
    file.write_text("limits: {unread_bytes: 5}")
    with pytest.raises(ConfigError, match="at least 1048576"):
        load(file)


def test_environment_reaches_queues_and_limits() -> None:
    environment = {
        "JACKALOPE_QUEUES__IMAGES__RETRIES": "7",
        "JACKALOPE_QUEUES__IMAGES__HELD": "true",
        "JACKALOPE_LIMITS__GPU": "2",
        "JACKALOPE_NAMESPACES__TEAM__LIMITS__GPU": "3",
    }
    config = load(environment=environment, folder=Path("/nowhere")).config
    assert config.namespaces["default"].queues["images"].changes == {"retries": 7, "held": True}
    assert config.namespaces["default"].limits == {"gpu": 2}
    assert config.namespaces["team"].limits == {"gpu": 3}


@pytest.mark.parametrize("variable", ["JACKALOPE_NATIVE__PORT__X", "JACKALOPE_LIMITS__GPU__X"])
def test_nothing_is_below_a_setting(variable: str) -> None:
    (problem,) = problems_of(environment={variable: "7"}, folder=Path("/nowhere"))
    assert "is a single setting and has no keys" in problem


def test_pools_and_launchers_are_read(tmp_path: Path) -> None:
    text = """
    launchers: {here: {command: [worker], env: {TOKEN: s3cret}}}
    pools: {models: {launcher: here, stop_delay: 1m}, plain: {}}
    """
    loaded = load(write(tmp_path, text))
    pools = loaded.config.namespaces["default"].pools
    assert pools["models"].changes == {"launcher": "here", "stop_delay_us": MINUTE}
    assert pools["plain"].changes == {}
    shown = {each.key: each.value for each in loaded.settings if each.key[:2] in ("la", "po")}
    assert shown["launchers.here.env"] == "(hidden)"
    assert shown["pools.models.stop_delay"] == "1m"
    wrong = "pools: {a: {workers_max: 0, zzz: 1}, b: 5}\nlaunchers: {here: 5}"
    found = problems_of(write(tmp_path, wrong))
    assert sorted(each.partition(" (file")[0] for each in found) == [
        "launchers.here: must map the name of each launcher to its settings, `type` among them",
        "pools.a.workers_max: must be 1 to 1000, got 0",
        "pools.a.zzz: unknown key; a pool has " + ", ".join(keys_of(PoolSettings)),
        "pools.b: must be settings of a pool, or {}",
    ]


def test_variables_of_other_programs_are_left_alone() -> None:
    environment = {
        "JACKALOPE_PORT": "tcp://10.0.0.1:7420",
        "JACKALOPE_SERVICE_HOST": "10.0.0.1",
        "JACKALOPE_NATIVE_PORT": "tcp://10.0.0.1:7420",
        "JACKALOPE_BROKER": "somewhere",
        "JACKALOPE_TOKEN": "secret",
    }
    assert load(environment=environment, folder=Path("/nowhere")).config == Config()


def test_variable_that_lacks_an_underscore_is_a_slip() -> None:
    slip = {"JACKALOPE_NATIVE_PORT": "7"}
    (problem,) = problems_of(environment=slip, folder=Path("/nowhere"))
    assert problem == (
        "native_port: unknown variable; did you mean JACKALOPE_NATIVE__PORT? "
        "(environment JACKALOPE_NATIVE_PORT)"
    )


def test_file_is_found(tmp_path: Path) -> None:
    assert find_file(None, {}, tmp_path) is None
    for name in reversed(FILES):
        write(tmp_path, "", name)
        assert find_file(None, {}, tmp_path) == tmp_path / name
    named = {"JACKALOPE_CONFIG": "elsewhere.toml"}
    assert find_file(None, named, tmp_path) == Path("elsewhere.toml")
    assert find_file(Path("flag.yaml"), named, tmp_path) == Path("flag.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "data:\nqueues:\n", "queues: {}\n"])
def test_empty_file_changes_nothing(tmp_path: Path, text: str) -> None:
    assert load(write(tmp_path, text)).config == Config()


# What can be wrong.


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    text = """
    data: {folder: "", durabilty: fsync}
    native: {port: 99999, heartbeat: soon}
    log: {level: warning}
    queues:
      images: {preset: gridlke, retry_bas: 5s, retries: -1, batch_size: 0}
      on: {retries: 3}
      wrong: 5
    limits: {gpu: lots}
    key_limits: {per-user: {key: user, rate: -1, on_full: waits, per: soon}, wrong: 5}
    lmits: {a: 1}
    namespaces:
      team: {queue: {a: {}}}
      x: 5
    """
    file = write(tmp_path, text)
    environment = {"JACKALOPE_NATIVE__PORT": "many", "JACKALOPE_NATIV__PORT": "4"}
    found = problems_of(
        file, environment=environment, flags={"--durability": ("data.durability", "fsnc")}
    )
    here, presets, levels = f"(file {file})", " or ".join(PRESETS), " or ".join(Level)
    assert sorted(found) == sorted(
        [
            f"queues.True.retries: must be a string; put the name in quotes {here}",
            f"data.folder: must not be empty {here}",
            f"data.durabilty: unknown key; did you mean durability? {here}",
            f"native.port: must be 0 to 65535, got 99999 {here}",
            "native.heartbeat: 'soon' is not a duration; write 100ms, 30s, 5m, 2h, 7d or seconds "
            + here,
            "log.level: must be error or warn or info or debug or trace, got 'warning'; "
            "did you mean warn? " + here,
            f"queues.images.preset: must be {presets}, got 'gridlke'{meant('gridlike')} {here}",
            f"queues.images.retry_bas: unknown key; did you mean retry_base? {here}",
            f"queues.images.retries: must be 0 to 1000000000, got -1 {here}",
            f"queues.images.batch_size: must be 1 to 1000000000, got 0 {here}",
            "queues.wrong: must be a preset, fields of a policy, or {} " + here,
            f"limits.gpu: must be a whole number, got 'lots' {here}",
            f"key_limits.per-user.key: unknown key; did you mean keys? {here}",
            f"key_limits.per-user.rate: must be 0 to 1000000, got -1 {here}",
            "key_limits.per-user.on_full: must be wait or cancel_newest or cancel_oldest or "
            "cancel_running, got 'waits'; did you mean wait? " + here,
            "key_limits.per-user.per: 'soon' is not a duration; write 100ms, 30s, 5m, 2h, 7d or "
            "seconds " + here,
            "key_limits.wrong: must be settings of a limit, or {} " + here,
            f"lmits: unknown key; did you mean limits? {here}",
            f"namespaces.team.queue: unknown key; did you mean queues? {here}",
            f"namespaces.x: must map names to settings {here}",
            "native.port: must be a whole number, got 'many' (environment JACKALOPE_NATIVE__PORT)",
            "nativ.port: unknown key; did you mean native? (environment JACKALOPE_NATIV__PORT)",
            f"data.durability: must be {levels}, got 'fsnc'{meant('fsync')} (flag --durability)",
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("native: 5", "native: is a group of settings: host, port"),
        ("native: {port: {a: 1}}", "native.port: must be a whole number, got {'a': 1}"),
        ("native: {port: true}", "native.port: must be a whole number, got True"),
        ("native: {host: 5}", "native.host: must be a string, got 5"),
        ("data: {interval: 0}", "data.interval: must be 1ms to 1m, got 0s"),
        ("log: {slow_task: -5}", "log.slow_task: -5 is not a duration"),
        ("limits: {gpu: -1}", "limits.gpu: must be at least 0, got -1"),
        ("queues: {a: {held: maybe}}", "queues.a.held: must be true or false, got 'maybe'"),
        ("queues: {a: {retention_us: 5}}", "queues.a.retention_us: unknown key; did you mean"),
        ("queues: {a: {retry_factor: 0}}", "queues.a.retry_factor: must be 1 to 100, got 0"),
        ("elephant: 1", "elephant: unknown key; there are data, blobs, native"),
        ("[1, 2]", "file: must map keys to values"),
        ("a: [", "file: not valid YAML: line 1, column 5"),
        (
            "queues: {a: {retries: 1}}\nnamespaces: {default: {queues: {a: {retries: 2}}}}",
            "queues.a.retries: duplicate key",
        ),
    ],
)
def test_problem(tmp_path: Path, text: str, problem: str) -> None:
    found = problems_of(write(tmp_path, text))
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert problems_of(missing) == [f"file: No such file or directory (file {missing})"]


def test_file_of_another_kind(tmp_path: Path) -> None:
    file = write(tmp_path, "", "jackalope.ini")
    assert problems_of(file) == [f"file: must end in .yaml, .yml or .toml (file {file})"]


def test_bad_toml_says_where(tmp_path: Path) -> None:
    (problem,) = problems_of(write(tmp_path, "a = \n", "a.toml"))
    assert "line 1" in problem


def test_values_of_unknown_keys_are_not_repeated() -> None:
    found = problems_of(environment={"JACKALOPE_AUTH__TOKEN": "s3cret"}, folder=Path("/nowhere"))
    assert "s3cret" not in found[0]


# Durations.


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("100ms", 100 * MILLISECOND),
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("2h", 2 * HOUR),
        ("7d", 7 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1.5s", 1_500 * MILLISECOND),
        ("10us", 10),
        ("30", 30 * SECOND),
        (45, 45 * SECOND),
        (0.25, 250 * MILLISECOND),
        ("0", 0),
        ("Forever", NEVER),
    ],
)
def test_duration(text: object, duration_us: int) -> None:
    assert parse_duration(text) == duration_us


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "5m3", "-5s", "1e3", True, None, "5s!"])
def test_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "duration_us", [0, 1, 999, MILLISECOND, 90 * SECOND, 100 * SECOND, HOUR, 7 * DAY, NEVER]
)
def test_duration_is_read_as_it_is_written(duration_us: int) -> None:
    assert parse_duration(format_duration(duration_us)) == duration_us


# The page.


def test_reference_names_every_setting_with_its_default_and_meaning() -> None:
    text = REFERENCE.read_text()
    settings = load(folder=Path("/nowhere")).settings
    for each, (*_, about) in zip(settings, known_settings(), strict=True):
        assert f"| `{each.key}` | `{each.value}` | {about} |" in text


def test_reference_names_every_field_of_a_policy() -> None:
    text = REFERENCE.read_text()
    for name, default in msgspec.structs.asdict(DEFAULT_POLICY).items():
        shown = f"`{setting(plain(name, default))}`" if default != "" else ""
        assert f"| `{name.removesuffix('_us')}` | {shown}" in text
    for preset in PRESETS:
        assert f"`{preset}`" in text


# The file of the published task queue.

TASK_QUEUE = """
broker:
  host: 127.0.0.2
  port: 6379
  max_connections: 1000
  queue_depth_threshold: 10
persistence:
  data_dir: ./data
  wal_sync_interval_ms: 100
  retention_days: 7
raft: {enabled: true, node_id: node1, peers: [node2:6379, node3:6379]}
api: {rest_port: 8080, grpc_port: 9090, enable_tls: true, tls_cert_path: a.crt, tls_key_path: a.key}
auth: {enabled: true, api_keys: []}
monitoring: {prometheus_port: 9091, log_level: WARN}
worker: {concurrency: 4, heartbeat_interval_secs: 15, graceful_shutdown_timeout_secs: 60}
"""


@pytest.mark.feature("D40")
def test_file_of_the_task_queue_design_is_translated(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, TASK_QUEUE))
    config = loaded.config
    assert (config.native.host, config.http.host) == ("127.0.0.2", "127.0.0.2")
    assert (config.native.port, config.native.max_connections) == (6379, 1000)
    assert (config.data.folder, config.data.durability) == ("./data", Level.INTERVAL)
    assert config.data.interval_us == 100 * MILLISECOND
    assert (config.http.port, config.http.monitoring_port) == (8080, 9091)
    assert (config.grpc.host, config.grpc.port) == ("127.0.0.2", 9090)
    assert (config.tls.cert, config.tls.key) == ("a.crt", "a.key")
    assert config.log.level is LogLevel.WARN
    policy = config.queue_defaults.policy()
    assert (policy.depth_limit, policy.retention_us) == (10, 7 * DAY)
    assert (policy.timeout_us, policy.retries) == (5 * MINUTE, 3)
    keys = msgspec.yaml.decode(TASK_QUEUE)
    leaves = {f"{section}.{name}" for section, fields in keys.items() for name in fields}
    noted = {note.key for note in loaded.notes}
    assert leaves - {"auth.api_keys"} <= noted
    idle = {note.key for note in loaded.notes if not note.has_effect}
    assert {key.partition(".")[0] for key in idle} == {"raft", "api", "auth", "worker"}
    assert "cluster init" in next(str(n) for n in loaded.notes if n.key == "raft.peers")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("broker: {prt: 1}", "broker.prt: unknown key; broker has host, port, max_connections"),
        ("broker: {port: many}", "native.port: must be a whole number, got 'many'"),
        ("broker: 6379", "broker: must map keys to values"),
        ("persistence: {retention_days: soon}", "persistence.retention_days: must be a whole"),
        (
            "auth: {api_keys: [{key_hash: $2b$12$x}]}",
            "auth.api_keys: bcrypt hashes are not supported",
        ),
        ("{broker: {port: 1}, native: {port: 2}}", "broker.port: native.port is given as well"),
    ],
)
def test_what_cannot_be_translated_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = problems_of(write(tmp_path, text))
    assert found.startswith(problem)
    assert "$2b" not in found


def test_sync_at_once_loses_nothing_and_tls_can_be_off(tmp_path: Path) -> None:
    text = "{persistence: {wal_sync_interval_ms: 0}, api: {enable_tls: false, tls_cert_path: a}}"
    loaded = load(write(tmp_path, text))
    assert loaded.config.data.durability is Level.FSYNC
    assert loaded.config.tls.cert == ""


def test_queue_defaults_are_a_policy(tmp_path: Path) -> None:
    text = "queue_defaults: {preset: jobqueue, retries: 9}"
    loaded = load(write(tmp_path, text), {"JACKALOPE_QUEUE_DEFAULTS__TIMEOUT": "90s"})
    policy = loaded.config.queue_defaults.policy()
    assert (policy.retries, policy.timeout_us) == (9, 90 * SECOND)
    assert policy.same is PRESETS["jobqueue"].same
    shown = {each.key: each.value for each in loaded.settings if each.key.startswith("queue_")}
    assert shown == {
        "queue_defaults.preset": "jobqueue",
        "queue_defaults.retries": 9,
        "queue_defaults.timeout": "90s",
    }
    (problem,) = problems_of(write(tmp_path, "queue_defaults: {retries: -1}"))
    assert problem.startswith("queue_defaults.retries: must be 0 to")
    (problem,) = problems_of(write(tmp_path, "queue_defaults: 3"))
    assert problem.startswith("queue_defaults: must be a preset")
