"""The launcher `none`: workers are started by hand, or by another program.

It takes every order and carries out none; what runs is known by the sessions of workers alone.
"""

from __future__ import annotations

from jackalope.pools.launcher import Launch, Launched, Scope


class NoneLauncher:
    """Starts nothing."""

    @property
    def scope(self) -> Scope:
        """Return what one order would start."""
        return Scope.WORKER

    async def start(self, launch: Launch) -> None:
        """Start nothing."""

    async def stop(self, worker: str, grace_s: float) -> None:
        """Stop nothing."""

    async def list(self) -> list[Launched]:
        """Return nothing, for nothing was started."""
        return []

    async def close(self) -> None:
        """Do nothing."""
