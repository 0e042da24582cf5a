"""AiiDA's broker: the entry point `jackalope` of the group `aiida.brokers`.

Owns AiiDA's abstract class and the configuration of a profile. Nothing is connected, and nothing
started, before it is used.
"""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Iterator
from typing import Any

from aiida.brokers.broker import Broker, BrokerConfigField

from jackalope.aiida.local_broker import LocalBroker, Reviver
from jackalope.aiida.process_communicator import QUEUE, Lookup, ProcessCommunicator
from jackalope.client.app import Jackalope
from jackalope.core.lifecycle import ENDED, LEASED, State
from jackalope.core.policy import OnLost
from jackalope.errors import ConnectionLost
from jackalope.kiwipy.queue import CHANGES, PRESET
from jackalope.transport.address import Address
from jackalope.wire.views import QueueView

#: How many seconds a question from outside the daemon may take, and a connection for it.
_ASK_S = 10.0
_KNOCK_S = 1.0


class JackalopeBroker(Broker):  # type: ignore[misc]
    """AiiDA's processes over Jackalope."""

    _config_fields = (
        BrokerConfigField(
            name="address",
            prompt="Address",
            help="Where the broker is, such as jackalopes://host:7420; empty for your own one.",
            default="",
            param_type="string",
        ),
        BrokerConfigField(
            name="namespace",
            prompt="Namespace",
            help="What keeps this profile apart from others; empty for one after its UUID.",
            default="",
            param_type="string",
        ),
        BrokerConfigField(
            name="key",
            prompt="API key",
            help="The token of the API key; empty for that of your own broker, or for none.",
            default="",
            param_type="string",
            hide_input=True,
        ),
        BrokerConfigField(
            name="ca_file",
            prompt="Authorities",
            help="Over TLS, the file of the authorities that may vouch for the broker.",
            default="",
            param_type="string",
        ),
        BrokerConfigField(
            name="autostart",
            prompt="Start on demand",
            help="Whether your own broker is started when it is needed and does not run.",
            default=True,
            param_type="bool",
        ),
    )

    def __init__(self, profile: Any) -> None:
        super().__init__(profile)
        self._config = {**self.get_default_config(), **profile.process_control_config}
        self._own = LocalBroker.of_user()
        self._lock = threading.Lock()
        self._communicator: ProcessCommunicator | None = None

    def __str__(self) -> str:
        try:
            where = self._client().address
        except Exception as error:  # noqa: BLE001  a name must not fail
            return f"Jackalope <{error}>"
        communicator = self._communicator
        if communicator is None or communicator.is_closed():
            return f"Jackalope @ {where}"
        return f"Jackalope v{communicator.server_properties['version']} @ {where}"

    def get_communicator(self) -> ProcessCommunicator:
        """Return the communicator; it is created at the first use, and again after `close`.

        Raises:
            ConnectionLost: one's own broker does not start.
            Rejected: the broker does not want us.
            TimeoutError: it cannot be reached.
        """
        with self._lock:
            if self._communicator is None or self._communicator.is_closed():
                self._communicator = self._connect_or_again()
            return self._communicator

    def iterate_tasks(self) -> Iterator[Any]:
        """Yield the tasks of all processes, also of those that a worker holds."""
        yield from self.get_communicator().unfinished_tasks()

    def check_service_reachable(self) -> bool:
        """Return whether the broker answers. It is not started for that."""
        return bool(self.probe_service_status()["connected"])

    def probe_service_status(self) -> dict[str, Any]:
        """Return how the broker is. It is not started for that; that it is away is seen at once."""
        try:
            self._knock()
            client = self._client()
            with client.sync as sync:
                version = sync(client.stats()).version
                queues = sync(client.queues())
        except Exception as error:  # noqa: BLE001  whatever it is belongs into the answer
            return {"connected": False, "error": f"{type(error).__name__}: {error}"}
        counts = _counts(queues)
        return {
            "connected": True,
            "error": None,
            "address": str(client.address),
            "namespace": client.address.namespace,
            "version": version,
            "pid": None if self._config["address"] else self._own.pid(),
            "pending_tasks": sum(n for state, n in counts.items() if state not in LEASED | ENDED),
            "processing_tasks": sum(n for state, n in counts.items() if state in LEASED),
        }

    def reach(self) -> None:
        """See to it that the broker is there, and accepts the key of the profile."""
        self._start_own()
        self._knock()
        with self._client().sync:
            pass

    def prepare(self, on_lost: OnLost | None = None) -> None:
        """See to it that the broker is there, and that the queue is as processes need it.

        `on_lost` says what to do with a process whose worker died; None leaves that as it is.
        """
        self._start_own()
        self._knock()
        client = self._client()
        changes = {} if on_lost is None else {"on_lost": on_lost}
        with client.sync as sync:
            if QUEUE not in {queue.queue for queue in sync(client.queues())}:
                sync(client.declare_queue(QUEUE, preset=PRESET, changes={**CHANGES, **changes}))
            elif changes:
                sync(client.declare_queue(QUEUE, changes=changes))

    def access(self) -> Address:
        """Return where the broker is, with namespace and token: for other programs."""
        return self._client().address

    def close(self) -> None:
        """Close the communicator, if there is one."""
        with self._lock:
            communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.close()

    def _connect_or_again(self) -> ProcessCommunicator:
        """Connect; once more if the own broker was just ending, and listened until then."""
        try:
            return self._connect()
        except TimeoutError:
            if not self._uses_own or self._own.is_running():
                raise
            return self._connect()

    @property
    def _uses_own(self) -> bool:
        """Whether this is one's own broker, which is started on demand."""
        return not self._config["address"] and bool(self._config["autostart"])

    def _connect(self) -> ProcessCommunicator:
        from aiida.manage.configuration import get_config_option  # noqa: PLC0415  AiiDA is slow
        from aiida.orm.utils import serialize  # noqa: PLC0415

        self._start_own()
        communicator = ProcessCommunicator(
            {"address": self._client().address},
            Lookup(),
            encoder=functools.partial(serialize.serialize, encoding="utf-8"),
            decoder=serialize.deserialize_unsafe,
            task_prefetch_count=get_config_option("daemon.worker_process_slots"),
            async_task_timeout=get_config_option("broker.task_timeout"),
        )
        if self._uses_own:
            Reviver(self._own, communicator)
        return communicator

    def _start_own(self) -> None:
        """Start one's own broker if it is used and may be started."""
        if self._uses_own:
            self._own.ensure_running()

    def _knock(self) -> None:
        """Find out at once that nothing listens; a client would retry until its time is over."""
        if not self._config["address"] and not self._own.is_running():
            when = "it starts when it is needed" if self._config["autostart"] else "start it"
            raise ConnectionLost(f"your broker in {self._own.folder} does not run; {when}")
        address, reasons = self._client().address, []
        for member in address.members:
            try:
                with socket.create_connection((member.host, member.port), _KNOCK_S):
                    return
            except OSError as error:
                reasons.append(error.strerror or str(error))
        raise ConnectionLost(
            f"no broker listens at {address.hosts} ({', '.join(reasons)}): start one there with "
            f"`jackalope serve --host {address.host} --port {address.port}`, or leave the address "
            "out for a broker of your own"
        )

    def _client(self) -> Jackalope:
        """Return a client that has not connected yet."""
        config, is_own = self._config, not self._config["address"]
        return Jackalope(
            self._own.address if is_own else config["address"],
            namespace=config["namespace"] or f"aiida-{self._profile.uuid}",
            token=config["key"] or (self._own.token if is_own else None),
            ca_file=config["ca_file"] or None,
            timeout=_ASK_S,
        )


def _counts(queues: list[QueueView]) -> dict[State, int]:
    return next((queue.counts for queue in queues if queue.queue == QUEUE), {})
