"""Nodes that follow, claim, lead, step down and come back, with real files and a real log."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from jackalope.broker.access import THE_BROKER
from jackalope.broker.cluster.leadership import Role
from jackalope.broker.cluster.levels import Levels
from jackalope.broker.local_session import LocalSession
from jackalope.broker.queries import Refused
from jackalope.core.commands import SubmitTasks
from jackalope.core.durations import MINUTE
from jackalope.core.records import LEVEL
from jackalope.core.task import TaskSpec
from jackalope.storage import DiskFull, Fenced
from jackalope.storage.entry import Kind, head_of
from jackalope.storage.shared.log import Put
from jackalope.storage.shared.memory import MemoryEngine, MemoryLog
from tests.broker.cluster.machines import TIMEOUT_S, Cluster, in_loop, running, until
from tests.core.driving import spec
from tests.storage.shared.servers import Servers
from tests.storage.shared.servers import running as nats_servers

pytestmark = pytest.mark.timeout(120)


def tasks(first: int, count: int) -> list[TaskSpec]:
    return [spec(number) for number in range(first, first + count)]


async def check_equal(cluster: Cluster) -> None:
    """Check that every node has every acknowledged task, and all have the same."""
    machines = await cluster.settled()

    def are_equal() -> bool:
        """A leader that decides just now is ahead of the others for a moment."""
        found = [machine.submitted() for machine in machines]
        return all(each == found[0] for each in found)

    await until(are_equal)
    assert cluster.acknowledged <= machines[0].submitted()


@in_loop
async def test_one_of_three_leads_and_the_others_have_what_it_decides(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        for task in tasks(1, 20):
            await cluster.submit(task)
        await check_equal(cluster)
        assert sum(each.leads for each in cluster.machines) == 1
        followers = [each for each in cluster.machines if not each.leads]
        assert {each.node.view.leader for each in followers} == {leader.name}
        assert all("following" in each.broker.health.trouble() for each in followers)
        assert leader.broker.health.trouble() == ""


@in_loop
async def test_a_lost_leader_is_replaced_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        for round_ in range(3):
            for task in tasks(100 * round_ + 1, 10):
                await cluster.submit(task)
            first = await cluster.led()
            epoch = first.node.view.epoch
            await first.lose()
            second = await cluster.led()
            assert second is not first
            assert second.node.view.epoch > epoch
            for task in tasks(100 * round_ + 50, 10):
                await cluster.submit(task)
            await first.start()
            await check_equal(cluster)
        assert len(cluster.acknowledged) == 60


@in_loop
async def test_a_leader_that_is_cut_off_tells_nothing_and_follows_when_it_is_back(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        for task in tasks(1, 5):
            await cluster.submit(task)
        old = await cluster.led()
        old.wire.is_cut = True
        waiting = asyncio.create_task(cluster.submit(tasks(6, 1)[0]))
        await until(lambda: cluster.leader() is not old)
        await waiting
        assert old.node.view.role is Role.LEADING  # as far as it knows
        assert not old.node.may_read()
        old.wire.is_cut = False
        await check_equal(cluster)
        assert not old.leads


@in_loop
async def test_a_leader_that_is_cut_off_does_not_keep_its_clients(tmp_path: Path) -> None:
    """It is not told that another leads, however long that is so; they find out by themselves."""
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        old = await cluster.led()
        await cluster.settled()
        session = LocalSession(old.broker, THE_BROKER)
        session.open()
        old.wire.is_cut = True
        with pytest.raises(Refused, match="the shared log does not answer"):
            await session.ask(SubmitTasks(0, tasks(1, 1), namespace="default"))
        assert old.leads  # as far as it knows
        assert old.node.elsewhere("native") == ""
        assert "does not answer" in old.broker.health.trouble()
        assert old.broker.session_count() == 0
        await cluster.submit(tasks(1, 1)[0])  # to the other
        old.wire.is_cut = False
        await check_equal(cluster)


@in_loop
async def test_a_leader_goes_on_when_the_log_answers_again(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log), count=1) as cluster:
        leader = await cluster.led()
        epoch = leader.node.view.epoch
        leader.wire.is_cut = True
        await until(lambda: leader.node.elsewhere("native") == "")
        leader.wire.is_cut = False
        await until(lambda: leader.node.elsewhere("native") is None)
        assert leader.broker.health.trouble() == ""
        await cluster.submit(tasks(1, 1)[0])
        assert leader.node.view.epoch == epoch


@in_loop
async def test_answers_that_are_lost_cost_time_and_no_task(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        leader.wire.loses_answers = True
        waiting = [asyncio.create_task(cluster.submit(task)) for task in tasks(1, 5)]
        await asyncio.sleep(0.3)
        leader.wire.loses_answers = False
        await asyncio.gather(*waiting)
        await check_equal(cluster)


@in_loop
async def test_a_leader_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.submit(tasks(1, 1)[0])
        leader = await cluster.led()
        await cluster.settled()
        began = asyncio.get_running_loop().time()
        await leader.stop()
        await cluster.led()
        assert asyncio.get_running_loop().time() - began < 5
        await cluster.submit(tasks(2, 1)[0])
        await check_equal(cluster)


@in_loop
async def test_a_leader_steps_down_for_the_node_that_is_named(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.submit(tasks(1, 1)[0])
        leader = await cluster.led()
        await cluster.settled()
        heir = next(each for each in reversed(cluster.machines) if each is not leader)
        leader.node.step_down(heir.name)
        await until(lambda: heir.leads)
        await cluster.submit(tasks(2, 1)[0])
        await check_equal(cluster)


@in_loop
async def test_a_leader_that_hands_over_answers_no_read_and_ends_sessions_last(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        await cluster.settled()
        others = [each for each in cluster.machines if each is not leader]
        for other in others:
            other.wire.is_cut = True  # So none claims for a while.
        session = LocalSession(leader.broker, THE_BROKER)
        session.open()
        leaving = asyncio.create_task(leader.node.leave())
        await until(lambda: leader.node.view.role is Role.HANDING_OVER)
        reading = asyncio.create_task(leader.broker.read(lambda engine: engine.sequence))
        await asyncio.sleep(0.05)
        assert not reading.done(), "another node may lead, and have more"
        assert leader.broker.session_count() == 1
        for other in others:
            other.wire.is_cut = False
        with pytest.raises(Fenced):
            await reading
        assert leader.broker.session_count() == 0
        await leaving
        await until(lambda: any(other.leads for other in others))


@in_loop
async def test_a_leader_that_leaves_knows_who_leads_next(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        await cluster.settled()
        await leader.node.leave()
        successor = leader.node.elsewhere("native")
        assert (await cluster.led()).name == successor  # It may have to hear of it first.


@in_loop
async def test_a_node_that_missed_much_catches_up_before_it_may_lead(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.led()
        await cluster.settled()
        away = next(each for each in cluster.machines if not each.leads)
        await away.lose()
        for task in tasks(1, 40):
            await cluster.submit(task)
        await away.start()
        await check_equal(cluster)


@in_loop
async def test_a_leader_confirms_that_it_leads_before_it_answers_late(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        await cluster.settled()
        assert await leader.broker.read(lambda engine: engine.fault) is None
        leader.wire.is_cut = True
        await asyncio.sleep(0.3)
        reading = asyncio.create_task(leader.broker.read(lambda engine: engine.sequence))
        await until(lambda: cluster.leader() not in (leader, None))
        assert not reading.done()
        leader.wire.is_cut = False
        with pytest.raises(Fenced):
            await reading


@in_loop
async def test_time_does_not_go_back_with_a_leader_whose_clock_is_behind(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.submit(tasks(1, 1)[0])
        first = await cluster.led()
        await cluster.settled()
        reached_us = first.broker.now_us()
        for machine in cluster.machines:
            if machine is not first:
                machine.broker._clock._ahead_us -= 10 * MINUTE
        await first.lose()
        second = await cluster.led()
        await until(lambda: second.broker.now_us() >= reached_us)
        await cluster.submit(tasks(2, 1)[0])
        assert second.broker.engine.core.book.counters.latest_us >= reached_us


@in_loop
async def test_a_node_that_begins_while_the_leader_is_busy_learns_who_leads(tmp_path: Path) -> None:
    """A leader that stores one batch after the other needs no beats, but others need its name."""
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        leader = await cluster.led()
        follower = next(each for each in cluster.machines if each is not leader)

        async def keep_busy() -> None:
            for number in count(1):
                await cluster.submit(spec(number))

        def is_aware() -> bool:
            leads = cluster.leader()
            return leads is not None and follower.node.view.leader == leads.name

        busy = asyncio.create_task(keep_busy())
        await follower.stop()
        await follower.start()
        await until(is_aware)
        assert not busy.done()
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)


@in_loop
async def test_the_level_is_not_raised_while_a_turn_is_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the turn fails, the state is read from disk on the loop: nothing may write meanwhile."""
    monkeypatch.setattr(Levels, "first", lambda _: LEVEL - 1)
    log, is_put, may_go_on = MemoryLog(), Event(), Event()
    async with running(tmp_path, lambda: MemoryEngine(log), count=1) as cluster:
        leader = await cluster.led()
        await cluster.settled()
        put = leader.wire.put

        def put_in_vain(position: int, message: bytes, timeout_s: float) -> Put:
            if may_go_on.is_set() or head_of(message).kind != Kind.BATCH:
                return put(position, message, timeout_s)
            is_put.set()
            may_go_on.wait(TIMEOUT_S)
            return Put.FULL

        monkeypatch.setattr(leader.wire, "put", put_in_vain)
        session = LocalSession(leader.broker, THE_BROKER)
        session.open()
        asking = asyncio.create_task(session.ask(SubmitTasks(0, tasks(1, 1), namespace="default")))
        await until(is_put.is_set)
        raising = asyncio.create_task(leader.node.raise_level(LEVEL))
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(DiskFull):
            await raising
        with pytest.raises(Refused, match="nothing was changed"):
            await asking
        await until(lambda: leader.broker.engine.fault is None)
        await leader.node.raise_level(LEVEL)
        assert leader.node.level() == LEVEL
        await cluster.submit(tasks(1, 1)[0])
        await check_equal(cluster)


@in_loop
async def test_a_damaged_log_is_not_followed(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, lambda: MemoryEngine(log)) as cluster:
        await cluster.led()
        up = await cluster.settled()
        follower = next(each for each in up if not each.leads)
        await follower.lose()
        first = min(log.messages)
        raw = bytearray(log.messages[first])
        raw[-1] ^= 1
        log.messages[first] = bytes(raw)
        shutil.rmtree(tmp_path / follower.name)
        await follower.start()
        await until(lambda: follower.node.view.role is Role.QUARANTINED)
        assert "damaged" in follower.node.status().why
        await follower.stop()


# On JetStream.


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with nats_servers(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@in_loop
async def test_nodes_on_jetstream_lose_a_leader(tmp_path: Path, servers: Servers) -> None:
    async with running(tmp_path, lambda: servers.engine("nodes")) as cluster:
        for task in tasks(1, 10):
            await cluster.submit(task)
        first = await cluster.led()
        await first.lose()
        for task in tasks(11, 10):
            await cluster.submit(task)
        await first.start()
        await check_equal(cluster)


@in_loop
async def test_nodes_outlive_the_server_that_decides(tmp_path: Path, servers: Servers) -> None:
    """The log elects another copy: nothing is lost, and what waits is stored then."""
    async with running(tmp_path, lambda: servers.engine("servers")) as cluster:
        for task in tasks(1, 5):
            await cluster.submit(task)
        leader = await cluster.led()
        name = leader.wire.state().leader
        server = next(each for each in servers.all if each.place.name == name)
        pid = server.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for task in tasks(6, 5):
            await cluster.submit(task)
        server.start()
        server.wait()
        await check_equal(cluster)
