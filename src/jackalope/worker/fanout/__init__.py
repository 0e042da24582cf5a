"""Fan-out: many small items of one task, run by the workers that are idle.

Theory of operation. The task that has the items owns the fan-out. Its hub, a thread of its own,
listens for helpers, asks the broker for some, and hands out batches of items; the ledger knows
which batch is where and what has come back. A helper is an idle worker to which the broker sent
the address; its session lasts until the owner is done. Items and results go from process to
process, and the broker sees nothing of them but the progress of the task.

What can be lost: a helper, at any time. Its batches go to others, and whichever answer comes first
counts. Silence of a few seconds is enough to give its batches to others as well; it is not taken
for dead, and may still be the first to answer. The owner itself is a task like any other: if it is
lost, the task is tried again from its beginning, and the helpers go free.
"""
