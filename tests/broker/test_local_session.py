"""Sessions inside the broker's process: replies come to those who asked, or a refusal does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from jackalope.broker.access import THE_BROKER
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.core.commands import ClaimTasks, JoinWorker, SubmitTasks
from jackalope.core.durations import SECOND
from jackalope.core.effects import Accepted, NothingToClaim
from jackalope.core.refusals import Code
from jackalope.doors.http.session import Fleet
from jackalope.storage import Level, Storage
from tests.core.driving import spec
from tests.doors.harness import run


@asynccontextmanager
async def running() -> AsyncIterator[Broker]:
    broker = Broker(Storage.open(None, Level.MEMORY))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def opened() -> AsyncIterator[LocalSession]:
    async with running() as broker:
        session = LocalSession(broker, THE_BROKER)
        session.open()
        yield session


def test_each_reply_comes_to_who_asked() -> None:
    async def check() -> None:
        async with opened() as session:
            await session.ask(JoinWorker(ref=0, worker="w", queues=("q",), slots=0))
            claim = asyncio.create_task(
                session.ask(ClaimTasks(ref=0, count=1, wait_us=SECOND // 100))
            )
            assert await session.ask(SubmitTasks(ref=0, tasks=[])) == Accepted(count=0)
            assert isinstance(await claim, NothingToClaim)

    run(check())


@pytest.mark.parametrize("is_ended", [False, True], ids=["closed", "ended by the broker"])
def test_what_waits_is_refused_when_the_session_is_over(is_ended: bool) -> None:
    async def check() -> None:
        async with opened() as session:
            await session.ask(JoinWorker(ref=0, worker="w", queues=("q",), slots=0))
            claim = asyncio.create_task(
                session.ask(ClaimTasks(ref=0, count=1, wait_us=60 * SECOND))
            )
            await asyncio.sleep(0)
            (session.end if is_ended else session.close)("it is over")
            for asking in (claim, session.ask(SubmitTasks(ref=0, tasks=[spec(1)]))):
                with pytest.raises(Refused, match="it is over") as refused:
                    await asking
                assert refused.value.refusal.code is Code.STORAGE_FAILED

    run(check())


def test_a_session_that_is_over_can_be_opened_again() -> None:
    async def check() -> None:
        async with opened() as session:
            session.end("the disk is full; connect again")
            session.open()
            assert await session.ask(SubmitTasks(ref=0, tasks=[spec(1)])) == Accepted()

    run(check())


def test_a_worker_that_joins_again_leaves_no_session_behind() -> None:
    async def check() -> None:
        async with running() as broker:
            fleet = Fleet(broker)
            for _ in range(3):
                await fleet.join(JoinWorker(ref=0, worker="w", queues=("q",), lease_us=30 * SECOND))
            await broker.flush()
            assert broker.session_count() == 1

    run(check())
