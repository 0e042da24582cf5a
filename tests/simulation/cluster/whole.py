"""The checker of a cluster whose clients have schedules, steps, paces and flows as well.

Each of them is followed by the checker that it has with a single broker; here all of them look at
the log, over any number of leaders.
"""

from __future__ import annotations

from tests.simulation.cluster.checker import ClusterChecker
from tests.simulation.flows import FlowChecker
from tests.simulation.paces import PaceChecker
from tests.simulation.schedules import ScheduleChecker
from tests.simulation.steps import StepChecker


class WholeChecker(ClusterChecker, ScheduleChecker, StepChecker, PaceChecker, FlowChecker):
    """Knows of slots, steps, kinds and graphs what stands in the log."""
