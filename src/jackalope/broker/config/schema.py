"""Settings: every setting of a broker, its default, its bounds and its meaning.

Owns the shapes and nothing else; `config` fills them. A setting that ends in `_us` is a duration.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jackalope.core.api_key import ApiKey
from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from jackalope.core.limits import NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.policy import DEFAULT_POLICY, PRESETS, Policy
from jackalope.storage.journals import JournalKind
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.wire.frames import FRAME_BYTES_MAX

MEBIBYTE = 1024 * 1024


class LogLevel(StrEnum):
    """How much is logged: each level includes those before it."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"
    TRACE = "trace"


class LogFormat(StrEnum):
    """How a line of the log looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Store(StrEnum):
    """Kinds of stores for blobs."""

    FOLDER = "folder"
    S3 = "s3"


def _about(text: str, **bounds: Any) -> Meta:
    return Meta(description=text, **bounds)


def _secret(text: str) -> Meta:
    """Describe a setting whose value is never shown."""
    return Meta(description=text, extra={"secret": True})


class DataConfig(msgspec.Struct, frozen=True):
    """Where the broker keeps what it must not forget, and how surely."""

    folder: Annotated[
        str, _about("The data folder; one broker at a time has it.", min_length=1)
    ] = "jackalope-data"
    durability: Annotated[
        Level,
        _about(
            "What an acknowledgement promises. `fsync`: nothing is ever lost. `interval`: a power "
            "failure may cost the last `data.interval`. `memory`: everything ends with the process."
        ),
    ] = Level.FSYNC
    interval_us: Annotated[
        int,
        _about("How often the disk is synced at durability `interval`.", ge=MILLISECOND, le=MINUTE),
    ] = INTERVAL_US_DEFAULT
    journal: Annotated[
        JournalKind,
        _about(
            "How the journal is kept: `segments`, files that are written over, or `sqlite`, as "
            "before. A folder with the other kind is changed at the next start."
        ),
    ] = JournalKind.SEGMENTS
    free_bytes_min: Annotated[
        int,
        _about(
            "How much of the disk must be free for new tasks to be taken; those that are there go "
            "on. 0 for no such limit.",
            ge=0,
        ),
    ] = 50 * MEBIBYTE


class BlobsConfig(msgspec.Struct, frozen=True):
    """Where payloads and results above 64 KiB are kept."""

    store: Annotated[
        Store,
        _about(
            "`folder`: in the data folder. `s3`: in S3-compatible storage; needs `jackalope[s3]`."
        ),
    ] = Store.FOLDER
    bucket: Annotated[str, _about("The bucket of `s3`, which must be there.")] = ""
    prefix: Annotated[
        str,
        _about(
            "What the keys of all objects begin with. It belongs to one broker alone.",
            min_length=1,
            max_length=200,
            pattern="^[A-Za-z0-9._/-]+$",
        ),
    ] = "jackalope"
    endpoint: Annotated[
        str,
        _about(
            "The address of the server, such as `https://minio.example:9000`; empty for Amazon's.",
            pattern="^(https?://.+)?$",
        ),
    ] = ""
    region: Annotated[str, _about("The region of the bucket.", min_length=1)] = "us-east-1"
    credentials_file: Annotated[
        str,
        _about(
            "A file with keys, as Amazon's tools write it (`[default]`). Without one they come "
            "from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or from the machine."
        ),
    ] = ""
    link_life_us: Annotated[
        int,
        _about(
            "How long a link to the store can be used, to send a payload or to fetch one.",
            ge=MINUTE,
            le=7 * DAY,
        ),
    ] = 15 * MINUTE


Port = Annotated[int, _about("The port; 0 takes a free one.", ge=0, le=65_535)]


class ListenConfig(msgspec.Struct, frozen=True):
    """What every door has: where it listens, and how many it lets in."""

    host: Annotated[
        str, _about("The address to listen on; `0.0.0.0` for every network.", min_length=1)
    ] = "127.0.0.1"
    port: Port = 0
    max_connections: Annotated[
        int, _about("How many connections are open at once; more are refused.", ge=1, le=1_000_000)
    ] = 10_000
    tls: Annotated[bool, _about("Whether the door speaks TLS if `tls.cert` is set.")] = True


class NativeConfig(ListenConfig, frozen=True):
    """The native door: the TCP port of clients, workers and this command line."""

    port: Port = 7420
    frame_bytes_max: Annotated[
        int, _about("The largest frame that is taken.", ge=64 * 1024, le=FRAME_BYTES_MAX)
    ] = FRAME_BYTES_MAX
    heartbeat_us: Annotated[
        int,
        _about(
            "How often each side of a connection sends something. One that hears nothing for three "
            "of these may close it.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 10 * SECOND


class HttpConfig(ListenConfig, frozen=True):
    """The HTTP door: REST, WebSockets, metrics and health. It needs `jackalope[http]`."""

    enabled: Annotated[
        bool, _about("Whether the door opens; without `jackalope[http]` it stays shut.")
    ] = True
    port: Port = 7421
    monitoring_port: Annotated[
        int,
        _about("A port that answers `/metrics` and `/health` alone; 0 for none.", ge=0, le=65_535),
    ] = 0
    body_bytes_max: Annotated[
        int, _about("The largest JSON body that is taken.", ge=64 * 1024, le=1024 * MEBIBYTE)
    ] = 16 * MEBIBYTE
    payload_bytes_max: Annotated[
        int,
        _about("The largest payload inside JSON; larger ones come raw.", ge=0, le=1024 * MEBIBYTE),
    ] = 10 * MEBIBYTE
    upload_bytes_max: Annotated[
        int, _about("The largest raw payload or result.", ge=64 * 1024, le=1024 * 1024 * MEBIBYTE)
    ] = 16 * 1024 * MEBIBYTE
    tls: Annotated[
        bool, _about("Whether the door speaks TLS if `tls.cert` is set; not so behind a proxy.")
    ] = True
    rate_per_s: Annotated[
        int,
        _about(
            "How many requests a second each API key may make in the long run; 0 for any number. "
            "An open broker does not count.",
            ge=0,
            le=1_000_000,
        ),
    ] = 100
    rate_burst: Annotated[int, _about("How many of them may come at once.", ge=1, le=1_000_000)] = (
        200
    )
    header_bytes_max: Annotated[
        int, _about("The largest head of a request: its line and headers.", ge=1024, le=MEBIBYTE)
    ] = 32 * 1024
    header_timeout_us: Annotated[
        int,
        _about("How long the head of a request may take to come.", ge=100 * MILLISECOND, le=HOUR),
    ] = 10 * SECOND
    body_timeout_us: Annotated[
        int,
        _about(
            "How long a body may stand still before the connection is given up.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 30 * SECOND
    keep_alive_us: Annotated[
        int, _about("How long a connection stays open between requests.", ge=SECOND, le=HOUR)
    ] = 75 * SECOND
    cors_origins: Annotated[
        tuple[str, ...],
        _about("The origins, such as `https://example.org`, whose pages may call; `*` for all."),
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        _about(
            "Other names of this machine by which the door may be called while no key is needed; "
            "those that only lead to itself are known."
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        _about(
            "The addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` "
            "are believed; `*` for all."
        ),
    ] = ()
    prefix: Annotated[
        str, _about("The path under which a proxy serves this door, such as `/jackalope`.")
    ] = ""


class AmqpConfig(ListenConfig, frozen=True):
    """The AMQP 0-9-1 door, for programs written for RabbitMQ."""

    enabled: Annotated[bool, _about("Whether the door opens.")] = False
    port: Port = 5672
    channel_max: Annotated[
        int, _about("How many channels a connection may have.", ge=1, le=65_535)
    ] = 2_047
    frame_bytes_max: Annotated[
        int, _about("The largest frame; the peer may ask for less.", ge=4_096, le=16 * MEBIBYTE)
    ] = 128 * 1024
    message_bytes_max: Annotated[
        int, _about("The largest body of a message.", ge=64 * 1024, le=2_048 * MEBIBYTE)
    ] = 128 * MEBIBYTE
    heartbeat_us: Annotated[
        int,
        _about(
            "How often each side of a connection sends something, unless the peer asks for another "
            "time; 0 for never. One that hears nothing for two of these closes it.",
            ge=0,
            le=HOUR,
        ),
    ] = 60 * SECOND
    client_ca: Annotated[
        str,
        _about(
            "The file of authorities, in PEM form, whose certificates prove who a client is "
            "(EXTERNAL): the API key that has the name of the certificate."
        ),
    ] = ""
    management: Annotated[
        bool,
        _about(
            "Whether RabbitMQ's management API is served beside it; it needs `jackalope[http]`."
        ),
    ] = False
    management_port: Annotated[
        int, _about("The port of the management API; 0 takes a free one.", ge=0, le=65_535)
    ] = 15_672


class TlsConfig(msgspec.Struct, frozen=True):
    """Encryption of both doors: TLS 1.2 or later."""

    cert: Annotated[
        str, _about("The file of the certificate, in PEM form, with those of its authorities.")
    ] = ""
    key: Annotated[str, _about("The file of its private key, in PEM form, not encrypted.")] = ""


class AuthConfig(msgspec.Struct, frozen=True):
    """Who may come in. Without any key a broker is open, and that only on its own machine."""

    keys: Annotated[
        tuple[ApiKey, ...],
        _about(
            "API keys that exist without being stored: each has `id`, `hash`, `name`, "
            "`permissions`, and perhaps `queues` and `namespace`. `jackalope keys new` makes one."
        ),
    ] = ()
    insecure: Annotated[
        bool, _about("Listen on other networks than this machine even without keys or without TLS.")
    ] = False


class LimitsConfig(msgspec.Struct, frozen=True):
    """What all clients together may use up."""

    namespaces_by_use: Annotated[
        int,
        _about(
            "How many namespaces there may be for another to come into being by being named; "
            "declaring a queue in one makes it beyond that.",
            ge=1,
            le=NAMESPACES_MAX,
        ),
    ] = 100
    queues_by_use: Annotated[
        int,
        _about(
            "How many queues there may be in all namespaces for another to come into being by "
            "being named; queues that are declared come beyond that.",
            ge=1,
            le=NAMESPACES_MAX * QUEUES_PER_NAMESPACE_MAX,
        ),
    ] = 2_000
    unread_bytes: Annotated[
        int,
        _about(
            "How much all peers of all doors together may leave unread; beyond that the one with "
            "the most is cut off.",
            ge=MEBIBYTE,
        ),
    ] = 256 * MEBIBYTE


class GridlikeConfig(msgspec.Struct, frozen=True):
    """GridLike's jobs and workers, at the HTTP door."""

    enabled: Annotated[bool, _about("Whether `/api/jobs` and `/api/worker` are served.")] = True
    namespace: Annotated[
        str, _about("The namespace of all jobs; its queues are the job types.", min_length=1)
    ] = "default"
    queue: Annotated[
        str,
        _about(
            "The queue of jobs without a type. It is declared with the preset `gridlike` when the "
            "first of them or their first worker comes.",
            min_length=1,
        ),
    ] = "jobs"
    token: Annotated[
        str,
        _secret(
            "What workers must send when they register. Without it, any token will do while the "
            "broker is open; once there are API keys, the token of one that permits `work`."
        ),
    ] = ""
    kick_after_us: Annotated[
        int,
        _about(
            "How long a worker may take to register before it is kicked.",
            ge=10 * MILLISECOND,
            le=MINUTE,
        ),
    ] = 500 * MILLISECOND
    ask_every_us: Annotated[
        int,
        _about(
            "How often a worker that did not answer is asked again for its status.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 5 * SECOND
    keepalive_us: Annotated[
        int, _about("How often a worker is sent a ping.", ge=SECOND, le=HOUR)
    ] = 30 * SECOND
    reconnect_grace_us: Annotated[
        int,
        _about(
            "How long a job waits for its worker when the connection breaks, if the worker names "
            "its attempts. After a restart of the broker it is the queue's `restart_grace`.",
            ge=0,
            le=HOUR,
        ),
    ] = 0
    linger_us: Annotated[
        int, _about("How long a disconnected worker is still listed.", ge=0, le=HOUR)
    ] = 10 * SECOND
    worker_tracking: Annotated[
        bool,
        _about(
            "Whether a worker is known again by its id: its counts go on, and so does its job if "
            "it names the attempt. Otherwise each connection is a new worker."
        ),
    ] = True


class LogConfig(msgspec.Struct, frozen=True):
    """What is logged, on the standard error."""

    level: Annotated[
        LogLevel,
        _about(
            "`error`: failures of the system. `warn`: also retries, slow tasks and full queues. "
            "`info`: also the lives of tasks and workers. `debug`: also every change of state. "
            "`trace`: also every command and every answer, without payloads."
        ),
    ] = LogLevel.INFO
    format: Annotated[
        LogFormat, _about("`json`, `console`, or `auto`: for people if it is a terminal.")
    ] = LogFormat.AUTO
    slow_task_us: Annotated[
        int, _about("Warn of an attempt that took longer; 0 never warns.", ge=0)
    ] = 0


class TelemetryConfig(msgspec.Struct, frozen=True):
    """Traces of tasks, for those whose submitters trace them. It needs `jackalope[telemetry]`."""

    endpoint: Annotated[
        str,
        _about(
            "Where the broker sends its spans by OTLP/HTTP, such as "
            "`http://localhost:4318/v1/traces`; empty sends none."
        ),
    ] = ""


class ShutdownConfig(msgspec.Struct, frozen=True):
    """How the broker stops."""

    deadline_us: Annotated[
        int,
        _about(
            "How long a stop may take to write everything behind. Nothing acknowledged is lost "
            "after it either.",
            ge=0,
        ),
    ] = 30 * SECOND


class LaunchConfig(msgspec.Struct, frozen=True):
    """How workers are started for pools, whatever the launcher."""

    address: Annotated[
        str,
        _about(
            "The address of this broker as its workers reach it, such as "
            "`jackalope://broker.example:7420`; empty for that of the native door."
        ),
    ] = ""
    amqp: Annotated[
        str,
        _secret(
            "The same for AMQP, such as `amqp://broker.example:5672`, with the token of an API key "
            "as the password if one is needed; empty for that of the AMQP door, if it is open."
        ),
    ] = ""
    every_us: Annotated[
        int,
        _about(
            "How often it is compared what runs with what should. While Docker or Kubernetes tells "
            "of changes, that is done at each, and every 10 s.",
            ge=50 * MILLISECOND,
            le=HOUR,
        ),
    ] = 500 * MILLISECOND


class QueueConfig(msgspec.Struct, frozen=True):
    """The policy of a queue: a preset, and what differs from it."""

    preset: str = ""
    changes: dict[str, Any] = {}

    def policy(self) -> Policy:
        return msgspec.structs.replace(PRESETS.get(self.preset, DEFAULT_POLICY), **self.changes)


class PoolConfig(msgspec.Struct, frozen=True):
    """The settings of a pool: what differs from the defaults."""

    changes: dict[str, Any] = {}


class NamespaceConfig(msgspec.Struct, frozen=True):
    """The queues, limited tags and pools of a namespace to declare at the start."""

    queues: dict[str, QueueConfig] = {}
    limits: dict[str, Annotated[int, Meta(ge=0)]] = {}
    pools: dict[str, PoolConfig] = {}


class Config(msgspec.Struct, frozen=True):
    """Every setting of a broker."""

    data: DataConfig = DataConfig()
    blobs: BlobsConfig = BlobsConfig()
    native: NativeConfig = NativeConfig()
    http: HttpConfig = HttpConfig()
    amqp: AmqpConfig = AmqpConfig()
    tls: TlsConfig = TlsConfig()
    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()
    gridlike: GridlikeConfig = GridlikeConfig()
    log: LogConfig = LogConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    launch: LaunchConfig = LaunchConfig()
    queue_defaults: QueueConfig = QueueConfig()
    launchers: dict[str, dict[str, Any]] = {}
    namespaces: dict[str, NamespaceConfig] = {}


#: The groups of settings that have a fixed place, by their names.
COMPONENTS: dict[str, type[msgspec.Struct]] = {
    name: type(default)
    for name, default in msgspec.structs.asdict(Config()).items()
    if isinstance(default, msgspec.Struct) and not isinstance(default, QueueConfig)
}
