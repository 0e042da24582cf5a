"""Every order of events of a few nodes on a log that may not answer, up to a length of the log.

The nodes are the real `leadership`; log and network are the smallest model of what an engine
promises. Time does not pass: every deadline is always due, so that whatever timing could cause is
tried.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from jackalope.broker.cluster.leadership import (
    Action,
    CaughtUp,
    ClaimStored,
    ClaimTaken,
    Eligibility,
    EntryStored,
    Event,
    HandedOver,
    HeardClaim,
    HeardEntry,
    HeardFence,
    HeardHandOver,
    Replace,
    Role,
    StepDown,
    Tick,
    Timing,
    View,
    WasFenced,
    step,
)

AT_ONCE = Timing(beat_us=0, read_lease_us=0, takeover_us=0, place_us=0, courtesy_us=0)


class Entry(NamedTuple):
    """An entry of the log, or on its way there."""

    kind: str  # claim, batch, beat, hand-over, fence
    epoch: int
    writer: str
    life: int  # of its writer: each crash begins another
    position: int


class Node(NamedTuple):
    """A node: what it thinks, how far it has read, and what it has put without an answer."""

    view: View
    read: int = 0
    put: Entry | None = None
    life: int = 0


class World(NamedTuple):
    """Everything at one moment."""

    log: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    lost: frozenset[Entry] = frozenset()  # put by nodes that crashed since; may still arrive
    crashes: int = 0


Judge = Callable[[tuple[Entry, ...], Entry], tuple[tuple[Entry, ...], bool]]


def judge(log: tuple[Entry, ...], entry: Entry) -> tuple[tuple[Entry, ...], bool]:
    """Store an entry if its position is the next one; return whether it stands there."""
    if entry.position == len(log) + 1:
        return (*log, entry), True
    return log, entry.position <= len(log) and log[entry.position - 1] == entry


class Search:
    """A search through all worlds that can come of the first one."""

    def __init__(
        self,
        nodes: int,
        log_max: int,
        crashes_max: int,
        judged: Judge = judge,
        *,
        judges: bool = False,
        replaces: bool = False,
    ) -> None:
        self.log_max = log_max
        self.crashes_max = crashes_max
        self.judged = judged
        self.judges = judges  # nodes become eligible and ineligible
        self.replaces = replaces  # a standby takes the place of all of them
        names = tuple(chr(ord("a") + n) for n in range(nodes))
        views = [View(name=name, place=n, before=names[:n]) for n, name in enumerate(names)]
        self.first = World((), tuple(map(Node, views)))
        self.roles: set[Role] = set()

    def run(self) -> int:
        """Visit every world, and return how many there are."""
        seen = {self.first}
        todo = [self.first]
        while todo:
            world = todo.pop()
            check(world)
            self.roles |= {node.view.role for node in world.nodes}
            for then in self.next_of(world):
                if then not in seen:
                    seen.add(then)
                    todo.append(then)
        return len(seen)

    def next_of(self, world: World) -> Iterator[World]:
        """Yield what can happen next."""
        for entry in world.lost:
            log, _ = self.judged(world.log, entry)
            yield world._replace(log=log, lost=world.lost - {entry})
        for index, node in enumerate(world.nodes):
            if node.put is not None:
                yield from self._answers(world, index, node, node.put)
            else:
                yield from self._moves(world, index, node)
            if world.crashes < self.crashes_max:
                yield self._crashed(world, index, node)

    def _answers(self, world: World, index: int, node: Node, put: Entry) -> Iterator[World]:
        log, is_stored = self.judged(world.log, put)
        yield world._replace(log=log)  # The answer is lost, and the node puts it again.
        event: Event
        match put.kind, is_stored:
            case "claim", True:
                event = ClaimStored(put.epoch, 0)
            case "claim", False:
                event = ClaimTaken()
            case "hand-over", True:
                event = HandedOver()
            case "fence", True:
                event = HeardFence("s")
            case _, True:
                event = EntryStored(0)
            case _:
                event = WasFenced()
        read = put.position if is_stored else node.read
        answered = node._replace(put=None, read=read)
        yield self._then(world._replace(log=log), index, answered, event)
        if is_stored and put.kind == "hand-over":  # Or it waits for the claim of the next leader.
            yield _with_node(world._replace(log=log), index, answered)

    def _moves(self, world: World, index: int, node: Node) -> Iterator[World]:
        role = node.view.role
        if role is Role.HANDING_OVER:
            yield self._then(world, index, node, HandedOver())
        if role in (Role.CATCHING_UP, Role.FOLLOWING, Role.HANDING_OVER) and node.read < len(
            world.log
        ):
            yield self._hear(world, index, node)
        elif role is Role.CATCHING_UP:
            yield self._then(world, index, node, CaughtUp())
        if role in (Role.FOLLOWING, Role.LEADING):
            yield self._then(world, index, node, Tick())
        if self.judges and role in (Role.CATCHING_UP, Role.FOLLOWING, Role.LEADING):
            is_eligible = not node.view.is_eligible
            yield self._then(world, index, node, Eligibility(is_eligible))
        if role is Role.LEADING:
            yield self._then(world, index, node, StepDown())
            yield self._put(world, index, node, "batch")
            if self.replaces:
                yield self._then(world, index, node, Replace())

    def _hear(self, world: World, index: int, node: Node) -> World:
        entry = world.log[node.read]
        heard: Event = HeardEntry(entry.epoch)
        if entry.kind == "claim":
            heard = HeardClaim(entry.epoch, entry.writer)
        elif entry.kind == "hand-over":
            heard = HeardHandOver(entry.epoch, "")
        elif entry.kind == "fence":
            heard = HeardFence("s")
        return self._then(world, index, node._replace(read=node.read + 1), heard)

    def _then(self, world: World, index: int, node: Node, event: Event) -> World:
        move = step(node.view, event, 0, AT_ONCE)
        node = node._replace(view=move.view)
        kinds = {
            Action.CLAIM: "claim",
            Action.BEAT: "beat",
            Action.HAND_OVER: "hand-over",
            Action.FENCE: "fence",
        }
        if move.action in kinds:
            return self._put(world, index, node, kinds[move.action])
        return _with_node(world, index, node)

    def _put(self, world: World, index: int, node: Node, kind: str) -> World:
        if node.read >= self.log_max:
            return world  # Far enough.
        epoch = node.view.epoch + (kind == "claim")
        entry = Entry(kind, epoch, node.view.name, node.life, node.read + 1)
        return _with_node(world, index, node._replace(put=entry))

    def _crashed(self, world: World, index: int, node: Node) -> World:
        lost = world.lost | ({node.put} if node.put is not None else set())
        fresh = self.first.nodes[index]._replace(life=node.life + 1)
        then = world._replace(lost=frozenset(lost), crashes=world.crashes + 1)
        return _with_node(then, index, fresh)


def _with_node(world: World, index: int, node: Node) -> World:
    nodes = (*world.nodes[:index], node, *world.nodes[index + 1 :])
    return world._replace(nodes=nodes)


class Broken(AssertionError):
    """A world that must not be."""


def check(world: World) -> None:
    """Raise if the log has two writers in an epoch, or a node leads an epoch that is not its."""
    epoch, writer = 0, ""
    for entry in world.log:
        if entry.kind == "claim":
            if entry.epoch != epoch + 1:
                raise Broken(f"epoch {entry.epoch} follows {epoch}: {world.log}")
            epoch, writer = entry.epoch, entry.writer
        elif (entry.epoch, entry.writer) != (epoch, writer):
            raise Broken(f"{entry} stands in epoch {epoch} of {writer}: {world.log}")
    if any(entry.kind == "fence" for entry in world.log[:-1]):
        raise Broken(f"something follows a fence: {world.log}")
    claims = {entry.epoch: entry.writer for entry in world.log if entry.kind == "claim"}
    for node in world.nodes:
        if node.view.role is Role.LEADING and claims.get(node.view.epoch) != node.view.name:
            raise Broken(f"{node.view.name} leads without a claim: {world}")
