"""The API of keys, asked by a program that has read nothing but its description."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from jackalope.core.api_key import Permission
from tests.docs.http import described
from tests.doors.http.harness import Serving
from tests.doors.native.test_access import make_key

schema = schemathesis.openapi.from_dict(described()).include(path_regex="/keys")

TOKEN, KEY = make_key(Permission.ADMIN)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("broker")
    kept = ("id", "hash", "name", "permissions")
    entry = {field: msgspec.to_builtins(KEY)[field] for field in kept}
    config = folder / "jackalope.yaml"
    config.write_text(json.dumps({"auth": {"keys": [entry]}, "http": {"rate_per_s": 0}}))
    serving = Serving(folder, "--durability", "memory", "--config", str(config))
    yield serving
    code, log = serving.stop()
    assert code == 0, log
    assert "] bug " not in log
    assert TOKEN not in log


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_api_is_as_described(case: Any, broker: Serving) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    case.call_and_validate(base_url=broker.url, headers=headers)
