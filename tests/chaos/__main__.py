"""All faults on one cluster, and then whichever chance names; writes the report of it.

`JACKALOPE_CHAOS_S` sets for how many seconds chance chooses, `JACKALOPE_CHAOS_SEED` what it
chooses, `JACKALOPE_CHAOS_FAULTS` which faults there are (names of functions, with commas between).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

from tests.chaos import checks, faults, machines, report
from tests.chaos.history import now, to_edn
from tests.chaos.report import Injection, Loads
from tests.chaos.run import Run, longest_gap_s, running

SECONDS = float(os.environ.get("JACKALOPE_CHAOS_S", "60"))
SEED = int(os.environ.get("JACKALOPE_CHAOS_SEED", "9"))
FAULTS = os.environ.get("JACKALOPE_CHAOS_FAULTS", "")


def inject(run: Run, fault: faults.Fault, chance: random.Random) -> Injection:
    """Do one fault, wait until the cluster is whole, and tell how it went."""
    injection = Injection(fault, now(), 0)
    try:
        fault.do(run, chance)
        run.settle()
    except AssertionError as error:
        injection.failure = str(error).partition("\n")[0]
        print(error)
    injection.end = now()
    gap_s = longest_gap_s(run.acknowledgements(), injection.begin, injection.end)
    took_s = (injection.end - injection.begin) / 1e9
    print(f"{took_s:5.1f} s, {gap_s:4.1f} s silent: {fault.name} {injection.failure}", flush=True)
    return injection


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("chaos: told to stop"))
    if reason := machines.why_not():
        sys.exit(f"chaos: {reason}")
    chosen = [each for each in faults.ALL if not FAULTS or each.do.__name__ in FAULTS.split(",")]
    folder = Path(mkdtemp(prefix="jackalope-chaos-"))
    print(f"notes and logs in {folder}", flush=True)
    before = os.getloadavg()
    chance = random.Random(SEED)
    with running(folder, disk_mb=400) as run:
        injections = [inject(run, fault, chance) for fault in chosen]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not injections[-1].failure:
            injections.append(inject(run, chance.choice(chosen), chance))
        evidence = run.finish()
    (folder / "history.edn").write_text("\n".join(to_edn(evidence.ops)) + "\n")
    text = report.render(evidence, injections, SEED, SECONDS, Loads(before, os.getloadavg()))
    print(text)
    if not FAULTS:
        report.write(text)
    sys.exit(bool(checks.problems(evidence)) or any(each.failure for each in injections))


if __name__ == "__main__":
    main()
