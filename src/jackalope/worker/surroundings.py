"""The surroundings of a running task: what its worker knows and a fan-out needs.

Handed to the processes of isolated tasks as well, over their channel and not on their command line,
because there is a token in it.
"""

from __future__ import annotations

import msgspec

from jackalope.link.address import Address


class Surroundings(msgspec.Struct, frozen=True):
    """Where a task runs.

    Attributes:
        address: where the broker is, and who we are there.
        worker: the name of the worker.
        application: where the tasks are, as `module:name`.
        child_command: how a process for isolated tasks is started.
        log: the look of the log that such a process inherits.
        fanout_host: where to listen for helpers; empty for where the broker is reached from.
        fanout_advertise: where helpers shall look instead; empty for the same.
        fanout_cert: the file of the certificate for helpers; empty for one that is made.
        fanout_key: the file of its key.
        is_isolated: the task has a process of its own.
        secret: proves over a connection of its own that it is the worker's.
    """

    address: Address
    worker: str
    application: str = ""
    child_command: tuple[str, ...] = ()
    log: str = ""
    fanout_host: str = ""
    fanout_advertise: str = ""
    fanout_cert: str = ""
    fanout_key: str = ""
    is_isolated: bool = False
    secret: str = ""
