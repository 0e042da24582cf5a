"""A broker with an open door, and peers made of bytes.

A peer is a socket and nothing more: it sends what it is told and reads only when it is asked to
hear something, so that a test can also be deaf, silent, rude or cut off in mid-frame.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop

from jackalope.broker.access import Access
from jackalope.broker.config.schema import NativeConfig
from jackalope.broker.service import Broker
from jackalope.core.commands import Finish, Held, JoinWorker, SubmitTasks
from jackalope.core.effects import Assignment
from jackalope.core.ids import TaskId
from jackalope.core.task import Body, Options, TaskSpec
from jackalope.doors.native import NativeDoor
from jackalope.storage import Level, Storage
from jackalope.task_ids import new_task_id
from jackalope.wire.frames import FrameReader, Kind, frame
from jackalope.wire.messages import (
    Ack,
    AnyMessage,
    Assign,
    Hello,
    Nack,
    Query,
    Result,
    Welcome,
    peer_codec,
)

#: What is still missing after this long does not come any more.
PATIENCE_S = 10.0

M = TypeVar("M", bound=AnyMessage)
T = TypeVar("T")

codec = peer_codec()


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test on the loop that the broker uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(test)


class Closed(Exception):
    """The broker has closed the connection."""


class Peer:
    """The other end of a connection.

    Attributes:
        heard: what came and nobody has asked for yet, oldest first.
        welcome: the answer to HELLO.
    """

    welcome: Welcome

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard: list[AnyMessage] = []
        self._reader = FrameReader()
        self._last_ref = 0

    @classmethod
    async def connect(cls, port: int, receive_bytes: int = 0) -> "Peer":
        """Connect, and say nothing. `receive_bytes` makes the system buffer less for us."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(sock)

    async def greet(self, hello: Hello | None = None) -> "Peer":
        """Say HELLO, and wait for the answer."""
        await self.send(hello or Hello(name="tester"))
        self.welcome = await self.expect(Welcome)
        return self

    # Speaking.

    async def send(self, *messages: AnyMessage) -> None:
        """Send messages in one write."""
        await self.send_bytes(b"".join(map(codec.encode, messages)))

    async def send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def send_raw(self, kind: int, body: bytes) -> None:
        await self.send_bytes(frame(cast("Kind", kind), body))

    async def ask(self, message: Any) -> Ack | Nack:
        """Send a request, and return its answer. A ref of its own is kept, if it has one."""
        if not message.ref:
            self._last_ref += 1
            message.ref = self._last_ref
        await self.send(message)
        return await self.answer(message.ref)

    async def answer(self, ref: int) -> Ack | Nack:
        """Wait for the answer to a request."""
        found = await self.wait_for(lambda m: isinstance(m, Ack | Nack) and m.ref == ref)
        assert isinstance(found, Ack | Nack)
        return found

    async def ask_ok(self, message: Any) -> Any:
        """Send a request, and return the body of its ACK."""
        answer = await self.ask(message)
        assert isinstance(answer, Ack), answer
        return answer.body

    async def ask_no(self, message: Any) -> Nack:
        """Send a request that is to be refused as a whole."""
        answer = await self.ask(message)
        assert isinstance(answer, Nack), answer
        return answer

    # Listening.

    async def expect(self, shape: type[M], accept: Callable[[M], bool] = lambda _: True) -> M:
        """Wait for the next message of a shape; what else comes is kept."""
        found = await self.wait_for(lambda m: type(m) is shape and accept(m))
        assert type(found) is shape
        return found

    async def wait_for(self, accept: Callable[[Any], bool]) -> AnyMessage:
        """Wait for the next message that is accepted; what else comes is kept."""
        at = 0
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for number, message in enumerate(self.heard[at:], at):
                    if accept(message):
                        return self.heard.pop(number)
                at = len(self.heard)
                await self._read()

    async def wait_closed(self) -> list[AnyMessage]:
        """Wait until the broker closes the connection, and return all that was not asked for."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while True:
                    await self._read()
            except (Closed, ConnectionError):
                return self.heard

    async def _read(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self.sock, 256 * 1024)
        if not data:
            raise Closed(self.heard)
        self.heard += [codec.decode(kind, body) for kind, body in self._reader.feed(data)]

    def close(self) -> None:
        self.sock.close()

    # Phrases that many tests use.

    async def submit(self, *specs: TaskSpec) -> list[TaskId]:
        """Submit tasks, all of which must be accepted."""
        body = await self.ask_ok(SubmitTasks(0, list(specs)))
        assert body == {"count": len(specs), "refused": []}
        return [spec.id for spec in specs]

    async def join(self, worker: str = "w1", queues: tuple[str, ...] = ("q",), **more: Any) -> Any:
        """Become a worker."""
        return await self.ask_ok(JoinWorker(0, worker, queues, **more))

    async def take(self, count: int = 1) -> list[Assignment]:
        """Wait for so many assignments."""
        taken: list[Assignment] = []
        while len(taken) < count:
            taken += (await self.expect(Assign)).assignments
        assert len(taken) == count
        return taken

    async def finish(self, *assignments: Assignment, result: bytes = b"") -> None:
        """Report good ends, all of which must be accepted."""
        finished = [Finish(a.task, a.fence, result) for a in assignments]
        body = await self.ask_ok(Result(0, finished))
        assert body == {"count": len(finished), "refused": []}

    async def state_of(self, task_id: TaskId) -> str:
        body = await self.ask_ok(Query(0, "task", {"id": task_id}))
        return str(body["state"])


#: What a door grants that cannot be configured.
CONSTANTS = ("hello_us", "stuck_us", "unsent_bytes_max")


class House:
    """A broker and its door.

    Attributes:
        faults: what the loop had to report because nobody else did; empty at the end.
    """

    def __init__(
        self,
        storage: Storage,
        terms: dict[str, Any],
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.storage = storage
        self.broker = Broker(storage, access=access)
        constants = {name: terms.pop(name) for name in CONSTANTS if name in terms}
        self.door = NativeDoor(self.broker, NativeConfig(port=0, **terms), tls)
        for name, value in constants.items():
            setattr(self.door, name, value)
        self.faults: list[dict[str, Any]] = []
        self._peers: list[Peer] = []

    async def connect(self, receive_bytes: int = 0) -> Peer:
        """Let a peer connect that says nothing yet."""
        peer = await Peer.connect(self.door.port, receive_bytes)
        self._peers.append(peer)
        return peer

    async def peer(self, name: str = "tester", namespace: str = "default", token: str = "") -> Peer:
        """Let a peer in."""
        peer = await self.connect()
        return await peer.greet(Hello(name=name, namespace=namespace, token=token))

    async def until(self, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for something that happens inside the broker and tells nobody."""
        async with asyncio.timeout(patience_s):
            while not is_so():  # noqa: ASYNC110  the broker has no event for every condition
                await asyncio.sleep(0.002)

    def close_peers(self) -> None:
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def open_house(
    folder: Path | None,
    *,
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    **terms: Any,
) -> AsyncIterator[House]:
    """Start a broker with a door, and see at the end that both are still sound.

    Without a folder it keeps everything in memory: quicker, where the disk has no part to play.
    """
    level = Level.FSYNC if folder else Level.MEMORY
    house = House(Storage.open(folder, level), terms, access, tls)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: house.faults.append(context)
    )
    await house.broker.start()
    await house.door.start()
    try:
        yield house
        if house.broker.access.is_open and tls is None:
            async with asyncio.timeout(PATIENCE_S):
                bystander = await house.peer("bystander")
                await bystander.ask_ok(Query(0, "stats"))
    finally:
        await house.door.stop()
        house.close_peers()
        await house.broker.stop()
    assert house.faults == []


def spec(
    queue: str = "q", payload: Body = b"", options: Options | None = None, **fields: Any
) -> TaskSpec:
    """Make a task with an id of its own."""
    return TaskSpec(
        fields.pop("id", None) or new_task_id(), queue, payload=payload, options=options, **fields
    )


def held(assignment: Assignment) -> Held:
    return Held(assignment.task, assignment.fence)
