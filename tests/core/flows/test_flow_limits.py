"""The limits of flows, at the limit and one past it."""

from jackalope.core.effects import Accepted
from jackalope.core.lifecycle import Reason, State
from jackalope.core.limits import (
    FLOW_COMPENSATIONS_MAX,
    FLOW_GROUPS_MAX,
    FLOW_INPUT_BYTES_MAX,
    FLOW_NODES_MAX,
    FLOW_NODES_PER_COMMAND_MAX,
    INLINE_BYTES_MAX,
)
from jackalope.core.refusals import Code
from jackalope.core.shapes.flow import INPUT_BYTES_MIN, GroupSettings
from jackalope.core.state.flows import flow_state
from tests.core.driving import assert_accepted, assert_refused
from tests.core.flows.graphs import UNDO, FlowDriver, node


def test_flow_nodes_per_command_max() -> None:
    driver = FlowDriver(is_checked=False, slots=0)
    nodes = [node(f"n{number}") for number in range(FLOW_NODES_PER_COMMAND_MAX + 1)]
    answer = driver.flow(1, *nodes)
    assert_refused(driver, answer, Code.INVALID, FLOW_NODES_PER_COMMAND_MAX)
    assert driver.flow(1, *nodes[1:]) == Accepted(FLOW_NODES_PER_COMMAND_MAX)


def test_flow_nodes_max() -> None:
    driver = FlowDriver(is_checked=False, slots=0)
    assert_accepted(driver.flow(1, groups=(GroupSettings("g", 0, True),)))
    flow_state(driver.task(1)).total = FLOW_NODES_MAX - 1
    assert_accepted(driver.add(1, node("last", group="g")))
    assert_refused(driver, driver.add(1, node("more", group="g")), Code.INVALID, FLOW_NODES_MAX)


def test_flow_groups_max() -> None:
    driver = FlowDriver(slots=0)
    groups = [GroupSettings(f"g{number}") for number in range(FLOW_GROUPS_MAX + 1)]
    answer = driver.flow(1, node("a"), groups=tuple(groups))
    assert_refused(driver, answer, Code.INVALID, FLOW_GROUPS_MAX)
    assert_accepted(driver.flow(1, node("a"), groups=tuple(groups[1:])))


def test_flow_compensations_max() -> None:
    driver = FlowDriver(is_checked=False, slots=0)
    nodes = [node(f"n{number}", undo=UNDO) for number in range(FLOW_COMPENSATIONS_MAX + 1)]
    answer = driver.flow(1, *nodes)
    assert_refused(driver, answer, Code.INVALID, FLOW_COMPENSATIONS_MAX)
    assert_accepted(driver.flow(1, *nodes[1:]))


def _joined(more: int) -> FlowDriver:
    """Return a driver in which a join has inputs of the largest size, and so many bytes more."""
    each = INLINE_BYTES_MAX + INPUT_BYTES_MIN + 4
    count, rest = divmod(FLOW_INPUT_BYTES_MAX, each)
    driver = FlowDriver(is_checked=False)
    names = [f"n{number:03}" for number in range(count)]
    nodes = [node(name, group="g") for name in (*names, "last")]
    driver.flow(1, *nodes, node("join", groups=["g"]), groups=(GroupSettings("g"),))
    for name in names:
        driver.end(1, name, bytes(INLINE_BYTES_MAX))
    driver.end(1, "last", bytes(rest - INPUT_BYTES_MIN - 4 + more))
    return driver


def test_flow_input_bytes_max() -> None:
    assert _joined(0).node(1, "join").state is State.ASSIGNED
    driver = _joined(1)
    join = driver.node(1, "join")
    assert join.outcome is not None
    assert join.outcome.reason is Reason.DEPENDENCY
    assert join.outcome.error is not None
    assert str(FLOW_INPUT_BYTES_MAX) in join.outcome.error.message
    assert driver.state(1) is State.DEAD
