"""What the command line asks the members of a cluster, over the peer port."""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TypeVar

import msgspec

from jackalope.broker.clock import wall_us
from jackalope.broker.cluster.members import Member, members_of
from jackalope.broker.cluster.overview import ClusterView, Seen, overview, standby_overview
from jackalope.broker.cluster.peer_link import Credentials, PeerGone, PeerLink, connect
from jackalope.broker.config.schema import Config
from jackalope.cli.base import Failure
from jackalope.cli.peering import credentials_of
from jackalope.wire.messages import Message
from jackalope.wire.peer import AskStatus, NodeStatus

M = TypeVar("M", bound=Message)

#: How long a member may take to answer.
ANSWER_S = 5.0


class Members:
    """The members of a cluster, as a person asks them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.cluster = config.cluster.id
        self.all: dict[str, Member] = members_of(config)
        # The name of a node is left out: this is none.
        self._who: Credentials = credentials_of(config)._replace(node="")

    async def ask(
        self, name: str, request: Message, shape: type[M], timeout_s: float = ANSWER_S
    ) -> M:
        """Ask a member.

        Raises:
            PeerGone: it does not answer, or refuses.
        """
        member = self.all[name]
        try:
            async with asyncio.timeout(timeout_s):
                link = await connect(member.host, member.peer, self._who)
                try:
                    await link.send(request)
                    return await link.expect(shape, timeout_s)
                finally:
                    link.abort()
        except TimeoutError:
            raise PeerGone(f"no answer for {timeout_s:g} s") from None

    async def connect(self, name: str) -> PeerLink:
        """Open a connection to a member.

        Raises:
            PeerGone: it cannot be reached, or refuses.
        """
        member = self.all[name]
        return await connect(member.host, member.peer, self._who)

    async def look(self, name: str) -> Seen:
        """Return what a member tells of itself, or why it does not."""
        sent_us, sent_ns = wall_us(), monotonic_ns()
        try:
            status = await self.ask(name, AskStatus(), NodeStatus)
        except PeerGone as gone:
            return Seen(trouble=str(gone))
        if status.node != name:
            return Seen(trouble=f"{status.node!r} answers in its place")
        # Connecting is a part of the time: the answer was made at its end.
        took_us = (monotonic_ns() - sent_ns) // 1_000
        return Seen(status, status.at_us - sent_us - took_us, 0)

    async def overview(self) -> ClusterView:
        """Ask all members at once."""
        seen = await asyncio.gather(*(self.look(name) for name in self.all))
        return overview(self.cluster, dict(zip(self.all, seen, strict=True)))


async def standby_view(config: Config) -> ClusterView:
    """Ask a standby on its peer port."""
    who = credentials_of(config)._replace(cluster="", node="")
    host, port = config.peer.host or "127.0.0.1", config.peer.port
    try:
        link = await connect(host, port, who)
        try:
            return standby_overview(await link.ask(AskStatus(), NodeStatus))
        finally:
            link.abort()
    except PeerGone as gone:
        hint = "it does not run, or its peer.port is not set"
        raise Failure(f"the standby does not answer: {gone}", hint) from None


def plain(view: ClusterView) -> dict[str, object]:
    """Return an overview as data for programs."""
    data: dict[str, object] = msgspec.to_builtins(view)
    del data["failovers"]  # Nodes know them; who asks from outside does not.
    if view.log is not None:
        copies = [msgspec.structs.asdict(each) for each in view.log.copies]
        data["log"] = msgspec.structs.asdict(view.log) | {"copies": copies}
    return data
