"""Flows: graphs of tasks that are submitted at once, and what follows from the end of each."""

from jackalope.core.commands import ActOnTasks
from jackalope.core.commands.flows import AddNodes, SubmitFlow
from jackalope.core.context import Room
from jackalope.core.flows import actions, progress, submit

ROOM = Room(
    handlers={SubmitFlow: submit.submit_flow, AddNodes: submit.add_nodes},
    missing={
        SubmitFlow: submit.missing_flow,
        AddNodes: submit.missing_nodes,
        ActOnTasks: actions.missing,  # In the place of that of `tasks`, with what it has.
    },
    tasks_ended=progress.tasks_ended,
    before_assign=progress.settle,  # So that nothing is assigned that is to be killed.
    settle_rest=progress.settle,
    act=actions.act,
    recovered=progress.recovered,
)
