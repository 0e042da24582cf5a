"""Declarations: which versions of a task there are, and what each takes.

Owns how long a version counts. Workers declare theirs whenever they join. In a rolling deploy two
versions are in use, and a call that fits one of them is accepted. A version that no connected
worker has is dropped once another is declared, or when its last worker leaves and another one is
there. The last one stays, so that a submit is checked while no worker is connected.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.core.context import Context
from jackalope.core.effects import Accepted
from jackalope.core.limits import CONTRACT_VERSIONS_MAX, CONTRACTS_PER_NAMESPACE_MAX, NAME_CHARS_MAX
from jackalope.core.records import FLOW_CONTROL_LEVEL, ContractDeclared, ContractDeleted
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.contract import Contract, contract_problems
from jackalope.core.state.queue import Queue
from jackalope.core.state.roster import Worker

#: Namespace, queue, name of the task, and version.
Version = tuple[str, str, str, str]


class Declarers:
    """Which versions connected workers have."""

    def __init__(self) -> None:
        # of each worker, its session and what it declared there
        self.by_worker: dict[tuple[str, str], tuple[int, tuple[Version, ...]]] = {}
        self.counts: Counter[Version] = Counter()
        self._same: dict[tuple[Version, ...], tuple[Version, ...]] = {}  # Workers are mostly alike.

    def enter(self, worker: Worker, versions: tuple[Version, ...]) -> None:
        """Note what a worker declares, in several parts, or again in another session."""
        name = (worker.namespace.name, worker.id)
        session, known = self.by_worker.get(name, (0, ()))
        if session == worker.session:
            versions = tuple(dict.fromkeys((*known, *versions)))
        self.leave(name)
        versions = self._same.setdefault(versions, versions)
        self.by_worker[name] = (worker.session, versions)
        self.counts.update(versions)

    def leave(self, worker: tuple[str, str]) -> tuple[Version, ...]:
        """Forget a worker, and return the versions that no other one has."""
        _, versions = self.by_worker.pop(worker, (0, ()))
        self.counts.subtract(versions)
        gone = tuple(version for version in versions if not self.counts[version])
        for version in gone:
            del self.counts[version]
        if gone:
            self._same.pop(versions, None)
        return gone


def declare_contracts(ctx: Context, command: DeclareContracts) -> Accepted | Refusal:
    wanted = _read(command)
    if isinstance(wanted, list):
        return Refusal(Code.INVALID, "contracts not declared. " + "; ".join(wanted))
    if ctx.level < FLOW_CONTROL_LEVEL:
        message = f"contracts need level {FLOW_CONTROL_LEVEL} of the log, which is at {ctx.level}"
        return Refusal(Code.INVALID, message + "; run `jackalope cluster upgrade`")
    found = (ctx.book.queue(command.namespace, name) for name in dict.fromkeys(command.queues))
    queues = [queue for queue in found if queue is not None and not queue.is_volatile()]
    refusal = _no_room(ctx, command, queues, wanted)
    if refusal is not None:
        return refusal
    worker = ctx.roster.sessions.get(command.session)
    if worker is not None:
        versions = tuple(
            (command.namespace, queue.name, name, contract.version)
            for queue in queues
            for name, contract in wanted.items()
        )
        ctx.own(Declarers).enter(worker, versions)
    for queue in queues:
        for name, contract in wanted.items():
            _declare(ctx, queue, name, contract, command.by)
    return Accepted(len(queues) * len(wanted))


def delete_contract(ctx: Context, command: DeleteContract) -> Accepted | Refusal:
    queue = ctx.book.queue(command.namespace, command.queue)
    if queue is None or command.name not in queue.contracts:
        message = f"no contract of task {command.name!r} in queue {command.queue!r}"
        return Refusal(Code.UNKNOWN_TASK, message + "; list the tasks that are known")
    name = (command.namespace, command.queue, command.name)
    ctx.record(ContractDeleted(ctx.now_us, *name, command.by))
    return Accepted()


def retire(ctx: Context, worker: Worker) -> None:
    """Drop the versions whose last worker has left, where there is another."""
    for namespace, queue_name, name, _ in ctx.own(Declarers).leave(
        (worker.namespace.name, worker.id)
    ):
        queue = ctx.book.queue(namespace, queue_name)
        known = None if queue is None else queue.contracts.get(name)
        if queue is not None and known is not None and len(known.versions) > 1:
            _store(ctx, queue, name, _in_use(ctx, queue, name, known.versions), known.by)


def _read(command: DeclareContracts) -> dict[str, Contract] | list[str]:
    wanted, problems = {}, []
    for name, given in command.contracts.items():
        if not 0 < len(name) <= NAME_CHARS_MAX:
            problems.append(f"name of a task: must have 1 to {NAME_CHARS_MAX} characters")
            continue
        try:
            contract = msgspec.convert(given, Contract)
        except (msgspec.ValidationError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        problems += [f"{name}: {problem}" for problem in contract_problems(contract)]
        wanted[name] = contract
    return problems or wanted


def _no_room(
    ctx: Context, command: DeclareContracts, queues: list[Queue], wanted: dict[str, Contract]
) -> Refusal | None:
    new = sum(name not in queue.contracts for queue in queues for name in wanted)
    namespace = ctx.book.namespaces.get(command.namespace)
    if not new or namespace is None:
        return None
    there = sum(len(queue.contracts) for queue in namespace.queues.values())
    if there + new <= CONTRACTS_PER_NAMESPACE_MAX:
        return None
    message = (
        f"namespace {command.namespace!r} has {there} contracts, and these would be {new} more"
    )
    return Refusal(Code.TOO_MANY, f"{message}; at most {CONTRACTS_PER_NAMESPACE_MAX}: delete some")


def _declare(ctx: Context, queue: Queue, name: str, contract: Contract, by: str) -> None:
    known = queue.contracts.get(name)
    versions = () if known is None else known.versions
    others = tuple(each for each in versions if each.version != contract.version)
    kept = _in_use(ctx, queue, name, others)[1 - CONTRACT_VERSIONS_MAX :] if others else ()
    if contract in versions and len(kept) + 1 == len(versions):
        return  # As nearly always: many workers have the same code.
    _store(ctx, queue, name, (*kept, contract), by)


def _in_use(
    ctx: Context, queue: Queue, name: str, versions: tuple[Contract, ...]
) -> tuple[Contract, ...]:
    counts, place = ctx.own(Declarers).counts, (queue.namespace.name, queue.name, name)
    return tuple(each for each in versions if counts[*place, each.version])


def _store(ctx: Context, queue: Queue, name: str, versions: tuple[Contract, ...], by: str) -> None:
    ctx.record(ContractDeclared(ctx.now_us, queue.namespace.name, queue.name, name, versions, by))
