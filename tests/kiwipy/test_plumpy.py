"""plumpy over a communicator: processes are launched, continued, paused, played and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import kiwipy
import plumpy
import pytest
from plumpy.process_comms import ProcessLauncher, RemoteProcessThreadController

from tests.kiwipy.harness import PATIENCE_S, Ear, Switch


class Waiting(plumpy.Process):
    """Waits until it is told to go on."""

    def run(self) -> Any:
        return plumpy.Wait(self.resumed)

    def resumed(self) -> None:
        self.out("answer", 42)

    @classmethod
    def define(cls, spec: Any) -> None:
        super().define(spec)
        spec.outputs.dynamic = True


class Quick(plumpy.Process):
    """Ends at once."""

    def run(self) -> Any:
        self.out("answer", 42)

    @classmethod
    def define(cls, spec: Any) -> None:
        super().define(spec)
        spec.outputs.dynamic = True


class Daemon:
    """A loop that runs processes, and a controller elsewhere that commands them."""

    def __init__(self, switch: Switch, persister: Any) -> None:
        self.worker = plumpy.wrap_communicator(switch.connect(), asyncio.get_running_loop())
        self.outside = switch.connect()
        self.controller = RemoteProcessThreadController(self.outside)
        loop = asyncio.get_running_loop()
        self.worker.add_task_subscriber(ProcessLauncher(loop, persister=persister))


async def settle(future: Any) -> Any:
    """Wait for a future, and for those that it resolves to, while the loop goes on."""
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(future, kiwipy.Future):
            future = await asyncio.wrap_future(future)
    return future


async def until(process: Any, state: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while process.state != state:  # noqa: ASYNC110  plumpy has no event for it
            await asyncio.sleep(0.002)


Story = Callable[[Daemon], Coroutine[Any, Any, None]]
Tell = Callable[[Story], None]


@pytest.fixture
def persister() -> Any:
    return plumpy.InMemoryPersister()


@pytest.fixture
def tell(switch: Switch, persister: Any) -> Iterator[Tell]:
    async def run(story: Story) -> None:
        await story(Daemon(switch, persister))

    # In debug mode asyncio raises an exception where a thread touches the loop of another, which
    # is what happens over RabbitMQ now and then.
    yield lambda story: asyncio.run(run(story), debug=switch.is_ours)
    plumpy.set_object_loader(None)


def command(do: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Give a command from another thread, as a person at a terminal does."""

    async def give() -> Any:
        return await settle(await asyncio.to_thread(do, *args, **kwargs))

    return give()


@pytest.mark.feature("T32")
def test_a_process_is_launched(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        assert await command(daemon.controller.launch_process, Quick) == {"answer": 42}

    tell(story)


def test_a_process_is_executed_and_its_pid_told(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        pid = await command(
            daemon.controller.launch_process, Quick, persist=True, nowait=True, no_reply=False
        )
        assert pid is not None

    tell(story)


@pytest.mark.feature("T32")
def test_a_process_is_continued_from_its_checkpoint(tell: Tell, persister: Any) -> None:
    async def story(daemon: Daemon) -> None:
        process = Quick()
        persister.save_checkpoint(process)
        pid = process.pid
        del process
        assert await command(daemon.controller.continue_process, pid) == {"answer": 42}

    tell(story)


@pytest.mark.feature("T28", "T32")
def test_a_process_is_paused_played_and_killed(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        process: Any = Waiting(communicator=daemon.worker)
        running = asyncio.ensure_future(process.step_until_terminated())
        await until(process, plumpy.ProcessState.WAITING)
        assert await command(daemon.controller.pause_process, process.pid, "for tea")
        assert process.paused
        assert await command(daemon.controller.play_process, process.pid)
        assert not process.paused
        status = await command(daemon.controller.get_status, process.pid)
        assert status["process_string"]
        assert await command(daemon.controller.kill_process, process.pid, "enough")
        await asyncio.wait_for(running, PATIENCE_S)
        assert process.state == plumpy.ProcessState.KILLED

    tell(story)


@pytest.mark.feature("T30", "T32")
def test_all_processes_are_paused_played_and_killed(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        processes = [Waiting(communicator=daemon.worker) for _ in range(5)]
        running = [asyncio.ensure_future(p.step_until_terminated()) for p in processes]
        for process in processes:
            await until(process, plumpy.ProcessState.WAITING)
        await asyncio.to_thread(daemon.controller.pause_all, "all")
        await until_all(processes, lambda process: process.paused)
        await asyncio.to_thread(daemon.controller.play_all)
        await until_all(processes, lambda process: not process.paused)
        await asyncio.to_thread(daemon.controller.kill_all, "all")
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE_S)
        assert all(p.state == plumpy.ProcessState.KILLED for p in processes)

    tell(story)


async def until_all(processes: list[Any], is_so: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not all(map(is_so, processes)):  # noqa: ASYNC110  plumpy has no event for it
            await asyncio.sleep(0.002)


def test_a_process_tells_how_it_changes(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        ear = Ear()
        wanted = kiwipy.BroadcastFilter(ear, subject="state_changed.*.finished")
        await asyncio.to_thread(daemon.outside.add_broadcast_subscriber, wanted)
        process = Quick(communicator=daemon.worker)
        await process.step_until_terminated()
        heard = await asyncio.to_thread(ear.next)
        assert heard[1:3] == (process.pid, "state_changed.running.finished")

    tell(story)


def test_a_process_that_has_ended_cannot_be_reached(tell: Tell) -> None:
    async def story(daemon: Daemon) -> None:
        process = Quick(communicator=daemon.worker)
        await process.step_until_terminated()
        process.close()
        with pytest.raises(kiwipy.UnroutableError):
            await command(daemon.controller.kill_process, process.pid)

    tell(story)


def test_quick_subscribers_are_called_by_their_own_loop(our_switch: Switch) -> None:
    calls = 100

    async def story() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        worker = plumpy.wrap_communicator(our_switch.connect(), loop)
        outside = our_switch.connect()
        outside._loop.set_debug(True)  # As plumpy's own tests do, over RabbitMQ.
        other = kiwipy.BroadcastFilter(lambda *_: pytest.fail("not meant for it"), subject="other")
        worker.add_broadcast_subscriber(other)
        worker.add_broadcast_subscriber(lambda *_: heard.set())
        worker.add_rpc_subscriber(lambda _, message: message, "clerk")
        worker.add_task_subscriber(lambda _, task: task)
        for number in range(calls):
            assert await command(outside.rpc_send, "clerk", number) == number
            assert await command(outside.task_send, number) == number
        await asyncio.to_thread(outside.broadcast_send, None, None, "this")
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()

    asyncio.run(story(), debug=True)


def test_a_subscriber_that_rejects_or_raises_on_its_own_loop(our_switch: Switch) -> None:
    def reject(_: Any, __: Any) -> None:
        raise kiwipy.TaskRejected

    def fail(_: Any, message: Any) -> None:
        raise ValueError(message)

    async def story() -> None:
        worker = plumpy.wrap_communicator(our_switch.connect(), asyncio.get_running_loop())
        outside = our_switch.connect()
        worker.add_task_subscriber(reject)
        worker.add_task_subscriber(lambda _, task: task)
        worker.add_rpc_subscriber(fail, "clerk")
        assert await command(outside.task_send, 1) == 1
        with pytest.raises(kiwipy.RemoteException, match="why"):
            await command(outside.rpc_send, "clerk", "why")

    asyncio.run(story(), debug=True)


@pytest.mark.parametrize(("error", "has_trace"), [(plumpy.KilledError, False), (ValueError, True)])
def test_a_process_that_was_killed_is_no_fault(
    our_switch: Switch, caplog: pytest.LogCaptureFixture, error: type[Exception], has_trace: bool
) -> None:
    def launch(_: Any, task: Any) -> None:
        raise error(task)

    communicator = our_switch.connect()
    communicator.add_task_subscriber(launch)
    with pytest.raises(kiwipy.RemoteException, match="enough"):
        communicator.task_send("enough").result(PATIENCE_S)
    assert any(record.exc_info for record in caplog.records) == has_trace
