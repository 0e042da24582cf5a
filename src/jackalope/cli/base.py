"""Commands: what all of them share. Options, errors, exit codes, and the way to the broker.

A command is an async function that takes a client and a `Screen` first, then its own options.
`connected` gives it the options that every command has, connects, runs it, and turns what goes
wrong into one line with a hint and an exit code. Options that belong together are a dataclass of
the kind `Options`: a command with a parameter of that type has all of them.

A parameter is annotated with its type and with what `opt` or `arg` returns. Modules of commands do
not postpone the evaluation of annotations, because these are read; and they import what is slow to
load when they run, because a shell that completes a word waits for it.
"""

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum, IntEnum, StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin

import click
from click.exceptions import Exit as Ended

if TYPE_CHECKING:
    from jackalope.transport.address import Address

DEFAULT_BROKER = "jackalope://127.0.0.1:7420"

_PANEL = "Everywhere"

#: How wide help is, and what is drawn where no terminal is.
COLUMNS_MAX = 100


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


class Format(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


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
    format: Format | None = None

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


# Commands, options and arguments.


class Command(click.Command):
    """A command whose help is drawn."""

    def get_help(self, ctx: click.Context) -> str:
        """Draw the help."""
        from jackalope.cli.help import draw

        return draw(self, ctx)


class Group(Command, click.Group):
    """Commands under one name, in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  as click calls it
        """Return the names."""
        return list(self.commands)


class Option(click.Option):
    """An option, in one of the panels of the help."""

    def __init__(self, *declared: Any, panel: str, **more: Any) -> None:
        super().__init__(*declared, **more)
        self.panel = panel


class Argument(click.Argument):
    """An argument, with its meaning."""

    panel, show_default = "Arguments", True

    def __init__(self, *declared: Any, help: str, **more: Any) -> None:  # noqa: A002  as options
        super().__init__(*declared, **more)
        self.help = help

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  as click calls it
        """Show whether it can be left out, and whether there can be several."""
        name = self.metavar or ""
        return [(name if self.required else f"[{name}]") + ("..." if self.nargs == -1 else "")]


#: What makes a parameter of its name, its type and its default.
Declared = Callable[[str, Any, Any], click.Parameter]


def opt(
    usage: str, about: str, panel: str = "Options", *, default: str | bool = True, **more: Any
) -> Declared:
    """Declare an option by how it is used, such as `--queue -q QUEUE`, and by what it means.

    The usage has its names and, unless it is a flag or a plain number, what is given to it.
    `default` is the default as people read it; False shows none. `more` is as for `_attributes`.
    """
    names = [each for each in usage.split() if each.startswith("-")]
    shown = {"metavar": usage.removeprefix(" ".join(names)).strip() or None, "help": about}

    def make(name: str, kind: Any, value: Any) -> click.Parameter:
        attributes = _attributes(kind, value, **more)
        is_list = attributes.pop("nargs", 1) == -1
        is_flag = attributes["type"] is bool
        attributes |= {"multiple": is_list, "is_flag": is_flag, "show_envvar": "envvar" in more}
        return Option([*names, name], panel=panel, show_default=default, **shown, **attributes)

    return make


def arg(metavar: str, about: str, **more: Any) -> Declared:
    """Declare an argument by what it is called and by what it means."""
    return lambda name, kind, value: Argument(
        [name], metavar=metavar, help=about, **_attributes(kind, value, **more)
    )


def _attributes(
    kind: Any,
    value: Any,
    *,
    min: int | None = None,  # noqa: A002
    max: int | None = None,  # noqa: A002
    complete: Sequence[str] | Callable[[click.Context], Iterable[str]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return what click is told of a parameter of a type and a default.

    `min` and `max` limit a number, `complete` is the words that a shell is offered. A list that was
    not given is None.
    """
    if isinstance(kind, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
        more |= {"nargs": -1, "callback": lambda _, __, values: list(values) or None}
    elif issubclass(kind, Enum):
        by_name = {each.value: each for each in kind}
        more["callback"] = lambda _, __, name: by_name.get(name)
        kind = click.Choice(list(by_name))
    elif min is not None or max is not None:
        kind = click.IntRange(min, max)
    if complete is not None:
        more["shell_complete"] = lambda context, _, begin: [
            word
            for word in (complete(context) if callable(complete) else complete)
            if word.startswith(begin)
        ]
    if value in (inspect.Parameter.empty, MISSING):
        return {"type": kind, "required": True, **more}
    return {"type": kind, "default": value, "required": False, **more}


#: The options that every command has, by their fields in `Common`: usage, meaning, default.
COMMON: dict[str, tuple[str, str, str | bool]] = {
    "broker": (
        "--broker -b ADDRESS",
        "The broker: host:port, or a URL such as jackalope://host/team; several by commas.",
        DEFAULT_BROKER.removeprefix("jackalope://"),
    ),
    "namespace": (
        "--namespace -n NAME",
        "The namespace (its own queues, workers and tasks) to use.",
        "default",
    ),
    "token": (
        "--token TOKEN",
        "Your API key. Better set JACKALOPE_TOKEN, which no other user can see.",
        False,
    ),
    "ca": ("--ca FILE", "The certificate authorities to trust with TLS.", "those of the system"),
    "skip_verify": (
        "--insecure-skip-verify",
        "Do not verify the broker's certificate. Anyone in between can read everything.",
        False,
    ),
    "format": ("--format -f [table|json|yaml]", "How the answer is written.", "table"),
}
_CONNECTION = ("broker", "namespace", "token", "ca", "skip_verify")


def common_options(
    names: Iterable[str], taken: Iterable[click.Parameter] = (), *, is_root: bool = False
) -> list[click.Parameter]:
    """Make the common options of a command, without the short names that its own have taken.

    Those of the root also have a variable in the environment each, and show their defaults.
    """
    gone = {option for parameter in taken for option in parameter.opts}
    made = []
    for name in names:
        usage, about, default = COMMON[name]
        usage = " ".join(each for each in usage.split() if each not in gone)
        more: dict[str, Any] = {"panel": _PANEL, "default": False}
        if is_root:
            more = {"default": default}
            if name != "skip_verify":
                more["envvar"] = f"JACKALOPE_{name.upper()}"
        kind = {"skip_verify": bool, "format": Format}.get(name, str)
        made.append(opt(usage, about, **more)(name, kind, None))
    return made


Async = Callable[..., Coroutine[Any, Any, Any]]


def connected(command: Async) -> Command:
    """Make a command of an async function of a client, a screen and options."""

    def run(common: Common, **options: Any) -> None:
        from jackalope.cli.output import Screen
        from jackalope.client.app import Jackalope

        async def work() -> Any:
            screen = Screen(common.format or Format.TABLE)
            screen.warn_of_log("jackalope.client")
            client = Jackalope(common.address(), name=_who_acts())
            try:
                await client.connect(wait=False)
                return await command(client, screen, **options)
            finally:
                await client.close()

        finish(run_loop(work()))

    return _command(command, run, leading=2, common=(*_CONNECTION, "format"))


def _who_acts() -> str:
    """Return who acts, for the histories: the user and the machine."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def local(command: Callable[..., Any]) -> Command:
    """Make a command of a function of a screen and options, without a broker."""

    def run(common: Common, **options: Any) -> None:
        from jackalope.cli.output import Screen

        finish(command(Screen(common.format or Format.TABLE), **options))

    return _command(command, run, leading=1, common=("format",))


def addressed(command: Callable[..., Any]) -> Command:
    """Make a command of a function of the common options and its own."""

    def run(common: Common, **options: Any) -> None:
        finish(command(common, **options))

    return _command(command, run, leading=1, common=(*_CONNECTION, "format"))


def alone(command: Callable[..., Any]) -> Command:
    """Make a command of a function that has nothing but its own options."""

    def run(_: Common, **options: Any) -> None:
        finish(command(**options))

    return _command(command, run, leading=0, common=())


class Options:
    """Options that belong together: a dataclass whose fields are annotated as parameters are."""


def _command(
    function: Callable[..., Any], run: Callable[..., None], *, leading: int, common: Sequence[str]
) -> Command:
    """Make a command of a function's own parameters behind the leading ones, and common options."""
    own = list(inspect.signature(function).parameters.values())[leading:]
    groups = {each.name: each.annotation for each in own if _is_group(each.annotation)}

    def call(**given: Any) -> None:
        said = Common(**{name: given.pop(name) for name in common})
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        with failing_well():
            run(said.over(click.get_current_context().find_object(Common) or Common()), **given)

    params = [each for parameter in own for each in _parameters(parameter)]
    return Command(
        function.__name__.rstrip("_").replace("_", "-"),
        callback=call,
        params=[*params, *common_options(common, params)],
        help=help_text(function.__doc__ or ""),
    )


def _parameters(parameter: inspect.Parameter) -> Iterator[click.Parameter]:
    """Make what a parameter of a function declares: one, or those that belong together."""
    declared = [(parameter.name, parameter.annotation, parameter.default)]
    if _is_group(parameter.annotation):
        declared = [(each.name, each.type, each.default) for each in fields(parameter.annotation)]
    for name, annotation, value in declared:
        kind, declare = get_args(annotation)
        yield declare(name, kind, value)


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def help_text(docstring: str) -> str:
    """Make the help of a docstring: prose is wrapped again, examples keep their lines."""
    shown = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        head, *lines = paragraph.splitlines()
        if head == "Examples:":
            broken = [f"  {part}" for line in lines for part in _broken(line.strip())]
            shown.append("\n".join([head, *broken]))
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


def hand_down(given: dict[str, Any]) -> None:
    """Let a group's options hold for its commands."""
    context = click.get_current_context()
    said = Common(**{each.name: given.get(each.name) for each in fields(Common)})
    context.obj = said.over(context.find_object(Common) or Common())


def group_of(by_itself: Async | None) -> Group:
    """Make a group, and what it does when it is called without a command of its own."""
    if by_itself is None:
        return Group(no_args_is_help=True)
    alone = connected(by_itself)

    def call(**given: Any) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            context.invoke(alone, **given)
        else:
            hand_down(given)

    return Group(callback=call, params=alone.params, help=alone.help, invoke_without_command=True)


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
        raise Ended(code)


@contextlib.contextmanager
def failing_well() -> Iterator[None]:
    """Turn what can go wrong outside into one line with a hint, and an exit code."""
    try:
        yield
    except Failure as failure:
        fail(str(failure), failure.code, failure.details)
    except KeyboardInterrupt:
        raise Ended(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has closed it; Python would complain once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Ended(Exit.DONE) from None
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
    raise Ended(code)


def say_error(message: str, details: Sequence[str] = ()) -> None:
    """Print in one line on the standard error what went wrong, and each detail in another."""
    from rich.text import Text

    from jackalope.cli.output import SafeConsole

    console = SafeConsole(stderr=True)
    line = Text.assemble(("error: ", "bold red"), " ".join(message.split()))
    console.print(line, soft_wrap=True)
    for detail in details:
        console.print(Text(f"  {detail}"), soft_wrap=True)
