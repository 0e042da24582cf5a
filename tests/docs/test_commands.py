"""The requests of the pages: curl sends each as it stands there, and the HTTP door understands it.

What a request names need not exist; how it is written must be right.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.http.harness import Serving

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"(?ms)^```.*?\n(.*?)^```$")
_DOOR = re.compile(r"(http://)?(localhost|127\.0\.0\.1):7421")

#: How a request is answered that the door does not understand; 404 is for what does not exist.
_NOT_UNDERSTOOD = frozenset({"000", "400", "405", "415", "422", "500"})

#: What the pages put into variables, and one shortened value, as requests need them.
_GIVEN = {
    "$api": "http://localhost:7421/api/v1",
    "$TASK": "0193b5c2-7d1e-7c3a-9f00-2b1c3d4e5f60",
    "$task": "0193b5c2-7d1e-7c3a-9f00-2b1c3d4e5f60",
    "$attempt": "worker=me&fence=1",
}

#: Links to a store that the broker does not have here.
_NEEDS_STORE = ("/api/v1/blobs", "payload_ticket", "link=1")


def requests_of_pages() -> Iterator[tuple[str, str]]:
    """Yield each request to the HTTP door on the pages, with its page."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for fence in _FENCE.findall(page.read_text()):
            for command in _commands(fence):
                for name, value in _GIVEN.items():
                    command = command.replace(name, value)  # noqa: PLW2901
                if _DOOR.search(command) and not any(each in command for each in _NEEDS_STORE):
                    yield page.stem, command


def _commands(fence: str) -> Iterator[str]:
    """Yield each command with curl; one may go on over several lines."""
    command = ""
    for line in fence.splitlines():
        if not command and not line.removeprefix("$ ").startswith("curl "):
            continue
        command += line.removeprefix("$ ").removesuffix("\\") + "\n"
        if line.endswith("\\") or command.count("'") % 2:
            continue
        yield command.strip()
        command = ""


def _send(request: str, folder: Path) -> str:
    """Send a request, and return its status and the answer if that says that it is wrong."""
    for name in re.findall(r"[ =]@([\w.]+)", request):
        (folder / name).write_bytes(b"content")
    words = shlex.split(request, comments=True)
    words = words[: words.index("|")] if "|" in words else words
    quiet = ["--silent", "--output", "answer", "--max-time", "2", "--write-out", "%{http_code}"]
    answer = folder / "answer"
    answer.unlink(missing_ok=True)
    run = subprocess.run([*words, *quiet], cwd=folder, capture_output=True, text=True, check=False)
    is_wrong = run.stdout in _NOT_UNDERSTOOD
    return f"{run.stdout} {answer.read_text() if answer.exists() else ''}" if is_wrong else ""


def test_every_request_is_understood(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: whether the requests of the pages work is not checked")
    requests = list(requests_of_pages())
    assert len(requests) > 20
    serving = Serving(tmp_path)
    try:
        sent = ((page, request, _DOOR.sub(serving.url, request)) for page, request in requests)
        refused = [
            f"{page}: {request}: {why}"
            for page, request, real in sent
            if (why := _send(real, tmp_path))
        ]
    finally:
        serving.stop()
    assert refused == []
