"""Communicators over a broker, ours or RabbitMQ, all of which are closed at the end of a test."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable
from typing import Any

import kiwipy
from kiwipy.rmq import RmqThreadCommunicator

from jackalope.kiwipy.communicator import JackalopeCommunicator

#: What is still missing after this long does not come any more.
PATIENCE_S = 30.0


class Switch:
    """Makes communicators that reach each other, and nobody else."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_ours = address.startswith("jackalope")
        self.name = uuid.uuid4().hex
        self._open: list[kiwipy.Communicator] = []

    def connect(self, **settings: Any) -> Any:
        settings = {
            "message_exchange": f"messages-{self.name}",
            "task_exchange": f"tasks-{self.name}",
            "task_queue": f"queue-{self.name}",
            "async_task_timeout": PATIENCE_S,
            "testing_mode": not self.is_ours,
            **settings,
        }
        make = JackalopeCommunicator if self.is_ours else RmqThreadCommunicator
        communicator = make.connect(self.address, **settings)
        self._open.append(communicator)
        return communicator

    def close(self) -> None:
        for communicator in self._open:
            communicator.close()


class Inbox:
    """A subscriber that notes what it gets, and does with it what it is told."""

    def __init__(self, act: Callable[[Any], Any] = lambda _: None) -> None:
        self._act = act
        self._got: queue.Queue[Any] = queue.Queue()

    def __call__(self, _: Any, message: Any) -> Any:
        self._got.put(message)
        return self._act(message)

    def next(self) -> Any:
        return self._got.get(timeout=PATIENCE_S)

    def is_empty(self) -> bool:
        return self._got.empty()


class Ear:
    """A subscriber to broadcasts that notes body, sender, subject and correlation id."""

    def __init__(self) -> None:
        self._heard: queue.Queue[tuple[Any, ...]] = queue.Queue()

    def __call__(self, _: Any, body: Any, sender: Any, subject: Any, correlation_id: Any) -> None:
        self._heard.put((body, sender, subject, correlation_id))

    def next(self) -> tuple[Any, ...]:
        return self._heard.get(timeout=PATIENCE_S)

    def is_empty(self) -> bool:
        return self._heard.empty()


def result_of(future: Any) -> Any:
    """Wait for a future, and for the futures that it resolves to."""
    while isinstance(future, kiwipy.Future):
        future = future.result(timeout=PATIENCE_S)
    return future
