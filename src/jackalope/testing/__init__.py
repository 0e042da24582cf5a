"""The test kit: the real core on a virtual clock, so that retries and schedules take no time.

Nothing here imitates the broker. The core decides as it does in production; only the clock, the
network and the worker's process are played. `embedded` plays nothing: it brings a whole broker and
a worker into the test.
"""

from jackalope.testing.virtual_broker import VirtualBroker, embedded
from jackalope.testing.virtual_handle import VirtualFlow, VirtualHandle

__all__ = ["VirtualBroker", "VirtualFlow", "VirtualHandle", "embedded"]
