"""Tasks as messages: what is submitted, filtered and shown.

Owns the rules by which messages become tasks of the core, and views of the broker messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from jackalope.core.commands import Action, RetryTerms
from jackalope.core.durations import HOUR, SECOND
from jackalope.core.effects import Accepted, AcceptedRequests, Served, TaskEnded, TaskProgressed
from jackalope.core.filter import Filter
from jackalope.core.ids import NO_TASK, TaskId, id_text
from jackalope.core.lifecycle import Reason, State
from jackalope.core.limits import INLINE_BYTES_MAX
from jackalope.core.shapes.callback import Callback, CallbackOn
from jackalope.core.shapes.flow import Input
from jackalope.core.shapes.needs import Labels, Needs, read_amounts
from jackalope.core.shapes.pace import Pace, Pacing
from jackalope.core.shapes.request import How, Same
from jackalope.core.task import (
    PRIORITY_DEFAULT,
    BlobRef,
    Error,
    OnDependency,
    Options,
    Retry,
    Signal,
    Stage,
    TaskSpec,
    size_of,
)
from jackalope.doors.grpc.errors import BadField
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import (
    Words,
    from_duration,
    from_struct,
    from_time,
    id_of,
    ids_of,
    maybe_id,
    to_duration,
    to_struct,
    to_time,
)
from jackalope.wire.views import CallbackView, ErrorView, ProgressView, TaskView

STATES = Words(pb.TaskState, State)
ACTIONS = Words(pb.TaskAction, Action)
SAME = Words(pb.SameRequest, Same)
SIGNALS = Words(pb.Signal, Signal)
REASONS = Words(pb.DeathReason, Reason)
_PACINGS = Words(pb.Pacing, Pacing)
_HOW = Words(pb.HowServed, How)
_STAGES = Words(pb.SignalStage, Stage)
_ON_DEPENDENCY = Words(pb.OnDependency, OnDependency)
_CALLBACK_ON = Words(pb.CallbackOn, CallbackOn)

#: What a task's own number of retries means if it says nothing else.
_RETRY_BASE_US = 5 * SECOND
_RETRY_FACTOR = 2.0
_RETRY_CAP_US = HOUR


# In.


def spec_of(task: pb.TaskSpec, fresh: Callable[[], TaskId]) -> TaskSpec:
    """Return a task as the core takes it, with a fresh id if it has none."""
    if not task.queue:
        raise BadField("queue", "must be set")
    return TaskSpec(
        id_of(task.id, "id") if task.id else fresh(),
        task.queue,
        task.name,
        task.key,
        task.priority if task.HasField("priority") else PRIORITY_DEFAULT,
        task.payload,
        _options_of(task) if _has_options(task) else None,
    )


#: Read at once, because each look at a message takes long.
_options_in = attrgetter(
    *("alias", "tags", "depends_on", "on_dependency", "parent", "held", "same", "version"),
    "callbacks",
    "keys",
)


def _has_options(task: pb.TaskSpec) -> bool:
    return bool(
        any(_options_in(task))
        or task.HasField("headers")
        or task.HasField("run_at")
        or task.HasField("expires_at")
        or task.HasField("timeout")
        or task.HasField("retry")
        or task.HasField("pace")
        or task.HasField("needs")
    )


def _options_of(task: pb.TaskSpec) -> Options:
    return Options(
        alias=task.alias,
        headers=from_struct(task.headers, "headers") if task.HasField("headers") else {},
        tags=tuple(task.tags),
        run_at_us=from_time(task, "run_at"),
        expires_at_us=from_time(task, "expires_at"),
        timeout_us=from_duration(task, "timeout"),
        retry=retry_of(task.retry) if task.HasField("retry") else None,
        depends_on=ids_of(task.depends_on, "depends_on"),
        on_dependency=_ON_DEPENDENCY.word(task.on_dependency, "on_dependency") or OnDependency.DEAD,
        parent=maybe_id(task.parent, "parent"),
        held=task.held,
        same=SAME.word(task.same, "same"),
        version=task.version,
        pace=_pace_of(task.pace) if task.HasField("pace") else None,
        callbacks=callbacks_of(task.callbacks),
        keys=dict(task.keys),
        needs=_needs_of(task.needs) if task.HasField("needs") else None,
    )


def callbacks_of(callbacks: Sequence[pb.Callback]) -> tuple[Callback, ...]:
    return tuple(
        Callback(each.url, _CALLBACK_ON.each(each.on, f"callbacks[{number}].on"))
        for number, each in enumerate(callbacks)
    )


def retry_of(retry: pb.Retry) -> Retry:
    try:
        base_us = from_duration(retry, "base", _RETRY_BASE_US)
        cap_us = from_duration(retry, "cap", _RETRY_CAP_US)
    except BadField as bad:
        raise bad.below("retry") from None
    return Retry(retry.retries, base_us, retry.factor or _RETRY_FACTOR, cap_us)


def _pace_of(pace: pb.Pace) -> Pace:
    try:
        how = _PACINGS.required(pace.how, "how")
        span_us, at_most_us = from_duration(pace, "span"), from_duration(pace, "at_most")
    except BadField as bad:
        raise bad.below("pace") from None
    return Pace(how, pace.key, span_us, at_most_us, pace.drop)


def _needs_of(needs: pb.Needs) -> Needs:
    """Return needs whose amounts can be read; the core says whether the rest is sound."""
    amounts = resources_of(needs.resources, "needs.resources")
    return Needs(
        tuple(sorted(amounts.items())),
        _labels_of(needs.labels),
        _labels_of(needs.prefer),
        _labels_of(needs.avoid),
        needs.sticky,
    )


def _labels_of(labels: Mapping[str, pb.LabelValues]) -> Labels:
    return tuple((name, tuple(sorted(set(labels[name].values)))) for name in sorted(labels))


def resources_of(given: Mapping[str, float], path: str) -> dict[str, int]:
    """Return amounts in thousandths."""
    problems: list[str] = []
    amounts = read_amounts(given, problems, path)
    if problems:
        raise BadField(path, "; ".join(each.removeprefix(f"{path}: ") for each in problems))
    return amounts


def filter_of(given: pb.TaskFilter) -> Filter:
    try:
        older_than_us = from_time(given, "older_than")
        newer_than_us = from_time(given, "newer_than")
    except BadField as bad:
        raise bad.below("filter") from None
    states = STATES.each(given.states, "filter.states")
    return Filter(
        states=tuple(sorted(set(states))),
        queue=given.queue,
        name=given.name,
        key=given.key,
        tag=given.tag,
        parent=maybe_id(given.parent, "filter.parent"),
        batch=given.batch,
        text=given.text,
        older_than_us=older_than_us,
        newer_than_us=newer_than_us,
        contains=given.contains,
    )


def terms_of(given: pb.RetryTerms) -> RetryTerms:
    try:
        timeout_us = from_duration(given, "timeout") if given.HasField("timeout") else None
    except BadField as bad:
        raise bad.below("terms") from None
    return RetryTerms(
        given.retries if given.HasField("retries") else None,
        timeout_us,
        given.priority if given.HasField("priority") else None,
    )


# Out.


def retry_shown(retry: Retry) -> pb.Retry:
    return pb.Retry(
        retries=retry.retries,
        base=to_duration(retry.base_us),
        factor=retry.factor,
        cap=to_duration(retry.cap_us),
    )


def served_by(accepted: Accepted) -> dict[int, Served]:
    return dict(accepted.served) if isinstance(accepted, AcceptedRequests) else {}


def served_shown(served: Served) -> pb.Served:
    return pb.Served(
        how=_HOW.number(served.how),
        task_id=id_text(served.task),
        made_at=to_time(served.made_us),
        worker=served.worker,
    )


def error_shown(error: Error | ErrorView | None) -> pb.TaskError | None:
    if error is None:
        return None
    return pb.TaskError(type=error.type, message=error.message, trace=error.trace)


def progress_shown(progress: ProgressView | TaskProgressed | None) -> pb.Progress | None:
    if progress is None:
        return None
    return pb.Progress(at=to_time(progress.at_us), percent=progress.percent, note=progress.note)


def ended_shown(ended: TaskEnded) -> pb.TaskEnded:
    result = ended.result
    return pb.TaskEnded(
        id=id_text(ended.task),
        state=STATES.number(ended.state),
        result=result if isinstance(result, bytes) else None,
        result_size=size_of(result),
        reason=REASONS.number(ended.reason),
        error=error_shown(ended.error),
    )


def small(body: object) -> bytes | None:
    """Return a body that fits into a message; None if it must be downloaded."""
    return body if isinstance(body, bytes) and len(body) <= INLINE_BYTES_MAX else None


def counts_shown(counts: Mapping[State, int]) -> list[pb.StateCount]:
    return [
        pb.StateCount(state=STATES.number(state), count=count)
        for state, count in sorted(counts.items())
    ]


def task_shown(view: TaskView) -> pb.Task:
    asked = view.request
    signal = None
    if asked is not None:
        signal = pb.SignalStatus(
            signal=SIGNALS.number(asked.signal),
            stage=_STAGES.number(asked.stage),
            by=asked.by,
            at=to_time(asked.at_us),
        )
    return pb.Task(
        id=id_text(view.id),
        state=STATES.number(view.state),
        tags=view.tags,
        headers=to_struct(view.headers),
        parent=id_text(view.parent) if view.parent != NO_TASK else "",
        submitted_by=view.by,
        created_at=to_time(view.created_us),
        due_at=to_time(view.due_us),
        expires_at=to_time(view.expires_us),
        started_at=to_time(view.started_us),
        ended_at=to_time(view.ended_us),
        updated_at=to_time(view.updated_us),
        forgotten_at=to_time(view.forget_us),
        depends_on=_texts(view.depends_on),
        waiting_for=_texts(view.waiting_for),
        reason=REASONS.number(view.reason),
        error=error_shown(view.error),
        progress=progress_shown(view.progress),
        signal=signal,
        timeout=to_duration(view.timeout_us) if view.timeout_us else None,
        how=_HOW.number(view.how),
        steps=[
            pb.TaskStep(
                name=step.name,
                at=to_time(step.at_us),
                took=to_duration(step.took_us),
                result_size=step.size,
                is_late=step.is_late,
            )
            for step in view.steps
        ],
        events=[
            pb.SentEvent(event=each.event, at=to_time(each.at_us), by=each.by, data_size=each.size)
            for each in view.events
        ],
        callbacks=callbacks_shown(view.callbacks),
        needs=_needs_shown(view),
        **{name: getattr(view, name) for name in _AS_THEY_ARE},
    )


#: The fields of a task that are the same in the view.
_AS_THEY_ARE: Sequence[Any] = (
    *("namespace", "queue", "name", "key", "alias", "priority", "batch", "worker", "fence"),
    *("attempts", "failures", "crashes", "interruptions", "retries"),
    *("payload_size", "result_size", "payload", "result", "waits_for"),
)


def _needs_shown(view: TaskView) -> pb.Needs | None:
    if not (view.needs or view.prefer or view.avoid or view.sticky):
        return None
    amounts: dict[str, float] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for name, value in view.needs.items():
        if isinstance(value, tuple):
            labels[name] = value
        else:
            amounts[name] = value
    return pb.Needs(
        resources=amounts,
        labels=_labels_shown(labels),
        prefer=_labels_shown(view.prefer),
        avoid=_labels_shown(view.avoid),
        sticky=view.sticky,
    )


def _labels_shown(labels: Mapping[str, tuple[str, ...]]) -> dict[str, pb.LabelValues]:
    return {name: pb.LabelValues(values=values) for name, values in labels.items()}


def callbacks_shown(callbacks: Sequence[Callback | CallbackView]) -> list[pb.Callback]:
    return [
        pb.Callback(
            url=each.url,
            on=map(_CALLBACK_ON.number, each.on),
            task_id=id_text(task) if (task := getattr(each, "task", NO_TASK)) else "",
        )
        for each in callbacks
    ]


def _texts(ids: Sequence[TaskId]) -> list[str]:
    return [id_text(each) for each in ids]


def input_shown(given: Input) -> pb.Input:
    """Return what a predecessor left, for the worker of the node."""
    result = given.result
    return pb.Input(
        node=given.node,
        group=given.group,
        task_id=id_text(given.task),
        state=STATES.number(given.state),
        result=result if isinstance(result, bytes) else b"",
        result_size=size_of(result),
        is_large=isinstance(result, BlobRef),
        error=error_shown(given.error),
    )
