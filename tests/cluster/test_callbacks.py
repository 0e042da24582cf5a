"""Callbacks of a cluster of real processes: the leader delivers, and nobody else does."""

import asyncio
from pathlib import Path

import pytest

from jackalope import Jackalope
from jackalope.core.ids import id_text
from tests.callbacks.receiver import answer, receiving
from tests.cluster.brokers import running

pytestmark = pytest.mark.timeout(300)


def test_the_next_leader_delivers_what_a_killed_one_did_not(tmp_path: Path) -> None:
    async def check() -> None:
        async with receiving(answer("503 Busy", "Retry-After: 2")) as receiver:
            with running(tmp_path, callbacks={"allow": ["127.0.0.1"]}) as brokers:
                first = await asyncio.to_thread(brokers.leader)
                async with Jackalope(brokers.address) as app:
                    handle = await app.submit("q", held=True, callback=receiver.url())
                    await handle.kill()
                    await receiver.until(1, 60)
                    await asyncio.to_thread(first.kill)
                    refused, delivered = await receiver.until(2, 90)
                    again = await app.submit("q", held=True, callback=receiver.url())
                    await again.kill()
                    got = await receiver.until(3, 60)
            assert refused.body == delivered.body
            assert [each.event["subject"] for each in got] == [
                *[id_text(handle.id)] * 2,
                id_text(again.id),
            ]

    asyncio.run(check())
