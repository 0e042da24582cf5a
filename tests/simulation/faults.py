"""The fault model: what goes wrong, and how often.

Network: a message is delayed, overtaken, doubled, or lost. A lost message dooms its connection, as
a broken TCP stream does: what was sent after it does not arrive either, and sooner or later each
side notices. One side may notice long before the other (half-open).

Broker: killed between any two steps of a turn (before and after the core decides, before and after
the batch is on disk, between two effects) and of a flush; appends that fail with nothing written,
or with nobody knowing whether it was; a disk that is full for a while.

Workers: killed, frozen and thawed, disconnected, drained; they fail, release and refuse at random.

Clocks: the broker's clock jumps forward and back.

What is assumed to hold: what an append reported as durable stays; no process invents messages.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Chances, each for one occasion."""

    message_lost: float = 0.004
    message_doubled: float = 0.03
    message_overtaken: float = 0.1
    half_open: float = 0.3
    crash_at_step: float = 0.004
    append_fails: float = 0.003
    worker_killed: float = 0.02
    worker_frozen: float = 0.02
    worker_cut: float = 0.03
    worker_drained: float = 0.02
    clock_jumps: float = 0.01


#: What is left once faults stop.
NONE = Faults(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
