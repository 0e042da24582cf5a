"""The identity of a request: the vectors of the page, here and in another language."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jackalope.core.shapes.request import IDENTITY_BYTES, How, Same, how_run, identity_of

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/requests.md").read_text()

Vector = tuple[str, str, str, str, bytes, str]


def vectors() -> list[Vector]:
    """Read the table of the page."""
    table = PAGE.split("<!-- vectors -->")[1].split("<!-- end of vectors -->")[0]
    rows = [line.strip("|").split("|") for line in table.split("\n") if "`" in line]
    found = []
    for row in rows:
        queue, name, key, version, payload, identity = (cell.strip().strip("`") for cell in row)
        found.append((queue, name, key, version, bytes.fromhex(payload), identity))
    return found


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector[-1][:8]))
def test_vector(vector: Vector) -> None:
    *parts, expected = vector
    identity = identity_of(*parts)  # type: ignore[arg-type]
    assert identity.hex() == expected
    assert len(identity) == IDENTITY_BYTES


def test_there_are_vectors_for_every_part() -> None:
    assert len(vectors()) >= 6
    for part in range(1, 5):
        assert any(vector[part] for vector in vectors())
        assert any(not vector[part] for vector in vectors())


def test_no_part_runs_over_into_the_next() -> None:
    parts = [("ab", "c", "", "", b""), ("a", "bc", "", "", b""), ("a", "b", "c", "", b"")]
    assert len({identity_of(*each) for each in parts}) == len(parts)


def test_the_id_of_other_request_queues() -> None:
    """The page says how it follows from the payload, and what it is for `hello`."""
    other = base64.b64encode(hashlib.sha1(b"hello", usedforsecurity=False).digest()).decode()
    assert other == "qvTGHdzF6KLavt4PO0gs2a6pQ00="
    assert other in PAGE


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_vectors_in_javascript(tmp_path: Path) -> None:
    """The function on the page gives the same, of the same raw bytes."""
    (script,) = re.findall(r"(?ms)^```js\n(.*?)^```", PAGE)
    asked = [[*vector[:4], vector[4].hex()] for vector in vectors()]
    program = tmp_path / "identity.mjs"
    program.write_text(
        script
        + f"for (const [q, n, k, v, p] of {json.dumps(asked)})"
        + ' console.log(identityOf(q, n, k, v, Buffer.from(p, "hex")));\n'
    )
    node = shutil.which("node") or "node"
    run = subprocess.run([node, str(program)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [vector[-1] for vector in vectors()]


def test_how_a_task_of_its_own_serves() -> None:
    assert {same: how_run(same) for same in Same} == {
        Same.RUN: How.BYPASS,
        Same.UNIQUE: How.MISS,
        Same.CACHED: How.MISS,
        Same.REFRESH: How.REFRESH,
    }
