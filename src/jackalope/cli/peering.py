"""The peer port of a broker: the door, and the questions to the other members.

Starts and stops both. What is asked and answered is known to `broker/cluster`.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from time import monotonic_ns

from jackalope.broker.access import Access
from jackalope.broker.cluster.members import PEER_PORT, members_of
from jackalope.broker.cluster.node import Node
from jackalope.broker.cluster.overview import STANDBY, ClusterView, Seen, overview, standby_overview
from jackalope.broker.cluster.peer_host import ALONE, PeerHost
from jackalope.broker.cluster.peer_link import Credentials
from jackalope.broker.cluster.peers import Peers
from jackalope.broker.cluster.primary import Primary
from jackalope.broker.cluster.standby import Standby, places_of
from jackalope.broker.config.exposure import client_context
from jackalope.broker.config.schema import Config
from jackalope.broker.service import Broker
from jackalope.doors.peer import PeerDoor
from jackalope.storage.data_folder import Storage, folder_id

_LOCAL = "127.0.0.1"


def secret_of(config: Config) -> str:
    """Return what the ends of the peer port must have; nothing if it stays shut."""
    return config.peer.secret or config.cluster.secret


def credentials_of(config: Config) -> Credentials:
    """Return by what this node is let in by the others.

    Raises:
        ValueError: the certificates of `peer.ca` cannot be read.
    """
    cluster = config.cluster
    tls = client_context(config.tls, config.peer.ca) if config.peer.tls else None
    return Credentials(secret_of(config), cluster.id, cluster.node, tls)


def peers_of(config: Config, access: Access | None = None) -> Peers:
    """Return the other members of a cluster; none for a broker that is alone."""
    members = members_of(config) if config.cluster.id else {}
    places = {member.name: (member.host, member.peer) for member in members.values()}
    peers = Peers(places, credentials_of(config))
    if access is not None:
        withdrawn = access.withdrawn
        peers.heard.append(lambda told: withdrawn.take(told.withdrawn, told.at_us))
    return peers


def pair_of(broker: Broker, storage: Storage, config: Config) -> Primary | Standby | None:
    """Return what drives a broker that follows another one, or can be followed; None for others.

    Raises:
        ValueError: `peer.follow` is no address, or `peer.ca` cannot be read.
    """
    peer = config.peer
    if peer.follow:
        who = credentials_of(config)._replace(cluster="", node="")
        native = config.native
        address = peer.address or f"{native.host}:{native.port}"
        return Standby(broker, storage, places_of(peer.follow, PEER_PORT), who, address)
    if peer.port and storage.path is not None:
        return Primary(broker, storage.path)
    return None


def peer_door(
    broker: Broker,
    node: Node | None,
    config: Config,
    tls: ssl.SSLContext | None,
    pair: Primary | Standby | None = None,
) -> PeerDoor | None:
    """Return the door of the peer port; None if it stays shut."""
    peer, cluster, secret = config.peer, config.cluster, secret_of(config)
    host, port = peer.host or _LOCAL, peer.port
    name, identity = ALONE, cluster.id
    if node is not None:
        me = members_of(config)[cluster.node]
        host, port, name = peer.host or me.host, me.peer, me.name
    else:
        identity = folder_id(Path(config.data.folder))
    answering = PeerHost(broker, identity, name, node)
    if node is not None:
        broker.overview = lambda: (name, _overview(broker, answering, node))
    answering.pair = pair
    answering.ports = (config.native.port, config.http.port if config.http.enabled else 0)
    if isinstance(pair, Standby):
        broker.overview = lambda: (STANDBY, standby_overview(answering.status()))
    if not secret or not port:
        return None
    return PeerDoor(answering, (host, port), secret, tls if peer.tls else None)


def _overview(broker: Broker, own: PeerHost, node: Node) -> ClusterView:
    """Put together what this node knows of its cluster."""
    now_us = monotonic_ns() // 1_000
    seen = {own.node: Seen(own.status(), 0, 0)}
    for name, peer in broker.peers.known.items() if broker.peers is not None else ():
        heard_us = now_us - peer.heard_us if peer.heard_us else None
        seen[name] = Seen(peer.status, peer.offset_us, heard_us, peer.trouble)
    return overview(own.cluster, dict(sorted(seen.items())), list(node.failovers))
