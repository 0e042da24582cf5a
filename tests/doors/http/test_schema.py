"""The whole API, asked by a program that has read nothing but its description."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from jackalope.doors.http.rest.schemas import WAIT_S_MAX
from tests.docs.http import described
from tests.doors.http.harness import Serving

schema = schemathesis.openapi.from_dict(described())

#: Of each operation.
EXAMPLES = 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("broker"), "--durability", "memory")
    yield serving
    code, log = serving.stop()
    assert code == 0, log
    # Not a queue of that name, which the generator may well think of.
    assert "] bug " not in log


# Events have no end; the first key would shut everybody out; links depend on the store.
@schema.exclude(path_regex="/events$|/keys|/blobs$").parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_api_is_as_described(case: Any, broker: Serving) -> None:
    is_good = case.meta.generation.mode is GenerationMode.POSITIVE
    for part in (case.query, case.body):
        if isinstance(part, dict):
            wait_for_nothing(part)
            if is_good:
                make_possible(part)
    # What steps a series can have depends on how long ago it is; not every text is a cron
    # expression or the name of a namespace, not every list of nodes a graph, not every schema one
    # that a contract can have, and not every setting of a limit goes with the others.
    is_free = case.path in ("/api/v1/series", "/api/v1/contracts") or case.path.startswith(
        ("/api/v1/schedules/", "/api/v1/flows", "/api/v1/namespaces/", "/api/v1/key-limits/")
    )
    excluded = [positive_data_acceptance] if is_free else []
    response = case.call(base_url=broker.url)
    if response.status_code == 431:  # A head too long is refused before anybody reads it.
        excluded = [positive_data_acceptance, negative_data_rejection]
    case.validate_response(response, excluded_checks=excluded)


def wait_for_nothing(part: dict[str, Any]) -> None:
    if isinstance(part.get("wait"), int | float) and part["wait"] <= WAIT_S_MAX:
        part["wait"] = min(part["wait"], 0)


#: What cannot be made up, and what goes with what, which the core judges and a schema cannot say.
MADE_UP = (
    *("cursor", "ticket", "payload_ticket", "link"),
    *("callbacks", "triggers", "pace", "fair_weights", "needs", "need", "resources"),
)


def make_possible(part: dict[str, Any]) -> None:
    """Take out what is described rightly and still depends on what nobody can make up."""
    tasks, policy = part.get("tasks"), part.get("policy")
    # A claim names its types of tasks as texts.
    inner = [*(tasks if isinstance(tasks, list) else ()), policy]
    for each in (part, *inner):
        for made_up in MADE_UP if isinstance(each, dict) else ():
            each.pop(made_up, None)
