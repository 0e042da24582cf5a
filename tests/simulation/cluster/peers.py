"""The connections between nodes: what they tell each other, over the network of the world.

The real `Peers` asks and the real `PeerHost` answers; only the link between them is not one. What
is sent while the network is cut arrives once it is whole, as over TCP. A node that ends closes its
links.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from jackalope.broker.cluster.peer_link import ANSWER_S, HELLO_S, Credentials, PeerGone, PeerRefused
from jackalope.broker.cluster.peers import Peers
from jackalope.broker.service import Broker
from jackalope.core.durations import MILLISECOND
from jackalope.storage import StorageFault
from jackalope.wire.peer import ENTRIES_BYTES_MAX, AskEntries, AskSnapshot, AskStatus

if TYPE_CHECKING:
    from tests.simulation.cluster.machine import Life
    from tests.simulation.cluster.process import Process

T = TypeVar("T")

_LEG_US = (100, 2 * MILLISECOND)
#: How often what cannot pass is sent again.
_AGAIN_US = 300 * MILLISECOND


class SimPeers(Peers):
    """What one node knows of the others."""

    def __init__(self, life: Life) -> None:
        name = life.machine.name
        names = [each.name for each in life.machine.cluster.machines]
        super().__init__({each: (each, 0) for each in names}, Credentials("", "sim", name))
        self._life = life

    async def connect(self, name: str) -> Any:
        """Open a connection to another node, if it is there and can be reached in time."""
        cluster, own = self._life.machine.cluster, self._life.machine.name
        network, machine = cluster.network, cluster.by_name[name]
        tries = int(HELLO_S * 1_000_000) // _AGAIN_US
        for _ in range(tries):
            life = machine.life
            is_open = network.reaches(own, name) and network.reaches(name, own)
            if is_open and (life is None or not life.process.is_frozen()):
                if life is None:
                    raise PeerGone("nothing listens there")
                return SimLink(self._life, life)
            await asyncio.sleep(_AGAIN_US / 1_000_000)
        raise PeerGone(f"{name} does not answer")


class SimLink:
    """One connection, with the methods of `PeerLink` that nodes use."""

    def __init__(self, guest: Life, host: Life) -> None:
        self._guest = guest
        self._host = host
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self._latest_us = 0
        self._is_closed = False
        host.lent[self] = None

    # For the guest.

    async def send(self, request: Any) -> None:
        self._carry(self._guest, self._host, lambda: self._begin(request))

    async def expect(self, shape: type[T], timeout_s: float = ANSWER_S) -> T:
        message = await self._receive(timeout_s)
        assert isinstance(message, shape)
        return message

    async def ask(self, request: Any, shape: type[T]) -> T:
        await self.send(request)
        return await self.expect(shape)

    async def parts(self) -> AsyncIterator[bytes]:
        while (part := await self._receive(ANSWER_S)) is not None:
            yield part

    async def entries(self, sequence: int, digest: bytes) -> list[bytes] | None:
        await self.send(AskEntries(sequence, digest, ENTRIES_BYTES_MAX))
        head, entries = await self._receive(ANSWER_S)
        return entries if head.is_known else None

    async def leave(self) -> None:
        self._is_closed = True
        self._host.lent.pop(self, None)

    async def _receive(self, timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._came.get()
        except TimeoutError:
            raise PeerGone(f"no answer for {timeout_s:g} s") from None
        if isinstance(message, PeerGone):
            raise message
        return message

    # For the host.

    def close(self) -> None:
        """Let the guest notice that the host has ended."""
        self._answer(PeerGone("the connection was closed"))

    def _begin(self, request: Any) -> None:
        if self._host.process.is_dead:
            self.close()
        elif isinstance(request, AskStatus):
            self._answer(self._host.host.status())
        else:
            _ = self._host.process.create_task(self._serve(request), name="peer")

    async def _serve(self, request: AskEntries | AskSnapshot) -> None:
        host = self._host.host
        try:
            if isinstance(request, AskEntries):
                self._answer(await host.entries(request, is_member=True))
                return
            async with host.snapshot() as (head, chunks):
                self._answer(head)
                async for chunk in chunks:
                    self._answer(chunk)
                self._answer(None)
        except (PeerGone, StorageFault) as fault:
            self._answer(PeerRefused(str(fault)))
        except Exception as error:  # noqa: BLE001  whatever it is, it must not happen
            self._host.process.world.failure = error

    def _answer(self, message: object) -> None:
        if not self._is_closed:
            self._carry(self._host, self._guest, lambda: self._came.put_nowait(message))

    def _carry(self, sender: Life, receiver: Life, deliver: Callable[[], None]) -> None:
        """Let something happen at the other end, in order, as soon as it can be reached."""
        world, network = sender.process.world, sender.machine.cluster.network
        at_us = max(world.now_us + world.rng.randrange(*_LEG_US), self._latest_us + 1)
        self._latest_us = at_us

        def arrive() -> None:
            if self._is_closed:
                return
            if not network.reaches(sender.machine.name, receiver.machine.name):
                world.after(_AGAIN_US, arrive)
            elif receiver.process.is_dead:
                if receiver is self._host:
                    self.close()
            else:
                receiver.process.later(0, deliver)

        world.after(at_us - world.now_us, arrive)


def ask_members(
    broker: Broker, process: Process, sequence: int, digest: bytes
) -> Iterator[tuple[str, list[bytes]]]:
    """Do what `doubt.ask_members` does, in a thread of a simulated process."""
    peers = broker.peers
    if peers is None:
        return
    for name in tuple(peers.known):
        try:
            yield name, process.wait_for(peers.entries(name, sequence, digest)) or []
        except PeerGone:
            continue
