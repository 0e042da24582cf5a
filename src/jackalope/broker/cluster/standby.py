"""A standby: a copy of another broker or cluster, kept behind it, that may replace it.

Owns the following of that broker and the promotion. The data folder is that of an ordinary broker,
with a journal of its own in which the batches of the other stand under the same numbers; the file
`standby` has the place in the other's journal. So promotion is to drop that file, and to lead.

Theory of operation
===================

Entries are asked for behind a digest, and the other end has them only if its journal has an entry
with that digest. So a primary that was restored from a backup, or is another one, is found at the
next request: then the standby says so and takes nothing more. Only if the primary no longer has the
place because it has removed what is older is the whole state copied again. The nodes of a cluster
have the same chain: any of them is followed, and one that lags is left for the next.

Large payloads and results come before the batches that name them (`blob_copies`). Batches are
appended first and noted in the file later. What was appended and not noted is received once more
after a crash, and compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import monotonic_ns
from typing import cast

import structlog
from msgspec.structs import replace

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.blob_copies import BlobCopies
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, PeerLink, PeerRefused, connect
from jackalope.broker.cluster.primary import Primary
from jackalope.broker.cluster.restoring import receive
from jackalope.broker.cluster.standing import Standing
from jackalope.broker.service import Broker
from jackalope.core.durations import SECOND
from jackalope.core.records import FencesReserved, encode_batch
from jackalope.storage import DiskFull, OutOfReach, Storage, StorageFault
from jackalope.storage.data_folder import folder_id
from jackalope.storage.entry import Entry, Kind, decode
from jackalope.storage.faults import Corrupt
from jackalope.storage.standby import StandbyMark, end_standby, read_standby, write_standby
from jackalope.wire.peer import AskFence, AskStatus, Fenced, NodeStatus, Promoted, StandbyHealth

log = structlog.get_logger(component="standby")

#: The pause when there is nothing new, and before the next address is tried.
_IDLE_S = 0.05
_RETRY_S = 1.0

#: How often the place in the other's journal is written down.
_NOTE_EVERY_NS = 1_000_000_000

#: By how much fences go on: more than the batches that were lost can have given out.
_FENCES_PER_PROMOTION = 10**9

#: How long a cluster that answers may be without a leader before it counts as out of reach.
_LEADERLESS_NS = 20_000_000_000

#: How many lacking blobs a promotion names.
_NAMES_MAX = 100

_SLICE_NS = 5_000_000

_WAY_OUT = (
    "Promote this standby if what it has is to be kept, or start a new one with an empty folder"
)


class Changed(Corrupt):
    """The broker that is followed is not the one whose copy this is."""


class Foreign(Changed):
    """It is another one altogether, and must be left alone."""


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
        self._own_id = folder_id(self._folder)
        self._broker = broker
        self._blobs = BlobCopies(broker)
        self._places = places
        self._who = who
        self._address = address  # where clients find this one
        self._doors: dict[str, str] = {}  # of the broker that is followed
        self._at = ""  # where that one is
        self._began_us = wall_us()
        self._noted_ns = 0
        self._is_stopping = False
        self._changed: Changed | None = None
        self._is_cluster = False  # what is followed: another node of it may lead soon
        self._was_refused = False  # a place answered in this round
        self.changed: list[Callable[[], None]] = []  # called when it leads, and no longer
        self._wanted: asyncio.Future[Promoted] | None = None
        self._wanted_ns = 0
        self._primary: Primary | None = None  # what it is once it is promoted
        self._begun: asyncio.Task[None] | None = None
        self._unnoted = self._appended_before()
        broker.leader = self
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
        if self._primary is not None:
            self._primary.release()
        if self._begun is not None:
            self._begun.cancel()
        await self._broker.stop()

    async def run(self) -> None:
        """Follow until told to stop; lead once promoted."""
        with suppress(OutOfReach):  # Looked at again when it is promoted.
            await self._blobs.look()
        while not (self._is_stopping or self._primary):
            self._was_refused = False
            for place in self._places:
                await self._try(place)
            if self._wanted is not None and self._primary is None and self._is_given_up():
                await self._become(self.trouble)
            if self._primary is None:
                await self._pause(_RETRY_S)
        if self._primary is not None:
            self._broker.health.down = ""
            if self.on_lead is not None:
                self._begun = asyncio.create_task(self.on_lead(), name="jackalope-declare")
            await self._primary.run()
        elif self._changed is None:
            with suppress(DiskFull):  # What is not noted is received again.
                await self._note()

    def _is_given_up(self) -> bool:
        """Return whether to lead without the other: nothing of it answers, or none of it leads."""
        is_late = monotonic_ns() - self._wanted_ns > _LEADERLESS_NS
        is_answered = self._is_cluster and self._was_refused and self._changed is None
        return is_late or not is_answered

    async def _pause(self, seconds: float) -> None:
        self._broker.follow_behind()
        until_ns = monotonic_ns() + int(seconds * 1e9)
        await asyncio.sleep(min(seconds, _IDLE_S))
        while monotonic_ns() < until_ns and not self._is_called():  # noqa: ASYNC110
            await asyncio.sleep(_IDLE_S)

    def _is_called(self) -> bool:
        """Return whether to stop, or a promotion was asked for that has not been tried yet."""
        return self._is_stopping or (self._wanted is not None and not self._was_refused)

    # Following.

    async def _try(self, place: tuple[str, int]) -> None:
        """Follow the broker at one address, until that does not go on."""
        if self._is_stopping or self._primary:
            return
        host, port = place
        link = None
        try:
            link = await connect(host, port, self._who)
            if self._changed is not None and self._wanted is None:
                return
            await self._meet(link, host, port)
            await self._follow(link)
        except PeerGone as gone:
            self._was_refused = self._was_refused or isinstance(gone, PeerRefused)
            self._complain(f"{host}:{port}: {gone}")
        except (DiskFull, OutOfReach) as fault:
            self._complain(str(fault))
        except Changed as fault:
            self._changed = fault
            self._complain(str(fault), is_final=True)
            if link is not None and not isinstance(fault, Foreign):
                await self._fence_changed(link)
        finally:
            if link is not None:
                await link.leave()

    async def _meet(self, link: PeerLink, host: str, port: int) -> None:
        """Learn which broker answers, and where its doors are."""
        status = await link.ask(AskStatus(), NodeStatus)
        if status.cluster == self._own_id:
            raise Foreign(f"{host}:{port} is this broker itself; peer.follow names another one")
        if self.mark.primary and status.cluster != self.mark.primary:
            raise Foreign(
                f"another broker answers at {host}:{port}: {status.cluster}, and this is a copy of "
                f"{self.mark.primary}. Correct peer.follow, or start a new standby with an empty "
                "folder"
            )
        await self._blobs.meet(status.cluster)
        ports = {"native": status.native, "http": status.http}
        self._doors = {door: f"{host}:{number}" for door, number in ports.items() if number}
        self._at, self._is_cluster = f"{host}:{port}", bool(status.log_end)
        self.mark = replace(self.mark, primary=status.cluster)
        self._hear(status.applied)

    async def _follow(self, link: PeerLink) -> None:
        while not self._is_stopping:
            found = await link.entries(self.mark.sequence, self.mark.digest)
            if found is None:
                await self._find_place(link)
                continue
            await self._take(link, found)
            await self._blobs.fetch_lacking(link)
            if not found:
                self._catch_up()
                if self._wanted is not None and await self._end_following(link):
                    return
                await self._pause(_IDLE_S)
            self._tell()
            self._broker.follow_behind()
            if monotonic_ns() - self._noted_ns > _NOTE_EVERY_NS:
                await self._look(link)
                await self._note()

    async def _look(self, link: PeerLink) -> None:
        """Learn how far the other one is; leave a node that is cut off from its cluster."""
        status = await link.ask(AskStatus(), NodeStatus)
        self._hear(status.applied)
        if not status.leader and status.role != "fenced" and len(self._places) > 1:
            raise PeerGone(f"{status.node} knows no leader of its cluster")

    async def _find_place(self, link: PeerLink) -> None:
        """Find out why the other does not know the place; copy its state if it is only older."""
        status = await link.ask(AskStatus(), NodeStatus)
        if self._is_cluster:
            self._refuse_lagging(status)
        if status.applied < self.mark.sequence:
            raise Changed(
                f"the primary ends at batch {status.applied}, and this copy has "
                f"{self.mark.sequence}: it was restored from a backup, or has lost its end. "
                f"{_WAY_OUT}"
            )
        if status.trimmed <= self.mark.sequence:
            raise self._not_the_same(self.mark.sequence)
        await self._copy(link)

    def _refuse_lagging(self, status: NodeStatus) -> None:
        """Leave a node of a cluster that has not come as far as this copy."""
        is_sound = status.role in {"leading", "following", "fenced"}
        if status.mirrored < self.mark.sequence or not is_sound:
            raise PeerGone(f"{status.node} is {status.role} at batch {status.mirrored}")

    def _not_the_same(self, sequence: int) -> Changed:
        return Changed(
            f"batch {sequence} of the primary is not the one that is here: it was restored from a "
            f"backup and has gone its own way. {_WAY_OUT}"
        )

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
        await self._blobs.look()

    async def _take(self, link: PeerLink, raws: list[bytes]) -> None:
        """Append and apply what came."""
        new: list[Entry] = []
        sequence, digest = self.mark.sequence, self.mark.digest
        for raw in raws:
            entry = decode(raw)
            if entry is None or entry.before != digest:
                raise PeerRefused("its answer does not continue the chain")
            sequence, digest = entry.sequence, entry.digest
            if entry.kind == Kind.BATCH and not self._is_here(entry):
                new.append(entry)
        await self._blobs.fetch_named(link, [entry.body for entry in new])
        full = await self._broker.in_journal(lambda: self._append([each.body for each in new]))
        began_ns = monotonic_ns()
        for entry in new:
            if entry.sequence > self._journal.last():
                break
            self._broker.follow(entry.sequence, entry.body)
            if monotonic_ns() - began_ns > _SLICE_NS:
                await asyncio.sleep(0)
                began_ns = monotonic_ns()
        if full is not None:
            raise full
        self.mark = replace(self.mark, sequence=sequence, digest=digest)

    def _is_here(self, entry: Entry) -> bool:
        """Return whether a batch was appended before a crash, or before the disk was full."""
        if entry.sequence > self._broker.engine.sequence:
            return False
        known = self._unnoted.pop(entry.sequence, None)
        if known is not None and known != blake2b(entry.body).digest():
            raise self._not_the_same(entry.sequence)
        return True

    def _append(self, bodies: list[bytes]) -> DiskFull | None:
        """Append batches; return why not all of them are, if the disk is full."""
        for body in bodies:
            try:
                self._journal.append(body)
            except DiskFull as full:
                return full
        return None

    def _hear(self, last: int) -> None:
        self.mark = replace(self.mark, last=max(last, self.mark.last), heard_us=wall_us())

    def _catch_up(self) -> None:
        """Note that all that the other end has is here."""
        self.trouble = ""
        self._hear(self.mark.sequence)
        if self.mark.sequence >= self.mark.last:
            self.mark = replace(self.mark, level_us=self.mark.heard_us)

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
    def is_promoted(self) -> bool:
        return self._primary is not None

    @property
    def lag(self) -> int:
        """How many batches of the primary are not here, as far as is known."""
        return max(0, self.mark.last - self.mark.sequence)

    def health(self) -> StandbyHealth:
        mark, is_connected = self.mark, not self.trouble
        is_level = is_connected and not self.lag
        lag_us = 0 if is_level else max(0, wall_us() - (mark.level_us or self._began_us))
        return StandbyHealth(
            primary=mark.primary,
            address=self._at,
            is_connected=is_connected,
            last=mark.last,
            heard_us=mark.heard_us,
            lag=self.lag,
            lag_us=lag_us,
            lacking=len(self._blobs.lacking),
            trouble=self.trouble,
        )

    def _complain(self, trouble: str, *, is_final: bool = False) -> None:
        if trouble != self.trouble:
            write = log.error if is_final else log.warning
            write("the primary is not followed", why=trouble)
        self.trouble = trouble
        self._tell()

    def _tell(self) -> None:
        if self._primary is not None:
            return
        told = f"this broker is a standby, {self.lag} batches behind"
        if self.trouble:
            silent_us = max(0, wall_us() - self.mark.heard_us) if self.mark.heard_us else 0
            told += f"; nothing was heard for {silent_us // SECOND} s: {self.trouble}"
        self._broker.health.down = told

    # Promotion.

    async def promote(self) -> Promoted:
        """Fence the broker that is followed if it can be reached, take the rest of it, and lead."""
        if self._wanted is None:
            self._wanted_ns = monotonic_ns()
            self._wanted = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._wanted)

    async def _end_following(self, link: PeerLink) -> bool:
        """Fence the other one, and lead once all that it had is here; return whether it is."""
        if self.mark.fenced < 0:
            await self._fence(link)
        if self.mark.sequence < self.mark.fenced:
            return False
        if self._blobs.lacking:
            with suppress(PeerRefused):
                await self._blobs.fetch_lacking(link, is_all=True)
        await self._become()
        return True

    async def _fence(self, link: PeerLink) -> None:
        last = (await link.ask(AskFence(self._address), Fenced)).last
        self._hear(last)
        self.mark = replace(self.mark, fenced=last)
        await self._note()  # A crash must not let it be forgotten.

    async def _fence_changed(self, link: PeerLink) -> None:
        """Fence a primary that has gone its own way, if this copy is to replace it."""
        if self._wanted is None:
            return
        try:
            self.mark = replace(
                self.mark, fenced=(await link.ask(AskFence(self._address), Fenced)).last
            )
        except PeerGone as gone:
            self._complain(f"{self.trouble}; and it is not fenced: {gone}")

    async def _become(self, why: str = "") -> None:
        broker, mark = self._broker, self.mark
        reached_us = broker.engine.core.book.counters.latest_us
        through = broker.engine.core.book.counters.fence + _FENCES_PER_PROMOTION
        at_us = max(broker.now_us(), reached_us)
        body = encode_batch([FencesReserved(at_us, through)], broker.engine.core.level)

        def store() -> None:
            self._journal.append(body)
            self._journal.sync()
            end_standby(self._folder)

        trouble = await self._take_blobs_over(mark.primary)
        await broker.in_journal(store)
        broker.follow(broker.engine.sequence + 1, body)
        names = [] if trouble else await self._blobs.look()
        for name in names:
            log.error("a task names a blob that was not copied", blob=name)
        self._primary = Primary(broker, self._folder)
        self._primary.changed = self.changed
        broker.leader = self
        for changed in self.changed:
            changed()
        is_fenced = mark.fenced >= 0
        log.warning(
            "promoted",
            is_fenced=is_fenced,
            sequence=mark.sequence,
            last=mark.last,
            lacking=len(names),
            why=why,
        )
        if self._wanted is not None:
            self._wanted.set_result(
                Promoted(
                    is_fenced,
                    mark.sequence,
                    mark.last,
                    mark.heard_us,
                    "; ".join(filter(None, (why, trouble))),
                    reached_us,
                    max(0, mark.heard_us - mark.level_us) if mark.level_us else 0,
                    len(names),
                    tuple(names[:_NAMES_MAX]),
                )
            )

    async def _take_blobs_over(self, primary: str) -> str:
        """Make the store of blobs this broker's; return why it is not."""
        try:
            await self._blobs.take_over(primary)
            await self._blobs.look()
        except StorageFault as fault:
            return f"large payloads and results were not counted: {fault}"
        return ""

    # Once it is promoted it may be replaced itself.

    def leads(self) -> bool:
        return self._primary is not None

    async def fence(self, by: str) -> int:
        """See `Primary.fence`."""
        if self._primary is None:
            raise PeerRefused("it is a standby itself")
        return await self._primary.fence(by)

    # Who leads: see `jackalope.broker.service.Leader`.

    @property
    def epoch(self) -> int:
        return self._broker.engine.epoch

    def standing(self) -> Standing:
        if self._primary is not None:
            return self._primary.standing()
        health = self.health()
        return Standing(
            "standby",
            self.epoch,
            self._doors.get("native", ""),
            1,
            lag_batches=health.lag,
            lag_s=health.lag_us / SECOND,
            has_quorum=health.is_connected,
            is_ready=health.is_connected,
            standby=health,
        )

    @property
    def answers_reads(self) -> bool:
        """Reads are answered from the copy."""
        return self._primary is None

    def elsewhere(self, door: str) -> str | None:
        if self._primary is not None:
            return self._primary.elsewhere(door)
        return self._doors.get(door, "")

    def may_read(self) -> bool:
        return self._primary is None or self._primary.may_read()

    async def confirm(self) -> None:
        """Nothing else could be told than what is here."""
        if self._primary is not None:
            await self._primary.confirm()


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
