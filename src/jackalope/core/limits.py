"""Limits: everything that can grow has one, and all of them are defined here.

Each is tested at the limit and one past it.
"""

from jackalope.core.durations import DAY, SECOND

#: Larger payloads and results go to the blob store, and the task names the blob.
INLINE_BYTES_MAX = 64 * 1024

#: Times and durations that a peer may name, in microseconds; sums of two still fit everywhere.
TIME_US_MAX = 2**61
COUNT_MAX = 10**9

NAME_CHARS_MAX = 256
TAGS_PER_TASK_MAX = 32
TAG_CHARS_MAX = 128
KEYS_PER_TASK_MAX = 16
KEY_NAME_CHARS_MAX = 128
KEY_VALUE_CHARS_MAX = 256
HEADERS_BYTES_MAX = 16 * 1024
#: Needs of a task and resources of a worker: how many, and how much of one, in thousandths; for how
#: many large tasks a worker is kept free at a time, and of how many sticky values it is known which
#: worker had the last task.
NEEDS_PER_TASK_MAX = 32
RESOURCES_PER_WORKER_MAX = 64
AMOUNT_MAX = 2**60
RESERVATIONS_MAX = 64
STICKY_VALUES_MAX = 100_000
DEPENDENCIES_PER_TASK_MAX = 1_000
ERROR_CHARS_MAX = 32 * 1024
NOTE_CHARS_MAX = 1_024
STEPS_PER_TASK_MAX = 1_000
STEPS_BYTES_MAX = 1024 * 1024
EVENTS_PER_TASK_MAX = 100

#: Flows: how many nodes one command brings, how many a flow has, with how many groups and how many
#: compensations, and how many bytes the inputs of a node take that are not in the blob store.
FLOW_NODES_PER_COMMAND_MAX = 20_000
FLOW_NODES_MAX = 1_000_000
FLOW_GROUPS_MAX = 1_000
FLOW_COMPENSATIONS_MAX = 1_000
FLOW_INPUT_BYTES_MAX = 8 * 1024 * 1024
#: Contracts: how many a namespace has, how many versions of a task are in use at a time, how many
#: parameters one has, and how large one is.
CONTRACTS_PER_NAMESPACE_MAX = 10_000
CONTRACT_VERSIONS_MAX = 5
CONTRACT_PARAMETERS_MAX = 255
CONTRACT_BYTES_MAX = 64 * 1024
#: Callbacks of a task and of a queue, and triggers of a queue. What is posted has the result if it
#: is not larger, and the beginning of the error.
CALLBACKS_MAX = 10
CALLBACK_URL_CHARS_MAX = 2_048
CALLBACK_RESULT_BYTES_MAX = 16 * 1024
CALLBACK_ERROR_CHARS_MAX = 4_096
TRIGGERS_PER_QUEUE_MAX = 10

#: Task logs: the largest line, its logger's name, how many lines come at once and are read at once.
LOG_LINE_BYTES_MAX = 64 * 1024
LOG_LINES_PER_FRAME_MAX = 10_000
LOG_LINES_READ_MAX = 10_000

#: How deep lists and maps may nest in any value that a peer sends.
DEPTH_MAX = 64

ITEMS_PER_COMMAND_MAX = 10_000
NAMESPACES_MAX = 1_000
#: What the settings of a namespace may say.
DESCRIPTION_CHARS_MAX = 1_024
WEIGHT_MAX = 1_000
BYTES_MAX = 2**50
#: How many unfinished tasks are killed with a namespace: all of it goes in one command.
TASKS_PER_NAMESPACE_KILLED_MAX = 100_000
#: The audit log: how many acts of each namespace are kept, and how many of the broker as a whole.
ACTS_PER_NAMESPACE_MAX = 1_000
ACTS_OF_BROKER_MAX = 10_000
QUEUES_PER_NAMESPACE_MAX = 10_000
LIMITED_TAGS_PER_NAMESPACE_MAX = 10_000
WORKERS_MAX = 20_000
QUEUES_PER_WORKER_MAX = 1_000
KEYS_PER_WORKER_MAX = 1_000
NAMES_PER_WORKER_MAX = 10_000
#: Workers that have their slots together, and how long the secret of these is at least.
WORKERS_PER_SHARE_MAX = 100
SHARE_CHARS_MIN = 16
SLOTS_PER_WORKER_MAX = 100_000
CLAIMS_PER_WORKER_MAX = 1_000
FANOUTS_MAX = 1_000
HELPERS_PER_FANOUT_MAX = 1_000
CLAIM_WAIT_US_MAX = 300 * SECOND
LEASE_US_MIN = SECOND
LEASE_US_MAX = DAY
WATCHES_PER_TASK_MAX = 10_000
API_KEYS_MAX = 10_000
GROUPS_PER_POOL_MAX = 10_000
FAILURES_PER_POOL_MAX = 10
WORKERS_PER_GROUP_MAX = 1_000
PINNED_GROUPS_PER_POOL_MAX = 1_000
QUEUES_PER_API_KEY_MAX = 1_000

#: What the policy of a queue may ask for at most. An entry takes about half a kilobyte of memory.
CACHE_ENTRIES_MAX = 1_000_000
CACHE_BYTES_MAX = 2**50

#: How often a worker's request for a retry is granted where the policy has no retries.
RETRIES_ASKED_MAX = 20

#: The history of a task keeps its first and its latest happenings up to this number.
HAPPENINGS_PER_TASK_MAX = 100

#: How many tasks one command by filter may change; the reply reports whether more match.
TASKS_PER_FILTER_MAX = 10_000

#: How many departed workers are remembered.
DEPARTED_WORKERS_MAX = 1_000

#: Of how many workers a namespace remembers what they have done.
TALLIES_PER_NAMESPACE_MAX = 10_000

#: Schedules: how many a namespace has, how many moments one lists, how many slots one command makes
#: up for, how many that passed are counted, how many of its tasks it names, and how many spans of
#: time it remembers in which it fired.
SCHEDULES_PER_NAMESPACE_MAX = 100_000
MOMENTS_PER_SCHEDULE_MAX = 1_000
SLOTS_PER_BACKFILL_MAX = 1_000
MISSED_SLOTS_COUNTED_MAX = 100
RUNS_PER_SCHEDULE_MAX = 10
SPANS_PER_SCHEDULE_MAX = 100

#: Paces: how many kinds of tasks a namespace throttles at a time, and how many of the submits that
#: took the place of a task are remembered, so that one that is repeated is not taken for a new one.
THROTTLED_PER_NAMESPACE_MAX = 100_000
MERGED_PER_TASK_MAX = 100

#: How many slots one tick takes on: each may have to look for the next in a calendar.
SLOTS_PER_TICK_MAX = 500

#: Fair shares: how many turns one may have where others have one, how many values of a queue's key
#: have a weight of their own, and how many shares a view of the queue lists.
FAIR_WEIGHT_MAX = 1_000
FAIR_WEIGHTS_PER_QUEUE_MAX = 1_000
FAIR_SHARES_SHOWN_MAX = 100

#: How far `explain` counts the tasks ahead of one.
AHEAD_COUNT_MAX = 10_000

#: How many deadlines of a kind one tick takes on.
DEADLINES_PER_TICK_MAX = 10_000

#: How many workers of a launcher are ordered at a time; the rest with its next report.
STARTS_PER_REPORT_MAX = 64

#: Messaging in the manner of AMQP. Names of exchanges and routing keys are as long as others.
EXCHANGES_PER_NAMESPACE_MAX = 10_000
BINDINGS_PER_NAMESPACE_MAX = 50_000
RULES_PER_NAMESPACE_MAX = 1_000
ARGUMENTS_BYTES_MAX = 16 * 1024

#: Limits by key: how many a namespace has, by how many keys one goes, how many tokens one has, and
#: for how long a worker that is throttled closes a key at most.
LIMITS_PER_NAMESPACE_MAX = 1_000
KEYS_PER_LIMIT_MAX = 8
RATE_MAX = 1_000_000
CLOSED_US_MAX = 31 * DAY
#: How many values of its keys the view of a limit names.
GATES_SHOWN_MAX = 20
