"""The service: the broker as the worker of its own queue of callbacks.

Owns a session for each namespace that has callbacks, and the deliveries that are under way. In a
cluster only the node that leads delivers. Whatever happens to this process, a callback is a task:
the next one to lead finds it, and delivers it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec
import structlog

from jackalope import __version__
from jackalope.broker.access import THE_BROKER
from jackalope.broker.config.callbacks import (
    CallbacksConfig,
    allowed_targets,
    client_tls,
    signing_keys,
)
from jackalope.broker.local_session import LocalWorker
from jackalope.broker.queries import Refused
from jackalope.broker.service import Broker
from jackalope.callbacks.event import MEDIA_TYPE, encode_event
from jackalope.callbacks.posting import Failed, Poster
from jackalope.callbacks.shares import Shares
from jackalope.callbacks.signature import sign
from jackalope.core.commands import (
    Answer,
    Fail,
    FailAttempts,
    Finish,
    FinishAttempts,
    Held,
    LeaveWorker,
    StartAttempts,
    Verdict,
)
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.durations import MINUTE, SECOND
from jackalope.core.effects import Assignment, SignalAsked
from jackalope.core.ids import TaskId, id_text
from jackalope.core.shapes.callback import CALLBACKS_QUEUE, decode_notice
from jackalope.core.task import Error

log = structlog.get_logger(component="callbacks")

#: How often to look for namespaces with callbacks, and whether this node leads.
_LOOK_S = 0.25

#: How often the sessions say that they live, and how long their silence is borne.
_BEAT_S = 10.0
_LEASE_US = MINUTE

#: How long the broker may take to let a session in.
_JOIN_S = 10.0


def deliver_callbacks(broker: Broker, config: CallbacksConfig) -> list[CallbackService]:
    """Begin to deliver callbacks, if that is wanted, and return what is to be stopped."""
    if not config.enabled:
        return []
    service = CallbackService(broker, config)
    service.start()
    return [service]


class CallbackService:
    """Delivers the callbacks of a broker."""

    def __init__(self, broker: Broker, config: CallbacksConfig) -> None:
        self._broker = broker
        self._config = config
        self._keys = signing_keys(config)
        timeout_s = config.timeout_us / SECOND
        self.poster = Poster(allowed_targets(config), timeout_s, lambda: client_tls(config))
        self._couriers: dict[str, Courier] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="jackalope-callbacks")

    async def stop(self) -> None:
        """Deliver no more. What is under way is given back, and delivered again later."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for courier in self._couriers.values():
            await courier.leave()
        self._couriers.clear()

    async def post(self, callback: TaskId, payload: bytes, shares: Shares) -> int:
        """Deliver one callback, and return the status with which it was taken.

        Raises:
            Failed: it was not.
        """
        try:
            notice = decode_notice(payload)
        except msgspec.DecodeError as error:
            raise Failed("NoCallback", f"not a callback: {error}", is_final=True) from None
        body = encode_event(callback, notice, self._config.base_url)
        headers = {
            "Content-Type": MEDIA_TYPE,
            "User-Agent": f"jackalope/{__version__}",
            **sign(self._keys, int(time.time()), body),
        }
        with shares.delivery(notice.url) as at_most_s:
            return await self.poster.post(notice.url, headers, body, at_most_s)

    async def _run(self) -> None:
        beat_at = 0.0
        while True:
            try:
                await self._look()
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + _BEAT_S
                    for courier in self._couriers.values():
                        courier.heartbeat()
            except Refused as refused:
                log.debug("callbacks cannot be served yet", why=str(refused))
            except Exception:
                log.exception("callbacks are not served")
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        """Have a session for each namespace with callbacks while this node leads, else none."""
        couriers = self._couriers
        for namespace in [name for name, each in couriers.items() if not each.session]:
            couriers.pop(namespace).cancel()
        leader = self._broker.leader
        if self._broker.health.down or (leader and leader.elsewhere("native") is not None):
            return
        namespaces = self._broker.engine.core.book.namespaces
        wanted = [name for name, each in namespaces.items() if CALLBACKS_QUEUE in each.queues]
        for name in wanted:
            if name not in couriers:
                courier = Courier(self, self._broker, name, self._config.concurrency)
                async with asyncio.timeout(_JOIN_S):
                    await courier.join()
                couriers[name] = courier


class Courier(LocalWorker):
    """The session over which the callbacks of one namespace are delivered."""

    def __init__(
        self, service: CallbackService, broker: Broker, namespace: str, slots: int
    ) -> None:
        super().__init__(broker, THE_BROKER)
        self._service = service
        self._namespace = namespace
        self._slots = slots
        self._deliveries: dict[Held, asyncio.Task[None]] = {}
        self._shares = Shares(slots)

    async def join(self) -> None:
        self.open()
        try:
            command = ServeCallbacks(
                namespace=self._namespace, slots=self._slots, lease_us=_LEASE_US
            )
            await self.ask(command)
        except BaseException:
            self.close()
            raise

    async def leave(self) -> None:
        """Give back what is under way, and close the session."""
        self.cancel()
        if self.session:
            with suppress(Refused, TimeoutError):
                async with asyncio.timeout(1):
                    await self.ask(LeaveWorker())
        self.close()

    def cancel(self) -> None:
        """Break off what is under way."""
        for delivery in self._deliveries.values():
            delivery.cancel()
        self._deliveries.clear()

    # The broker's side.

    def on_assignment(self, given: Assignment) -> None:
        held = Held(given.task, given.fence)
        payload = given.payload if isinstance(given.payload, bytes) else b""
        delivery = asyncio.create_task(self._deliver(held, payload), name="jackalope-callback")
        self._deliveries[held] = delivery

    def on_signal(self, asked: SignalAsked) -> None:
        delivery = self._deliveries.pop(Held(asked.task, asked.fence), None)
        if delivery is not None:
            delivery.cancel()
        self.answer_signal(asked, Answer.STOPPED, "the delivery was broken off")

    def on_drain(self) -> None:
        self.close("it is the broker itself, and joins again")

    def on_lease_lost(self) -> None:
        self.close("the lease was lost")

    def on_replaced(self) -> None:
        self.close("replaced")

    async def _deliver(self, held: Held, payload: bytes) -> None:
        self.post(StartAttempts(ref=0, attempts=[held]))
        try:
            status = await self._service.post(held.task, payload, self._shares)
        except Failed as failed:
            self._fail(held, failed)
        except Exception as error:
            log.exception("callback not delivered")
            self._fail(held, Failed(type(error).__name__, "an error of the broker; see its log"))
        else:
            self.broker.meter.deliveries["delivered"] += 1
            result = msgspec.msgpack.encode({"status": status})
            self.post(FinishAttempts(ref=0, attempts=[Finish(held.task, held.fence, result)]))
        finally:
            self._deliveries.pop(held, None)

    def _fail(self, held: Held, failed: Failed) -> None:
        """Report that a callback was not delivered; the core decides when it is tried again."""
        outcome = "dead" if failed.is_final else "failed"
        self.broker.meter.deliveries[outcome] += 1
        about = {"callback": id_text(held.task), "namespace": self._namespace}
        log.warning("callback not delivered", **about, outcome=outcome, why=str(failed))
        verdict = Verdict.DEAD if failed.is_final else Verdict.RETRY
        error, after_us = Error(failed.kind, str(failed)), failed.retry_after_us
        fail = Fail(held.task, held.fence, error, verdict, retry_after_us=after_us)
        self.post(FailAttempts(ref=0, attempts=[fail]))
