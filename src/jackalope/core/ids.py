"""Identifiers: what names a task.

A task id is 16 bytes, a UUID chosen by the submitter (version 7 by preference) so that repeating a
submit is harmless. Ids of version 7 begin with their time, so the book can distinguish a new id
from every id that has ever left memory without asking storage (see `Book.may_have_ended`).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NewType

TaskId = NewType("TaskId", bytes)

#: Stands for "no task" where an id is optional.
NO_TASK = TaskId(b"")

ID_BYTES = 16

#: What ids that are made together have in common, at most.
_HEAD_BYTES = 10


def id_text(task_id: bytes) -> str:
    """Format an id as a UUID."""
    digits = task_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_texts(task_ids: Iterable[bytes]) -> list[str]:
    """Format many ids, of which those that were made together begin alike."""
    texts, head, begin = [], b"", ""
    for task_id in task_ids:
        if not head or not task_id.startswith(head):
            head, begin = task_id[:_HEAD_BYTES], id_text(task_id)[: 2 * _HEAD_BYTES + 4]
        texts.append(begin + task_id[_HEAD_BYTES:].hex())
    return texts


def as_task_id(text: str) -> TaskId | None:
    """Parse a UUID, with or without hyphens; None if it is not one."""
    digits = text.replace("-", "")
    if len(digits) != 2 * ID_BYTES:
        return None
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        return None
    return TaskId(found) if len(found) == ID_BYTES else None  # Spaces are skipped, and missed here.


def is_time_ordered(task_id: TaskId) -> bool:
    """Return whether the id is a UUID of version 7, so that later ids compare greater."""
    return task_id[6] >> 4 == 7


#: In place of the version and what follows it: an id of this kind is of the broker's own making.
_VOLATILE = b"\x8a\x6b\x80\x7e"


def is_volatile(task_id: TaskId) -> bool:
    """Return whether a task is never written to disk, and gone after a restart.

    The id alone shows it, so that a record about such a task is recognised by itself.
    """
    return task_id[6:10] == _VOLATILE


def volatile_id(task_id: TaskId) -> TaskId:
    return TaskId(task_id[:6] + _VOLATILE + task_id[10:])


def successor_id(task_id: TaskId, queue: str) -> TaskId:
    """Derive the id of the task that a result becomes: the same inputs give the same id.

    The result keeps the time of its ancestor and the version-7 layout, so that it sorts next to it.
    """
    digest = blake2b(task_id + queue.encode(), digest_size=ID_BYTES).digest()
    return TaskId(
        task_id[:6]
        + bytes((0x70 | digest[6] & 0x0F, digest[7], 0x80 | digest[8] & 0x3F))
        + digest[9:]
    )
