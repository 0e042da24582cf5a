"""What a core makes of commands by chance is what it made of them before, byte for byte.

The sums are of no meaning by themselves. A change that is to change no behaviour changes none of
them; one that is to is followed by `REWRITE=1 pytest tests/properties/test_traces.py`.
"""

import os
from pathlib import Path

from jackalope.core.invariants import check
from tests.properties.traces import Trace

SUMS = Path(__file__).with_name("traces.txt")
SEEDS = 30
STEPS = 200


def test_same_bytes_as_before() -> None:
    sums = []
    for seed in range(SEEDS):
        trace = Trace(seed)
        trace.play(STEPS)
        check(trace.core)
        sums.append(trace.digest())
    if os.environ.get("REWRITE"):
        SUMS.write_text("\n".join(sums) + "\n")
    assert sums == SUMS.read_text().splitlines()
