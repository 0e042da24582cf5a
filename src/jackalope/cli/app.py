"""The command line as a whole: its commands, the options before them, and how it ends."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jackalope.cli.base import (
    DEFAULT_BROKER,
    Common,
    Exit,
    check_format,
    help_text,
    local,
    say_error,
)
from jackalope.cli.commands import (
    actions,
    aiida,
    bench,
    cache,
    check,
    config,
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


Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        envvar="JACKALOPE_BROKER",
        metavar="ADDRESS",
        help="Where the broker is, as host:port or jackalope://host:port/namespace.",
        show_default=DEFAULT_BROKER,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        envvar="JACKALOPE_NAMESPACE",
        metavar="NAME",
        help="The namespace (its own queues, workers and tasks) to use.",
        show_default="default",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="JACKALOPE_TOKEN",
        metavar="TOKEN",
        help="What proves who you are.",
        show_default=False,
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca",
        envvar="JACKALOPE_CA",
        metavar="FILE",
        help="Over TLS, the authorities that may vouch for the broker.",
        show_default="those of the system",
    ),
]
SkipVerify = Annotated[
    bool | None,
    typer.Option(
        "--insecure-skip-verify",
        help="Over TLS, do not check who the broker is. Whoever stands in between can read all.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        envvar="JACKALOPE_FORMAT",
        metavar="[table|json|yaml]",
        help="How answers are written.",
        callback=check_format,
    ),
]
Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show_version, is_eager=True, help="Show the version, and end."
    ),
]


def root(
    context: typer.Context,
    *,
    broker: Broker = None,
    namespace: Namespace = None,
    token: Token = None,
    ca: CaFile = None,
    skip_verify: SkipVerify = None,
    form: FormatOption = "table",
    _version: Version = False,
) -> None:
    """Jackalope: a durable task broker.

    Takes work in, keeps it safe, gives each piece to one worker at a time, and tells the truth
    about what happened.

    Examples:
        jackalope serve                               run a broker here
        jackalope worker app:app                      run the tasks of app.py
        jackalope submit --name app.hello --wait      submit one, and see what comes of it
        jackalope stats --watch                       see what goes on

    The options below may stand before or behind a command.
    """
    context.obj = Common(broker, namespace, token, ca, skip_verify, form)


def version(screen: "Screen") -> None:
    """Show which version this is.

    Examples:
        jackalope version --format json
    """
    import platform

    from jackalope import __version__

    python = platform.python_version()
    data = {"jackalope": __version__, "python": python, "platform": platform.platform()}
    screen.show(data, f"jackalope {__version__}, Python {python}, {platform.platform()}")


app.callback(help=help_text(root.__doc__ or ""))(root)
for _module, _panel in (
    (serve, "Run"),
    (worker, "Run"),
    (bench, "Run"),
    (submit, "Tasks"),
    (tasks, "Tasks"),
    (actions, "Act on tasks"),
    (workers, "The broker"),
    (queues, "The broker"),
    (cache, "The broker"),
    (pools, "The broker"),
    (stats, "The broker"),
    (check, _OTHER),
    (keys, _OTHER),
    (config, _OTHER),
    (aiida, _OTHER),
):
    _module.register(app, _panel)
app.command("version", rich_help_panel=_OTHER)(local(version))


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
