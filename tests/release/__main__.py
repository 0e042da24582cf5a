"""`make dist` ends with it: checks an sdist and a wheel, and uses the wheel in a new environment.

Needs nothing but the standard library, and `hatchling` in its own environment. Prints what it has
measured; exits with 1 and all problems if a package is not what it should be.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.release.contents import sdist_problems, wheel_problems
from tests.release.trial import try_wheel, wheel_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the sdist and the wheel are")
    folder = parser.parse_args().folder
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{folder}: has {len(wheels)} wheels and {len(sdists)} sdists, and needs one each")
        return 1
    wheel, sdist = wheels[0], sdists[0]
    problems = wheel_problems(wheel) + sdist_problems(sdist)
    with tempfile.TemporaryDirectory(prefix="jackalope-dist-") as place:
        again = wheel_of(sdist, Path(place) / "again")
        problems += [f"made of the sdist: {each}" for each in wheel_problems(again)]
        if not problems:
            print(f"whole: {wheel.name} ({_size(wheel)}), {sdist.name} ({_size(sdist)})")
            for line in try_wheel(wheel, Path(place)):
                print(line, flush=True)
    for problem in problems:
        print(f"not fit for release: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
