"""Limits of task logs in a worker. The broker has its own, which hold for any client."""

#: The largest line; the rest of it is cut off.
LINE_CHARS_MAX = 16 * 1024

#: What an attempt has printed and the worker has not sent: the oldest beyond this are dropped.
WAITING_LINES_MAX = 10_000
WAITING_CHARS_MAX = 512 * 1024

#: More than all of that: a character has at most four bytes.
WAITING_BYTES_MAX = 8 * WAITING_CHARS_MAX

#: How often lines are sent, and how many of an attempt each time. What it prints beyond that waits.
SEND_EVERY_S = 0.1
LINES_PER_SEND_MAX = 200
BYTES_PER_SEND_MAX = 64 * 1024

#: Lines that were sent and not acknowledged. Beyond this the worker sends no more for a while, but
#: for the last lines of attempts that end; with those up to the second.
UNACKNOWLEDGED_CHARS_MAX = 1024 * 1024
UNACKNOWLEDGED_AT_END_CHARS_MAX = 16 * 1024 * 1024

#: The largest frame of lines.
FRAME_LINES_MAX = 2_000
FRAME_CHARS_MAX = 256 * 1024
