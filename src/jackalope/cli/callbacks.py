"""The delivery of callbacks in the process of a broker: begun if the configuration asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackalope.broker.config.schema import Config
from jackalope.broker.service import Broker

if TYPE_CHECKING:
    from jackalope.callbacks import CallbackService


def deliver_callbacks(broker: Broker, config: Config) -> list[CallbackService]:
    """Begin to deliver callbacks, if that is wanted, and return what is to be stopped."""
    if not config.callbacks.enabled:
        return []
    from jackalope.callbacks import CallbackService

    service = CallbackService(broker, config.callbacks)
    service.start()
    return [service]
