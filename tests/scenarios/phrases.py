"""Phrases: how records, replies and messages read in the scripts.

One line each; only what is not the default is told. Times are told from now.
"""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any

import msgspec

from jackalope.core import commands, effects, records
from jackalope.core.commands.amqp import ClearRule, OpenQueue, SetRule
from jackalope.core.durations import NEVER
from jackalope.core.lifecycle import Event, State
from jackalope.core.policy import DEFAULT_POLICY, Policy
from jackalope.core.records import limits as limit_records
from jackalope.core.refusals import Refusal
from jackalope.core.shapes.callback import Callback, Trigger
from jackalope.core.shapes.exchange import AmqpTraits, Binding
from jackalope.core.shapes.flow import Input
from jackalope.core.shapes.limit import LimitSettings
from jackalope.core.shapes.pool import DEFAULT_POOL, PoolSettings
from jackalope.core.shapes.schedule import DEFAULT_SCHEDULE, RunKind, ScheduleSettings
from jackalope.core.task import BlobRef, Body, Error, Task
from jackalope.wire import amqp_properties as properties
from tests.scenarios.cast import Cast
from tests.scenarios.following import tell_following
from tests.scenarios.language import tell_duration

DEFAULT = commands.DEFAULT_NAMESPACE

_SAID: dict[type, str] = {
    effects.Declared: "declared",
    effects.PoolSet: "pool declared",
    effects.ScheduleSet: "schedule declared",
    effects.NamespaceSet: "namespace declared",
    effects.NothingToClaim: "nothing to claim",
    effects.Suspended: "suspended",
}

PAST = {
    Event.HOLD: "held",
    Event.PLAY: "played",
    Event.PAUSE: "paused",
    Event.KILL: "killed",
    Event.RETRY: "retried",
    Event.UNBLOCK: "unblocked",
    Event.ABANDON: "abandoned",
    Event.DUE: "due",
    Event.EXPIRE: "expired",
    Event.FAIL: "failed",
    Event.RELEASE: "released",
    Event.SUSPEND: "suspended",
    Event.THROTTLE: "throttled",
    Event.STOP: "stopped",
    Event.LOSE: "lost",
    Event.COMPLETE: "completed",
}


def join(*parts: str) -> str:
    """Join the parts that say something."""
    return " ".join(part for part in parts if part)


def option(name: str, value: object) -> str:
    """Tell a value that is not empty."""
    return f"{name}={value}" if value else ""


def tell_body(name: str, body: Body) -> str:
    """Tell a payload or a result."""
    if isinstance(body, BlobRef):
        return f"{name}=blob:{body.blob}:{body.size}"
    if len(body) > 40:
        return f"{name}=<{len(body)} bytes>"
    return option(name, body.decode())


def tell_error(error: Error | None) -> str:
    """Tell what a worker says went wrong."""
    if error is None:
        return ""
    return f"error={error.type}" + (f" ({error.message})" if error.message else "")


AnySettings = Policy | PoolSettings | ScheduleSettings | LimitSettings


def tell_settings(settings: AnySettings, default: AnySettings) -> str:
    """Tell what a policy, a pool or a schedule has that the default has not."""
    told = []
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value != getattr(default, name):
            is_time = name.endswith("_us")
            told.append(f"{name.removesuffix('_us')}={_plain(value, is_time=is_time)}")
    return " ".join(told)


def tell_traits(traits: AmqpTraits) -> str:
    """Tell what traits have that the default has not, arguments apart."""
    told = []
    for name in AmqpTraits.__struct_fields__:
        value = getattr(traits, name)
        if value != getattr(AmqpTraits(), name) and name != "arguments":
            is_time = name.endswith("_us")
            told.append(f"{name.removesuffix('_us')}={_plain(value, is_time=is_time)}")
    return " ".join(told)


def _plain(value: object, *, is_time: bool) -> str:
    if is_time and isinstance(value, int):
        return tell_duration(value)
    if isinstance(value, tuple) and isinstance(value[0], Callback | Trigger):
        return ",".join(tell_following(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def tell_task(task: Task) -> list[str]:
    """Tell how a task is, beyond its state."""
    return [*_counters(task), *_lease(task), *_outcome(task)]


def _counters(task: Task) -> list[str]:
    names = ("failures", "crashes", "interruptions")
    counters = [option(name, getattr(task, name)) for name in names]
    return [*counters, f"priority={task.priority}" if task.penalty else ""]


def _lease(task: Task) -> list[str]:
    attempt = task.attempt
    if attempt is None:
        return []
    asked = attempt.request
    signal = f"{asked.signal} {asked.stage}" if asked else ""
    return [f"on {attempt.worker} fence={attempt.fence}", signal]


def _outcome(task: Task) -> list[str]:
    outcome = task.outcome
    if outcome is None:
        return []
    return [outcome.reason or "", tell_body("result", outcome.result), tell_error(outcome.error)]


class Teller:
    """Tells what a command brought about, at a certain time."""

    def __init__(self, cast: Cast, now_us: int) -> None:
        self._cast = cast
        self._now_us = now_us

    def record(self, record: records.AnyRecord, command: commands.AnyCommand) -> str:
        """Tell a record; nothing for a queue that comes into being by being named."""
        is_asked = isinstance(command, commands.DeclareQueue | OpenQueue | SetRule | ClearRule)
        if type(record) is records.QueueDeclared and not is_asked:
            return ""
        return self._cast.put_names(self.tell(record))

    def effect(self, effect: effects.Effect, command: commands.AnyCommand | None) -> list[str]:
        """Tell a reply to a command, or a message, and to whom."""
        if isinstance(effect, effects.Reply):
            told = self._reply(effect.body, command)
        else:
            told = [self.tell(effect.message)]
        who = self._cast.session_name(effect.session)
        return [self._cast.put_names(f"{who}: {line}") for line in told]

    @singledispatchmethod
    def tell(self, what: object) -> str:
        """Tell a record or a message."""
        raise TypeError(f"no words for {what!r}")

    # Records.

    @tell.register
    def _(self, record: records.QueueDeclared) -> str:
        policy, by = tell_settings(record.policy, DEFAULT_POLICY), option("by", record.by)
        traits = "" if record.traits is None else tell_traits(record.traits)
        return join("declared", record.queue, policy, traits, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.QueueDeleted) -> str:
        by = option("by", record.by)
        return join("deleted queue", record.queue, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.QueuePaused) -> str:
        by = option("by", record.by)
        return join("paused queue", record.queue, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.QueueResumed) -> str:
        by = option("by", record.by)
        return join("resumed queue", record.queue, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.TagLimited) -> str:
        what = f"limited {record.tag} to {record.limit}"
        if record.limit < 0:
            what = f"unlimited {record.tag}"
        return join(what, option("by", record.by), self._world(record.namespace))

    @tell.register
    def _(self, record: limit_records.LimitSet) -> str:
        settings, by = tell_settings(record.settings, LimitSettings()), option("by", record.by)
        return join("set limit", record.name, settings, by, self._world(record.namespace))

    @tell.register
    def _(self, record: limit_records.LimitDeleted) -> str:
        by = option("by", record.by)
        return join("deleted limit", record.name, by, self._world(record.namespace))

    @tell.register
    def _(self, record: limit_records.GatesClosed) -> str:
        span = tell_duration(record.until_us - record.at_us)
        return join("closed", *record.gates, f"for {span}", self._world(record.namespace))

    @tell.register
    def _(self, record: limit_records.BucketsFilled) -> str:
        return join("full again", *record.gates, self._world(record.namespace))

    @tell.register
    def _(self, record: records.PoolDeclared) -> str:
        settings, by = tell_settings(record.settings, DEFAULT_POOL), option("by", record.by)
        return join("declared pool", record.queue, settings, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.PoolDeleted) -> str:
        by = option("by", record.by)
        return join("deleted pool", record.queue, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.GroupPinned) -> str:
        what = "pinned" if record.pinned else "unpinned"
        name, by = f"{record.queue} {record.key or '(none)'}", option("by", record.by)
        return join(what, name, by, self._world(record.namespace))

    @tell.register
    def _(self, record: records.ApiKeyCreated) -> str:
        key = record.key
        return join(
            f"created key {key.id} of {key.name}:",
            " ".join(key.permissions),
            option("queues", ",".join(key.queues)),
            option("namespace", key.namespace),
            self._when("expires", key.expires_us),
            option("by", key.by),
        )

    @tell.register
    def _(self, record: records.ApiKeyRevoked) -> str:
        return join(f"revoked key {record.key}", option("by", record.by))

    @tell.register
    def _(self, record: records.TaskSubmitted) -> str:
        options = record.spec.options
        waiting_for = ",".join(self._cast.name(task) for task in record.waiting_for)
        waits = "for" if record.state is State.WAITING else "waits for"
        return join(
            f"submitted {self._cast.name(record.spec.id)} {record.state}",
            f"{waits} {waiting_for}" if waiting_for else "",
            self._when("due", options.run_at_us if options else 0),
            self._when("expires", record.expires_us),
            option("batch", record.batch if record.batch > 1 else 0),
            option("by", record.by),
            self._world(record.namespace),
        )

    @tell.register
    def _(self, record: records.TaskMoved) -> str:
        past = PAST[record.event]
        return join(
            past,
            self._cast.name(record.task),
            "" if past == record.to else record.to,
            "" if record.reason is None or past == record.reason else record.reason,
            f"because {record.detail}" if record.detail else "",
            option("by", record.by),
        )

    @tell.register
    def _(self, record: records.TaskRevived) -> str:
        row = record.row
        return join("revived", self._cast.name(row.id), row.state, option("by", record.by))

    @tell.register
    def _(self, record: records.TaskPurged) -> str:
        return join("purged", self._cast.name(record.task), option("by", record.by))

    @tell.register
    def _(self, record: records.AttemptAssigned) -> str:
        return f"assigned {self._cast.name(record.task)} to {record.worker} fence={record.fence}"

    @tell.register
    def _(self, record: records.AttemptStarted) -> str:
        return f"started {self._cast.name(record.task)}"

    @tell.register
    def _(self, record: records.AttemptFinished) -> str:
        return join("finished", self._cast.name(record.task), tell_body("result", record.result))

    @tell.register
    def _(self, record: records.AttemptEnded) -> str:
        return join(
            f"{PAST[record.event]} {self._cast.name(record.task)} {record.to}",
            record.reason or "",
            self._when("due", record.due_us),
            tell_error(record.error),
            option("by", record.by),
            f"({record.cause})" if record.cause else "",
        )

    @tell.register
    def _(self, record: records.SignalRequested) -> str:
        name = self._cast.name(record.task)
        return join("requested", record.signal, "of", name, option("by", record.by))

    @tell.register
    def _(self, record: records.SignalAdvanced) -> str:
        detail = f"({record.detail})" if record.detail else ""
        return join("signal of", self._cast.name(record.task), record.stage, detail)

    @tell.register
    def _(self, record: records.StepRecorded) -> str:
        what = join(f"step {record.index} {record.name!r} of", self._cast.name(record.task))
        late = "late" if record.is_late else ""
        return join(what, tell_body("result", record.result), option("event", record.event), late)

    @tell.register
    def _(self, record: records.WaitBegan) -> str:
        what = join(f"step {record.index} {record.name!r} of", self._cast.name(record.task))
        event = f"for the event {record.event!r}" if record.event else ""
        return join(what, "waits", event, self._when("until", record.until_us))

    @tell.register
    def _(self, record: records.InputsChanged) -> str:
        given = ",".join(each.node for _, each in record.given)
        withdrawn = ",".join(map(self._cast.name, record.withdrawn))
        told = join(option("given", given), option("withdrawn", withdrawn))
        return join("inputs of", self._cast.name(record.task), told)

    @tell.register
    def _(self, record: records.GroupsClosed) -> str:
        return join("closed", ",".join(record.groups), "of", self._cast.name(record.task))

    @tell.register
    def _(self, record: records.FlowFailed) -> str:
        names = map(self._cast.name, (record.task, record.node))
        return join("{} fails because of {}".format(*names), f"({record.detail})")

    @tell.register
    def _(self, record: records.FlowStopped) -> str:
        why = join(str(record.reason or ""), option("by", record.by))
        return join("stopping", self._cast.name(record.task), "to end", record.to, why)

    @tell.register
    def _(self, record: records.EventSent) -> str:
        what = f"event {record.event!r} for {self._cast.name(record.task)}"
        return join(what, tell_body("data", record.data), option("by", record.by))

    @tell.register
    def _(self, record: records.TaskReplaced) -> str:
        task, later = self._cast.name(record.task), self._cast.name(record.spec.id)
        return join(
            f"replaced {task} by {later}",
            record.to,
            tell_body("payload", record.spec.payload),
            self._when("due", record.due_us),
            self._when("expires", record.expires_us),
            option("by", record.by),
        )

    @tell.register
    def _(self, record: records.ThrottlesEnded) -> str:
        return f"throttled no more: {', '.join(record.kinds)}"

    @tell.register
    def _(self, record: records.ContractDeclared) -> str:
        versions = ",".join(each.version for each in record.versions)
        return join("contract of", record.name, "in", record.queue, option("versions", versions))

    @tell.register
    def _(self, record: records.ContractDeleted) -> str:
        return join("no contract of", record.name, "in", record.queue, option("by", record.by))

    @tell.register
    def _(self, record: records.NamespaceDeclared) -> str:
        settings = msgspec.to_builtins(record.settings)
        given = " ".join(f"{name}={value}" for name, value in settings.items())
        return join(f"namespace {record.namespace}", given, option("by", record.by))

    @tell.register
    def _(self, record: records.NamespaceDeleted) -> str:
        return join(f"deleted namespace {record.namespace}", option("by", record.by))

    @tell.register
    def _(self, record: records.ActNoted) -> str:
        return join("noted", record.act.what, record.act.outcome, option("by", record.act.by))

    @tell.register
    def _(self, record: records.RequestJoined) -> str:
        return join("joined to", self._cast.name(record.task), option("by", record.by))

    @tell.register
    def _(self, record: records.AnswerStored) -> str:
        answer = record.answer
        return join(
            f"keeps answer of {self._cast.name(answer.task)}",
            "" if answer.state is State.SUCCEEDED else answer.state,
            option("version", answer.version),
            f"worker={answer.worker} size={answer.size}",
            option("uses", answer.uses),
            option("pinned_by", answer.pinned_by),
            self._when("until", answer.until_us) if answer.until_us < NEVER else "for good",
        )

    @tell.register
    def _(self, record: records.AnswerUsed) -> str:
        return join("used answer of", self._cast.name(record.task), option("by", record.by))

    @tell.register
    def _(self, record: records.AnswerPinned) -> str:
        name = self._cast.name(record.task)
        return f"pinned answer of {name} by={record.by}" if record.by else f"unpinned {name}"

    @tell.register
    def _(self, record: records.AnswersDropped) -> str:
        tasks = ",".join(self._cast.name(task) for task in record.tasks)
        return join(f"dropped answer of {tasks}: {record.why}", option("by", record.by))

    # Replies.

    def _reply(self, body: effects.Answered, command: commands.AnyCommand | None) -> list[str]:
        if isinstance(body, Refusal):
            return [f"refused {self._refusal(body)}"]
        if isinstance(body, effects.Accepted):
            return self._accepted(body, command)
        if isinstance(body, effects.Acted):
            return self._acted(body)
        if isinstance(body, effects.Joined):
            resumed = ",".join(self._cast.name(held.task) for held in body.resumed)
            drop = ",".join(self._cast.name(held.task) for held in body.drop)
            return [join("joined", option("resumed", resumed), option("drop", drop))]
        if isinstance(body, effects.Orders):
            return _orders(body)
        return [_SAID.get(type(body)) or self._messaging(body)]

    def _messaging(self, body: effects.Answered) -> str:
        if isinstance(body, effects.QueueOpened):
            return f"opened {body.queue} ready={body.ready} consumers={body.consumers}"
        if isinstance(body, effects.NamespaceGone):
            return join("deleted", option("killed", body.killed))
        if isinstance(body, effects.Dropped):
            return f"dropped {body.count}"
        if isinstance(body, effects.SlotsRun):
            stopped = "" if body.refused is None else f"refused {self._refusal(body.refused)}"
            known, forgotten = body.known, len(body.forgotten)
            left_out = (option("known", known), option("forgotten", forgotten))
            return join(f"ran {len(body.tasks)}", *left_out, stopped)
        if isinstance(body, effects.HelpersPromised | effects.StepDone):
            return _done(body)
        if not isinstance(body, effects.Published):
            raise TypeError(f"no words for {body!r}")
        failed = "" if body.failed is None else f"refused {self._refusal(body.failed[1])}"
        unrouted = option("unrouted", ",".join(map(str, body.unrouted)))
        refused = option("refused", ",".join(map(str, body.refused)))
        return failed or join(f"published {body.count}", unrouted, refused)

    def _accepted(self, body: effects.Accepted, command: commands.AnyCommand | None) -> list[str]:
        items = _items(command)
        if items is None:
            return ["ok"]
        refused = [
            f"refused {self._cast.name(items[index])} {self._refusal(refusal)}"
            for index, refusal in body.refused
        ]
        served = []
        if isinstance(body, effects.AcceptedRequests):
            served = [
                f"{self._cast.name(items[index])} {it.how} {self._cast.name(it.task)}"
                for index, it in body.served
            ]
            served += [
                f"warned of {self._cast.name(items[index])}: {warning}"
                for index, warning in body.warnings
            ]
        accepted = [f"accepted {body.count}"] if body.count or not refused else []
        return accepted + served + refused

    def _acted(self, body: effects.Acted) -> list[str]:
        counts = [f"changed {body.changed}"] if body.changed else []
        counts += [f"requested {body.requested}"] if body.requested else []
        counts += ["more"] if body.more else []
        refused = [
            f"refused {self._cast.name(task)} {self._refusal(refusal)}"
            for task, refusal in body.refused
        ]
        if not counts and not refused:
            counts = ["changed 0"]
        return ([", ".join(counts)] if counts else []) + refused

    def _refusal(self, refusal: Refusal) -> str:
        again = f" (again in {tell_duration(refusal.retry_after_us)})"
        return f"{refusal.code}: {refusal.message}" + (again if refusal.retry_after_us else "")

    # Messages.

    @tell.register
    def _(self, message: effects.Assignment) -> str:
        headers = ",".join(f"{name}:{value}" for name, value in message.options.headers.items())
        return join(
            f"assignment {self._cast.name(message.task)}",
            f"fence={message.fence} attempt={message.attempt}",
            option("name", message.name),
            option("key", message.key),
            tell_body("payload", message.payload),
            option("headers", headers),
            option("timeout", message.timeout_us and tell_duration(message.timeout_us)),
            "claimed" if message.claim else "",
            option("steps", ",".join(step.name for step in message.steps)),
            option("inputs", ",".join(map(_input, message.inputs))),
        )

    @tell.register
    def _(self, message: effects.SignalAsked) -> str:
        return f"asked to {message.signal} {self._cast.name(message.task)} fence={message.fence}"

    @tell.register
    def _(self, _message: effects.DrainAsked) -> str:
        return "asked to drain"

    @tell.register
    def _(self, _message: effects.SessionReplaced) -> str:
        return "session replaced"

    @tell.register
    def _(self, _message: effects.LeaseLost) -> str:
        return "lease lost"

    @tell.register
    def _(self, message: effects.OrdersDue) -> str:
        return f"orders for {message.launcher}"

    @tell.register
    def _(self, message: effects.TaskEnded) -> str:
        return join(
            f"ended {self._cast.name(message.task)} {message.state}",
            message.reason or "",
            tell_body("result", message.result),
            tell_error(message.error),
        )

    @tell.register
    def _(self, message: effects.TaskProgressed) -> str:
        percent = "" if message.percent is None else f"{message.percent:g}%"
        note = f"({message.note})" if message.note else ""
        return join(f"progress of {self._cast.name(message.task)}", percent, note)

    @tell.register
    def _(self, _message: effects.ConsumerCancelled) -> str:
        return "consumer cancelled"

    @tell.register
    def _(self, message: effects.DeliveryTimedOut) -> str:
        return f"delivery of {self._cast.name(message.task)} timed out"

    @tell.register
    def _(self, message: effects.DirectReply) -> str:
        raw = properties.split(message.properties)
        status = properties.value(properties.headers_of(raw)["x-status"]).decode()
        id_ = properties.text(raw, properties.CORRELATION_ID)
        return join(f"reply {status}", option("id", id_), tell_body("body", message.body))

    # Messaging.

    @tell.register
    def _(self, record: records.TasksDropped) -> str:
        return "dropped " + ",".join(self._cast.name(task) for task in record.tasks)

    @tell.register
    def _(self, record: records.ExchangeDeclared) -> str:
        exchange = record.exchange
        alternate = option("alternate", exchange.alternate)
        return join("declared exchange", exchange.name, exchange.kind, alternate)

    @tell.register
    def _(self, record: records.ExchangeDeleted) -> str:
        return join("deleted exchange", record.exchange)

    @tell.register
    def _(self, record: records.Bound) -> str:
        return f"bound {_tell_binding(record.binding)}"

    @tell.register
    def _(self, record: records.Unbound) -> str:
        return f"unbound {_tell_binding(record.binding)}"

    @tell.register
    def _(self, record: records.RuleSet) -> str:
        return f"set rule {record.rule.name}"

    @tell.register
    def _(self, record: records.RuleCleared) -> str:
        return f"cleared rule {record.rule}"

    @tell.register
    def _(self, record: records.FencesReserved) -> str:
        return f"reserved fences through {record.through}"

    @tell.register
    def _(self, record: records.Forgotten) -> str:
        ago = tell_duration(self._now_us - record.through_us)
        return "forgot what was kept until " + (f"{ago} ago" if ago != "0" else "now")

    @tell.register
    def _(self, record: records.ScheduleDeclared) -> str:
        settings, by = tell_settings(record.settings, DEFAULT_SCHEDULE), option("by", record.by)
        app, where = option("app", record.app), self._world(record.namespace)
        when = self._when("next", record.next_us) or "over"
        return join("declared schedule", record.name, settings, when, app, by, where)

    @tell.register
    def _(self, record: records.ScheduleDeleted) -> str:
        return join("deleted schedule", record.name, option("by", record.by))

    @tell.register
    def _(self, record: records.SchedulePaused) -> str:
        return join("paused schedule", record.name, option("by", record.by))

    @tell.register
    def _(self, record: records.ScheduleResumed) -> str:
        when = self._when("next", record.next_us) or "over"
        return join("resumed schedule", record.name, when, option("by", record.by))

    @tell.register
    def _(self, record: records.ScheduleOrphaned) -> str:
        return f"orphaned schedule {record.name}"

    @tell.register
    def _(self, record: records.ScheduleFired) -> str:
        when = self._when("next", record.next_us) or "over"
        how = "" if record.how is RunKind.SLOT else record.how
        slot = self._when("slot", record.slot_us) if record.slot_us != self._now_us else ""
        what = f"fired {self._cast.name(record.task)}"
        return join(what, how, slot, when, option("by", record.by))

    @tell.register
    def _(self, record: records.SlotsMissed) -> str:
        count = "a slot" if record.count == 1 else f"{record.count} slots"
        when = self._when("next", record.next_us) or "over"
        last = self._when("last", record.slot_us)
        return join(f"missed {count} of {record.name}, {last}:", record.why, record.detail, when)

    @tell.register
    def _(self, message: effects.HelpAsked) -> str:
        return join(
            f"asked to help {self._cast.name(message.task)} fence={message.fence}",
            f"function={message.function} at={message.where} token={message.token}",
            option("seal", message.seal),
        )

    @tell.register
    def _(self, message: effects.HelpRecalled) -> str:
        return f"asked to help no more fence={message.fence}"

    @tell.register
    def _(self, message: effects.HelperFailed) -> str:
        return f"{message.worker} cannot help {self._cast.name(message.task)}: {message.why}"

    # Details.

    def _when(self, what: str, at_us: int) -> str:
        if at_us <= self._now_us:
            return f"{what} {tell_duration(self._now_us - at_us)} ago" if at_us else ""
        return f"{what} in {tell_duration(at_us - self._now_us)}"

    def _world(self, namespace: str) -> str:
        return "" if namespace == DEFAULT else f"namespace={namespace}"


def _orders(orders: effects.Orders) -> list[str]:
    told = [
        join(
            f"start {order.launch} for {order.queue} {order.key or '(none)'}",
            option("version", order.version),
        )
        for order in orders.start
    ]
    told += [f"stop {order.launch}" for order in orders.stop]
    return told or ["nothing to do"]


def _tell_binding(binding: Binding) -> str:
    to = f"exchange {binding.to}" if binding.is_to_exchange else binding.to
    return join(f"{binding.source} to {to}", option("key", binding.key))


def _items(command: commands.AnyCommand | None) -> list[Any] | None:
    """Return the ids of the items of a command that is a list, or None."""
    if isinstance(command, commands.SubmitTasks):
        return [spec.id for spec in command.tasks]
    if isinstance(command, commands.WatchTasks):
        return list(command.tasks)
    attempts = getattr(command, "attempts", None)
    return None if attempts is None else [item.task for item in attempts]


def _done(body: effects.HelpersPromised | effects.StepDone) -> str:
    if isinstance(body, effects.HelpersPromised):
        return f"helpers promised token={body.token}"
    return join("step done", tell_body("result", body.result), "late" if body.is_late else "")


def _input(given: Input) -> str:
    result = tell_body("", given.result).lstrip("=")
    return f"{given.node}:{result or given.state}"
