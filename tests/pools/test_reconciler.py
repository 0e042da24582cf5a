"""The control loops end when the broker has, however that came about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackalope.broker.engine import Turn
from jackalope.broker.service import Broker
from jackalope.core import Core
from jackalope.pools.launcher import Reach
from jackalope.pools.launchers import make_launcher
from jackalope.pools.reconciler import PoolService
from jackalope.storage import Level, Storage


def test_pools_stop_in_the_moment_in_which_their_broker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(turn: Turn, store_us: int, core: Core) -> None:
        raise RuntimeError("a bug")

    async def run() -> None:
        broker = Broker(Storage.open(None, Level.MEMORY))
        await broker.start()
        launcher = make_launcher({"type": "subprocess", "command": ["true"]}, tmp_path, "me")
        pools = PoolService(broker, {"local": launcher}, every_s=0.01)
        await pools.start()
        pools.begin(Reach("jackalope://127.0.0.1:1"))
        monkeypatch.setattr(broker.meter, "count_turn", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            await broker.failed()
        async with asyncio.timeout(30):
            await pools.stop()

    asyncio.run(run())
