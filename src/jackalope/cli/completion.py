"""Completion in a shell, also from the live broker: queues, workers, tasks, schedules, limits.

click has the scripts by which a shell asks, and answers it; here is what is offered. A shell waits
while it completes a word, so this asks the broker once, for a moment, and in silence: with no
broker, or one that needs a key, nothing is offered. What it asks runs in a thread of its own, which
the end of the process does not wait for.
"""

from collections.abc import Callable, Coroutine, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import click

from jackalope.cli.base import Common, arg

if TYPE_CHECKING:
    from jackalope.client.app import Jackalope

#: How long a shell may wait for the broker.
ASK_S_MAX = 1.0

#: How many of the latest tasks are looked at for their names.
_TASKS_MAX = 300

#: How many names are offered.
_OFFERED_MAX = 200


class Shell(StrEnum):
    """Shells that ask."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, arg("SHELL", "The shell: bash, zsh or fish.")]) -> int:
    """Print a script that completes words in a shell.

    It completes commands, options, states and formats, and from the broker the names of queues,
    workers, tasks and schedules. Without a broker it offers none of these.

    bash and zsh load it when they start, by the line below in ~/.bashrc or, behind `compinit`, in
    ~/.zshrc; fish finds the file. They start faster if the script is saved to a file that they
    `source`.

    Examples:
        source <(jackalope completion bash)
        source <(jackalope completion zsh)
        jackalope completion fish > ~/.config/fish/completions/jackalope.fish
    """
    from click.shell_completion import shell_complete

    root = click.get_current_context().find_root().command
    return shell_complete(root, {}, "jackalope", "_JACKALOPE_COMPLETE", f"{shell}_source")


def queues(context: click.Context) -> list[str]:
    """Offer the queues."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        return [view.queue for view in await client.queues()]

    return _offered(context, ask)


def workers(context: click.Context) -> list[str]:
    """Offer the workers that are there."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        return [view.worker for view in await client.workers() if view.state != "gone"]

    return _offered(context, ask)


def task_names(context: click.Context) -> list[str]:
    """Offer the names that workers have declared, of the latest tasks, and of schedules."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        queue = context.params.get("queue") or ""
        page = await client.page(_TASKS_MAX)
        names = [view.name for view in page.tasks if queue in ("", "default", view.queue)]
        names += [view.name for view in await client.contracts()]
        async for view in client.schedules():
            names.append(view.settings.task)
            if len(names) > 2 * _TASKS_MAX:
                break
        return names

    return _offered(context, ask)


def schedules(context: click.Context) -> list[str]:
    """Offer the schedules."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        names = []
        async for view in client.schedules():
            names.append(view.name)
            if len(names) == _OFFERED_MAX:
                break
        return names

    return _offered(context, ask)


def limits(context: click.Context) -> list[str]:
    """Offer the limits by key, and the tags that have one."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        tags = [view.tag for view in await client.limits()]
        return tags + [view.name for view in await client.key_limits()]

    return _offered(context, ask)


def limited_tags(context: click.Context) -> list[str]:
    """Offer the tags that have a limit."""

    async def ask(client: "Jackalope") -> Iterable[str]:
        return [view.tag for view in await client.limits()]

    return _offered(context, ask)


Ask = Callable[["Jackalope"], Coroutine[Any, Any, Iterable[str]]]


def _offered(context: click.Context, ask: Ask) -> list[str]:
    import threading

    # Before the time counts: what is loaded does not hang.
    import jackalope.client.app  # noqa: F401

    found: list[str] = []

    def work() -> None:
        found[:] = sorted({name for name in _asked(context, ask) if name})[:_OFFERED_MAX]

    thread = threading.Thread(target=work, name="completion", daemon=True)
    thread.start()
    thread.join(ASK_S_MAX)
    return list(found)


def _asked(context: click.Context, ask: Ask) -> Iterable[str]:
    import asyncio
    import logging

    from jackalope.client.app import Jackalope

    async def work() -> Iterable[str]:
        client = Jackalope(_common(context).address(), name="completion")
        try:
            await client.connect(wait=False)
            return await ask(client)
        finally:
            await client.close()

    logging.disable()
    try:
        return asyncio.run(work())
    except Exception:  # noqa: BLE001  whatever it is, a shell that completes must not show it
        return ()


def _common(context: click.Context) -> Common:
    """Return where the broker is, by the options that are on the line so far."""
    from dataclasses import fields

    common = Common()
    here: click.Context | None = context
    while here is not None:
        common = common.over(Common(**{f.name: here.params.get(f.name) for f in fields(Common)}))
        here = here.parent
    return common
