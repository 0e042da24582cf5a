"""Peers at the native door, beside the HTTP door of the same broker."""

from typing import Self

from jackalope.broker.config.schema import NativeConfig
from jackalope.core.commands import StartAttempts
from jackalope.core.effects import Assignment
from jackalope.doors.native import NativeDoor
from jackalope.wire.messages import Hello
from tests.doors.harness import Peer, held
from tests.doors.http.harness import HttpHouse


class Native:
    """Peers at the native door of a house that has an HTTP door."""

    def __init__(self, house: HttpHouse) -> None:
        self._door = NativeDoor(house.broker, NativeConfig(port=0))
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Self:
        await self._door.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.close()
        await self._door.stop()

    async def peer(self, namespace: str = "default") -> Peer:
        peer = await Peer.connect(self._door.port)
        self._peers.append(peer)
        return await peer.greet(Hello(name="tester", namespace=namespace))


async def start(worker: Peer, *assignments: Assignment) -> None:
    await worker.ask_ok(StartAttempts(0, [held(each) for each in assignments]))
