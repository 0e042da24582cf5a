"""What must be in a package, and what must not."""

import re
import tarfile
import zipfile
from pathlib import Path

_PAGE = "jackalope/doors/http/page"
_ASSET = re.compile(r'(?:src|href)="\.?/?(assets/[^"]+)"')

#: In the wheel, below the folder of its metadata.
_NOTICES = ("licenses/LICENSE", "licenses/THIRD_PARTY.txt")

_IN_SDIST = (
    "hatch_build.py",
    "LICENSE",
    "THIRD_PARTY.txt",
    "SECURITY.md",
    "README.md",
    "dashboard/package.json",
    f"src/{_PAGE}/index.html",
    "src/jackalope/py.typed",
)


def wheel_problems(path: Path) -> list[str]:
    """List what a wheel lacks, or has too much of."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        page = f"{_PAGE}/index.html"
        text = wheel.read(page).decode() if page in names else ""
        metadata = next(n for n in names if n.endswith(".dist-info/METADATA"))
        about = wheel.read(metadata).decode()
    problems = []
    if not text:
        problems.append(f"{path.name}: has no dashboard ({page})")
    elif not _ASSET.findall(text):
        problems.append(f"{path.name}: the dashboard names no scripts")
    problems += [
        f"{path.name}: the dashboard names {asset}, which is missing"
        for asset in _ASSET.findall(text)
        if f"{_PAGE}/{asset}" not in names
    ]
    if "jackalope/py.typed" not in names:
        problems.append(f"{path.name}: has no py.typed")
    home = metadata.rpartition("/")[0]
    problems += [
        f"{path.name}: has no {each}" for each in _NOTICES if f"{home}/{each}" not in names
    ]
    problems += [f"{path.name}: no classifier for Python {each}" for each in missing_pythons(about)]
    strange = sorted(n for n in names if not n.startswith(("jackalope/", home)))
    problems += [f"{path.name}: {each} does not belong there" for each in strange]
    return problems


def missing_pythons(metadata: str) -> list[str]:
    """Return the versions of Python that the metadata do not name."""
    wanted = ("3.11", "3.12", "3.13", "3.14")
    return [v for v in wanted if f"Programming Language :: Python :: {v}\n" not in metadata]


def sdist_problems(path: Path) -> list[str]:
    """List what an sdist lacks, or has too much of."""
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    problems = [f"{path.name}: has no {each}" for each in _IN_SDIST if each not in names]
    problems += [
        f"{path.name}: {name} does not belong there"
        for name in sorted(names)
        if "node_modules" in name or "__pycache__" in name or name.startswith(("build/", ".venv"))
    ][:5]
    return problems
