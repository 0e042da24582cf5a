"""Settings: every setting of a broker, its default, its bounds and its meaning.

Owns the shapes, which `loader` fills, and what follows from them for where a broker may listen. A
setting that ends in `_us` is a duration.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from jackalope.broker.config.callbacks import CallbacksConfig
from jackalope.broker.config.declared import NamespaceConfig, QueueConfig
from jackalope.broker.config.listening import (
    MEBIBYTE,
    GrpcConfig,
    ListenConfig,
    Port,
    RateBurst,
    RatePerSecond,
)
from jackalope.broker.config.listening import about as _about
from jackalope.broker.config.listening import secret as _secret
from jackalope.broker.config.task_logs import TaskLogsConfig
from jackalope.core.api_key import ApiKey
from jackalope.core.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from jackalope.core.limits import NAMESPACES_MAX, QUEUES_PER_NAMESPACE_MAX
from jackalope.core.shapes.task_log import LogLevel
from jackalope.storage.journals import JournalKind
from jackalope.storage.ports import INTERVAL_US_DEFAULT, Level
from jackalope.wire.frames import FRAME_BYTES_MAX


class LogFormat(StrEnum):
    """Log formats."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Names(StrEnum):
    """Whose words answers over HTTP use: ours, or those of the published task queue design."""

    JACKALOPE = "jackalope"
    TASK_QUEUE = "task_queue"


class Store(StrEnum):
    """Kinds of blob stores."""

    FOLDER = "folder"
    S3 = "s3"


class DataConfig(msgspec.Struct, frozen=True):
    """The data folder and its durability."""

    folder: Annotated[
        str, _about("The data folder. Only one broker can use it at a time.", min_length=1)
    ] = "jackalope-data"
    durability: Annotated[
        Level,
        _about(
            "What an acknowledgement guarantees. `fsync`: no acknowledged change is lost. "
            "`interval`: a power failure can lose the last `data.interval`. `memory`: nothing "
            "survives the process."
        ),
    ] = Level.FSYNC
    interval_us: Annotated[
        int,
        _about(
            "How often the journal is synced to disk with durability `interval`.",
            ge=MILLISECOND,
            le=MINUTE,
        ),
    ] = INTERVAL_US_DEFAULT
    journal: Annotated[
        JournalKind,
        _about(
            "The format of the journal: `segments` (preallocated files that are reused) or "
            "`sqlite`. A data folder in the other format is converted at the next start."
        ),
    ] = JournalKind.SEGMENTS
    free_bytes_min: Annotated[
        int,
        _about(
            "The minimum free disk space. Below it new tasks are refused; existing tasks "
            "continue. 0 disables the check.",
            ge=0,
        ),
    ] = 50 * MEBIBYTE


class BlobsConfig(msgspec.Struct, frozen=True):
    """The store of payloads and results above 64 KiB."""

    store: Annotated[
        Store,
        _about(
            "`folder`: in the data folder. `s3`: in S3-compatible storage; needs `jackalope[s3]`."
        ),
    ] = Store.FOLDER
    bucket: Annotated[str, _about("The bucket of `s3`. It must exist.")] = ""
    prefix: Annotated[
        str,
        _about(
            "The prefix of all object keys. Brokers must not share a prefix.",
            min_length=1,
            max_length=200,
            pattern="^[A-Za-z0-9._/-]+$",
        ),
    ] = "jackalope"
    endpoint: Annotated[
        str,
        _about(
            "The URL of the server, such as `https://minio.example:9000`; empty for Amazon S3.",
            pattern="^(https?://.+)?$",
        ),
    ] = ""
    region: Annotated[str, _about("The region of the bucket.", min_length=1)] = "us-east-1"
    credentials_file: Annotated[
        str,
        _about(
            "An AWS credentials file; its `[default]` profile is used. If empty, the credentials "
            "come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or from the machine's "
            "role."
        ),
    ] = ""
    link_life_us: Annotated[
        int,
        _about("How long an upload or download link to the store is valid.", ge=MINUTE, le=7 * DAY),
    ] = 15 * MINUTE


class NativeConfig(ListenConfig, frozen=True):
    """The native door: the TCP port of clients, workers and this command line."""

    port: Port = 7420
    frame_bytes_max: Annotated[
        int, _about("The maximum size of a frame.", ge=64 * 1024, le=FRAME_BYTES_MAX)
    ] = FRAME_BYTES_MAX
    heartbeat_us: Annotated[
        int,
        _about(
            "The heartbeat interval. A peer that receives nothing for three intervals may close "
            "the connection.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 10 * SECOND
    rate_per_s: RatePerSecond = 0
    rate_burst: RateBurst = 200


class HttpConfig(ListenConfig, frozen=True):
    """The HTTP door: the dashboard, REST, WebSockets, metrics and health."""

    enabled: Annotated[bool, _about("Open the HTTP door.")] = True
    port: Port = 7421
    monitoring_port: Annotated[
        int,
        _about(
            "A separate port that serves only `/metrics` and `/health`; 0 for none.",
            ge=0,
            le=65_535,
        ),
    ] = 0
    body_bytes_max: Annotated[
        int, _about("The maximum size of a JSON body.", ge=64 * 1024, le=1024 * MEBIBYTE)
    ] = 16 * MEBIBYTE
    payload_bytes_max: Annotated[
        int,
        _about(
            "The maximum size of a payload inside JSON; larger payloads are sent as raw bytes.",
            ge=0,
            le=1024 * MEBIBYTE,
        ),
    ] = 10 * MEBIBYTE
    upload_bytes_max: Annotated[
        int,
        _about(
            "The maximum size of a raw payload or result.", ge=64 * 1024, le=1024 * 1024 * MEBIBYTE
        ),
    ] = 16 * 1024 * MEBIBYTE
    tls: Annotated[
        bool,
        _about("Use TLS if `tls.cert` is set. Turn it off behind a proxy that terminates TLS."),
    ] = True
    rate_per_s: RatePerSecond = 100
    rate_burst: RateBurst = 200
    header_bytes_max: Annotated[
        int, _about("The maximum size of the request line and headers.", ge=1024, le=MEBIBYTE)
    ] = 32 * 1024
    header_timeout_us: Annotated[
        int,
        _about(
            "The time limit for receiving the request line and headers.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 10 * SECOND
    body_timeout_us: Annotated[
        int,
        _about(
            "How long a body transfer may stall before the connection is closed.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 30 * SECOND
    keep_alive_us: Annotated[
        int, _about("How long an idle connection stays open between requests.", ge=SECOND, le=HOUR)
    ] = 75 * SECOND
    names: Annotated[
        Names,
        _about(
            "The names in answers and metrics: ours (`state`, `jackalope_…`), or the aliases for "
            "clients and dashboards of other task queues (`status`, `tq_…`)."
        ),
    ] = Names.JACKALOPE
    metrics_namespaces: Annotated[
        int,
        _about(
            "How many namespaces metrics name: those that were created, then the busiest. The "
            "rest are added up under an empty name.",
            ge=0,
            le=NAMESPACES_MAX,
        ),
    ] = 100
    cors_origins: Annotated[
        tuple[str, ...],
        _about("The origins allowed by CORS, such as `https://example.org`; `*` for all."),
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        _about(
            "Additional `Host` names to accept while no API key is required. Loopback names are "
            "always accepted."
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        _about(
            "The addresses or networks of proxies whose `X-Forwarded-For` and "
            "`X-Forwarded-Proto` are trusted; `*` for all."
        ),
    ] = ()
    prefix: Annotated[
        str, _about("The path prefix under which a proxy serves this door, such as `/jackalope`.")
    ] = ""


class AmqpConfig(ListenConfig, frozen=True):
    """The AMQP 0-9-1 door, for programs written for RabbitMQ."""

    enabled: Annotated[bool, _about("Open the AMQP door.")] = False
    port: Port = 5672
    channel_max: Annotated[
        int, _about("The maximum number of channels per connection.", ge=1, le=65_535)
    ] = 2_047
    frame_bytes_max: Annotated[
        int,
        _about(
            "The maximum size of a frame; the peer may negotiate less.", ge=4_096, le=16 * MEBIBYTE
        ),
    ] = 128 * 1024
    message_bytes_max: Annotated[
        int, _about("The maximum size of a message body.", ge=64 * 1024, le=2_048 * MEBIBYTE)
    ] = 128 * MEBIBYTE
    heartbeat_us: Annotated[
        int,
        _about(
            "The heartbeat interval that is proposed to the peer; 0 for none. A peer that "
            "receives nothing for two intervals closes the connection.",
            ge=0,
            le=HOUR,
        ),
    ] = 60 * SECOND
    client_ca: Annotated[
        str,
        _about(
            "The certificate authorities for client certificates, in PEM format. A client that "
            "authenticates with EXTERNAL gets the API key with the name of its certificate."
        ),
    ] = ""
    management: Annotated[bool, _about("Serve RabbitMQ's management API too.")] = False
    management_port: Annotated[
        int, _about("The port of the management API; 0 for any free one.", ge=0, le=65_535)
    ] = 15_672


class TlsConfig(msgspec.Struct, frozen=True):
    """TLS of all doors, version 1.2 or later."""

    cert: Annotated[
        str, _about("The certificate file, in PEM format, with the chain of its authorities.")
    ] = ""
    key: Annotated[str, _about("The file of the private key, in PEM format, not encrypted.")] = ""
    watch_us: Annotated[
        int,
        _about(
            "How often the files of certificates are looked at. New ones are used for new "
            "connections, without a restart.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 10 * SECOND


class AuthConfig(msgspec.Struct, frozen=True):
    """Authentication. Without any API key a broker is open, and only on loopback."""

    keys: Annotated[
        tuple[ApiKey, ...],
        _about(
            "API keys defined by the configuration: each has `id`, `hash`, `name`, "
            "`permissions`, and optionally `queues` and `namespace`. `jackalope keys new` "
            "creates one."
        ),
    ] = ()
    insecure: Annotated[
        bool, _about("Listen on interfaces other than loopback even without API keys or TLS.")
    ] = False


class LimitsConfig(msgspec.Struct, frozen=True):
    """Limits over all clients."""

    namespaces_by_use: Annotated[
        int,
        _about(
            "The number of namespaces up to which using an unknown one creates it. Beyond that, "
            "only creating it, or declaring a queue in it, does; 0 for all namespaces.",
            ge=0,
            le=NAMESPACES_MAX,
        ),
    ] = 100
    queues_by_use: Annotated[
        int,
        _about(
            "The number of queues, in all namespaces, up to which using an unknown one creates "
            "it. Beyond that, queues must be declared.",
            ge=1,
            le=NAMESPACES_MAX * QUEUES_PER_NAMESPACE_MAX,
        ),
    ] = 2_000
    unread_bytes: Annotated[
        int,
        _about(
            "The maximum size of the output that is buffered for all peers of all doors. Beyond "
            "that, the peer with the most unread output is disconnected.",
            ge=MEBIBYTE,
        ),
    ] = 256 * MEBIBYTE


class GridlikeConfig(msgspec.Struct, frozen=True):
    """GridLike's jobs and workers, at the HTTP door."""

    enabled: Annotated[bool, _about("Serve `/api/jobs` and `/api/worker`.")] = True
    namespace: Annotated[
        str, _about("The namespace of all jobs; its queues are the job types.", min_length=1)
    ] = "default"
    queue: Annotated[
        str,
        _about(
            "The queue of jobs without a type. It is declared with the preset `gridlike` on "
            "first use.",
            min_length=1,
        ),
    ] = "jobs"
    token: Annotated[
        str,
        _secret(
            "The token that workers must send when they register. If empty, any token is "
            "accepted while there are no API keys; otherwise the token of a key that permits "
            "`work`."
        ),
    ] = ""
    kick_after_us: Annotated[
        int,
        _about(
            "The time limit for a worker to register before it is disconnected.",
            ge=10 * MILLISECOND,
            le=MINUTE,
        ),
    ] = 500 * MILLISECOND
    ask_every_us: Annotated[
        int,
        _about(
            "How often an unanswered status request to a worker is repeated.",
            ge=100 * MILLISECOND,
            le=HOUR,
        ),
    ] = 5 * SECOND
    keepalive_us: Annotated[
        int, _about("The interval between pings to a worker.", ge=SECOND, le=HOUR)
    ] = 30 * SECOND
    reconnect_grace_us: Annotated[
        int,
        _about(
            "How long a job waits for its worker to reconnect, if the worker sends attempt ids. "
            "After a restart of the broker, the queue's `restart_grace` applies.",
            ge=0,
            le=HOUR,
        ),
    ] = 0
    linger_us: Annotated[
        int, _about("How long a disconnected worker stays in the list.", ge=0, le=HOUR)
    ] = 10 * SECOND
    worker_tracking: Annotated[
        bool,
        _about(
            "Identify a worker that reconnects by its id: it keeps its counters, and its job if "
            "it sends the attempt id. If off, each connection is a new worker."
        ),
    ] = True


class LogConfig(msgspec.Struct, frozen=True):
    """The log, on the standard error."""

    level: Annotated[
        LogLevel,
        _about(
            "`error`: system failures. `warn`: also retries, slow tasks and full queues. `info`: "
            "also task outcomes and worker changes. `debug`: also every state change. `trace`: "
            "also every command and reply, without payloads."
        ),
    ] = LogLevel.INFO
    format: Annotated[
        LogFormat,
        _about(
            "`json`, `console` (human-readable), or `auto`: `console` on a terminal, else `json`."
        ),
    ] = LogFormat.AUTO
    slow_task_us: Annotated[
        int, _about("Log a warning for an attempt that took longer; 0 for never.", ge=0)
    ] = 0


class TelemetryConfig(msgspec.Struct, frozen=True):
    """Traces of tasks whose submitters trace them. It needs `jackalope[telemetry]`."""

    endpoint: Annotated[
        str,
        _about(
            "The OTLP/HTTP endpoint that spans are exported to, such as "
            "`http://localhost:4318/v1/traces`; empty for none."
        ),
    ] = ""


class ShutdownConfig(msgspec.Struct, frozen=True):
    """Shutdown of the broker."""

    deadline_us: Annotated[
        int,
        _about(
            "The time limit for flushing history on shutdown. No acknowledged change is lost "
            "when it is exceeded.",
            ge=0,
        ),
    ] = 30 * SECOND


class LaunchConfig(msgspec.Struct, frozen=True):
    """Settings of all launchers."""

    address: Annotated[
        str,
        _about(
            "The address at which launched workers reach this broker, such as "
            "`jackalope://broker.example:7420`; empty for the address of the native door, in a "
            "cluster for those of all members."
        ),
    ] = ""
    amqp: Annotated[
        str,
        _secret(
            "The AMQP address at which launched workers reach this broker, such as "
            "`amqp://broker.example:5672`, with the token of an API key as the password if "
            "required; empty for the address of the AMQP door, if it is open."
        ),
    ] = ""
    every_us: Annotated[
        int,
        _about(
            "The reconciliation interval of pools. While Docker or Kubernetes reports changes, "
            "pools are reconciled on each change and every 10 s.",
            ge=50 * MILLISECOND,
            le=HOUR,
        ),
    ] = 500 * MILLISECOND


class ClusterLog(StrEnum):
    """Where the log is that the nodes of a cluster share."""

    EMBEDDED = "embedded"
    NATS = "nats"
    POSTGRES = "postgres"


class Forward(StrEnum):
    """What a node that does not lead does with those who connect to it."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Upgrade(StrEnum):
    """Who raises the level of a cluster's log."""

    AUTO = "auto"
    MANUAL = "manual"


class ClusterConfig(msgspec.Struct, frozen=True):
    """Several nodes that are one broker. All but `cluster.node` is the same on each of them."""

    id: Annotated[
        str,
        _about(
            "The name of the cluster; empty for a broker that is alone.",
            pattern="^[A-Za-z0-9-]{0,32}$",
        ),
    ] = ""
    node: Annotated[str, _about("The name of this node, one of `cluster.members`.")] = ""
    members: Annotated[
        tuple[str, ...],
        _about(
            "The nodes: `name=host`, followed by `native=PORT`, `http=PORT`, `amqp=PORT`, "
            "`grpc=PORT`, `management=PORT`, `route=PORT` or `peer=PORT` where a port is not the "
            "default. One, three or five."
        ),
    ] = ()
    secret: Annotated[str, _secret("The secret by which the nodes recognize each other.")] = ""
    log: Annotated[
        ClusterLog,
        _about(
            "Where the shared log is. `embedded`: in a nats-server that each node starts. `nats`: "
            "in NATS at `cluster.urls`. `postgres`: in the database `cluster.dsn`."
        ),
    ] = ClusterLog.EMBEDDED
    urls: Annotated[
        tuple[str, ...], _about("The servers of NATS, such as `nats://user:password@host:4222`.")
    ] = ()
    dsn: Annotated[str, _secret("How to connect to PostgreSQL, as libpq takes it.")] = ""
    binary: Annotated[
        str, _about("The program nats-server; empty for that of `jackalope[cluster]`.")
    ] = ""
    nats_port: Annotated[
        int, _about("The port of this node's nats-server, on loopback.", ge=1, le=65_535)
    ] = 7424
    monitor_port: Annotated[
        int, _about("The port where it reports its health, on loopback.", ge=1, le=65_535)
    ] = 7425
    beat_us: Annotated[
        int,
        _about("The interval at which an idle leader reports that it leads.", ge=10 * MILLISECOND),
    ] = 300 * MILLISECOND
    read_lease_us: Annotated[
        int,
        _about("How long after a report a leader answers reads from memory.", ge=20 * MILLISECOND),
    ] = 900 * MILLISECOND
    takeover_us: Annotated[
        int,
        _about(
            "How long a leader may be silent before another node takes over.", ge=30 * MILLISECOND
        ),
    ] = 1_200 * MILLISECOND
    forward: Annotated[
        Forward,
        _about(
            "What a node that does not lead does with clients. `auto`: it sends those to the "
            "leader that can find it, and forwards the others. `always`: it forwards all, for "
            "clients that do not reach the other nodes. `never`: it names the leader or closes."
        ),
    ] = Forward.AUTO
    founder: Annotated[
        str,
        _about(
            "The node whose data folder the cluster begins with (`jackalope cluster init --from`); "
            "empty if it begins with nothing."
        ),
    ] = ""
    keep_log_bytes: Annotated[
        int,
        _about(
            "How large the log may grow for members that are gone. One that comes back later is "
            "restored from the state of another.",
            ge=1024 * 1024,
        ),
    ] = 1024**3
    keep_log_us: Annotated[
        int, _about("How long the log is kept for a member that does not answer.", ge=MINUTE)
    ] = DAY
    skew_max_us: Annotated[
        int, _about("How far from the members' median the clock of a leader may be.", ge=SECOND)
    ] = 10 * SECOND
    upgrade: Annotated[
        Upgrade, _about("Who raises the level of the log: `auto`, the leader; `manual`, a person.")
    ] = Upgrade.AUTO
    upgrade_after_us: Annotated[
        int, _about("How long all members must read a new level before that.", ge=SECOND)
    ] = DAY


class PeerConfig(msgspec.Struct, frozen=True):
    """The peer port, where nodes ask each other, and a standby asks a broker that is alone."""

    host: Annotated[
        str,
        _about("The address to listen on; empty for this node's in a cluster, else `127.0.0.1`."),
    ] = ""
    port: Annotated[
        int,
        _about(
            "The port of a broker that is alone; 0 for none. In a cluster it is that of "
            "`cluster.members`.",
            ge=0,
            le=65_535,
        ),
    ] = 0
    secret: Annotated[str, _secret("Shared with a standby; empty for `cluster.secret`.")] = ""
    tls: Annotated[bool, _about("Use TLS if `tls.cert` is set.")] = True
    ca: Annotated[
        str,
        _about(
            "The authorities that sign the nodes' certificates, in PEM; empty for the system's."
        ),
    ] = ""
    follow: Annotated[str, _about("The peer ports that a standby follows, `host:port,…`.")] = ""
    address: Annotated[
        str, _about("Where clients find it once it is promoted; empty for the native door's.")
    ] = ""


class Config(msgspec.Struct, frozen=True):
    """Every setting of a broker."""

    data: DataConfig = DataConfig()
    blobs: BlobsConfig = BlobsConfig()
    native: NativeConfig = NativeConfig()
    http: HttpConfig = HttpConfig()
    amqp: AmqpConfig = AmqpConfig()
    grpc: GrpcConfig = GrpcConfig()
    tls: TlsConfig = TlsConfig()
    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()
    gridlike: GridlikeConfig = GridlikeConfig()
    log: LogConfig = LogConfig()
    task_logs: TaskLogsConfig = TaskLogsConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    launch: LaunchConfig = LaunchConfig()
    callbacks: CallbacksConfig = CallbacksConfig()
    cluster: ClusterConfig = ClusterConfig()
    peer: PeerConfig = PeerConfig()
    queue_defaults: QueueConfig = QueueConfig()
    launchers: dict[str, dict[str, Any]] = {}
    namespaces: dict[str, NamespaceConfig] = {}


#: The groups of settings that have a fixed place, by their names.
COMPONENTS: dict[str, type[msgspec.Struct]] = {
    name: type(default)
    for name, default in msgspec.structs.asdict(Config()).items()
    if isinstance(default, msgspec.Struct) and not isinstance(default, QueueConfig)
}
