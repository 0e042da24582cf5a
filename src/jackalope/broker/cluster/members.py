"""Members: which nodes a cluster has, and where their doors are.

Read from the configuration alone. Which of them is alive is known to `peers`.
"""

from __future__ import annotations

import msgspec

from jackalope.broker.cluster.leadership import Timing
from jackalope.broker.config.schema import ClusterLog, Config, Store

#: Where the nats-servers of the nodes reach each other, unless a member says otherwise.
ROUTE_PORT = 7426

#: Where the nodes ask each other, unless a member says otherwise.
PEER_PORT = 7423

_SIZES = (1, 3, 5)
_TWO = (
    "two nodes are no cluster: if one is lost, the other cannot know whether it is alone, and "
    "stops. Have three; or two brokers on one PostgreSQL (`cluster.log: postgres`)"
)


class Member(msgspec.Struct, frozen=True):
    """One node, as the others and their clients reach it."""

    name: str
    host: str
    native: int
    http: int
    amqp: int
    grpc: int
    management: int
    route: int
    peer: int

    def address(self, door: str) -> str:
        """Return where a door of the node is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{getattr(self, door)}"


def members_of(config: Config) -> dict[str, Member]:
    """Return the members by their names, in their order.

    Raises:
        ValueError: one is not written as a member.
    """
    found: dict[str, Member] = {}
    for text in config.cluster.members:
        member = _read(text, config)
        if member.name in found:
            raise ValueError(f"{member.name!r} is a member twice")
        found[member.name] = member
    return found


def _read(text: str, config: Config) -> Member:
    first, *rest = text.split() or [""]
    name, _, host = first.partition("=")
    ports = {
        "native": config.native.port,
        "http": config.http.port,
        "amqp": config.amqp.port,
        "grpc": config.grpc.port,
        "management": config.amqp.management_port,
        "route": ROUTE_PORT,
        "peer": PEER_PORT,
    }
    for part in rest:
        door, _, port = part.partition("=")
        if door not in ports or not port.isdecimal():
            raise ValueError(f"{part!r} is not one of {', '.join(ports)} with a port")
        ports[door] = int(port)
    if not name or not host:
        raise ValueError(f"{text!r} is not a member; write name=host")
    return Member(name, host.strip("[]"), **ports)


def timing_of(config: Config) -> Timing:
    cluster = config.cluster
    return Timing(
        beat_us=cluster.beat_us,
        read_lease_us=cluster.read_lease_us,
        takeover_us=cluster.takeover_us,
    )


def cluster_problems(config: Config) -> list[str]:
    """List everything that keeps a cluster from starting."""
    cluster = config.cluster
    try:
        members = members_of(config)
    except ValueError as error:
        return [f"cluster.members: {error}"]
    problems = [f"cluster.takeover: {each}" for each in timing_of(config).problems()]
    if cluster.founder and cluster.founder not in members:
        problems.append(f"cluster.founder: {cluster.founder!r} is not one of {', '.join(members)}")
    if cluster.node not in members:
        problems.append(f"cluster.node: {cluster.node!r} is not one of {', '.join(members)}")
    if cluster.log is ClusterLog.EMBEDDED:
        if len(members) == 2:
            problems.append(f"cluster.members: {_TWO}")
        elif len(members) not in _SIZES:
            problems.append("cluster.members: a cluster has one, three or five nodes")
    if not cluster.secret:
        problems.append("cluster.secret: needed, so that no other program is taken for a node")
    return problems + _log_problems(config)


def _log_problems(config: Config) -> list[str]:
    cluster = config.cluster
    if cluster.log is ClusterLog.NATS and not cluster.urls:
        return ["cluster.urls: needed with `cluster.log: nats`"]
    if cluster.log is ClusterLog.POSTGRES:
        needed = [] if cluster.dsn else ["cluster.dsn: needed with `cluster.log: postgres`"]
        if config.blobs.store is not Store.S3:
            needed.append("blobs.store: must be `s3` with `cluster.log: postgres`")
        return needed
    return []
