"""The cluster, over REST: every node answers what it knows itself, also if another leads."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from jackalope.broker.access import own_namespace
from jackalope.broker.cluster.overview import ClusterView, MemberView
from jackalope.doors.http.asgi import Response
from jackalope.doors.http.request import Request, answer, door_of
from jackalope.doors.http.rest.schemas import Time, to_time
from jackalope.doors.http.router import Routes, Spec

routes = Routes("/api/v1")


class CopyShown(msgspec.Struct):
    """A copy of the shared log."""

    node: str
    is_current: bool
    lag: int  # how many entries it is behind


class LogShown(msgspec.Struct):
    """The shared log."""

    engine: str  # its name and version
    size: int  # in bytes
    leader: str  # the copy that decides
    copies: list[CopyShown]


class FailoverShown(msgspec.Struct):
    """A node has become the leader."""

    epoch: int
    node: str
    at: Time | None


class ClusterShown(msgspec.Struct):
    """A cluster; a broker that is alone has no members."""

    cluster: str  # its name; empty for a broker that is alone
    node: str  # the one that answers
    condition: str  # `healthy`, `degraded` or `no leader`
    problems: list[str]  # what is to be done about it
    leader: str  # empty if there is none
    epoch: int  # counts the leaders
    level: int  # of the records in the log
    members: list[MemberView]
    log: LogShown | None
    failovers: list[FailoverShown]  # since this node started, the latest first


@routes.get("/cluster", "read_tasks", Spec(ClusterShown))
async def read_cluster(request: Request) -> Response:
    """Show the members of the cluster, its log and its last leaders, as this node knows them."""
    broker = door_of(request).broker
    if broker.overview is None:
        alone = ClusterShown("", "", "healthy", [], "", broker.engine.epoch, 0, [], None, [])
        return answer(alone)
    node, view = broker.overview()
    return answer(_shown(node, _without_counts(view) if own_namespace() else view))


def _without_counts(view: ClusterView) -> ClusterView:
    """Leave out what counts over all namespaces: how much is in the log, and who lags."""
    members = [replace(each, applied=0, lag=0) for each in view.members]
    return replace(view, problems=[], members=members, log=None)


def _shown(node: str, view: ClusterView) -> ClusterShown:
    log = view.log
    copies = [] if log is None else [CopyShown(e.node, e.is_current, e.lag) for e in log.copies]
    return ClusterShown(
        view.cluster,
        node,
        view.condition,
        view.problems,
        view.leader,
        view.epoch,
        view.level,
        view.members,
        None if log is None else LogShown(log.engine, log.size, log.leader, copies),
        [FailoverShown(each.epoch, each.node, to_time(each.at_us)) for each in view.failovers],
    )
