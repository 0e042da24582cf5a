"""Resources of the workers of a pool: its launcher's command has them."""

import asyncio
import sys
from pathlib import Path

from jackalope import Jackalope
from tests.client.harness import run
from tests.pools.harness import ROOT, PoolHouse
from tests.worker.needing_application import hold


def test_workers_of_a_pool_have_what_its_command_says(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "jackalope", "worker", "tests.worker.needing_application:app"),
        *("--resource", "gpu=2", "--resource", "mem=8GiB", "--label", "arch=arm64"),
    ]
    launcher = {
        "type": "subprocess",
        "command": command,
        "folder": str(ROOT),
        "keep_running": False,
    }
    pool = {"launcher": "gpus", "workers_max": 1}
    house = PoolHouse(tmp_path, {"jobs": pool}, launchers={"gpus": launcher})
    log = tmp_path / "held.txt"

    async def story() -> None:
        async with Jackalope(house.address) as client:
            task = client.task(name="hold", queue="jobs")(hold)
            small = task.options(needs={"gpu": 1, "mem": "1GiB", "arch": "arm64"})
            handles = [await small.submit(str(log), number, 1, 0, 0.5) for number in range(3)]
            large = await task.options(needs={"gpu": 4}).submit(str(log), 4, 4, 0, 0)
            for handle in handles:
                await handle.result(timeout=60)
            [worker] = await client.workers()
            assert worker.resources == {"gpu": 2, "mem": 8 * 2**30}
            assert worker.labels["arch"] == "arm64"
            causes = (await large.explain()).causes
            assert any("lacks 2 gpu" in cause.text for cause in causes), causes

    house.start()
    try:
        run(asyncio.wait_for(story(), 90))
    finally:
        house.stop()
    kinds = [line.split()[0] for line in log.read_text().splitlines()]
    assert kinds[:3] == ["begin", "begin", "end"], kinds
