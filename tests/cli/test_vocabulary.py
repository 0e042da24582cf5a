"""One vocabulary: states and fields are called the same wherever they are named."""

import re
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from jackalope.broker.config.schema import Names
from jackalope.cli.formatting import to_plain
from jackalope.cli.options import STATE_SETS, STATES
from jackalope.cli.output import STATE_COLOURS
from jackalope.core.ids import TaskId
from jackalope.core.lifecycle import ENDED, PENDING, State
from jackalope.core.policy import Policy
from jackalope.core.settings import keys_of
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.pool import PoolSettings
from jackalope.core.shapes.schedule import ScheduleSettings
from jackalope.doors.http.rest.events import EventShown
from jackalope.doors.http.rest.schemas import STATES as BY_STATUS
from jackalope.doors.http.rest.schemas import Status
from jackalope.doors.http.vocabulary import aliases
from jackalope.wire import views
from jackalope.wire.messages import Happened
from jackalope.wire.views import DURATIONS, json_name
from tests.docs.http import described
from tests.docs.metrics import described as metrics

ROOT = Path(__file__).resolve().parents[2]


def test_states_of_tasks() -> None:
    assert {*STATES} == {*State} == {state for states in BY_STATUS.values() for state in states}
    assert {*STATE_COLOURS} >= {*State}
    assert {*STATE_SETS["ended"]} == ENDED
    assert {*STATE_SETS["pending"]} == PENDING
    page = (ROOT / "docs" / "reference" / "lifecycle.md").read_text()
    assert {state for state in State if f"`{state}`" not in page} == set()


def test_the_dashboard_has_the_same_states() -> None:
    source = "".join(path.read_text() for path in (ROOT / "dashboard" / "src").rglob("*.ts*"))
    assert {
        state for state in State if f'"{state}"' not in source and f"{state}:" not in source
    } == set()


def test_an_alias_is_none_of_our_words() -> None:
    # `pending` is a set of states for the command line as well, and means the same there.
    assert {*Status} & {*State} == set()
    assert {*BY_STATUS[Status.PENDING]} == {*STATE_SETS["pending"]}
    # Our own command line says nothing in the words of the aliases.
    for path in (ROOT / "src" / "jackalope" / "cli").rglob("*.py"):
        assert not re.search(r"dead_letter|in_progress|task_type|retry_count", path.read_text()), (
            path
        )


# Fields. Python has them as the views do; REST and the command line write these as JSON.

#: What the description of REST calls the shape of each view.
SHAPES: dict[type[msgspec.Struct], str] = {
    views.TaskView: "TaskShown",
    views.ErrorView: "ErrorShown",
    views.PaceView: "PaceShown",
    views.ProgressView: "ProgressShown",
    views.RequestView: "SignalShown",
    views.StepView: "StepShown",
    views.SentEventView: "SentEventShown",
    views.CallbackView: "CallbackShown",
    views.AnswerView: "AnswerShown",
    views.HistoryEntryView: "HappeningShown",
    views.CauseView: "CauseShown",
    views.ExplanationView: "ExplanationShown",
    views.ShareView: "ShareView",
    views.QueueView: "QueueShown",
    views.WorkerView: "WorkerShown",
    views.LimitView: "LimitShown",
    views.GateView: "GateShown",
    views.KeyLimitView: "KeyLimitShown",
    views.NamespaceView: "NamespaceShown",
    views.ActView: "ActShown",
    views.ActPage: "ActList",
    views.ApiKeyView: "KeyShown",
    views.BatchView: "BatchShown",
    views.StatsView: "StatsShown",
    views.SpreadView: "SpreadView",
    views.PointView: "PointShown",
    views.SeriesView: "SeriesShown",
    views.LaunchView: "LaunchShown",
    views.GroupView: "GroupShown",
    views.LaunchFailureView: "LaunchFailureShown",
    views.PoolView: "PoolShown",
    views.RunView: "RunShown",
    views.ContractView: "ContractShown",
    views.ScheduleView: "ScheduleShown",
    views.SchedulePage: "ScheduleList",
    views.NodeGroupView: "NodeGroupShown",
    views.AttemptView: "AttemptShown",
    views.NodeView: "NodeShown",
    views.FlowView: "FlowShown",
    views.FlowPage: "FlowList",
    views.TaskPage: "TaskList",
    Happened: "EventShown",
}

#: What REST has besides, and why.
ADDED = {
    "TaskList": {"at"},  # the time of the answer, from which a reader asks on
    "EventShown": {"type"},  # tells messages of one stream apart
}


def test_every_view_has_a_shape() -> None:
    known = {
        each
        for each in vars(views).values()
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__module__ == views.__name__
    }
    assert known - SHAPES.keys() == set()


@pytest.mark.parametrize("view", SHAPES, ids=lambda view: view.__name__)
def test_fields_are_called_the_same_in_python_rest_and_the_command_line(
    view: type[msgspec.Struct],
) -> None:
    named = {json_name(field) for field in view.__struct_fields__}
    plain = to_plain(_filled(view))
    assert set(plain) == named
    over_rest = _shapes()[SHAPES[view]]["properties"]
    assert set(over_rest) - ADDED.get(SHAPES[view], set()) == named
    # A time is a text in both, a duration a number.
    for field in view.__struct_fields__:
        if field.endswith("_us"):
            name, is_duration = json_name(field), field in DURATIONS
            assert isinstance(plain[name], float if is_duration else str), name
            kinds = {each.get("type") for each in over_rest[name]["anyOf"]}
            assert kinds == {"number" if is_duration else "string", "null"}, name


@pytest.mark.parametrize("settings", [Policy, PoolSettings, ScheduleSettings, LimitSettings])
def test_settings_are_called_as_in_files(settings: type[msgspec.Struct]) -> None:
    assert set(to_plain(_filled(settings))) == set(keys_of(settings))
    given = {
        Policy: "PolicyGiven",
        PoolSettings: "PoolGiven",
        ScheduleSettings: "ScheduleWanted",
        LimitSettings: "KeyLimitGiven",
    }
    over_rest = set(_shapes()[given[settings]]["properties"])
    # `retry` of a schedule is an object of durations, which only Python can give.
    assert over_rest == set(keys_of(settings)) - {"retry"}


def test_aliases_are_none_of_our_words() -> None:
    ours = {json_name(field) for view in SHAPES for field in view.__struct_fields__}
    theirs = {alias for each in aliases().values() for alias in each.names.values()}
    # `signal` is what a request of a signal asks for, and the whole of it in aliases.
    assert theirs & ours == {"signal"}
    # `/status` is osrdyne's, and has its words.
    for name in _shapes().keys() - {"WorkerMetadata"}:
        shape = _shapes()[name]
        assert set(shape.get("properties", ())) & (theirs - {"signal"}) == set(), name


def test_the_dashboard_reads_our_fields_alone() -> None:
    """Every field of the page's types is one of the shape of the same object."""
    source = (ROOT / "dashboard" / "src" / "types.ts").read_text()
    pages = {
        "Task": "TaskShown",
        "Queue": "QueueShown",
        "Worker": "WorkerShown",
        "Schedule": "ScheduleShown",
        "Run": "RunShown",
        "Flow": "FlowShown",
        "FlowNode": "NodeShown",
        "Pool": "PoolShown",
        "Group": "GroupShown",
        "Launch": "LaunchShown",
        "ApiKey": "KeyShown",
        "AnswerOf": "AnswerShown",
        "Stats": "StatsShown",
        "Step": "StepShown",
        "SentEvent": "SentEventShown",
    }
    for page, shape in pages.items():
        found = re.search(rf"export interface {page}\b[^{{]*{{\n(.*?)\n}}", source, re.DOTALL)
        assert found is not None, page
        fields = set(re.findall(r"^  (\w+)\??:", found[1], re.MULTILINE))
        assert fields - set(_shapes()[shape]["properties"]) == set(), page


#: Labels of metrics that are no fields of a view, and what they are words of.
LABELS = {
    "tier",  # the keys of `depth_by_tier`
    "command", "method", "path", "status", "door",  # of the protocols
    "copy",  # of a cluster
    "quota",  # the fields of a namespace's settings
}  # fmt: skip


def test_labels_of_metrics_are_fields_of_views() -> None:
    ours = {field for view in SHAPES for field in view.__struct_fields__}
    labels = {label for _, _, labels, _ in metrics() for label in labels}
    assert labels - ours == LABELS
    # With the aliases they are the words of the published design, as over REST.
    theirs = {label for _, _, labels, _ in metrics(Names.TASK_QUEUE) for label in labels}
    assert theirs == {"task_type", "status", "priority"}


@cache
def _shapes() -> dict[str, Any]:
    shapes: dict[str, Any] = described()["components"]["schemas"]
    _, events = msgspec.json.schema_components([EventShown])
    return shapes | events


def _filled(hint: Any) -> Any:
    """Make a value of a type in which nothing is empty."""
    if get_origin(hint) is UnionType:
        hint = next(each for each in get_args(hint) if each is not NoneType)
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = get_type_hints(hint)
        return hint(**{name: _filled(fields[name]) for name in hint.__struct_fields__})
    if hint is TaskId:
        return TaskId(bytes(range(16)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    if origin in (tuple, list):
        return origin([_filled(inner[0])])
    if origin is dict:
        return {_filled(inner[0]): _filled(inner[1])}
    return {int: 1, float: 1.0, str: "x", bytes: b"x", bool: True}.get(hint, "x")
