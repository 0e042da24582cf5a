"""Inputs of nodes in real workers: in every kind of executor, and however large."""

from pathlib import Path
from typing import Any

import pytest

from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.ids import NO_TASK
from jackalope.core.shapes.flow import FlowSettings, GroupSettings, NodeSettings, node_id
from jackalope.core.task import TaskSpec
from jackalope.task_ids import new_task_id
from jackalope.tasks.references import Pending, Reference
from tests.worker.application import app
from tests.worker.harness import House, in_house

LARGE_BYTES = 2_500_000


class Results(Pending):
    def reference(self) -> Reference:
        return Reference(group="g")


def spec_of(name: str, *args: Any) -> TaskSpec:
    payload = app.functions[name].payload(args, {})
    return TaskSpec(NO_TASK, "default", name=name, payload=payload)


@pytest.mark.parametrize("name", ["add_in_process", "add_async_in_process"])
def test_a_process_gets_the_results_of_a_group(tmp_path: Path, name: str) -> None:
    async def story(house: House) -> None:
        house.worker()
        members = [
            FlowNode(spec_of("number", value, size), NodeSettings(f"n{value}", group="g"))
            for value, size in ((1, 0), (2, LARGE_BYTES), (3, 100_000))
        ]
        join = FlowNode(spec_of(name, Results()), NodeSettings("join", groups=("g",)))
        flow = TaskSpec(new_task_id(), "default", name="flow")
        settings = FlowSettings(groups=(GroupSettings("g"),))
        nodes = [*members, join]
        command = SubmitFlow(ref=0, flow=flow, settings=settings, nodes=nodes)
        await house.submit_flow(command, "join")
        assert await house.value(node_id(flow.id, "join")) == [6, ["n1", "n2", "n3"]]
        assert await house.value(flow.id) == [6, ["n1", "n2", "n3"]]

    in_house(story, tmp_path / "data")
