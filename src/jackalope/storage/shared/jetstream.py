"""The shared log on NATS JetStream: one replicated stream, one message an entry or a part of it.

Owns the stream, and what of JetStream's answers is an answer. Knows no entry.

A message names the sequence that must be the stream's last one; its leader judges that. Messages
are read one by one from the stream's leader (`STREAM.MSG.GET`), many requests at a time: a
replica that has lost messages serves the rest to a consumer as if nothing were missing, and a
consumer may be placed on any replica. So may the stream's leader be such a replica: then the others
are asked by consumers, each of which tells where it was placed. A writer tells readers what it has
stored by a plain message, so that they need not ask; should that be lost, they look a little later.

The client needs an event loop, which has a thread of its own here.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Collection, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as TimedOut
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from jackalope.storage.faults import OutOfReach
from jackalope.storage.shared.log import Lacking, LogState, Put, Replica

T = TypeVar("T")

#: Below it, an entry can be lost or stored twice when the stream's leader changes.
SERVER_VERSION_MIN = (2, 15, 1)

#: Stored before the answer, on most replicas; more replicas than nodes are refused.
REPLICAS = 3

_EXPECTED_LAST = "Nats-Expected-Last-Sequence"
_WRONG_LAST = 10071
FULL = frozenset({10077, 10023, 10047, 10054})
_NO_MESSAGE = 10037
_TIMEOUT_S = 2.0

#: A request that has no answer by then is sent again, because a server that stops takes what it has
#: read with it; later for one that takes longer to send.
_REPEAT_S = 0.4
_SENT_BYTES_PER_S = 8 * 1024 * 1024

#: How often to look for messages of which no writer has told.
_LOOK_EVERY_S = 0.2

#: How many consumers are made until one is on a replica that was not asked yet.
_CONSUMERS_MAX = 24

#: How many messages that a writer told of are kept until they are read.
_TOLD_MAX = 32

#: How many messages are asked for at a time, and how many bytes of a message are not its payload.
_READS_AT_ONCE = 64
_HEADER_BYTES = 256


class JetStreamEngine:
    """See `jackalope.storage.shared.log.LogEngine`."""

    def __init__(
        self,
        servers: list[str],
        cluster: str,
        *,
        shard: int = 0,
        replicas: int = REPLICAS,
        bytes_max: int = -1,
        user: str = "",
        password: str = "",
    ) -> None:
        self.cluster = cluster
        self.stream = f"JK_LOG_{cluster}_{shard}"
        self.subject = f"jackalope.{cluster}.log.{shard}"
        self._news = f"jackalope.{cluster}.end.{shard}"
        self.message_bytes_max = 0  # known once connected
        self._config = StreamConfig(
            name=self.stream,
            subjects=[self.subject],
            num_replicas=replicas,
            storage=StorageType.FILE,
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.NEW,
            max_bytes=bytes_max,
            deny_delete=True,
            allow_direct=False,
        )
        self._options: dict[str, Any] = {"servers": servers}
        if user:
            self._options |= {"user": user, "password": password}
        self._client = Client()
        self._heard = Condition()
        self._told: dict[int, bytes] = {}  # what a writer has told of, by position
        self._told_end = 0  # the last of these positions
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="jackalope-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def open(self, timeout_s: float = 30.0) -> None:
        """Connect, check the server, and make the stream if there is none.

        Raises:
            OutOfReach: no server answers, or the stream cannot be made yet.
        """
        self._call(self._open(), timeout_s)

    async def _open(self) -> None:
        await self._client.connect(
            **self._options,
            name="jackalope",
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,  # type: ignore[arg-type]  # Fractions work.
            connect_timeout=2,
            ping_interval=2,
            max_outstanding_pings=2,
            pending_size=0,  # What cannot be sent now is not sent later.
            no_echo=True,
            error_cb=_ignore,
        )
        version = self._client.connected_server_version
        found = (version.major, version.minor, version.patch)
        if found < SERVER_VERSION_MIN:
            least = ".".join(map(str, SERVER_VERSION_MIN))
            raise OutOfReach(
                f"nats-server {'.'.join(map(str, found))} can lose entries; at least {least} "
                "is needed"
            )
        self.message_bytes_max = self._client.max_payload - _HEADER_BYTES
        await self._client.subscribe(self._news, cb=self._hear)
        await self._make_stream(self._config)

    def make_stream(self, config: StreamConfig, timeout_s: float = 30.0) -> None:
        """Make a stream, unless it is there."""
        self._call(self._make_stream(config), timeout_s)

    async def _make_stream(self, config: StreamConfig) -> None:
        js = self._client.jetstream(timeout=_TIMEOUT_S)
        while True:
            # Servers that have just started do not answer yet, or are not enough.
            with suppress(Error):
                try:
                    await js.stream_info(str(config.name))
                except NotFoundError:
                    await js.add_stream(config)
                return
            await asyncio.sleep(0.2)

    async def _hear(self, news: Msg) -> None:
        position = int.from_bytes(news.data[:8], "big")
        if len(news.data) > 8:  # Earlier versions tell the position alone.
            self._told[position] = news.data[8:]
            if len(self._told) > _TOLD_MAX:
                del self._told[next(iter(self._told))]
        with self._heard:
            self._told_end = max(self._told_end, position)
            self._heard.notify_all()

    # The port.

    def put(self, position: int, message: bytes, timeout_s: float) -> Put:
        try:
            return self._call(self._put(position, message, timeout_s), timeout_s + 1)
        except OutOfReach:
            return Put.UNKNOWN

    async def _put(self, position: int, message: bytes, timeout_s: float) -> Put:
        headers = {_EXPECTED_LAST: str(position - 1)}
        found, is_first = await self._insist(self.subject, message, timeout_s, headers)
        error = found.get("error")
        if error is None:
            await self._client.publish(self._news, position.to_bytes(8, "big") + message)
            return Put.STORED if found.get("seq") == position else Put.TAKEN
        code = error.get("err_code")
        if code == _WRONG_LAST:
            return Put.TAKEN
        return Put.FULL if code in FULL and is_first else Put.UNKNOWN  # It may be stored before.

    async def _insist(
        self, subject: str, body: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Ask again and again what may be asked twice; return whether the first one was answered.

        Raises:
            nats.errors.Error: there is no answer.
        """
        repeat_s = _REPEAT_S + len(body) / _SENT_BYTES_PER_S
        end_s, is_first = self._loop.time() + timeout_s, True
        while True:
            left_s = end_s - self._loop.time()
            try:
                wait_s = min(left_s, repeat_s)
                answer = await self._client.request(subject, body, timeout=wait_s, headers=headers)
            except TimedOut:
                if left_s <= repeat_s:
                    raise
                is_first = False
            else:
                return dict(json.loads(answer.data)), is_first

    def get(self, position: int) -> bytes | None:
        return self._call(self._get(position))

    async def _get(self, position: int) -> bytes | None:
        found = await self._ask(f"STREAM.MSG.GET.{self.stream}", {"seq": position})
        return None if found is None else b64decode(found["message"].get("data", ""))

    def read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        return self._call(self._read(after, count_max), _TIMEOUT_S + count_max * 0.1)

    async def _read(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        messages = self._take_told(after)
        if messages:
            return messages
        told_end = self._told_end
        width = max(1, min(told_end - after, _READS_AT_ONCE))
        while len(messages) < count_max:
            first = after + 1 + len(messages)
            wanted = range(first, first + min(width, count_max - len(messages)))
            found = await asyncio.gather(*map(self._get, wanted))
            for position, message in zip(wanted, found, strict=True):
                if message is None:
                    if messages:
                        return messages
                    self._told_end = after  # What was told of and is not there is not waited for.
                    return await self._read_behind(after, count_max)
                messages.append((position, message))
            if wanted[-1] == told_end:
                break  # What is stored meanwhile is told of.
            width = min(width * 4, _READS_AT_ONCE)
        return messages

    def _take_told(self, after: int) -> list[tuple[int, bytes]]:
        """Return what a writer has told of and comes next."""
        messages = []
        while (message := self._told.pop(after + 1, None)) is not None:
            after += 1
            messages.append((after, message))
        return messages

    async def _read_behind(self, after: int, count_max: int) -> list[tuple[int, bytes]]:
        """Go on behind what was cut off the log, or is missing, if that is why nothing is there."""
        first, last = await self._bounds()
        if after + 1 < first <= last:
            return await self._read(first - 1, count_max)
        if after == last or after + 1 < first:
            return []
        if after < last:
            wanted = {"seq": after + 1, "next_by_subj": self.subject}
            found = await self._ask(f"STREAM.MSG.GET.{self.stream}", wanted)
            if found is not None:
                message = found["message"]
                return [(int(message["seq"]), b64decode(message.get("data", "")))]
        raise Lacking(f"the log ends at message {last}, and lacks those from {after + 1} on")

    # Where the leader of the stream is damaged.

    def read_copy(
        self, but: Collection[str], after: int, count_max: int
    ) -> tuple[str, list[tuple[int, bytes]]] | None:
        return self._call(self._read_copy(but, after, count_max), 10 * _TIMEOUT_S)

    async def _read_copy(
        self, but: Collection[str], after: int, count_max: int
    ) -> tuple[str, list[tuple[int, bytes]]] | None:
        js = self._client.jetstream(timeout=_TIMEOUT_S)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            num_replicas=1,
            mem_storage=True,
            inactive_threshold=10 * _TIMEOUT_S,
        )
        for _ in range(_CONSUMERS_MAX):  # Where one is placed is left to chance.
            try:
                consumer = await js.add_consumer(self.stream, config)
            except TimeoutError:
                continue  # A server that has just begun to decide may not answer.
            place = consumer.cluster.leader if consumer.cluster else ""
            try:
                if place and place not in but:
                    reading = await js.pull_subscribe_bind(consumer.name, stream=self.stream)
                    found = await reading.fetch(count_max, _TIMEOUT_S)
                    return place, [(each.metadata.sequence.stream, each.data) for each in found]
            except TimeoutError:
                return str(place), []
            finally:
                with suppress(Error):
                    await js.delete_consumer(self.stream, consumer.name)
        return None

    def shun(self, copy: str) -> None:
        if self.state().leader == copy:
            self._call(self._ask(f"STREAM.LEADER.STEPDOWN.{self.stream}", {}))

    def wait(self, after: int, timeout_s: float) -> bool:
        with self._heard:
            self._heard.wait_for(
                lambda: self._told_end > after or self._is_closed, min(timeout_s, _LOOK_EVERY_S)
            )
        return True

    def start(self) -> int:
        return self._call(self._bounds())[0]

    def end(self) -> int:
        return self._call(self._bounds())[1]

    async def _bounds(self) -> tuple[int, int]:
        state = (await self._info())["state"]
        last = int(state["last_seq"])
        return (int(state["first_seq"]) if state["messages"] else last + 1), last

    def cut(self, through: int) -> None:
        self._call(self._ask(f"STREAM.PURGE.{self.stream}", {"seq": through + 1}))

    def state(self) -> LogState:
        info = self._call(self._info())
        found = info.get("cluster") or {}
        leader = found.get("leader", "")
        replicas = [Replica(leader, is_current=True)] if leader else []
        replicas += [
            Replica(each["name"], bool(each.get("current")), int(each.get("lag", 0)))
            for each in found.get("replicas", ())
        ]
        state = info["state"]
        version = self._client.connected_server_version
        return LogState(
            f"nats-server {version.major}.{version.minor}.{version.patch}",
            int(state["first_seq"]),
            int(state["last_seq"]),
            int(state["bytes"]),
            leader,
            tuple(replicas),
        )

    def close(self) -> None:
        with self._heard:
            if self._is_closed:
                return
            self._is_closed = True
            self._heard.notify_all()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        self._thread.join(5)

    async def _close(self) -> None:
        with suppress(Error, OSError, TimeoutError):
            await asyncio.wait_for(self._client.close(), 1)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()

    # Requests, for what else is kept there.

    def ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the leader of a stream; None if what was asked for is not there."""
        return self._call(self._ask(subject, question))

    def request(self, subject: str, body: bytes) -> dict[str, Any]:
        """Publish a message to a stream, and return its answer."""
        return self._call(self._request(subject, body))

    async def _request(self, subject: str, body: bytes) -> dict[str, Any]:
        answer = await self._client.request(subject, body, timeout=_TIMEOUT_S)
        return dict(json.loads(answer.data))

    def last_of(self, stream: str, subject: str) -> bytes | None:
        """Return the last message of a subject; None if it has none."""
        found = self.ask(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        return None if found is None else b64decode(found["message"].get("data", ""))

    async def _info(self) -> dict[str, Any]:
        found = await self._ask(f"STREAM.INFO.{self.stream}", {})
        if found is None:
            raise OutOfReach(f"the stream {self.stream} does not exist")
        return found

    async def _ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the leader of the stream; None if what was asked for is not there."""
        request = json.dumps(question).encode() if question else b""
        found, _ = await self._insist(f"$JS.API.{subject}", request, _TIMEOUT_S)
        error = found.get("error")
        if error is None:
            return found
        if error.get("err_code") == _NO_MESSAGE:
            return None
        raise OutOfReach(f"JetStream: {error.get('description', error)}")

    def _call(self, job: Coroutine[Any, Any, T], timeout_s: float = _TIMEOUT_S + 1) -> T:
        """Run something on the client's loop, and wait for it."""
        if self._is_closed:
            job.close()
            raise OutOfReach("the shared log is closed")
        future = asyncio.run_coroutine_threadsafe(job, self._loop)
        try:
            return future.result(timeout_s)
        except (Error, OSError, CancelledError, WaitedTooLong) as error:
            future.cancel()
            what = "no answer" if isinstance(error, NoRespondersError) else f"{error!r}"
            raise OutOfReach(f"JetStream does not answer: {what}") from error


async def _ignore(_: Exception) -> None:
    """Let an error of the connection be: every request has its own."""
