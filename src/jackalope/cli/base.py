"""Commands: what all of them share. Options, errors, exit codes, and the way to the broker.

A command is an async function that takes a client and a `Screen` first, then its own options.
`connected` gives it the options that every command has, connects, runs it, and turns what goes
wrong into one line with a hint and an exit code. Options that belong together are a dataclass of
the kind `Options`: a command with a parameter of that type has all of them.

Modules of commands do not postpone the evaluation of annotations, because Typer reads them; and
they import what is slow to load when they run, because a shell that completes a word waits for it.
"""

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from jackalope.transport.address import Address

DEFAULT_BROKER = "jackalope://127.0.0.1:7420"

_PANEL = "Everywhere"


class Exit(IntEnum):
    """What an exit code means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    STORAGE = 3
    BUSY = 4
    DEGRADED = 5
    NO_LEADER = 6
    INTERRUPTED = 130


class Failure(Exception):
    """A command cannot go on: one line for people, a hint, more lines if need be, an exit code."""

    def __init__(
        self, message: str, hint: str = "", code: Exit = Exit.FAILED, details: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{message}: {hint}" if hint else message)
        self.code = code
        self.details = details


def need_posix(what: str) -> None:
    """Refuse what locks files, forks and handles signals in ways that Windows does not have."""
    if not hasattr(os, "fork"):
        hint = "use WSL 2 or a container; the client library and the commands of clients do work"
        raise Failure(f"{what} does not work on Windows", hint, Exit.USAGE)


@dataclass(frozen=True)
class Common:
    """The options that every command has. None where an option was not given."""

    broker: str | None = None
    namespace: str | None = None
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    skip_verify: bool | None = None
    format: str | None = None

    def over(self, weaker: "Common") -> "Common":
        """Take from the other what is not set here."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        return replace(weaker, **said)

    def address(self) -> "Address":
        from jackalope.transport.address import parse_address

        text = self.broker or DEFAULT_BROKER
        address = parse_address(text if "://" in text else f"jackalope://{text}")
        return replace(
            address,
            namespace=self.namespace or address.namespace,
            token=self.token or address.token,
            tls=address.tls or bool(self.ca or self.skip_verify),
            ca_file=self.ca or address.ca_file,
            verify=not self.skip_verify,
        )


def opt(
    usage: str, about: str, panel: str | None = None, *, default: str | bool = True, **more: Any
) -> Any:
    """Make an option of how it is used, such as `--queue -q QUEUE`, and of what it means.

    The usage has its names and, unless it is a flag or a plain number, what is given to it.
    `default` is the default as people read it; False shows none. `more` is for Typer.
    """
    names = [each for each in usage.split() if each.startswith("-")]
    metavar = usage.removeprefix(" ".join(names)).strip() or None
    return typer.Option(
        *names, metavar=metavar, help=about, rich_help_panel=panel, show_default=default, **more
    )


def arg(metavar: str, about: str, **more: Any) -> Any:
    """Make an argument of what it is called and of what it means."""
    return typer.Argument(metavar=metavar, help=about, **more)


def _formats() -> list[str]:
    return ["table", "json", "yaml"]


def _check_format(value: str | None) -> str | None:
    if value is not None and value not in _formats():
        raise typer.BadParameter(f"must be {' or '.join(_formats())}, got {value!r}")
    return value


#: The options that every command has, by their fields in `Common`: type, usage, meaning, default.
COMMON: dict[str, tuple[Any, str, str, str | bool]] = {
    "broker": (
        str | None,
        "--broker -b ADDRESS",
        "The broker: host:port, or a URL such as jackalope://host/team; several by commas.",
        DEFAULT_BROKER.removeprefix("jackalope://"),
    ),
    "namespace": (
        str | None,
        "--namespace -n NAME",
        "The namespace (its own queues, workers and tasks) to use.",
        "default",
    ),
    "token": (
        str | None,
        "--token TOKEN",
        "Your API key. Better set JACKALOPE_TOKEN, which no other user can see.",
        False,
    ),
    "ca": (
        str | None,
        "--ca FILE",
        "The certificate authorities to trust with TLS.",
        "those of the system",
    ),
    "skip_verify": (
        bool | None,
        "--insecure-skip-verify",
        "Do not verify the broker's certificate. Anyone in between can read everything.",
        False,
    ),
    "format": (str | None, "--format -f [table|json|yaml]", "How the answer is written.", "table"),
}
_CONNECTION = ("broker", "namespace", "token", "ca", "skip_verify")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def common_parameters(names: Iterable[str], *, is_root: bool = False) -> list[inspect.Parameter]:
    """Make the common options of a command.

    Those of the root also have a variable in the environment each, and show their defaults.
    """
    made = []
    for name in names:
        kind, usage, about, default = COMMON[name]
        more: dict[str, Any] = {"panel": _PANEL, "default": False}
        if is_root:
            more = {"default": default}
            if name != "skip_verify":
                more["envvar"] = f"JACKALOPE_{name.upper()}"
        if name == "format":
            more |= {"callback": _check_format, "autocompletion": _formats}
        option = opt(usage, about, **more)
        made.append(
            inspect.Parameter(name, _KEYWORD, default=None, annotation=Annotated[kind, option])
        )
    return made


Async = Callable[..., Coroutine[Any, Any, Any]]


def connected(command: Async) -> Callable[..., None]:
    """Make a command for Typer of an async function of a client, a screen and options."""

    def run(common: Common, **options: Any) -> None:
        from jackalope.cli.output import Format, Screen
        from jackalope.client.app import Jackalope

        async def work() -> Any:
            screen = Screen(Format(common.format or "table"))
            screen.warn_of_log("jackalope.client")
            client = Jackalope(common.address(), name=_who_acts())
            try:
                await client.connect(wait=False)
                return await command(client, screen, **options)
            finally:
                await client.close()

        finish(run_loop(work()))

    return _with_options(command, run, leading=2, common=(*_CONNECTION, "format"))


def _who_acts() -> str:
    """Return who acts, for the histories: the user and the machine."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def local(command: Callable[..., Any]) -> Callable[..., None]:
    """Make a command for Typer of a function of a screen and options, without a broker."""

    def run(common: Common, **options: Any) -> None:
        from jackalope.cli.output import Format, Screen

        finish(command(Screen(Format(common.format or "table")), **options))

    return _with_options(command, run, leading=1, common=("format",))


def addressed(command: Callable[..., Any]) -> Callable[..., None]:
    """Make a command for Typer of a function of the common options and its own."""

    def run(common: Common, **options: Any) -> None:
        finish(command(common, **options))

    return _with_options(command, run, leading=1, common=(*_CONNECTION, "format"))


def alone(command: Callable[..., Any]) -> Callable[..., None]:
    """Make a command for Typer of a function that has nothing but its own options."""

    def run(_: Common, **options: Any) -> None:
        finish(command(**options))

    return _with_options(command, run, leading=0, common=())


class Options:
    """Options that belong together: a dataclass whose fields are annotated for Typer."""


def _with_options(
    command: Callable[..., Any], run: Callable[..., None], *, leading: int, common: Sequence[str]
) -> Callable[..., None]:
    """Give a command the common options: Typer sees them behind its own."""
    own = list(inspect.signature(command).parameters.values())[leading:]
    groups = {each.name: each.annotation for each in own if _is_group(each.annotation)}
    shown = [each for parameter in own for each in _unfold(parameter)]
    shown += common_parameters(common)

    def call(context: typer.Context, **given: Any) -> None:
        said = Common(**{name: given.pop(name) for name in common})
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        with failing_well():
            run(said.over(context.find_object(Common) or Common()), **given)

    declare(call, shown)
    call.__name__, call.__doc__ = command.__name__, help_text(command.__doc__ or "")
    return call


def declare(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Have Typer see parameters in place of a command's own, and pass the context."""
    context = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)
    shown = [each for each in parameters if each.name != "context"] + [context]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in shown}


def help_text(docstring: str) -> str:
    """Make the help of a docstring: prose is wrapped again, examples keep their lines."""
    shown = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        head, *lines = paragraph.splitlines()
        if head == "Examples:":
            # The backspace makes Typer leave the lines of a paragraph alone.
            broken = [f"  {part}" for line in lines for part in _broken(line.strip())]
            shown.append("\n".join(["\b[bold]Examples[/bold]", *broken]))
        else:
            shown.append(" ".join([head, *lines]))
    return "\n\n".join(shown)


#: How long the line of an example is on a terminal of 80 columns, within the margins of help.
_EXAMPLE_CHARS_MAX = 75


def _broken(line: str) -> list[str]:
    """Break a command that is too long, so that it can be copied: before an option if it can be."""
    if len(line) <= _EXAMPLE_CHARS_MAX:
        return [line]
    spaces = [
        at
        for at, sign in enumerate(line[: _EXAMPLE_CHARS_MAX - 1])
        if sign == " " and not (line[:at].count("'") % 2 or line[:at].count('"') % 2)
    ]
    options = [at for at in spaces if line[at + 1] == "-" and at > _EXAMPLE_CHARS_MAX // 2]
    at = max(options or spaces)
    return [line[:at] + " \\", *_broken("    " + line[at + 1 :])]


def hand_down(context: typer.Context, given: dict[str, Any]) -> None:
    """Let a group's options hold for its commands."""
    said = Common(**{each.name: given.get(each.name) for each in fields(Common)})
    context.obj = said.over(context.find_object(Common) or Common())


def call_without_command(group: typer.Typer, command: Async) -> None:
    """Set what a group does when it is called without a command of its own."""
    alone = connected(command)

    def call(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            alone(context=context, **given)
        else:
            hand_down(context, given)

    declare(call, list(inspect.signature(alone).parameters.values()))
    group.callback(help=alone.__doc__)(call)


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def _unfold(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if not _is_group(parameter.annotation):
        return [parameter.replace(kind=_KEYWORD)]
    return [
        inspect.Parameter(each.name, _KEYWORD, default=each.default, annotation=each.type)
        for each in fields(parameter.annotation)
    ]


# Running, and ending.


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def load_structlog() -> None:
    """Import structlog without rich.

    If it finds rich it loads it, to print tracebacks; our log prints them itself. That is a fifth
    of what a broker loads to start.
    """
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        # As Python documents, importing it fails then.
        sys.modules["rich"] = None  # type: ignore[assignment]
        try:
            import structlog  # noqa: F401
        finally:
            del sys.modules["rich"]


def finish(code: object) -> None:
    """End with the exit code that a command returned, if it did."""
    if isinstance(code, int) and code:
        raise typer.Exit(code)


@contextlib.contextmanager
def failing_well() -> Iterator[None]:
    """Turn what can go wrong outside into one line with a hint, and an exit code."""
    try:
        yield
    except Failure as failure:
        fail(str(failure), failure.code, failure.details)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has closed it; Python would complain once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.DONE) from None
    except Exception as error:
        line, code = _line_of(error)
        if not line:
            raise
        fail(line, code)


def _line_of(error: Exception) -> tuple[str, Exit]:
    """Describe an error that is not a bug; nothing for one that is."""
    from jackalope.errors import ConfigError, ConnectionLost, JackalopeError, Rejected

    if isinstance(error, ConnectionLost) and isinstance(error.__cause__, ConnectionRefusedError):
        where = str(error).removeprefix("cannot reach jackalope://").partition(": ")[0]
        line = f"no broker at {where}: start one with `jackalope serve`, or name it with --broker"
        return line, Exit.FAILED
    if isinstance(error, Rejected):
        return error.message, Exit.FAILED
    if isinstance(error, JackalopeError):
        return str(error), Exit.USAGE if isinstance(error, ConfigError) else Exit.FAILED
    return "", Exit.FAILED


def fail(message: str, code: Exit = Exit.FAILED, details: Sequence[str] = ()) -> NoReturn:
    """Print on the standard error what went wrong, and exit."""
    say_error(message, details)
    raise typer.Exit(code)


def say_error(message: str, details: Sequence[str] = ()) -> None:
    """Print in one line on the standard error what went wrong, and each detail in another."""
    from rich.text import Text

    from jackalope.cli.output import SafeConsole

    console = SafeConsole(stderr=True)
    line = Text.assemble(("error: ", "bold red"), " ".join(message.split()))
    console.print(line, soft_wrap=True)
    for detail in details:
        console.print(Text(f"  {detail}"), soft_wrap=True)
