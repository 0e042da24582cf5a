"""Plain data: whatever a payload is, it can be shown."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from jackalope.cli.formatting import decode_body
from tests.cli.conftest import Cli
from tests.wire.shapes import DEPTHS, nested_json, nested_msgpack


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("bracket", ["list", "map"])
@pytest.mark.parametrize(("content", "make"), [("json", nested_json), ("msgpack", nested_msgpack)])
def test_nested_bodies(depth: int, bracket: str, content: str, make: type) -> None:
    shown = decode_body(make(depth, bracket), content)
    json.dumps(shown)
    yaml.safe_dump(shown)


@pytest.mark.parametrize(
    "body",
    [b"\xd4\x05\x00", b"\x81\x91\x01\x02", b"\xa1\xff", b"\x81\xc0\x01", b"\xd6\xff\0\0\0\1"],
)
def test_strange_bodies(body: bytes) -> None:
    msgspec.json.encode(decode_body(body, "msgpack"))


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_status_of_a_task_with_a_nested_payload(cli: Cli, form: str, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(nested_msgpack(960))
    submitted = cli("submit", "-q", "deep", "--name", "t", "--payload-file", str(payload))
    assert submitted.code == 0, submitted.err
    shown = cli("status", submitted.out.strip(), "-f", form)
    assert shown.code == 0, shown.err
    assert "Traceback" not in shown.err


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("depth", [960, 5_000])
def test_a_nested_argument_is_an_error_of_the_caller(cli: Cli, depth: int) -> None:
    ran = cli("submit", "-q", "deep", "--name", "t", "--json", nested_json(depth).decode())
    assert "Traceback" not in ran.err
    assert ran.code in (0, 2)
