"""The systems: how each calls a function on items with as many processes as there are cores.

Each is used as its own documentation does it for many small items. Where there is a choice between
one item and many at a time, both are there.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.fanout.load import FUNCTIONS, Map, Plan, measure, run_spins
from bench.peers.processes import Started, free_port, is_listening

CORES = os.cpu_count() or 1
_CHUNK = 100
_WARM_UP = Plan(noops=200, spins=20, iterations_per_ms=1_000, chunks=4, rounds=1)

Measured = dict[str, float]


def _by(opened: Callable[[], Any]) -> Callable[[Plan], Measured]:
    """Make a measurement of something that can map, once it is warm."""

    def measured(plan: Plan) -> Measured:
        with opened() as apply:
            measure(apply, _WARM_UP)
            return measure(apply, plan)

    return measured


# Bounds of what can be reached.


@contextmanager
def _one_process() -> Iterator[Map]:
    def apply(name: str, items: Sequence[int], fixed: dict[str, Any]) -> Iterator[Any]:
        return map(partial(FUNCTIONS[name], **fixed), items)

    yield apply


def _apart(plan: Plan) -> Measured:
    """Share the items between processes in advance, which never talk: what the cores can do."""
    context = multiprocessing.get_context("fork")
    share = Plan(
        noops=0,
        spins=plan.spins // CORES,
        iterations_per_ms=plan.iterations_per_ms,
        chunks=plan.chunks // CORES,
        rounds=plan.rounds,
    )
    with context.Pool(CORES) as pool:
        pool.map(_alone, [_WARM_UP] * CORES, chunksize=1)
        shares = pool.map(_alone, [share] * CORES, chunksize=1)
    return {figure: max(each[figure] for each in shares) for figure in shares[0]}


def _alone(plan: Plan) -> Measured:
    with _one_process() as apply:
        run_spins(apply, _WARM_UP)
        return measure(apply, plan)


# The standard library.


@contextmanager
def _pool() -> Iterator[Map]:
    with multiprocessing.Pool(CORES) as pool:
        yield lambda name, items, fixed: pool.map(partial(FUNCTIONS[name], **fixed), items)


@contextmanager
def _executor(chunk: int) -> Iterator[Map]:
    with ProcessPoolExecutor(CORES) as executor:

        def apply(name: str, items: Sequence[int], fixed: dict[str, Any]) -> Iterator[Any]:
            # No more at once than leaves something for everybody.
            size = max(1, min(chunk, len(items) // (4 * CORES)))
            return executor.map(partial(FUNCTIONS[name], **fixed), items, chunksize=size)

        yield apply


# Dask and Ray.


@contextmanager
def _dask() -> Iterator[Map]:
    from distributed import Client, LocalCluster  # noqa: PLC0415  not everywhere

    logging.getLogger("distributed").setLevel(logging.ERROR)
    with (
        LocalCluster(n_workers=CORES, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def apply(name: str, items: Sequence[int], fixed: dict[str, Any]) -> list[Any]:
            # Not pure: else it would remember the results of the items before.
            futures = client.map(FUNCTIONS[name], items, pure=False, **fixed)
            return list(client.gather(futures))

        yield apply


@contextmanager
def _ray_started() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    # It would step back for whatever else the machine does, which no other system here does.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  as Ray reads it
    import ray  # noqa: PLC0415  not everywhere

    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _ray() -> Iterator[Map]:
    with _ray_started() as ray:
        remote = {name: ray.remote(function) for name, function in FUNCTIONS.items()}

        def apply(name: str, items: Sequence[int], fixed: dict[str, Any]) -> list[Any]:
            sent = {argument: ray.put(value) for argument, value in fixed.items()}
            return list(ray.get([remote[name].remote(item, **sent) for item in items]))

        yield apply


@contextmanager
def _ray_pool() -> Iterator[Map]:
    with _ray_started():
        from ray.util.multiprocessing import Pool  # noqa: PLC0415  not everywhere

        with Pool(CORES) as pool:
            yield lambda name, items, fixed: pool.map(partial(FUNCTIONS[name], **fixed), items)


# Jackalope.


def _jackalope(plan: Plan) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        os.environ["JACKALOPE_BENCH_FANOUT"] = f"jackalope://127.0.0.1:{port}"
        command = [sys.executable, "-m", "jackalope"]
        serve = ["serve", "--no-http", "--port", str(port), "--data", str(folder / "data")]
        started = [Started([*command, *serve], folder / "broker.log")]
        try:
            started[0].wait_until(lambda: is_listening(port))
            work = ["worker", "bench.fanout.application:app", "--concurrency", "1"]
            for number in range(CORES):
                log = folder / f"worker-{number}.log"
                started.append(Started([*command, *work, "--log-level", "error"], log))
            from bench.fanout import application  # noqa: PLC0415  it reads where the broker is

            try:
                return application.measured(_WARM_UP, plan)
            except Exception as error:
                raise RuntimeError("; ".join(each.last_words() for each in started)) from error
        finally:
            for process in reversed(started):
                process.stop()


#: Each system, how many items of nothing it gets (about what it does in a second), and what it is.
SYSTEMS: dict[str, tuple[Callable[[Plan], Measured], int]] = {
    "one process": (_by(_one_process), 200_000),
    "processes that never talk": (_apart, 0),
    "jackalope": (_jackalope, 200_000),
    "multiprocessing.Pool.map": (_by(_pool), 200_000),
    "ProcessPoolExecutor.map": (_by(partial(_executor, 1)), 2_000),
    f"ProcessPoolExecutor.map, chunks of {_CHUNK}": (_by(partial(_executor, _CHUNK)), 100_000),
    "Dask Client.map": (_by(_dask), 2_000),
    "Ray tasks": (_by(_ray), 2_000),
    "Ray util.multiprocessing.Pool.map": (_by(_ray_pool), 100_000),
}
