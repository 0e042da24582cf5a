"""TaskTraits: what a sender knows about a task besides its body.

Owns the names. kiwipy's tasks have none of this; a sender that knows the kind of its tasks, as
AiiDA's plugin does, adds them, and the broker can name, order and limit its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackalope.core.task import NO_OPTIONS, PRIORITY_DEFAULT, Options

#: What tasks are called of which nothing is known.
TASK_NAME = "kiwipy"

#: The header of a task that, once begun, waits for tasks that it sends itself.
PARENT_HEADER = "parent"


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """What is known about a task."""

    # a name of its own. While a task with it is unfinished, another one is not sent.
    alias: str = ""
    name: str = TASK_NAME  # what kind of task it is
    priority: int = PRIORITY_DEFAULT  # what is higher comes first
    tags: tuple[str, ...] = ()  # labels whose number in flight can be limited
    is_parent: bool = False  # it waits for tasks that it sends

    def options(self) -> Options | None:
        headers = {PARENT_HEADER: True} if self.is_parent else {}
        options = Options(alias=self.alias, headers=headers, tags=self.tags)
        return None if options == NO_OPTIONS else options


PLAIN = TaskTraits()
