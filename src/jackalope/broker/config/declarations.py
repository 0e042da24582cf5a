"""What the configuration declares, as one command, and what is wrong with it.

Owns the conversion of configured queues, pools and limits to declarations, and back to their keys
in messages.
"""

from __future__ import annotations

from jackalope.broker.config.loader import key_of
from jackalope.broker.config.schema import Config
from jackalope.core import Core
from jackalope.core.admin.configuration import refusals_of
from jackalope.core.commands import AnyCommand, DeclareAll, DeclarePool, DeclareQueue, LimitTag
from jackalope.core.refusals import Refusal

_BY = "configuration"


class Declarations:
    """All that a configuration declares."""

    def __init__(self, config: Config) -> None:
        wanted = _declarations(config)
        self.keys = [key for key, _ in wanted]
        # what declares it
        self.command = DeclareAll(declarations=[command for _, command in wanted])

    def problems(self, refused: list[tuple[int, Refusal]]) -> list[str]:
        """Return what is wrong, each with the key of the setting."""
        return [f"{self.keys[place]}: {refusal.message}" for place, refusal in refused]


def declaration_problems(config: Config) -> list[str]:
    """Return what a broker without any queue would refuse of a configuration."""
    core = Core()
    core.default_policy = config.queue_defaults.policy()
    core.pools.launchers = tuple(config.launchers)
    wanted = Declarations(config)
    return wanted.problems(refusals_of(core, wanted.command.declarations))


def _declarations(config: Config) -> list[tuple[str, AnyCommand]]:
    """Return the commands that declare what is configured, each with its key."""
    commands: list[tuple[str, AnyCommand]] = []
    for namespace, ns in config.namespaces.items():
        for queue, settings in ns.queues.items():
            declare = DeclareQueue(
                queue=queue,
                changes=dict(settings.changes),
                preset=settings.preset,
                namespace=namespace,
                by=_BY,
            )
            commands.append((key_of(("namespaces", namespace, "queues", queue)), declare))
        for queue, wanted in ns.pools.items():
            changes = dict(wanted.changes)
            pool = DeclarePool(queue=queue, changes=changes, namespace=namespace, by=_BY)
            commands.append((key_of(("namespaces", namespace, "pools", queue)), pool))
        for tag, limit in ns.limits.items():
            command = LimitTag(tag=tag, limit=limit, namespace=namespace, by=_BY)
            commands.append((key_of(("namespaces", namespace, "limits", tag)), command))
    return commands
