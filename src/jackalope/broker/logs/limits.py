"""Limits of task logs in a broker; those that can be set are in `broker.config.task_logs`."""

from jackalope.core.durations import SECOND

#: How much may wait to be written; more is dropped, and counted.
PENDING_BYTES_MAX = 32 * 1024 * 1024

#: Of how many attempts it is remembered that lines were dropped because they could not be stored.
ATTEMPTS_LOST_MAX = 10_000

#: For how many seconds' worth an attempt may exceed its rate at once.
BURST_S = 8

#: How long after its end an attempt may still send lines.
LATE_US = 60 * SECOND

#: How often lines are written, old ones removed and tasks looked for that are gone, and how many
#: tasks are looked for each time.
WRITE_EVERY_S = 0.05
TEND_EVERY_S = 10.0
TASKS_PER_LOOK = 500

#: How many wait for new lines at once, and for how long one question does at most.
FOLLOWERS_MAX = 1_000
WAIT_US_MAX = 60 * SECOND

#: How often a question that waits looks whether the task has ended.
LOOK_AGAIN_S = 0.5

#: Lines in memory, where there is no data folder.
MEMORY_BYTES_MAX = 64 * 1024 * 1024

#: Copies for other members of a cluster: how much goes in one request, the largest line, how long a
#: member may take, how often one that did not answer is tried again, and of how many tasks it is
#: remembered that it lacks lines.
COPY_BYTES = 24 * 1024
LINE_COPIED_BYTES_MAX = 24 * 1024
COPY_S = 1.0
COPY_AGAIN_S = 1.0
TASKS_MISSED_MAX = 100_000
