"""One measurement of one system, in a process of its own: `python -m bench.fanout.child REQUEST`.

The request is JSON; the last line that it prints is the answer, in JSON. A process of its own keeps
one system's threads and processes away from the next, and can be ended when it hangs.
"""

from __future__ import annotations

import json
import sys

from bench.fanout.load import Plan
from bench.fanout.systems import SYSTEMS


def main() -> int:
    """Measure what the request asks for, and print the seconds or the reason why not."""
    request = json.loads(sys.argv[1])
    measure, _ = SYSTEMS[request["system"]]
    answer: dict[str, object]
    try:
        answer = dict(measure(Plan(**request["plan"])))
    except Exception as error:  # noqa: BLE001  the reason is the answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
