"""A forbidden address is told together with whatever else is wrong, and nothing is stored."""

from jackalope.core.commands.flows import FlowNode, SubmitFlow
from jackalope.core.durations import SECOND
from jackalope.core.ids import NO_TASK
from jackalope.core.refusals import Code, Refusal
from jackalope.core.shapes.callback import Callback
from jackalope.core.shapes.flow import FlowSettings, NodeSettings
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.task import Options, TaskSpec
from tests.core.driving import Driver, refusal_in, task_id

FORBIDDEN = (Callback("http://10.0.0.1/"),)


def test_of_a_task() -> None:
    driver = Driver()
    pace = Pace(Pacing.DEBOUNCE, span_us=-SECOND)
    refusal = refusal_in(driver.submit(1, pace=pace, callbacks=FORBIDDEN, tags=("",)))
    assert refusal is not None
    assert refusal.code is Code.INVALID
    for problem in ("tags", "span", "callbacks[0].url: 10.0.0.1"):
        assert problem in refusal.message
    assert driver.records == []


def test_of_a_flow_and_its_nodes() -> None:
    driver = Driver()
    with_callbacks = Options(callbacks=FORBIDDEN)
    nodes = [
        FlowNode(TaskSpec(NO_TASK, "q", "t", options=with_callbacks), NodeSettings("a"), ("b",)),
        FlowNode(TaskSpec(NO_TASK, "q", "t"), NodeSettings("b"), ("a", "nobody")),
    ]
    flow = TaskSpec(task_id(1), "q", "f", options=with_callbacks)
    answer = driver.send(SubmitFlow(0, flow, FlowSettings(), nodes))
    assert isinstance(answer, Refusal)
    for problem in ("a cycle", "'nobody'", "flow: callbacks[0].url", "node 'a': callbacks[0].url"):
        assert problem in answer.message
    assert driver.records == []
