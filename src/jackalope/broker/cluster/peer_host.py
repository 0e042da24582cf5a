"""What a node tells other nodes, a standby and the command line about itself."""

from __future__ import annotations

from jackalope import __version__
from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.node import Node
from jackalope.broker.service import Broker
from jackalope.core.records import LEVEL
from jackalope.wire.peer import NodeStatus

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
