"""What a node tells other nodes, a standby and the command line about itself."""

from __future__ import annotations

from jackalope import __version__
from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.peer_link import PeerRefused
from jackalope.broker.service import Broker
from jackalope.core.records import LEVEL
from jackalope.storage.segments.journal import SegmentJournal
from jackalope.storage.shared.journal import SharedJournal
from jackalope.wire.peer import ENTRIES_BYTES_MAX, AskEntries, EntriesHead, NodeStatus

#: What a broker is that has no others.
ALONE = "alone"

_LEVEL_MIN = 1


class PeerHost:
    """Answers for a node, or for a broker that is alone."""

    def __init__(self, broker: Broker, cluster: str, name: str, node: Node | None = None) -> None:
        self.cluster = cluster
        self.node = name
        self._broker = broker
        self._node = node

    def status(self) -> NodeStatus:
        engine, node = self._broker.engine, self._node
        told = None if node is None else node.status()
        return NodeStatus(
            node=self.node,
            cluster=self.cluster,
            version=__version__,
            level_min=_LEVEL_MIN,
            level_max=LEVEL,
            role=ALONE if told is None else str(told.role),
            epoch=engine.epoch if told is None else told.epoch,
            leader=self.node if told is None else told.leader,
            applied=engine.sequence,
            mirrored=engine.sequence if node is None else node.mirrored(),
            flushed=engine.history.applied(),
            durable=engine.durable(),
            log_start=0,
            log_end=0 if node is None else node.position(),
            at_us=wall_us(),
            why="" if told is None else told.why,
        )

    async def entries(self, asked: AskEntries) -> tuple[EntriesHead, list[bytes]]:
        """Return what follows an entry in this node's own copy of the log.

        Raises:
            PeerRefused: it has none.
            StorageFault: it is damaged.
        """
        journal = self._broker.journal
        if not isinstance(journal, SegmentJournal | SharedJournal):
            raise PeerRefused("the journal of this broker is not kept in segments")
        bytes_max = max(0, min(asked.bytes_max, ENTRIES_BYTES_MAX))
        found = await self._broker.off_loop(
            lambda: journal.entries(asked.sequence, asked.digest, bytes_max)
        )
        return EntriesHead(found is not None, journal.last()), found or []
