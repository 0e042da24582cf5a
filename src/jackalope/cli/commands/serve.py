"""The command that runs a broker, and the flags of its configuration."""

import gc
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, Options, load_structlog, need_posix, opt, run_loop

if TYPE_CHECKING:
    from jackalope.broker.config.loader import Loaded


HOW_TO_HAVE_HTTP = "pip install jackalope brings its packages; --no-http does without"


def has_http() -> bool:
    """Return whether the HTTP door is installed."""
    return find_spec("uvicorn") is not None


@dataclass
class Flags(Options):
    """The settings that can be given on the command line; the others have a file."""

    config: Annotated[
        str | None,
        opt(
            "--config FILE",
            "The configuration file, YAML or TOML; by default that of JACKALOPE_CONFIG.",
        ),
    ] = None
    data: Annotated[str | None, opt("--data FOLDER", "The data folder.")] = None
    host: Annotated[str | None, opt("--host ADDRESS", "The address to listen on.")] = None
    port: Annotated[
        str | None, opt("--port PORT", "The port of the native door; 0 for any free one.")
    ] = None
    http_port: Annotated[
        str | None, opt("--http-port PORT", "The port of the HTTP door; 0 for any free one.")
    ] = None
    no_http: Annotated[bool, opt("--no-http", "Do not open the HTTP door.")] = False
    amqp: Annotated[bool, opt("--amqp", "Open the AMQP 0-9-1 door, on 127.0.0.1:5672.")] = False
    amqp_port: Annotated[
        str | None, opt("--amqp-port PORT", "The port of the AMQP door; 0 for any free one.")
    ] = None
    amqp_management: Annotated[
        bool, opt("--amqp-management", "Serve RabbitMQ's management API too, on 127.0.0.1:15672.")
    ] = False
    amqp_management_port: Annotated[
        str | None,
        opt("--amqp-management-port PORT", "The port of the management API; 0 for any free one."),
    ] = None
    grpc: Annotated[bool, opt("--grpc", "Open the gRPC door, on 127.0.0.1:7422.")] = False
    grpc_port: Annotated[
        str | None, opt("--grpc-port PORT", "The port of the gRPC door; 0 for any free one.")
    ] = None
    tls_cert: Annotated[
        str | None, opt("--tls-cert FILE", "The TLS certificate of all doors, in PEM format.")
    ] = None
    tls_key: Annotated[str | None, opt("--tls-key FILE", "The private key of the certificate.")] = (
        None
    )
    insecure: Annotated[
        bool,
        opt("--insecure", "Listen on interfaces other than loopback even without API keys or TLS."),
    ] = False
    durability: Annotated[
        str | None,
        opt("--durability [fsync|interval|memory]", "What an acknowledgement guarantees."),
    ] = None
    node: Annotated[
        str | None, opt("--node NAME", "Which of `cluster.members` this broker is.")
    ] = None
    follow: Annotated[
        str | None,
        opt("--follow HOST:PORT", "Keep a standby of the broker or cluster with this peer port."),
    ] = None
    log_level: Annotated[
        str | None, opt("--log-level [error|warn|info|debug|trace]", "The log level.")
    ] = None
    log_format: Annotated[
        str | None, opt("--log-format [auto|json|console]", "The log format.")
    ] = None

    def has_amqp(self) -> bool:
        """Return whether the AMQP door is asked for."""
        return self.amqp or self.amqp_port is not None or self.has_management()

    def has_grpc(self) -> bool:
        """Return whether the gRPC door is asked for."""
        return self.grpc or self.grpc_port is not None

    def has_management(self) -> bool:
        """Return whether the management API is asked for."""
        return self.amqp_management or self.amqp_management_port is not None

    def load(self) -> "Loaded":
        """Read the whole configuration."""
        from jackalope.broker.config.loader import ConfigError, load

        flags: dict[str, tuple[str, Any]] = {
            "--data": ("data.folder", self.data),
            "--host": ("native.host", self.host),
            "--port": ("native.port", self.port),
            "--http-port": ("http.port", self.http_port),
            "--no-http": ("http.enabled", "false" if self.no_http else None),
            "--amqp": ("amqp.enabled", "true" if self.has_amqp() else None),
            "--amqp-port": ("amqp.port", self.amqp_port),
            "--amqp-management": ("amqp.management", "true" if self.has_management() else None),
            "--amqp-management-port": ("amqp.management_port", self.amqp_management_port),
            "--grpc": ("grpc.enabled", "true" if self.has_grpc() else None),
            "--grpc-port": ("grpc.port", self.grpc_port),
            "--tls-cert": ("tls.cert", self.tls_cert),
            "--tls-key": ("tls.key", self.tls_key),
            "--insecure": ("auth.insecure", "true" if self.insecure else None),
            "--durability": ("data.durability", self.durability),
            "--node": ("cluster.node", self.node),
            "--follow": ("peer.follow", self.follow),
            "--log-level": ("log.level", self.log_level),
            "--log-format": ("log.format", self.log_format),
        }
        try:
            return load(Path(self.config) if self.config else None, os.environ, flags)
        except ConfigError as error:
            raise bad_config([str(problem) for problem in error.problems]) from None


def bad_config(problems: list[str]) -> Failure:
    """Make a failure of everything that is wrong with the configuration."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return Failure("invalid configuration", count, Exit.USAGE, problems)


def serve(
    flags: Flags,
    accept_loss: Annotated[
        bool,
        opt(
            "--accept-loss",
            "Start without the damaged or missing parts of the journal, and log which they are.",
        ),
    ] = False,
) -> int:
    """Run a broker, until SIGTERM or Ctrl-C.

    All durable data is in the data folder. Without a configuration it serves
    127.0.0.1:7420 and HTTP on 127.0.0.1:7421 from ./jackalope-data, and nothing that it has
    acknowledged is ever lost.

    On interfaces other than loopback it requires TLS and API keys, unless --insecure is given.

    Exits with 0 when it was stopped, 1 on a failure, 2 on an invalid configuration, 3 when the
    storage fails, 4 when the data folder or the port is in use.

    Examples:
        jackalope serve
        jackalope serve --data /var/lib/jackalope --log-format json
        jackalope serve --host 0.0.0.0 --tls-cert broker.crt --tls-key broker.key
        jackalope serve --amqp
        jackalope serve --grpc
        jackalope serve --follow 10.0.0.1:7423 --config standby.yaml
        jackalope serve --config jackalope.yaml --durability interval
    """
    need_posix("a broker")
    gc.disable()  # Nothing of what is loaded is garbage.
    try:
        load_structlog()
        from jackalope.cli.serving import run_broker
        from jackalope.log_setup import set_up
    finally:
        gc.enable()
    loaded = flags.load()
    _check_http(loaded)
    config = loaded.config
    close_log = set_up(config.log.level, config.log.format)
    _log_notes(loaded)
    try:
        return int(run_loop(run_broker(config, accepts_loss=accept_loss)))
    finally:
        close_log()


def _log_notes(loaded: "Loaded") -> None:
    """Log what became of each setting that was written in the words of another design."""
    import structlog

    log = structlog.get_logger(component="configuration")
    for note in loaded.notes:
        write = log.info if note.has_effect else log.warning
        write("setting translated", key=note.key, note=note.message)


def _check_http(loaded: "Loaded") -> None:
    """Refuse a port of a door that is not there; by default it merely stays shut."""
    is_asked = any(
        each.key == "http.port" and each.origin.place.value != "default" for each in loaded.settings
    )
    if is_asked and loaded.config.http.enabled and not has_http():
        raise Failure("the HTTP door is not installed", HOW_TO_HAVE_HTTP, Exit.USAGE)
