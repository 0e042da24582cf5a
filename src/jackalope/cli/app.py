"""The command line as a whole: its commands, the options before them, and how it ends.

The list of commands has what the help of the whole shows of each: its name, its panel and what it
does. The module of a command is imported, and its options are made, when that command is called,
completed or asked for its own help, since all of them together take longer than most commands do.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit as Ended

from jackalope.cli.base import (
    COMMON,
    Command,
    Exit,
    Group,
    addressed,
    alone,
    common_options,
    connected,
    group_of,
    hand_down,
    help_text,
    local,
    opt,
    say_error,
)

if TYPE_CHECKING:
    from jackalope.cli.output import Screen

Make = Callable[[Callable[..., Any]], Command]


class Deferred(click.Command):
    """A command or a group of which only the summary is known until it is used."""

    def __init__(self, name: str, about: str, panel: str) -> None:
        super().__init__(name, help=about)
        self.panel = panel

    def load(self) -> Command:
        """Make the command itself."""
        made = _find(self.name or "")
        made.help = made.help or self.help
        return made

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Let the command itself parse what it is given; it is then the one that is invoked."""
        return self.load().make_context(*args, **more)


def _show_version(_: click.Context, __: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from jackalope import __version__

        click.echo(f"jackalope {__version__}")
        raise Ended


def root(**given: Any) -> None:
    """Jackalope: a durable task broker.

    Accepts tasks, stores them durably, gives each to one worker at a time, and records what
    happened.

    Examples:
        jackalope serve                               run a broker here
        jackalope worker app:app                      run the tasks of app.py
        jackalope submit --name app.hello --wait      submit one, wait for it
        jackalope stats --watch                       watch the broker

    The options below can be given before or after a command.
    """
    hand_down(given)


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


# Groups of commands.


def _queues() -> Group:
    from jackalope.cli.commands import queues

    return _group(
        *(queues.show, queues.set_, queues.pause, queues.resume, queues.delete),
        by_itself=queues.list_queues,
    )


def _limits() -> Group:
    from jackalope.cli.namespace import limits

    commands = (limits.list_, limits.show, limits.set_, limits.delete, limits.remove)
    return _group(*commands, by_itself=limits.list_)


def _pools() -> Group:
    from jackalope.cli.commands import pools

    return _group(
        *(pools.show, pools.set_, pools.start, pools.stop, pools.pin, pools.unpin, pools.delete),
        by_itself=pools.list_pools,
    )


def _tasks() -> Group:
    from jackalope.cli.namespace import contracts

    return _group(contracts.describe, contracts.forget, by_itself=contracts.list_)


def _schedules() -> Group:
    from jackalope.cli import schedules

    group = _group(schedules.list_, schedules.show, schedules.set_, schedules.pause)
    rest = (schedules.resume, schedules.trigger, schedules.backfill, schedules.delete)
    return _add(group, connected, *rest)


def _flow() -> Group:
    from jackalope.cli import flows

    return _group(flows.submit, flows.list_, flows.show)


def _cache() -> Group:
    from jackalope.cli.commands import cache

    return _group(cache.list_, cache.show, cache.pin, cache.unpin, cache.purge)


def _keys() -> Group:
    from jackalope.cli.commands import keys

    group = _group(keys.create, keys.list_, keys.revoke)
    return _add(group, local, keys.new, keys.hash_)


def _namespaces() -> Group:
    from jackalope.cli.tenants import namespaces

    commands = (namespaces.list_, namespaces.show, namespaces.create, namespaces.set_)
    return _group(*commands, namespaces.delete)


def _config() -> Group:
    from jackalope.cli.commands import config

    return _group(config.show, config.check, config.init, make=local)


def _cluster() -> Group:
    from jackalope.cli.commands import backup, cluster, repair

    commands = (cluster.init, cluster.status, cluster.step_down, cluster.join, cluster.upgrade)
    copies = (backup.backup, backup.restore, repair.verify, repair.rebuild_log)
    return _group(*commands, *copies, make=local)


def _journal() -> Group:
    from jackalope.cli.commands import folder

    return _group(folder.show, make=local)


def _aiida() -> Group:
    from jackalope.cli.commands import aiida

    group = _group(aiida.use, aiida.new, make=addressed)
    return _add(group, local, aiida.status, aiida.revert, aiida.env, aiida.stop)


def _group(*commands: Any, make: Make = connected, by_itself: Any = None) -> Group:
    """Make a group of commands, and what it does without one of them."""
    return _add(group_of(by_itself), make, *commands)


def _add(group: Group, make: Make, *commands: Any) -> Group:
    """Add commands under the names of their functions."""
    for command in commands:
        group.add_command(make(command))
    return group


# The list of commands.

_GROUPS = {
    "queues": _queues,
    "limits": _limits,
    "tasks": _tasks,
    "schedules": _schedules,
    "flow": _flow,
    "pools": _pools,
    "cache": _cache,
    "keys": _keys,
    "namespaces": _namespaces,
    "config": _config,
    "cluster": _cluster,
    "journal": _journal,
    "aiida": _aiida,
}

#: What makes commands of functions, the module of these, and their names.
_FUNCTIONS: tuple[tuple[Make, str, str], ...] = (
    (alone, "commands.serve", "serve"),
    (alone, "commands.promote", "promote"),
    (addressed, "commands.worker", "worker"),
    (addressed, "contrib", "relay"),
    (connected, "commands.bench", "bench"),
    (connected, "commands.submit", "submit"),
    (connected, "commands.tasks", "status list_ wait explain history logs tail"),
    (connected, "commands.actions", "cancel kill pause play hold retry signal purge"),
    (connected, "commands.workers", "workers drain"),
    (connected, "commands.queues", "batches"),
    (connected, "commands.stats", "stats queue_depth cluster_status"),
    (local, "commands.folder", "check backup restore"),
    (connected, "top.command", "top"),
    (connected, "tenants.audit", "audit"),
    (alone, "contrib", "migrate"),
    (alone, "completion", "completion"),
    (local, "app", "version"),
)

#: What the help of the whole shows, panel by panel: the first sentences of the help of each.
PANELS = {
    "Run": {
        "serve": "Run a broker, until SIGTERM or Ctrl-C.",
        "promote": "Let a standby take the place of the broker that it follows.",
        "worker": "Run the tasks of an application, until SIGTERM or Ctrl-C.",
        "relay": "Move tasks from the outbox table of a database to the broker.",
        "bench": "Measure a broker: submit tasks that do nothing, run them, "
        "and print rates and latencies.",
    },
    "Tasks": {
        "submit": "Submit a task, or one for each line of a file.",
        "status": "Show everything about one task.",
        "list": "List tasks, the newest first.",
        "wait": "Wait until tasks have ended, and show how.",
        "explain": "Explain why a task is not running, where it runs, or how it ended.",
        "history": "Show what happened to a task: when, what, and by whom.",
        "logs": "Show what a task has printed and logged, attempt by attempt.",
        "tail": "Show events as they happen.",
        "flow": "Submit flows, which are graphs of tasks, list them and show them.",
    },
    "Act on tasks": {
        "cancel": "Cancel tasks that have not started.",
        "kill": "Kill tasks and their children; workers are asked to stop those that run.",
        "pause": "Pause tasks: those that run are asked to stop, "
        "the others wait until they are played.",
        "play": "Play tasks that are held or paused, so that they can run.",
        "hold": "Hold tasks that have not started, until they are played.",
        "retry": "Retry tasks that are dead or killed; "
        "a task that waits for its next attempt starts at once.",
        "signal": "Send an event to a task that waits for it, or will.",
        "purge": "Delete tasks that have ended, with their payloads and results.",
    },
    "The broker": {
        "top": "Watch a broker on the whole terminal: queues, workers, rates, "
        "slow and failing tasks.",
        "workers": "List workers: what they serve, and how busy they are.",
        "drain": "Drain a worker: it gets no more tasks, finishes those it has, and leaves.",
        "batches": "List the batches of a queue, the latest first.",
        "stats": "Show an overview: tasks by state, workers, rates.",
        "queue-depth": "Draw how many tasks wait, by queue and by priority.",
        "cluster-status": "Show the broker that answers. "
        "`cluster status` shows all nodes of a cluster.",
        "queues": "List queues and their tasks by state, and change them.",
        "limits": "List limits, by key and of tags: what runs, what waits, and when each opens.",
        "tasks": "List the tasks that workers have declared, with what each takes.",
        "schedules": "List schedules, by which the broker submits tasks itself, and change them.",
        "pools": "List pools, which start workers on demand by key, and change them.",
        "cache": "List cached answers, pin them and purge them.",
    },
    "Set up": {
        "check": "Look for damage in a data folder or a backup, without changing anything.",
        "backup": "Write everything in the data folder of a broker to one file, while it runs.",
        "restore": "Make a data folder of a backup, with which a broker goes on.",
        "migrate": "Show what of a code base that uses Celery becomes what.",
        "completion": "Print a script that completes words in a shell.",
        "version": "Show the version.",
        "namespaces": "Create, list, change and delete namespaces, with their quotas.",
        "audit": "Show what administrators did, or tried to: who, what, when and from where.",
        "keys": "Create, list and revoke API keys. Once there is one, every client needs a key.",
        "config": "Show, check or create the broker's configuration.",
        "cluster": "Begin a cluster, look at its members, and change it.",
        "journal": "Look into the journal of a data folder.",
        "aiida": "Run AiiDA's daemon with this broker, in place of RabbitMQ or ZeroMQ.",
    },
}


def _find(name: str) -> Command:
    """Import the module of a command or a group, and make it."""
    if name in _GROUPS:
        made: Command = _GROUPS[name]()
        made.name = name
        return made
    for make, module, functions in _FUNCTIONS:
        for function in functions.split():
            if function.rstrip("_").replace("_", "-") == name:
                # Unlike `import_module`, `python -X importtime` sees it.
                return make(getattr(__import__(f"jackalope.cli.{module}", fromlist=[""]), function))
    raise LookupError(name)


def _make_app() -> Group:
    """Make the group of all commands."""
    about = "Show the version, and exit."
    more: Any = {"callback": _show_version, "is_eager": True, "expose_value": False}
    shown = opt("--version", about, **more)("version", bool, False)
    made = Group(
        "jackalope",
        callback=root,
        params=[*common_options(COMMON, is_root=True), shown],
        help=help_text(root.__doc__ or ""),
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for panel, commands in PANELS.items():
        for name, about in commands.items():
            made.add_command(Deferred(name, about, panel))
    return made


app = _make_app()


def run(arguments: list[str]) -> int:
    """Run the command line, and return its exit code."""
    try:
        code: Any = app.main(arguments, prog_name="jackalope", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see `{context.command_path} --help`" if context is not None else ""
        say_error(error.format_message().rstrip(".") + hint)
        return error.exit_code
    except click.Abort:
        return Exit.INTERRUPTED
    return code if isinstance(code, int) else Exit.DONE
