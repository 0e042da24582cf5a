"""The checker of a cluster whose clients have schedules, steps, paces, flows and limits.

Each of them is followed by the checker that it has with a single broker; here all of them look at
the log, over any number of leaders.
"""

from __future__ import annotations

from tests.simulation.cluster.checker import ClusterChecker
from tests.simulation.flows import FlowChecker
from tests.simulation.limits import LimitChecker
from tests.simulation.paces import PaceChecker
from tests.simulation.schedules import ScheduleChecker
from tests.simulation.steps import StepChecker


class WholeChecker(
    ClusterChecker, ScheduleChecker, StepChecker, PaceChecker, FlowChecker, LimitChecker
):
    """Knows of slots, steps, kinds, graphs and tokens what stands in the log."""
