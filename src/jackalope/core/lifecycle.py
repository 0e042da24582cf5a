"""The life of a task: its states, what can happen to it, and nothing else.

Theory of operation
===================

A task is in exactly one state. Something happens to it (an event): an actioner asks for something,
a worker reports something, or time passes. The table below says, for each state, which events can
happen and in which states each can leave the task. Two rules hold:

1. Every change of state is checked against this table when its record is applied. What is asked for
   and is not in the table is refused before, with the code `wrong_state`, and changes nothing. Of
   each life `assign`, `start` and `finish` are part; to spare them the lookup, they are compared
   with the only states that the table has for them, and a test compares those with the table. A
   task that is dropped with its queue has no event: it is gone, without an end.
2. This file does not know why an event leads to one of several states. That is decided by policy
   in the modules that own the question (`tasks.attempts`, `tasks.submit`, `tasks.actions`); the
   table only says what can be.

The states fall into four groups::

    resting     held       exists, and does not run until it is played
                waiting    for other tasks to end
                scheduled  for a time: a start in the future, the wait before a retry, or a sleep
                           between two steps, which an event may end
                paused     was stopped or lost, and waits for a person

    ready       ready      the only state from which a task is given to a worker

    leased      assigned   sent to a worker that has not yet said that it began
                running    the worker said so

    ended       succeeded  with a result
                dead       with a reason: it failed, crashed, was interrupted too often, expired,
                           was rejected, was displaced by a newer one in a full
                           queue, or depended on a task that did not succeed
                killed     on request

"Open" in the table is the set {waiting, scheduled, ready}: where a task goes when it is not held
back. Which one follows from its dependencies and its time.

`complete` is the end of a flow, which no worker runs: it waits until its nodes have ended, or is
paused until then if it is being stopped.

A kill or a pause of a leased task does not change the state, because asking is not having: the
request travels to the worker, and the event `stop` (or `finish`, `fail`, `lose`, whichever comes
first) tells what really happened. Until then the state stays what it is.

`finish` is legal from `assigned` so that a reordered or unsent `start` does no harm. An end is
final: only `retry`, by a person, leads out of `dead` or `killed`, and nothing leads out of
`succeeded`.
"""

from enum import StrEnum


class State(StrEnum):
    """The states of a task."""

    HELD = "held"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    READY = "ready"
    ASSIGNED = "assigned"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    KILLED = "killed"


class Event(StrEnum):
    """What can happen to a task."""

    # Asked by actioners.
    HOLD = "hold"
    PLAY = "play"
    PAUSE = "pause"
    KILL = "kill"
    RETRY = "retry"
    PURGE = "purge"
    # Brought about by time and by other tasks.
    UNBLOCK = "unblock"
    ABANDON = "abandon"
    DUE = "due"
    EXPIRE = "expire"
    COMPLETE = "complete"
    REPLACE = "replace"
    # The life of an attempt.
    ASSIGN = "assign"
    START = "start"
    PROGRESS = "progress"
    FINISH = "finish"
    FAIL = "fail"
    RELEASE = "release"
    SUSPEND = "suspend"
    THROTTLE = "throttle"
    STOP = "stop"
    LOSE = "lose"


class Reason(StrEnum):
    """Why a task is dead."""

    FAILED = "failed"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"
    DEPENDENCY = "dependency"
    REJECTED = "rejected"
    DISPLACED = "displaced"


RESTING = frozenset({State.HELD, State.WAITING, State.SCHEDULED, State.PAUSED})
LEASED = frozenset({State.ASSIGNED, State.RUNNING})
ENDED = frozenset({State.SUCCEEDED, State.DEAD, State.KILLED})
#: Counted against the depth limit of a queue: all that waits for a worker or for leave to run.
PENDING = RESTING | {State.READY}

_OPEN = frozenset({State.WAITING, State.SCHEDULED, State.READY})
_HELD = frozenset({State.HELD})
_PAUSED = frozenset({State.PAUSED})
_READY = frozenset({State.READY})
_ASSIGNED = frozenset({State.ASSIGNED})
_RUNNING = frozenset({State.RUNNING})
_SUCCEEDED = frozenset({State.SUCCEEDED})
_DEAD = frozenset({State.DEAD})
_KILLED = frozenset({State.KILLED})
_ENDS = _SUCCEEDED | _DEAD | _KILLED
#: Where an attempt that did not succeed can leave its task.
_SET_BACK = frozenset({State.READY, State.SCHEDULED, State.PAUSED, State.DEAD, State.KILLED})
#: Where a task rests that waits for a time or an event between two attempts.
_SUSPENDED = frozenset({State.SCHEDULED, State.PAUSED, State.KILLED})
#: Where a task rests whose place another took before it began: it has the time of that one.
_UNBEGUN = frozenset({State.HELD, State.SCHEDULED, State.READY})
_GONE: frozenset[State] = frozenset()

TRANSITIONS: dict[State, dict[Event, frozenset[State]]] = {
    State.HELD: {
        Event.HOLD: _HELD,
        Event.PLAY: _OPEN,
        Event.PAUSE: _PAUSED,
        Event.KILL: _KILLED,
        Event.EXPIRE: _DEAD,
        Event.ABANDON: _DEAD,
        Event.REPLACE: _HELD,
    },
    State.WAITING: {
        Event.HOLD: _HELD,
        Event.PAUSE: _PAUSED,
        Event.KILL: _KILLED,
        Event.EXPIRE: _DEAD,
        Event.ABANDON: _DEAD,
        Event.UNBLOCK: frozenset({State.SCHEDULED, State.READY}),
        Event.COMPLETE: _ENDS,
    },
    State.SCHEDULED: {
        Event.HOLD: _HELD,
        Event.PAUSE: _PAUSED,
        Event.KILL: _KILLED,
        Event.RETRY: _READY,
        Event.EXPIRE: _DEAD,
        Event.DUE: _READY,
        Event.UNBLOCK: _READY,
        Event.REPLACE: _UNBEGUN,
    },
    State.READY: {
        Event.HOLD: _HELD,
        Event.PAUSE: _PAUSED,
        Event.KILL: _KILLED,
        Event.EXPIRE: _DEAD,
        Event.REPLACE: _UNBEGUN,
        Event.ASSIGN: _ASSIGNED,
    },
    State.ASSIGNED: {
        Event.PAUSE: _ASSIGNED,
        Event.KILL: _ASSIGNED,
        Event.START: _RUNNING,
        Event.PROGRESS: _ASSIGNED,
        Event.FINISH: _SUCCEEDED,
        Event.FAIL: _SET_BACK,
        Event.RELEASE: _SET_BACK,
        Event.SUSPEND: _SUSPENDED,
        Event.THROTTLE: _SUSPENDED | _READY,
        Event.STOP: _PAUSED | _KILLED,
        Event.LOSE: _SET_BACK,
    },
    State.RUNNING: {
        Event.PAUSE: _RUNNING,
        Event.KILL: _RUNNING,
        Event.PROGRESS: _RUNNING,
        Event.FINISH: _SUCCEEDED,
        Event.FAIL: _SET_BACK,
        Event.RELEASE: _SET_BACK,
        Event.SUSPEND: _SUSPENDED,
        Event.THROTTLE: _SUSPENDED | _READY,
        Event.STOP: _PAUSED | _KILLED,
        Event.LOSE: _SET_BACK,
    },
    State.PAUSED: {
        Event.PLAY: _OPEN,
        Event.PAUSE: _PAUSED,
        Event.KILL: _KILLED,
        Event.EXPIRE: _DEAD,
        Event.ABANDON: _DEAD,
        Event.COMPLETE: _DEAD | _KILLED,
        Event.REPLACE: _PAUSED,
    },
    State.SUCCEEDED: {Event.PURGE: _GONE},
    State.DEAD: {Event.RETRY: _OPEN, Event.PURGE: _GONE},
    State.KILLED: {Event.KILL: _KILLED, Event.RETRY: _OPEN, Event.PURGE: _GONE},
}


#: The states in which a life begins.
BEGINNINGS = _HELD | _OPEN


def is_legal(state: State, event: Event) -> bool:
    return event in TRANSITIONS[state]


def can_lead(state: State, event: Event, to: State) -> bool:
    return to in TRANSITIONS[state].get(event, _GONE)
