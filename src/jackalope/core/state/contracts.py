"""What records about contracts mean for the book. A part of `apply`; it decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jackalope.core.shapes.call import CallCheck
from jackalope.core.shapes.contract import Contract, TaskContracts

if TYPE_CHECKING:
    from jackalope.core.records import ContractDeclared, ContractDeleted
    from jackalope.core.state.book import Book
    from jackalope.core.state.queue import Queue
    from jackalope.core.task import Options


class KnownTask:
    """A task of a queue with its contracts, ready to be compared with calls."""

    __slots__ = ("at_us", "by", "checks", "name", "queue")

    def __init__(self, row: TaskContracts) -> None:
        self.queue, self.name = row.queue, row.name
        self.by, self.at_us = row.by, row.at_us
        self.checks = tuple(map(CallCheck, row.versions))  # the newest last

    @property
    def versions(self) -> tuple[Contract, ...]:
        return tuple(check.contract for check in self.checks)

    def misfit(self, payload: object, options: Options | None, *, is_node: bool = False) -> str:
        """Return why a call fits no version that is in use; empty if it fits one.

        A payload in the blob store is not looked at. Values of a node of a flow may stand for
        results of others.
        """
        if not isinstance(payload, bytes):
            return ""
        headers = {} if options is None else options.headers
        newest: list[str] = []
        for check in reversed(self.checks):
            problems = check.problems(payload, headers, is_node=is_node)
            if not problems:
                return ""
            newest = newest or problems
        return "; ".join(newest)

    def to_row(self) -> TaskContracts:
        return TaskContracts(self.queue, self.name, self.versions, self.by, self.at_us)


def entity_name(queue: str, name: str) -> str:
    """Return what storage knows the contracts of a task by. Names may have any characters."""
    return f"{len(queue)} {queue} {name}"


def rows_of(queues: Iterable[Queue]) -> dict[str, TaskContracts]:
    """Return all contracts of some queues, as storage has them."""
    return {
        entity_name(queue.name, name): known.to_row()
        for queue in queues
        for name, known in queue.contracts.items()
    }


def contract_declared(book: Book, record: ContractDeclared) -> None:
    queue = book.namespaces[record.namespace].queues[record.queue]
    row = TaskContracts(record.queue, record.name, record.versions, record.by, record.at_us)
    queue.contracts[record.name] = KnownTask(row)
    name = entity_name(record.queue, record.name)
    book.entities_dirty["contract", record.namespace, name] = row


def contract_deleted(book: Book, record: ContractDeleted) -> None:
    del book.namespaces[record.namespace].queues[record.queue].contracts[record.name]
    name = entity_name(record.queue, record.name)
    book.entities_dirty["contract", record.namespace, name] = None
