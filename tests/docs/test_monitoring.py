"""The rules and the dashboard speak of metrics that there are, and of labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jackalope.doors.forwarding import Forwarding
from tests.docs.metrics import described
from tests.doors.elsewhere import Elsewhere
from tests.doors.harness import run
from tests.doors.http.harness import open_http

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
RULES = yaml.safe_load((DOCS / "monitoring" / "rules.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())

_METRIC = re.compile(r"\b((?:tq|jackalope)_\w+)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_SHOWN = re.compile(r"\{\{ ?\$?(?:labels\.)?(\w+)")

#: Labels that Prometheus itself adds.
_ADDED = {"instance", "job", "le"}


def labels_by_sample() -> dict[str, set[str]]:
    """Return the labels of every name that a query may use."""
    found: dict[str, set[str]] = {}
    for name, kind, labels, _ in described():
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + end: {*labels, *_ADDED} for end in ends}
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Yield every query with the text that is shown for it."""
    for rule in RULES:
        yield rule["expr"], json.dumps(rule["annotations"])
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


@pytest.mark.parametrize(("query", "shown"), list(queries()))
def test_query_names_what_there_is(query: str, shown: str) -> None:
    samples, used = labels_by_sample(), set()
    for name, matchers in _METRIC.findall(query):
        assert name in samples, f"no metric {name}"
        used |= samples[name]
        for label in re.findall(r"(\w+)(?:=|!=|=~|!~)\"", matchers):
            assert label in samples[name], f"{name} has no label {label}"
    for grouping in _GROUPING.findall(query):
        for label in grouping.replace(" ", "").split(","):
            assert label in used, f"nothing in the query has a label {label}"
    for label in set(_SHOWN.findall(shown)) - {"value"}:
        assert label in used | _ADDED, f"nothing in the query has a label {label}"
    assert query.count("(") == query.count(")")


def test_every_alert_says_what_to_know() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) >= 10
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_page_names_every_metric_of_a_scrape() -> None:
    async def scrape() -> str:
        async with open_http(forwarding=Forwarding(Elsewhere(None))) as house:
            paths = ("/metrics", "/metrics?names=task_queue")
            return "\n".join([(await house.client.get(path)).text for path in paths])

    shown = set(re.findall(r"^# TYPE ((?:tq|jackalope)_\w+) (\w+)$", run(scrape()), re.MULTILINE))
    page = (DOCS / "reference" / "metrics.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|", page, re.MULTILINE))
    assert listed == shown
