"""Callbacks and triggers: what follows from the end of a task, or of a batch.

A callback is a task of a queue of the broker's own, submitted in the batch of records that ends the
task it is about. So it is durable, retried, listed and given up as any task is; the broker itself
is the worker of that queue.
"""

from jackalope.core.callbacks import ends
from jackalope.core.commands.callbacks import ServeCallbacks
from jackalope.core.context import Room

ROOM = Room(handlers={ServeCallbacks: ends.serve_callbacks}, tasks_ended=ends.tasks_ended)
