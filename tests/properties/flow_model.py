"""A naive flow: it counts nothing, and finds out what must be so by looking at all nodes.

Owns what follows from the end of a node, a kill, a retry or another member. It knows no order in
which nodes of a group go on: which of them do is the core's choice, how many is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

WAITING, UNDER_WAY = "waiting", "under way"
SUCCEEDED, DEAD, KILLED = "succeeded", "dead", "killed"
OVER = (SUCCEEDED, DEAD, KILLED)


@dataclass
class Node:
    """A node, and what is so about it."""

    name: str
    after: tuple[str, ...] = ()
    group: str = ""
    groups: tuple[str, ...] = ()
    need: int = 0
    collects: bool = False
    state: str = WAITING
    is_asked: bool = False  # its worker was asked to stop it
    is_spare: bool = False  # one that waited for it went on without
    died_of_another: bool = False


@dataclass
class Group:
    """A group: how many of its nodes may be under way, and whether more can come."""

    width: int = 0
    is_open: bool = False
    is_met: bool = False


@dataclass
class FlowModel:
    """A flow with its nodes, in their order."""

    is_fast: bool
    groups: dict[str, Group]
    nodes: dict[str, Node] = field(default_factory=dict)
    failures: set[str] = field(default_factory=set)
    ends: str = ""  # how it ends, if it is being stopped
    state: str = WAITING

    # What happens.

    def add(self, *nodes: Node) -> None:
        self.nodes |= {node.name: node for node in nodes}
        self.settle()

    def close(self, group: str) -> None:
        self.groups[group].is_open = False
        self.settle()

    def end(self, name: str, state: str) -> None:
        self._end(self.nodes[name], state)
        self.settle()

    def kill(self, name: str) -> None:
        """Kill a node: one that is under way is asked."""
        node = self.nodes[name]
        if node.state == UNDER_WAY:
            node.is_asked = True
        else:
            self.end(name, KILLED)

    def stop(self, to: str) -> None:
        """Stop the flow, unless that is so already."""
        if not self.ends:
            self.ends = to
            for node in self.nodes.values():
                node.is_asked = node.is_asked or node.state == UNDER_WAY
        self.settle()

    def can_retry(self) -> bool:
        return self.state != SUCCEEDED and not (self.ends and self.state not in OVER)

    def retry(self, name: str = "") -> None:
        """Let a node and what died of it begin again, or all that fell."""
        for each in self._chosen(name):
            node = self.nodes[each]
            node.state, node.is_asked, node.is_spare = WAITING, False, False
            node.died_of_another = False
            self.failures.discard(each)
        self.state = WAITING
        if self.ends:
            self.ends = ""
        self.settle()

    def _chosen(self, name: str) -> set[str]:
        fallen = {each.name for each in self.nodes.values() if each.state in (DEAD, KILLED)}
        if not name or self.ends:
            return fallen
        chosen: set[str] = set()
        new = {name}
        while new:
            chosen |= new
            new = {
                each
                for each in fallen - chosen
                if self.nodes[each].died_of_another
                and chosen & {other.name for other in self.awaited(self.nodes[each])}
            }
        return chosen

    # What follows.

    def awaited(self, node: Node) -> Iterator[Node]:
        yield from (self.nodes[name] for name in node.after)
        for name in node.groups:
            yield from (each for each in self.nodes.values() if each.group == name)

    def can_go(self, node: Node) -> bool | None:
        """Return whether a node can go on; None if that is not known yet."""
        states = [each.state for each in self.awaited(node)]
        well = states.count(SUCCEEDED)
        if node.need and well >= node.need:
            return True
        is_open = any(self.groups[name].is_open for name in node.groups) and not self.ends
        if is_open or any(state not in OVER for state in states):
            return None
        return node.collects or (well == len(states) and not node.need)

    def settle(self) -> None:
        """Do all that follows, but for what only the width of a group keeps."""
        while self._step():
            pass
        states = [node.state for node in self.nodes.values()]
        if self.state in OVER or any(state not in OVER for state in states):
            return
        if self.ends:
            self.state = self.ends
        elif not any(group.is_open for group in self.groups.values()):
            self.state = DEAD if self.failures else SUCCEEDED

    def _step(self) -> bool:
        for node in self.nodes.values():
            if node.state != WAITING:
                continue
            can = self.can_go(node)
            if self.ends:
                if can is not None:
                    self._end(node, KILLED)
                    return True
            elif can is False:
                self._end(node, DEAD, died_of_another=True)
                return True
            elif can and not (node.group and self.groups[node.group].width):
                self.release(node)
                return True
        return False

    def release(self, node: Node) -> None:
        node.state = UNDER_WAY
        for name in node.after:
            if self.nodes[name].state not in OVER:
                self.nodes[name].is_spare = True
        for name in node.groups:
            members = [each for each in self.nodes.values() if each.group == name]
            if any(each.state not in OVER for each in members):
                self.groups[name].is_met = True

    def _end(self, node: Node, state: str, *, died_of_another: bool = False) -> None:
        node.state, node.died_of_another = state, died_of_another
        if state == SUCCEEDED or self.ends:
            return
        waiting = [
            each
            for each in self.nodes.values()
            if each.state == WAITING and node in self.awaited(each)
        ]
        if died_of_another and self.failures:
            return
        is_met = node.is_spare or (bool(node.group) and self.groups[node.group].is_met)
        if (waiting or is_met) and all(map(self._tolerates, waiting)):
            return
        self.failures.add(node.name)
        if self.is_fast:
            self.stop(DEAD)

    def _tolerates(self, node: Node) -> bool:
        if node.collects:
            return True
        states = [each.state for each in self.awaited(node)]
        failed = sum(state in (DEAD, KILLED) for state in states)
        is_open = any(self.groups[name].is_open for name in node.groups)
        return bool(node.need) and (is_open or len(states) - failed >= node.need)
