"""Pacing: submits of one kind that come too close to each other.

A debounced task runs when no more of its kind have come for a while, a throttled one once in a
span of time, and one that replaces takes the place of what is queued.
"""

from jackalope.core.context import Deadline, Room
from jackalope.core.pacing import submits

ROOM = Room(deadlines=(Deadline(lambda ctx: ctx.book.throttled, submits.end_throttles),))
