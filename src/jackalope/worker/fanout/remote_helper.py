"""A helper, seen from the owner: one connection, from the challenge to the end.

Owns what was sent to it and has not come back, and how long it has been silent. Belongs to the loop
of the hub.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from hmac import compare_digest
from typing import Any, Protocol, cast

from jackalope.tasks.serialization import DecodeFailed
from jackalope.wire.fanout import (
    FANOUT_VERSION,
    NONCE_BYTES,
    Beat,
    Begun,
    Challenge,
    End,
    Greeting,
    Items,
    Results,
    Welcome,
    owner_codec,
    proof_of_helper,
    proof_of_owner,
)
from jackalope.wire.frames import FRAME_BYTES_MAX, FrameError, FrameReader
from jackalope.wire.messages import AnyMessage
from jackalope.worker.fanout.computation import Run

#: How often helper and owner say something, and how long a helper may be silent before others get
#: its batches as well.
BEAT_S = 0.5
SILENT_S = 2.5

#: How long a connection may take to greet, and a silent one is kept.
GREET_S = 5.0
GONE_S = 30.0

#: How many batches a helper has at once: one to compute, one on its way.
BATCHES_MAX = 2


class HelperHost(Protocol):
    """Who deals with helpers."""

    @property
    def tokens(self) -> Iterable[str]:
        """What helpers may prove themselves with."""

    def welcomed(self, peer: RemotePeer) -> None:
        """Handle the arrival of a helper."""

    def lost(self, peer: RemotePeer) -> None:
        """Handle the loss of a helper."""

    def refused(self, peer: RemotePeer, why: str) -> None:
        """Handle the refusal of a helper that cannot do what was asked."""


class RemotePeer(asyncio.Protocol):
    """One helper."""

    def __init__(self, host: HelperHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(64 * 1024)  # Until it has proved who it is.
        self._transport: asyncio.Transport | None = None
        self._nonce = os.urandom(NONCE_BYTES)
        self._run: Run | None = None
        self._is_ready = False
        self._can: set[bytes] = set()
        self._heard_at = self._sent_at = self._loop.time()
        self.worker = ""  # its name, once it has proved who it is
        # it has said nothing for a while, and others have its batches as well
        self.is_silent = False

    # From the hub.

    def begin(self, run: Run) -> None:
        """Send what is to be done. A helper that could do it before need not confirm again."""
        self._run, self._is_ready = run, run.begin.likeness in self._can
        self._send(run.begin)
        self.feed()

    def rest(self) -> None:
        """Hand out nothing more of the run, which is over."""
        self._run = None

    def feed(self) -> None:
        """Send batches while it can have more."""
        run = self._run
        if run is None or not self._is_ready or self.is_silent:
            return
        while run.ledger.holds(self) < BATCHES_MAX:
            batch = run.ledger.take(self)
            if batch is None:
                return
            self._send(Items(run.number, batch.number, batch.data))

    def check(self, now: float) -> None:
        """Check how long it has been silent, and send it a sign of life."""
        silent_s = now - self._heard_at
        if not self.worker:
            if silent_s > GREET_S:
                self.abort()
            return
        if silent_s > GONE_S:
            self.abort()
        elif silent_s > SILENT_S and not self.is_silent:
            self.is_silent = True
            if self._run is not None:
                self._run.ledger.give_back(self, is_lost=False)
        if now - self._sent_at >= BEAT_S:
            self._send(Beat())

    def end(self, why: str = "") -> None:
        self._send(End(why))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End without notice."""
        if self._transport is not None:
            self._transport.abort()

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send(Challenge(FANOUT_VERSION, self._nonce))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self.is_silent:
            self.is_silent = False
            self.feed()
        try:
            for kind, body in self._reader.feed(data):
                self._take(owner_codec.decode(kind, body))
        except (FrameError, DecodeFailed, ValueError):
            self.abort()  # Whatever it is, it does not follow the protocol of helpers.

    def connection_lost(self, _: Exception | None) -> None:
        if self._run is not None:
            self._run.ledger.give_back(self, is_lost=True)
            self._run = None
        self._host.lost(self)

    def _take(self, message: AnyMessage) -> None:
        if not self.worker:
            self._greeted(message)
        elif type(message) is Results:
            self._answered(message)
        elif type(message) is Begun and self._run is not None:
            if message.run != self._run.number:
                return
            if message.refusal:
                self._host.refused(self, message.refusal)
            else:
                self._is_ready = True
                self._can.add(self._run.begin.likeness)
                self.feed()

    def _greeted(self, message: AnyMessage) -> None:
        if type(message) is not Greeting or len(message.nonce) != NONCE_BYTES:
            self.abort()
            return
        for token in self._host.tokens:
            proof = proof_of_helper(token, self._nonce, message.nonce, message.worker)
            if message.version == FANOUT_VERSION and compare_digest(proof, message.proof):
                self.worker = message.worker or "?"
                self._reader.allow(FRAME_BYTES_MAX)
                answer = proof_of_owner(token, self._nonce, message.nonce)
                self._send(Welcome(answer, int(BEAT_S * 1e6)))
                self._host.welcomed(self)
                return
        self.abort()

    def _answered(self, message: Results) -> None:
        run = self._run
        if run is None or message.run != run.number:
            return
        values: list[Any] = run.values(message.data)
        if len(values) != message.count:
            raise ValueError(f"{len(values)} results, not {message.count}")
        run.ledger.answer(
            self, message.batch, message.begin, values, message.failed, busy_us=message.busy_us
        )
        self.feed()

    def _send(self, message: AnyMessage) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._sent_at = self._loop.time()
            self._transport.write(owner_codec.encode(message))
