"""A standby: a copy of another broker, kept behind it over the peer port, that may replace it.

Owns the following of that broker and the promotion. The data folder is that of an ordinary broker,
with a journal of its own in which the batches of the other stand under the same numbers; the file
`standby` has the place in the other's journal. So promotion is to drop that file, and to lead.

Theory of operation
===================

Entries are asked for behind a digest, and the other end has them only if its journal has an entry
with that digest. So a primary that was restored from a backup, or is another one, is found at the
next request: then the standby says so and takes nothing more. Only if the primary no longer has the
place because it has removed what is older is the whole state copied again.

Batches are appended first and noted in the file later. What was appended and not noted is received
once more after a crash, and compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple, cast

import structlog
from msgspec.structs import replace

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, PeerLink, PeerRefused, connect
from jackalope.broker.cluster.restoring import receive
from jackalope.broker.cluster.standing import Standing
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.core.records import FencesReserved, encode_batch
from jackalope.storage import DiskFull, Storage
from jackalope.storage.entry import Entry, Kind, decode
from jackalope.storage.faults import Corrupt
from jackalope.storage.standby import StandbyMark, end_standby, read_standby, write_standby
from jackalope.wire.peer import AskFence, AskStatus, Fenced, NodeStatus

log = structlog.get_logger(component="standby")

#: The pause when there is nothing new, and before the next address is tried.
_IDLE_S = 0.05
_RETRY_S = 1.0

#: How often the place in the other's journal is written down.
_NOTE_EVERY_NS = 1_000_000_000

#: By how much fences go on: more than the batches that were lost can have given out.
_FENCES_PER_PROMOTION = 10**9

_SLICE_NS = 5_000_000


class Changed(Corrupt):
    """The broker that is followed is not the one whose copy this is."""


class Promotion(NamedTuple):
    """What came of a promotion."""

    is_fenced: bool  # whether the old broker acknowledges nothing any more
    sequence: int  # the last batch that is here
    last: int  # the last batch that the old broker had, as far as is known
    heard_us: int  # when that was known
    why: str = ""  # it is not fenced


class Standby:
    """Drives a broker that follows another one, until it is promoted."""

    def __init__(
        self,
        broker: Broker,
        storage: Storage,
        places: list[tuple[str, int]],
        who: Credentials,
        address: str,
    ) -> None:
        self.on_lead: Callable[[], Coroutine[None, None, None]] | None = None
        self._folder = cast("Path", storage.path)  # It has one: it is not in memory.
        self._journal = storage.journal
        self.mark = read_standby(self._folder) or StandbyMark()
        self.trouble = "not connected yet"  # why nothing comes; empty if it does
        self.is_promoted = False
        self._broker = broker
        self._places = places
        self._who = who
        self._address = address  # where clients find this one
        self._doors: dict[str, str] = {}  # of the broker that is followed
        self._noted_ns = 0
        self._is_stopping = False
        self._is_changed = False
        self.changed: list[Callable[[], None]] = []  # called when it leads
        self._wanted: asyncio.Future[Promotion] | None = None
        self._begun: asyncio.Task[None] | None = None
        self._unnoted = self._appended_before()
        broker.leader = self
        broker.blobs.is_ours = False
        write_standby(self._folder, self.mark)

    def _appended_before(self) -> dict[int, bytes]:
        """Return digests of the batches that are here and were not noted."""
        after = max(self.mark.sequence, self._journal.trimmed())
        return {sequence: blake2b(body).digest() for sequence, body in self._journal.read(after)}

    # Life.

    async def start(self) -> None:
        self._tell()
        await self._broker.start(self.run)

    async def stop(self) -> None:
        self._is_stopping = True
        self._broker.relieve()
        if self._begun is not None:
            self._begun.cancel()
        await self._broker.stop()

    async def run(self) -> None:
        """Follow until told to stop; lead once promoted."""
        while not (self._is_stopping or self.is_promoted):
            for place in self._places:
                await self._try(place)
            if self._wanted is not None and not self.is_promoted:
                await self._become(is_fenced=False, why=self.trouble)
            if not self.is_promoted:
                await self._pause(_RETRY_S)
        if self.is_promoted:
            self._broker.health.down = ""
            if self.on_lead is not None:
                self._begun = asyncio.create_task(self.on_lead(), name="jackalope-declare")
            await self._broker.lead()
        elif not self._is_changed:
            await self._note()

    async def _pause(self, seconds: float) -> None:
        self._broker.follow_behind()
        until_ns = monotonic_ns() + int(seconds * 1e9)
        while monotonic_ns() < until_ns and not (self._is_stopping or self._wanted):  # noqa: ASYNC110
            await asyncio.sleep(min(seconds, _IDLE_S))

    # Following.

    async def _try(self, place: tuple[str, int]) -> None:
        """Follow the broker at one address, until that does not go on."""
        if self._is_stopping or self.is_promoted:
            return
        host, port = place
        link = None
        try:
            link = await connect(host, port, self._who)
            if self._is_changed and self._wanted is None:
                return
            await self._meet(link, host)
            await self._follow(link)
        except (PeerGone, DiskFull) as gone:
            self._complain(f"{host}:{port}: {gone}")
        except Changed as fault:
            self._is_changed = True
            self._complain(str(fault), is_final=True)
        finally:
            if link is not None:
                await link.leave()

    async def _meet(self, link: PeerLink, host: str) -> NodeStatus:
        """Learn which broker answers, and where its doors are."""
        status = await link.ask(AskStatus(), NodeStatus)
        if self.mark.primary and status.cluster != self.mark.primary:
            raise Changed(f"another broker answers: {status.cluster}, not {self.mark.primary}")
        ports = {"native": status.native, "http": status.http}
        self._doors = {door: f"{host}:{port}" for door, port in ports.items() if port}
        self.mark = replace(self.mark, primary=status.cluster)
        self._hear(status.applied)
        return status

    async def _follow(self, link: PeerLink) -> None:
        while not self._is_stopping:
            last = None
            if self._wanted is not None and not self._is_changed:
                last = (await link.ask(AskFence(self._address), Fenced)).last
                self._hear(last)
            found = await link.entries(self.mark.sequence, self.mark.digest)
            if found is None:
                await self._find_place(link)
                continue
            await self._take(found)
            if not found:
                self.trouble = ""
                self._hear(max(self.mark.last, self.mark.sequence))
                if last is not None:
                    await self._become(is_fenced=True)
                    return
                await self._pause(_IDLE_S)
            self._tell()
            self._broker.follow_behind()
            if monotonic_ns() - self._noted_ns > _NOTE_EVERY_NS:
                self._hear((await link.ask(AskStatus(), NodeStatus)).applied)
                await self._note()

    async def _find_place(self, link: PeerLink) -> None:
        """Find out why the other does not know the place; copy its state if it is only older."""
        status = await link.ask(AskStatus(), NodeStatus)
        if status.applied < self.mark.sequence:
            raise Changed(
                f"the primary ends at batch {status.applied}, and this copy has "
                f"{self.mark.sequence}: it was restored from a backup, or has lost its end"
            )
        if status.trimmed <= self.mark.sequence:
            raise Changed(f"batch {self.mark.sequence} of the primary is not the one that is here")
        await self._copy(link)

    async def _copy(self, link: PeerLink) -> None:
        """Replace all that is here by the state of the primary."""
        broker = self._broker
        log.warning("the primary has removed what comes next; its state is copied")
        mark = await receive(
            link,
            self._folder,
            lambda sequence: "" if sequence > broker.engine.sequence else "its copy is not newer",
            lambda: self._is_stopping,
        )
        await broker.adopt()
        self._unnoted = {}
        self.mark = replace(self.mark, sequence=mark.sequence, digest=mark.digest)
        await self._note()

    async def _take(self, raws: list[bytes]) -> None:
        """Append and apply what came."""
        new: list[bytes] = []
        sequence, digest = self.mark.sequence, self.mark.digest
        for raw in raws:
            entry = decode(raw)
            if entry is None or entry.before != digest:
                raise PeerRefused("its answer does not continue the chain")
            digest = entry.digest
            if entry.kind == Kind.BATCH:
                sequence = entry.sequence
                if not self._is_here(entry):
                    new.append(entry.body)
        await self._broker.in_journal(lambda: self._append(new))
        began_ns = monotonic_ns()
        for body in new:
            self._broker.follow(self._broker.engine.sequence + 1, body)
            if monotonic_ns() - began_ns > _SLICE_NS:
                await asyncio.sleep(0)
                began_ns = monotonic_ns()
        self.mark = replace(self.mark, sequence=sequence, digest=digest)

    def _is_here(self, entry: Entry) -> bool:
        """Return whether a batch was appended before a crash."""
        if entry.sequence > self._broker.engine.sequence:
            return False
        known = self._unnoted.pop(entry.sequence, None)
        if known is not None and known != blake2b(entry.body).digest():
            raise Changed(f"batch {entry.sequence} of the primary is not the one that is here")
        return True

    def _append(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._journal.append(body)

    def _hear(self, last: int) -> None:
        self.mark = replace(self.mark, last=last, heard_us=wall_us())

    async def _note(self) -> None:
        """Write down how far this copy has come."""
        mark = self.mark
        self._noted_ns = monotonic_ns()

        def write() -> None:
            self._journal.sync()
            write_standby(self._folder, mark)

        await self._broker.in_journal(write)

    # What it tells.

    @property
    def lag(self) -> int:
        """How many batches of the primary are not here, as far as is known."""
        return max(0, self.mark.last - self.mark.sequence)

    @property
    def silence_us(self) -> int:
        """How long ago the primary was last heard."""
        return max(0, wall_us() - self.mark.heard_us) if self.mark.heard_us else 0

    def _complain(self, trouble: str, *, is_final: bool = False) -> None:
        if trouble != self.trouble:
            write = log.error if is_final else log.warning
            write("the primary is not followed", why=trouble)
        self.trouble = trouble
        self._tell()

    def _tell(self) -> None:
        if self.is_promoted:
            return
        told = f"this broker is a standby, {self.lag} batches behind"
        if self.trouble:
            told += f"; nothing was heard for {self.silence_us // SECOND} s: {self.trouble}"
        self._broker.health.down = told

    # Promotion.

    async def promote(self) -> Promotion:
        """Fence the broker that is followed if it can be reached, take the rest of it, and lead."""
        if self._wanted is None:
            self._wanted = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._wanted)

    async def _become(self, *, is_fenced: bool, why: str = "") -> None:
        broker = self._broker
        through = broker.engine.core.book.counters.fence + _FENCES_PER_PROMOTION
        at_us = max(broker.now_us(), broker.engine.core.book.counters.latest_us)
        body = encode_batch([FencesReserved(at_us, through)], broker.engine.core.level)

        def store() -> None:
            self._journal.append(body)
            self._journal.sync()
            end_standby(self._folder)

        mark = self.mark
        await broker.in_journal(store)
        broker.follow(broker.engine.sequence + 1, body)
        self.is_promoted = True
        broker.blobs.is_ours = True
        for changed in self.changed:
            changed()
        log.warning(
            "promoted", is_fenced=is_fenced, sequence=mark.sequence, last=mark.last, why=why
        )
        if self._wanted is not None:
            told = Promotion(is_fenced, mark.sequence, mark.last, mark.heard_us, why)
            self._wanted.set_result(told)

    # Who leads: see `jackalope.broker.service.Leader`.

    @property
    def epoch(self) -> int:
        return self._broker.engine.epoch

    def standing(self) -> Standing:
        if self.is_promoted:
            return Standing("leading", self.epoch, self._address, 1)
        lag_s = self.silence_us / SECOND if self.trouble else 0.0
        is_heard = not self.trouble
        return Standing(
            "standby",
            self.epoch,
            self._doors.get("native", ""),
            1,
            lag_batches=self.lag,
            lag_s=lag_s,
            has_quorum=is_heard,
            is_ready=is_heard,
        )

    @property
    def answers_reads(self) -> bool:
        """Reads are answered from the copy."""
        return not self.is_promoted

    def elsewhere(self, door: str) -> str | None:
        return None if self.is_promoted else self._doors.get(door, "")

    def may_read(self) -> bool:
        return True

    async def confirm(self) -> None:
        """Nothing else could be told than what is here."""


def places_of(text: str, port: int) -> list[tuple[str, int]]:
    """Return hosts and ports from `host:port,host:port`; the port may be left out.

    Raises:
        ValueError: it is no address.
    """
    places = []
    for each in text.split(","):
        host, has_port, number = each.strip().rpartition(":") if ":" in each else (each, "", "")
        if not host.strip() or (has_port and not number.isdecimal()):
            raise ValueError(f"{each!r} is not HOST:PORT")
        places.append((host.strip().strip("[]"), int(number) if has_port else port))
    return places
