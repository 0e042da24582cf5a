"""The command that runs a broker, and the flags of its configuration."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jackalope.cli.command import Exit, Failure, Options, alone, run_loop

if TYPE_CHECKING:
    from jackalope.broker.config import Loaded


def register(app: typer.Typer, panel: str) -> None:
    """Add this command."""
    app.command("serve", rich_help_panel=panel)(alone(serve))


def _flag(name: str, metavar: str, about: str) -> Any:
    return typer.Option(name, metavar=metavar, help=about, show_default=False)


@dataclass
class Flags(Options):
    """The settings that can be given on the command line; the others have a file."""

    config: Annotated[
        str | None,
        _flag(
            "--config", "FILE", "The configuration, YAML or TOML; else JACKALOPE_CONFIG names it."
        ),
    ] = None
    data: Annotated[str | None, _flag("--data", "FOLDER", "The data folder.")] = None
    host: Annotated[str | None, _flag("--host", "ADDRESS", "The address to listen on.")] = None
    port: Annotated[
        str | None, _flag("--port", "PORT", "The port of the native door; 0 takes a free one.")
    ] = None
    durability: Annotated[
        str | None,
        _flag("--durability", "[fsync|interval|memory]", "What an acknowledgement promises."),
    ] = None
    log_level: Annotated[
        str | None, _flag("--log-level", "[error|warn|info|debug]", "How much is logged.")
    ] = None
    log_format: Annotated[
        str | None, _flag("--log-format", "[auto|json|console]", "How the log looks.")
    ] = None

    def load(self) -> "Loaded":
        """Read the whole configuration.

        Raises:
            Failure: with every problem.
        """
        from jackalope.broker.config import ConfigError
        from jackalope.broker.sources import load

        flags: dict[str, tuple[str, Any]] = {
            "--data": ("data.folder", self.data),
            "--host": ("native.host", self.host),
            "--port": ("native.port", self.port),
            "--durability": ("data.durability", self.durability),
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
    return Failure("bad configuration", count, Exit.USAGE, problems)


def serve(flags: Flags) -> int:
    """Run a broker, until SIGTERM or Ctrl-C.

    Everything it must not forget is in the data folder. Without a configuration it serves
    127.0.0.1:7420 from ./jackalope-data, and nothing that it has acknowledged is ever lost.

    Ends with 0 when it was asked to stop, 1 on a failure, 2 on a bad configuration, 3 when the
    storage fails, 4 when the data folder or the port is taken.

    Examples:
        jackalope serve
        jackalope serve --data /var/lib/jackalope --host 0.0.0.0 --log-format json
        jackalope serve --config jackalope.yaml --durability interval
    """
    config = flags.load().config
    from jackalope.broker.logs import set_up
    from jackalope.cli.process import run_broker

    close_log = set_up(config.log)
    try:
        return int(run_loop(run_broker(config)))
    finally:
        close_log()
