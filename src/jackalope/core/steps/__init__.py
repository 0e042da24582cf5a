"""Durable steps: what a task does once, however often it is tried.

A worker records the result of a step under its fence. A task that sleeps, or waits for an event,
gives its slot back: its attempt ends without a failure, and the next one goes on behind the steps
that are done.
"""

from jackalope.core.commands import RecordStep, SendEvent, Suspend
from jackalope.core.context import Room
from jackalope.core.steps import handlers

ROOM = Room(
    handlers={SendEvent: handlers.send_event},
    reports={RecordStep: handlers.record_step, Suspend: handlers.suspend},
    missing={SendEvent: handlers.missing},
)
