"""Limits of pools: what is remembered of their launches."""

from jackalope.core import limits
from jackalope.core.commands import DeclarePool, FollowPools, ReportLaunches, Tick
from jackalope.core.durations import MINUTE
from jackalope.core.effects import Orders
from tests.core.driving import Driver


def test_failures_per_pool_max() -> None:
    crowd = Driver()
    most = limits.FAILURES_PER_POOL_MAX
    crowd.send(FollowPools(session=9, launchers=("local",)))
    crowd.send(DeclarePool(queue="q", changes={"launcher": "local"}))
    crowd.submit(1, key="k")
    for number in range(most + 1):
        launch = f"w{number}"
        orders = crowd.send(ReportLaunches(session=9, launcher="local", ids=(launch,)))
        assert isinstance(orders, Orders)
        assert [each.launch for each in orders.start] == [launch]
        failed = {launch: f"no room {number}"}
        crowd.send(ReportLaunches(session=9, launcher="local", failed=failed))
        crowd.now_us += 2 * MINUTE
        crowd.send(Tick())
    pool = crowd.core.pools.by_name["default", "q"]
    assert pool.failed == most + 1
    assert [key for _, key, _ in pool.failures] == ["k"] * most
    assert [why.rpartition(" ")[2] for *_, why in pool.failures] == [
        str(number) for number in range(1, most + 1)
    ]
