"""The command line as a whole: its commands, the options before them, and how it ends."""

from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jackalope.cli.base import (
    COMMON,
    Exit,
    addressed,
    alone,
    call_without_command,
    common_parameters,
    connected,
    declare,
    hand_down,
    help_text,
    local,
    opt,
    say_error,
)
from jackalope.cli.commands import (
    actions,
    aiida,
    bench,
    cache,
    check,
    config,
    journal,
    keys,
    pools,
    queues,
    serve,
    stats,
    submit,
    tasks,
    worker,
    workers,
)

if TYPE_CHECKING:
    from jackalope.cli.output import Screen

_BROKER = "The broker"
_OTHER = "Set up"

app = typer.Typer(
    name="jackalope",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from jackalope import __version__

        typer.echo(f"jackalope {__version__}")
        raise typer.Exit


def root(context: typer.Context, **given: Any) -> None:
    """Jackalope: a durable task broker.

    Accepts tasks, stores them durably, gives each to one worker at a time, and records what
    happened.

    Examples:
        jackalope serve                               run a broker here
        jackalope worker app:app                      run the tasks of app.py
        jackalope submit --name app.hello --wait      submit one, and wait for its result
        jackalope stats --watch                       watch the broker

    The options below can be given before or after a command.
    """
    hand_down(context, given)


def version(screen: "Screen") -> None:
    """Show the version.

    Examples:
        jackalope version --format json
    """
    import platform

    from jackalope import __version__

    python = platform.python_version()
    data = {"jackalope": __version__, "python": python, "platform": platform.platform()}
    screen.show(data, f"jackalope {__version__}, Python {python}, {platform.platform()}")


def _add(target: typer.Typer, panel: str | None, make: Any, *commands: Any) -> None:
    """Add commands under the names of their functions."""
    for command in commands:
        name = command.__name__.rstrip("_").replace("_", "-")
        target.command(name, rich_help_panel=panel)(make(command))


def _group(name: str, panel: str, about: str = "", alone: Any = None) -> typer.Typer:
    """Add a group of commands: with its own help, or with what it does without a command."""
    group = typer.Typer(
        help=about or None,
        rich_markup_mode="rich",
        no_args_is_help=alone is None,
        invoke_without_command=alone is not None,
    )
    if alone is not None:
        call_without_command(group, alone)
    app.add_typer(group, name=name, rich_help_panel=panel)
    return group


_version = Annotated[
    bool, opt("--version", "Show the version, and exit.", callback=_show_version, is_eager=True)
]
declare(
    root,
    [
        *common_parameters(COMMON, is_root=True),
        Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=_version),
    ],
)
app.callback(help=help_text(root.__doc__ or ""))(root)

_add(app, "Run", alone, serve.serve)
_add(app, "Run", addressed, worker.worker)
_add(app, "Run", connected, bench.bench)
_add(app, "Tasks", connected, submit.submit, tasks.status, tasks.list_, tasks.wait)
_add(app, "Tasks", connected, tasks.explain, tasks.history, tasks.tail)
_add(app, "Act on tasks", connected, actions.cancel, actions.kill, actions.pause, actions.play)
_add(app, "Act on tasks", connected, actions.hold, actions.retry, actions.purge)
_add(app, _BROKER, connected, workers.workers, workers.drain, queues.batches)
_add(app, _BROKER, connected, stats.stats, stats.queue_depth, stats.cluster_status)
_add(app, _OTHER, local, check.check, version)
_queues = _group("queues", _BROKER, alone=queues.list_queues)
_add(_queues, None, connected, queues.show, queues.set_, queues.pause, queues.resume, queues.delete)
_limits = _group("limits", _BROKER, alone=queues.list_limits)
_limits.command("set")(connected(queues.set_limit))
_limits.command("remove")(connected(queues.remove_limit))
_pools = _group("pools", _BROKER, alone=pools.list_pools)
_add(_pools, None, connected, pools.show, pools.set_, pools.start, pools.stop)
_add(_pools, None, connected, pools.pin, pools.unpin, pools.delete)
_cache = _group("cache", _BROKER, "List cached answers, pin them and purge them.")
_add(_cache, None, connected, cache.list_, cache.show, cache.pin, cache.unpin, cache.purge)
_keys = _group(
    "keys", _OTHER, "Create, list and revoke API keys. Once there is one, every client needs a key."
)
_add(_keys, None, connected, keys.create, keys.list_, keys.revoke)
_add(_keys, None, local, keys.new, keys.hash_)
_config = _group("config", _OTHER, "Show, check or create the broker's configuration.")
_add(_config, None, local, config.show, config.check, config.init)
_journal = _group("journal", _OTHER, "Look into the journal of a data folder.")
_add(_journal, None, local, journal.show)
_aiida = _group(
    "aiida", _OTHER, "Run AiiDA's daemon with this broker, in place of RabbitMQ or ZeroMQ."
)
_add(_aiida, None, addressed, aiida.use, aiida.new)
_add(_aiida, None, local, aiida.status, aiida.revert, aiida.env, aiida.stop)


def run(arguments: list[str]) -> int:
    """Run the command line, and return its exit code."""
    try:
        code: Any = app(arguments, prog_name="jackalope", standalone_mode=False)
    except Exception as error:
        # Typer's errors about usage, from whichever of its versions.
        describe = getattr(error, "format_message", None)
        if describe is None:
            if type(error).__name__ == "Abort":
                return Exit.INTERRUPTED
            raise
        context = getattr(error, "ctx", None)
        hint = f"; see `{context.command_path} --help`" if context is not None else ""
        say_error(str(describe()).rstrip(".") + hint)
        return int(getattr(error, "exit_code", Exit.USAGE))
    return code if isinstance(code, int) else Exit.DONE
