"""Run seeds from the command line: `python -m tests.simulation --seed 7 --trace`.

With `--cluster` they are worlds of several brokers, whose trace has a column for each.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable

from tests.simulation import run
from tests.simulation.cluster import run as cluster


def main() -> int:
    """Run the seeds that are asked for, and return how that ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=300, help="run seeds 0 to N-1 (default 300)")
    parser.add_argument("--begin", type=int, default=0, help="first seed, with --seeds")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--cluster", action="store_true", help="several brokers over one log")
    args = parser.parse_args()
    simulate: Callable[..., object] = cluster.simulate if args.cluster else run.simulate
    alone = "python -m tests.simulation" + (" --cluster" if args.cluster else "")
    seeds = [args.seed] if args.seed is not None else range(args.begin, args.begin + args.seeds)
    failed = []
    begin = time.monotonic()
    for number, seed in enumerate(seeds, 1):
        try:
            report = simulate(seed, trace=args.trace)
        except Exception:  # noqa: BLE001  whatever it was, the next seed is run
            failed.append(seed)
            print(f"seed {seed} FAILED; alone: {alone} --seed {seed} --trace")
            traceback.print_exc()
        else:
            if args.seed is not None:
                print(report)
            elif number % 25 == 0:
                print(f"{number} seeds in {time.monotonic() - begin:.1f} s", flush=True)
    print(f"{len(list(seeds)) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
