"""Restoring: a node takes over the state of another one, because the log begins behind its own.

Owns one try with one member. When to try, and with which members, is the node's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from jackalope.broker.cluster.peer_link import PeerGone, PeerLink, PeerRefused
from jackalope.storage.snapshots import Incoming, StateMark
from jackalope.wire.peer import AskSnapshot, SnapshotHead

#: How long a member may take to copy its state before the first part comes.
_COPY_S = 600.0


async def receive(
    link: PeerLink, home: Path, is_enough: Callable[[int], str], is_over: Callable[[], bool]
) -> StateMark:
    """Receive the state of a member into a folder; it is there for good when this returns.

    Args:
        link: to the member.
        home: the folder of the node's own state.
        is_enough: returns why the state at a sequence is of no use; nothing if it is.
        is_over: returns whether to give up.

    Raises:
        PeerGone: the member does not answer, refuses, or has a state that is of no use.
        StorageFault: what came is damaged, or cannot be written.
    """
    await link.send(AskSnapshot())
    head = await link.expect(SnapshotHead, _COPY_S)
    if why := is_enough(head.sequence):
        raise PeerRefused(why)
    mark = StateMark(head.sequence, head.digest)
    incoming = await asyncio.to_thread(Incoming, home, mark)
    try:
        async for part in link.parts():
            if is_over():
                raise PeerGone("this node is told to stop")  # noqa: TRY301  it leaves nothing behind
            await asyncio.to_thread(incoming.add, part)
        await asyncio.to_thread(incoming.finish)
    except BaseException:
        incoming.abort()
        raise
    return mark
