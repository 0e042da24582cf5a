"""Packages are whole or are not made."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.release.contents import missing_pythons, sdist_problems, wheel_problems

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("src/jackalope/doors/http/page")
HTML = '<script type="module" src="./assets/index.js"></script>'

#: Stands for npm where a test must not wait for it: it builds the page as npm does.
NPM = f"""#!/bin/sh
echo "$@" >> calls
test "$1" = ci || {{
    mkdir -p ../{PAGE}/assets
    echo '{HTML}' > ../{PAGE}/index.html
    : > ../{PAGE}/assets/index.js
}}
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return what a clone has, as far as a package is made of it: no page."""
    made = tmp_path / "clone"
    made.mkdir()
    files = "pyproject.toml hatch_build.py README.md SECURITY.md LICENSE THIRD_PARTY.txt"
    for name in files.split():
        shutil.copy(ROOT / name, made)
    (made / "dashboard").mkdir()
    shutil.copy(ROOT / "dashboard" / "package.json", made / "dashboard")
    (made / "src" / "jackalope").mkdir(parents=True)
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / "src" / "jackalope" / name, made / "src" / "jackalope")
    return made


def build(root: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(root / "dist")],
        cwd=root,
        env={"PATH": "/nowhere", "HOME": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_no_package_without_the_dashboard(clone: Path, target: str) -> None:
    done = build(clone, target)
    assert done.returncode != 0
    assert "the dashboard is not built" in done.stderr
    assert "make dashboard" in done.stderr
    assert not list(clone.glob("dist/*"))


def test_npm_builds_what_is_missing(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    (tools / "npm").write_text(NPM)
    (tools / "npm").chmod(0o755)
    done = build(clone, "wheel", PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert (clone / "dashboard" / "calls").read_text() == "ci --silent\nrun --silent build\n"
    (wheel,) = clone.glob("dist/*.whl")
    assert wheel_problems(wheel) == []


def test_page_that_npm_fails_to_build_is_an_error(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    (tools / "npm").write_text("#!/bin/sh\nexit 1\n")
    (tools / "npm").chmod(0o755)
    done = build(clone, "wheel", PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode != 0
    assert "npm ci failed" in done.stderr
    assert not list(clone.glob("dist/*"))


def test_editable_install_needs_no_dashboard(clone: Path) -> None:
    code = "from hatchling.build import build_editable; print(build_editable('dist'))"
    (clone / "dist").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_links_are_of_the_place_that_is_named(clone: Path) -> None:
    (clone / PAGE).mkdir(parents=True)
    (clone / PAGE / "index.html").write_text(HTML)
    assert "Project-URL" not in _metadata(clone)
    about = _metadata(clone, JACKALOPE_URL="https://example.org/jackalope/")
    assert "Project-URL: Homepage, https://example.org/jackalope\n" in about
    assert "Project-URL: Issues, https://example.org/jackalope/issues\n" in about


def _metadata(clone: Path, **environment: str) -> str:
    done = build(clone, "wheel", **environment)
    assert done.returncode == 0, done.stderr
    (wheel,) = clone.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as file:
        name = next(n for n in file.namelist() if n.endswith("METADATA"))
        return file.read(name).decode()


@pytest.mark.skipif(
    not (ROOT / PAGE / "index.html").is_file(), reason="needs the page: `make dashboard`"
)
def test_packages_of_this_tree_are_whole(tmp_path: Path) -> None:
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tmp_path)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert wheel_problems(wheel) == []
    assert sdist_problems(sdist) == []


def test_what_a_wheel_lacks_is_found(tmp_path: Path) -> None:
    path = tmp_path / "bad.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("jackalope-1.dist-info/METADATA", "Name: jackalope\n")
        wheel.writestr("tests/__init__.py", "")
    problems = "\n".join(wheel_problems(path))
    for text in ("has no dashboard", "no py.typed", "THIRD_PARTY", "Python 3.14", "tests/__init__"):
        assert text in problems
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr("jackalope/doors/http/page/index.html", HTML)
    assert "names assets/index.js, which is missing" in "\n".join(wheel_problems(path))


def test_every_supported_python_is_named() -> None:
    text = (ROOT / "pyproject.toml").read_text().replace('",\n', "\n")
    assert missing_pythons(text) == []
    assert missing_pythons(text.replace("Python :: 3.13", "")) == ["3.13"]


def installed_with(names: set[str]) -> set[str]:
    """Return these packages and those that they need, as they are installed here."""
    found: set[str] = set()
    while names := names - found:
        found |= names
        needed = [Requirement(each) for name in names for each in requires(name) or ()]
        names = {
            canonicalize_name(each.name)
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        }
    return found


def test_an_install_is_what_the_decision_lists() -> None:
    page = ROOT / "docs" / "decisions" / "0196-what-an-install-consists-of.md"
    cells = re.findall(r"^\| ([^|]+) \| [\d.]+ \|", page.read_text(), re.MULTILINE)
    listed = {canonicalize_name(name) for cell in cells for name in cell.split(", ")}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    direct: set[str] = {canonicalize_name(Requirement(each).name) for each in wanted}
    assert installed_with(direct) | {"jackalope"} == listed
    assert len(listed) == 18
