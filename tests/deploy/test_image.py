"""The image: its file is sound, and what it runs runs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jackalope.broker.config.exposure import exposure_problems
from jackalope.broker.config.loader import load
from tests.cli.conftest import Serving, clean_environment

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "docker" / "Dockerfile"
HADOLINT = Path(sys.executable).with_name("hadolint")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions, each on one line."""
    text = re.sub(r"(?m)^\s*#.*\n", "", FILE.read_text()).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def variables() -> dict[str, str]:
    return dict(each.split("=", 1) for each in shlex.split(last("ENV")))


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([HADOLINT, FILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_runs_as_a_user_and_data_outlives_it() -> None:
    words = [word for word, _ in instructions()]
    final = instructions()[len(words) - 1 - words[::-1].index("FROM") :]
    assert ("USER", "10001") in final
    assert ("VOLUME", "/data") in final
    assert json.loads(last("ENTRYPOINT")) == ["jackalope"]
    # Neither the sources nor what builds them are in what is shipped.
    assert [rest for word, rest in final if word == "COPY"] == [
        "--from=build /opt/jackalope /opt/jackalope"
    ]


def test_everything_that_is_copied_is_sent_and_there() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name.split('/')[0]}" in allowed, name


def test_it_listens_everywhere_and_so_needs_keys_and_tls(tmp_path: Path) -> None:
    settings = {k: v for k, v in variables().items() if k.startswith("JACKALOPE_")}
    config = load(None, settings, {}).config
    assert config.data.folder == "/data"
    assert {config.native.host, config.http.host} == {"0.0.0.0"}  # noqa: S104  in a container
    assert exposure_problems(config, has_keys=False)
    ports = {str(config.native.port), str(config.http.port)}
    assert set(last("EXPOSE").split()) == ports


def test_health_check_sees_a_broker_and_its_absence(tmp_path: Path) -> None:
    command = json.loads(re.search(r"CMD (\[.*\])", last("HEALTHCHECK"))[1])  # type: ignore[index]
    assert command[0] == "python"
    command[0] = sys.executable
    path = variables()["HEALTH_URL"].partition("7421")[2]
    serving = Serving(cwd=tmp_path)
    assert serving.process.stdout is not None
    line = serving.process.stdout.readline()
    address = re.search(r"HTTP at (\S+?),", line)
    assert address, line
    environment = clean_environment() | {"HEALTH_URL": f"{address[1]}{path}"}
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    serving.stop()
    done = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode != 0


@pytest.mark.skipif(
    not (ROOT / "src/jackalope/doors/http/page/index.html").is_file(),
    reason="needs the page: `make dashboard`",
)
def test_the_wheel_is_made_as_the_image_makes_it(tmp_path: Path) -> None:
    (build,) = [
        rest for word, rest in instructions() if word == "RUN" and "hatchling build" in rest
    ]
    hatchling, *arguments = shlex.split(build)
    assert hatchling == "/opt/build/bin/hatchling"
    arguments[-1] = str(tmp_path)
    command = [sys.executable, "-m", "hatchling", *arguments]
    # Only what the image has: see the COPY before it.
    place = tmp_path / "build"
    place.mkdir()
    (copied,) = [rest.split() for word, rest in instructions() if "pyproject.toml" in rest]
    for name in [*copied[:-1], "src"]:
        (place / name).symlink_to(ROOT / name)
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    assert list(tmp_path.glob("*.whl"))
