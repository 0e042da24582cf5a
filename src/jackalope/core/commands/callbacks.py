"""Commands about callbacks: all of them are the broker's own."""

from __future__ import annotations

from jackalope.core.commands.base import Namespaced
from jackalope.core.durations import MINUTE


class ServeCallbacks(Namespaced):
    """Let the session of this command deliver the callbacks of a namespace.

    Only the broker itself sends it. The reply is that of `JoinWorker`.
    """

    slots: int
    lease_us: int = MINUTE
