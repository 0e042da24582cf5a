import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusalCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_CODE_UNSPECIFIED: _ClassVar[RefusalCode]
    REFUSAL_CODE_INVALID: _ClassVar[RefusalCode]
    REFUSAL_CODE_TOO_LARGE: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_TASK: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_QUEUE: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_WORKER: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_SESSION: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_API_KEY: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_RECIPIENT: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_REQUEST: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_DEPENDENCY: _ClassVar[RefusalCode]
    REFUSAL_CODE_ID_CONFLICT: _ClassVar[RefusalCode]
    REFUSAL_CODE_DUPLICATE_ALIAS: _ClassVar[RefusalCode]
    REFUSAL_CODE_PARENT_ENDED: _ClassVar[RefusalCode]
    REFUSAL_CODE_QUEUE_FULL: _ClassVar[RefusalCode]
    REFUSAL_CODE_QUEUE_NOT_EMPTY: _ClassVar[RefusalCode]
    REFUSAL_CODE_TOO_MANY: _ClassVar[RefusalCode]
    REFUSAL_CODE_POLICY_CYCLE: _ClassVar[RefusalCode]
    REFUSAL_CODE_WRONG_STATE: _ClassVar[RefusalCode]
    REFUSAL_CODE_STALE_FENCE: _ClassVar[RefusalCode]
    REFUSAL_CODE_STALE_SESSION: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_EXCHANGE: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_RULE: _ClassVar[RefusalCode]
    REFUSAL_CODE_NOT_EQUIVALENT: _ClassVar[RefusalCode]
    REFUSAL_CODE_LOCKED: _ClassVar[RefusalCode]
    REFUSAL_CODE_IN_USE: _ClassVar[RefusalCode]
    REFUSAL_CODE_STORAGE_FAILED: _ClassVar[RefusalCode]
    REFUSAL_CODE_OVERLOADED: _ClassVar[RefusalCode]
    REFUSAL_CODE_RATE_LIMITED: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNAUTHORISED: _ClassVar[RefusalCode]
    REFUSAL_CODE_FORBIDDEN: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_POOL: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_BLOB: _ClassVar[RefusalCode]
    REFUSAL_CODE_INTERNAL: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_SCHEDULE: _ClassVar[RefusalCode]
    REFUSAL_CODE_THROTTLED: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNKNOWN_NAMESPACE: _ClassVar[RefusalCode]
    REFUSAL_CODE_NAMESPACE_NOT_EMPTY: _ClassVar[RefusalCode]
    REFUSAL_CODE_QUOTA_EXCEEDED: _ClassVar[RefusalCode]

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_HELD: _ClassVar[TaskState]
    TASK_STATE_WAITING: _ClassVar[TaskState]
    TASK_STATE_SCHEDULED: _ClassVar[TaskState]
    TASK_STATE_READY: _ClassVar[TaskState]
    TASK_STATE_ASSIGNED: _ClassVar[TaskState]
    TASK_STATE_RUNNING: _ClassVar[TaskState]
    TASK_STATE_PAUSED: _ClassVar[TaskState]
    TASK_STATE_SUCCEEDED: _ClassVar[TaskState]
    TASK_STATE_DEAD: _ClassVar[TaskState]
    TASK_STATE_KILLED: _ClassVar[TaskState]

class DeathReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEATH_REASON_UNSPECIFIED: _ClassVar[DeathReason]
    DEATH_REASON_FAILED: _ClassVar[DeathReason]
    DEATH_REASON_CRASHED: _ClassVar[DeathReason]
    DEATH_REASON_INTERRUPTED: _ClassVar[DeathReason]
    DEATH_REASON_EXPIRED: _ClassVar[DeathReason]
    DEATH_REASON_DEPENDENCY: _ClassVar[DeathReason]
    DEATH_REASON_REJECTED: _ClassVar[DeathReason]
    DEATH_REASON_DISPLACED: _ClassVar[DeathReason]

class OnDependency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_DEPENDENCY_UNSPECIFIED: _ClassVar[OnDependency]
    ON_DEPENDENCY_DEAD: _ClassVar[OnDependency]
    ON_DEPENDENCY_RUN: _ClassVar[OnDependency]

class SameRequest(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAME_REQUEST_UNSPECIFIED: _ClassVar[SameRequest]
    SAME_REQUEST_RUN: _ClassVar[SameRequest]
    SAME_REQUEST_UNIQUE: _ClassVar[SameRequest]
    SAME_REQUEST_CACHED: _ClassVar[SameRequest]
    SAME_REQUEST_REFRESH: _ClassVar[SameRequest]

class HowServed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOW_SERVED_UNSPECIFIED: _ClassVar[HowServed]
    HOW_SERVED_HIT: _ClassVar[HowServed]
    HOW_SERVED_MISS: _ClassVar[HowServed]
    HOW_SERVED_JOINED: _ClassVar[HowServed]
    HOW_SERVED_REFRESH: _ClassVar[HowServed]
    HOW_SERVED_BYPASS: _ClassVar[HowServed]
    HOW_SERVED_REPLACED: _ClassVar[HowServed]
    HOW_SERVED_DROPPED: _ClassVar[HowServed]

class Pacing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACING_UNSPECIFIED: _ClassVar[Pacing]
    PACING_DEBOUNCE: _ClassVar[Pacing]
    PACING_THROTTLE: _ClassVar[Pacing]
    PACING_REPLACE: _ClassVar[Pacing]

class CallbackOn(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALLBACK_ON_UNSPECIFIED: _ClassVar[CallbackOn]
    CALLBACK_ON_SUCCEEDED: _ClassVar[CallbackOn]
    CALLBACK_ON_DEAD: _ClassVar[CallbackOn]
    CALLBACK_ON_KILLED: _ClassVar[CallbackOn]
    CALLBACK_ON_BATCH: _ClassVar[CallbackOn]

class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_UNSPECIFIED: _ClassVar[End]
    END_SUCCEEDED: _ClassVar[End]
    END_DEAD: _ClassVar[End]
    END_KILLED: _ClassVar[End]

class TriggerPayload(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRIGGER_PAYLOAD_UNSPECIFIED: _ClassVar[TriggerPayload]
    TRIGGER_PAYLOAD_RESULT: _ClassVar[TriggerPayload]
    TRIGGER_PAYLOAD_PAYLOAD: _ClassVar[TriggerPayload]
    TRIGGER_PAYLOAD_EVENT: _ClassVar[TriggerPayload]

class TaskOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_ORDER_UNSPECIFIED: _ClassVar[TaskOrder]
    TASK_ORDER_CREATED_DESC: _ClassVar[TaskOrder]
    TASK_ORDER_CREATED: _ClassVar[TaskOrder]
    TASK_ORDER_PRIORITY_DESC: _ClassVar[TaskOrder]
    TASK_ORDER_PRIORITY: _ClassVar[TaskOrder]
    TASK_ORDER_ENDED_DESC: _ClassVar[TaskOrder]
    TASK_ORDER_ENDED: _ClassVar[TaskOrder]

class LogLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_LEVEL_UNSPECIFIED: _ClassVar[LogLevel]
    LOG_LEVEL_ERROR: _ClassVar[LogLevel]
    LOG_LEVEL_WARN: _ClassVar[LogLevel]
    LOG_LEVEL_INFO: _ClassVar[LogLevel]
    LOG_LEVEL_DEBUG: _ClassVar[LogLevel]
    LOG_LEVEL_TRACE: _ClassVar[LogLevel]

class LogStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_STREAM_UNSPECIFIED: _ClassVar[LogStream]
    LOG_STREAM_STDOUT: _ClassVar[LogStream]
    LOG_STREAM_STDERR: _ClassVar[LogStream]
    LOG_STREAM_LOG: _ClassVar[LogStream]

class TaskAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_ACTION_UNSPECIFIED: _ClassVar[TaskAction]
    TASK_ACTION_HOLD: _ClassVar[TaskAction]
    TASK_ACTION_PLAY: _ClassVar[TaskAction]
    TASK_ACTION_PAUSE: _ClassVar[TaskAction]
    TASK_ACTION_KILL: _ClassVar[TaskAction]
    TASK_ACTION_RETRY: _ClassVar[TaskAction]
    TASK_ACTION_PURGE: _ClassVar[TaskAction]

class Signal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNAL_UNSPECIFIED: _ClassVar[Signal]
    SIGNAL_PAUSE: _ClassVar[Signal]
    SIGNAL_KILL: _ClassVar[Signal]
    SIGNAL_TIMEOUT: _ClassVar[Signal]

class SignalStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNAL_STAGE_UNSPECIFIED: _ClassVar[SignalStage]
    SIGNAL_STAGE_REQUESTED: _ClassVar[SignalStage]
    SIGNAL_STAGE_DELIVERED: _ClassVar[SignalStage]
    SIGNAL_STAGE_ACKNOWLEDGED: _ClassVar[SignalStage]
    SIGNAL_STAGE_REFUSED: _ClassVar[SignalStage]

class SignalAnswer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNAL_ANSWER_UNSPECIFIED: _ClassVar[SignalAnswer]
    SIGNAL_ANSWER_DELIVERED: _ClassVar[SignalAnswer]
    SIGNAL_ANSWER_ACKNOWLEDGED: _ClassVar[SignalAnswer]
    SIGNAL_ANSWER_REFUSED: _ClassVar[SignalAnswer]
    SIGNAL_ANSWER_STOPPED: _ClassVar[SignalAnswer]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_RETRY: _ClassVar[Verdict]
    VERDICT_DEAD: _ClassVar[Verdict]
    VERDICT_REJECT: _ClassVar[Verdict]
    VERDICT_THROTTLED: _ClassVar[Verdict]

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_ACTIVE: _ClassVar[WorkerState]
    WORKER_STATE_IDLE: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
    WORKER_STATE_AWAY: _ClassVar[WorkerState]
    WORKER_STATE_GONE: _ClassVar[WorkerState]

class OnLost(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_LOST_UNSPECIFIED: _ClassVar[OnLost]
    ON_LOST_REQUEUE: _ClassVar[OnLost]
    ON_LOST_PAUSE: _ClassVar[OnLost]
    ON_LOST_DEAD: _ClassVar[OnLost]

class OnRestart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_RESTART_UNSPECIFIED: _ClassVar[OnRestart]
    ON_RESTART_KEEP: _ClassVar[OnRestart]
    ON_RESTART_REQUEUE: _ClassVar[OnRestart]

class OnMisfit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_MISFIT_UNSPECIFIED: _ClassVar[OnMisfit]
    ON_MISFIT_REFUSE: _ClassVar[OnMisfit]
    ON_MISFIT_WARN: _ClassVar[OnMisfit]
    ON_MISFIT_OFF: _ClassVar[OnMisfit]

class Done(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DONE_UNSPECIFIED: _ClassVar[Done]
    DONE_PROCESSED: _ClassVar[Done]
    DONE_RECEIVED: _ClassVar[Done]

class OnFull(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FULL_UNSPECIFIED: _ClassVar[OnFull]
    ON_FULL_WAIT: _ClassVar[OnFull]
    ON_FULL_CANCEL_NEWEST: _ClassVar[OnFull]
    ON_FULL_CANCEL_OLDEST: _ClassVar[OnFull]
    ON_FULL_CANCEL_RUNNING: _ClassVar[OnFull]

class Overlap(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_UNSPECIFIED: _ClassVar[Overlap]
    OVERLAP_ALLOW: _ClassVar[Overlap]
    OVERLAP_SKIP: _ClassVar[Overlap]
    OVERLAP_WAIT: _ClassVar[Overlap]
    OVERLAP_REPLACE: _ClassVar[Overlap]

class CatchUp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_UNSPECIFIED: _ClassVar[CatchUp]
    CATCH_UP_SKIP: _ClassVar[CatchUp]
    CATCH_UP_LAST: _ClassVar[CatchUp]
    CATCH_UP_ALL: _ClassVar[CatchUp]

class RunKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_KIND_UNSPECIFIED: _ClassVar[RunKind]
    RUN_KIND_SLOT: _ClassVar[RunKind]
    RUN_KIND_TRIGGER: _ClassVar[RunKind]
    RUN_KIND_BACKFILL: _ClassVar[RunKind]

class Missed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSED_UNSPECIFIED: _ClassVar[Missed]
    MISSED_DOWN: _ClassVar[Missed]
    MISSED_OVERLAP: _ClassVar[Missed]
    MISSED_REFUSED: _ClassVar[Missed]

class ScheduleState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_STATE_UNSPECIFIED: _ClassVar[ScheduleState]
    SCHEDULE_STATE_ACTIVE: _ClassVar[ScheduleState]
    SCHEDULE_STATE_PAUSED: _ClassVar[ScheduleState]
    SCHEDULE_STATE_OVER: _ClassVar[ScheduleState]

class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_FAILURE_UNSPECIFIED: _ClassVar[OnFailure]
    ON_FAILURE_CONTINUE: _ClassVar[OnFailure]
    ON_FAILURE_FAIL_FAST: _ClassVar[OnFailure]

class BodyKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BODY_KIND_UNSPECIFIED: _ClassVar[BodyKind]
    BODY_KIND_RESULT: _ClassVar[BodyKind]
    BODY_KIND_PAYLOAD: _ClassVar[BodyKind]

class CallStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_STAGE_UNSPECIFIED: _ClassVar[CallStage]
    CALL_STAGE_PENDING: _ClassVar[CallStage]
    CALL_STAGE_RESULT: _ClassVar[CallStage]
    CALL_STAGE_ERROR: _ClassVar[CallStage]
    CALL_STAGE_CANCELLED: _ClassVar[CallStage]
    CALL_STAGE_LOST: _ClassVar[CallStage]

class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_UNSPECIFIED: _ClassVar[Permission]
    PERMISSION_SUBMIT_TASKS: _ClassVar[Permission]
    PERMISSION_READ_TASKS: _ClassVar[Permission]
    PERMISSION_CANCEL_TASKS: _ClassVar[Permission]
    PERMISSION_WORK: _ClassVar[Permission]
    PERMISSION_ADMIN: _ClassVar[Permission]
REFUSAL_CODE_UNSPECIFIED: RefusalCode
REFUSAL_CODE_INVALID: RefusalCode
REFUSAL_CODE_TOO_LARGE: RefusalCode
REFUSAL_CODE_UNKNOWN_TASK: RefusalCode
REFUSAL_CODE_UNKNOWN_QUEUE: RefusalCode
REFUSAL_CODE_UNKNOWN_WORKER: RefusalCode
REFUSAL_CODE_UNKNOWN_SESSION: RefusalCode
REFUSAL_CODE_UNKNOWN_API_KEY: RefusalCode
REFUSAL_CODE_UNKNOWN_RECIPIENT: RefusalCode
REFUSAL_CODE_UNKNOWN_REQUEST: RefusalCode
REFUSAL_CODE_UNKNOWN_DEPENDENCY: RefusalCode
REFUSAL_CODE_ID_CONFLICT: RefusalCode
REFUSAL_CODE_DUPLICATE_ALIAS: RefusalCode
REFUSAL_CODE_PARENT_ENDED: RefusalCode
REFUSAL_CODE_QUEUE_FULL: RefusalCode
REFUSAL_CODE_QUEUE_NOT_EMPTY: RefusalCode
REFUSAL_CODE_TOO_MANY: RefusalCode
REFUSAL_CODE_POLICY_CYCLE: RefusalCode
REFUSAL_CODE_WRONG_STATE: RefusalCode
REFUSAL_CODE_STALE_FENCE: RefusalCode
REFUSAL_CODE_STALE_SESSION: RefusalCode
REFUSAL_CODE_UNKNOWN_EXCHANGE: RefusalCode
REFUSAL_CODE_UNKNOWN_RULE: RefusalCode
REFUSAL_CODE_NOT_EQUIVALENT: RefusalCode
REFUSAL_CODE_LOCKED: RefusalCode
REFUSAL_CODE_IN_USE: RefusalCode
REFUSAL_CODE_STORAGE_FAILED: RefusalCode
REFUSAL_CODE_OVERLOADED: RefusalCode
REFUSAL_CODE_RATE_LIMITED: RefusalCode
REFUSAL_CODE_UNAUTHORISED: RefusalCode
REFUSAL_CODE_FORBIDDEN: RefusalCode
REFUSAL_CODE_UNKNOWN_POOL: RefusalCode
REFUSAL_CODE_UNKNOWN_BLOB: RefusalCode
REFUSAL_CODE_INTERNAL: RefusalCode
REFUSAL_CODE_UNKNOWN_SCHEDULE: RefusalCode
REFUSAL_CODE_THROTTLED: RefusalCode
REFUSAL_CODE_UNKNOWN_NAMESPACE: RefusalCode
REFUSAL_CODE_NAMESPACE_NOT_EMPTY: RefusalCode
REFUSAL_CODE_QUOTA_EXCEEDED: RefusalCode
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_HELD: TaskState
TASK_STATE_WAITING: TaskState
TASK_STATE_SCHEDULED: TaskState
TASK_STATE_READY: TaskState
TASK_STATE_ASSIGNED: TaskState
TASK_STATE_RUNNING: TaskState
TASK_STATE_PAUSED: TaskState
TASK_STATE_SUCCEEDED: TaskState
TASK_STATE_DEAD: TaskState
TASK_STATE_KILLED: TaskState
DEATH_REASON_UNSPECIFIED: DeathReason
DEATH_REASON_FAILED: DeathReason
DEATH_REASON_CRASHED: DeathReason
DEATH_REASON_INTERRUPTED: DeathReason
DEATH_REASON_EXPIRED: DeathReason
DEATH_REASON_DEPENDENCY: DeathReason
DEATH_REASON_REJECTED: DeathReason
DEATH_REASON_DISPLACED: DeathReason
ON_DEPENDENCY_UNSPECIFIED: OnDependency
ON_DEPENDENCY_DEAD: OnDependency
ON_DEPENDENCY_RUN: OnDependency
SAME_REQUEST_UNSPECIFIED: SameRequest
SAME_REQUEST_RUN: SameRequest
SAME_REQUEST_UNIQUE: SameRequest
SAME_REQUEST_CACHED: SameRequest
SAME_REQUEST_REFRESH: SameRequest
HOW_SERVED_UNSPECIFIED: HowServed
HOW_SERVED_HIT: HowServed
HOW_SERVED_MISS: HowServed
HOW_SERVED_JOINED: HowServed
HOW_SERVED_REFRESH: HowServed
HOW_SERVED_BYPASS: HowServed
HOW_SERVED_REPLACED: HowServed
HOW_SERVED_DROPPED: HowServed
PACING_UNSPECIFIED: Pacing
PACING_DEBOUNCE: Pacing
PACING_THROTTLE: Pacing
PACING_REPLACE: Pacing
CALLBACK_ON_UNSPECIFIED: CallbackOn
CALLBACK_ON_SUCCEEDED: CallbackOn
CALLBACK_ON_DEAD: CallbackOn
CALLBACK_ON_KILLED: CallbackOn
CALLBACK_ON_BATCH: CallbackOn
END_UNSPECIFIED: End
END_SUCCEEDED: End
END_DEAD: End
END_KILLED: End
TRIGGER_PAYLOAD_UNSPECIFIED: TriggerPayload
TRIGGER_PAYLOAD_RESULT: TriggerPayload
TRIGGER_PAYLOAD_PAYLOAD: TriggerPayload
TRIGGER_PAYLOAD_EVENT: TriggerPayload
TASK_ORDER_UNSPECIFIED: TaskOrder
TASK_ORDER_CREATED_DESC: TaskOrder
TASK_ORDER_CREATED: TaskOrder
TASK_ORDER_PRIORITY_DESC: TaskOrder
TASK_ORDER_PRIORITY: TaskOrder
TASK_ORDER_ENDED_DESC: TaskOrder
TASK_ORDER_ENDED: TaskOrder
LOG_LEVEL_UNSPECIFIED: LogLevel
LOG_LEVEL_ERROR: LogLevel
LOG_LEVEL_WARN: LogLevel
LOG_LEVEL_INFO: LogLevel
LOG_LEVEL_DEBUG: LogLevel
LOG_LEVEL_TRACE: LogLevel
LOG_STREAM_UNSPECIFIED: LogStream
LOG_STREAM_STDOUT: LogStream
LOG_STREAM_STDERR: LogStream
LOG_STREAM_LOG: LogStream
TASK_ACTION_UNSPECIFIED: TaskAction
TASK_ACTION_HOLD: TaskAction
TASK_ACTION_PLAY: TaskAction
TASK_ACTION_PAUSE: TaskAction
TASK_ACTION_KILL: TaskAction
TASK_ACTION_RETRY: TaskAction
TASK_ACTION_PURGE: TaskAction
SIGNAL_UNSPECIFIED: Signal
SIGNAL_PAUSE: Signal
SIGNAL_KILL: Signal
SIGNAL_TIMEOUT: Signal
SIGNAL_STAGE_UNSPECIFIED: SignalStage
SIGNAL_STAGE_REQUESTED: SignalStage
SIGNAL_STAGE_DELIVERED: SignalStage
SIGNAL_STAGE_ACKNOWLEDGED: SignalStage
SIGNAL_STAGE_REFUSED: SignalStage
SIGNAL_ANSWER_UNSPECIFIED: SignalAnswer
SIGNAL_ANSWER_DELIVERED: SignalAnswer
SIGNAL_ANSWER_ACKNOWLEDGED: SignalAnswer
SIGNAL_ANSWER_REFUSED: SignalAnswer
SIGNAL_ANSWER_STOPPED: SignalAnswer
VERDICT_UNSPECIFIED: Verdict
VERDICT_RETRY: Verdict
VERDICT_DEAD: Verdict
VERDICT_REJECT: Verdict
VERDICT_THROTTLED: Verdict
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_ACTIVE: WorkerState
WORKER_STATE_IDLE: WorkerState
WORKER_STATE_DRAINING: WorkerState
WORKER_STATE_AWAY: WorkerState
WORKER_STATE_GONE: WorkerState
ON_LOST_UNSPECIFIED: OnLost
ON_LOST_REQUEUE: OnLost
ON_LOST_PAUSE: OnLost
ON_LOST_DEAD: OnLost
ON_RESTART_UNSPECIFIED: OnRestart
ON_RESTART_KEEP: OnRestart
ON_RESTART_REQUEUE: OnRestart
ON_MISFIT_UNSPECIFIED: OnMisfit
ON_MISFIT_REFUSE: OnMisfit
ON_MISFIT_WARN: OnMisfit
ON_MISFIT_OFF: OnMisfit
DONE_UNSPECIFIED: Done
DONE_PROCESSED: Done
DONE_RECEIVED: Done
ON_FULL_UNSPECIFIED: OnFull
ON_FULL_WAIT: OnFull
ON_FULL_CANCEL_NEWEST: OnFull
ON_FULL_CANCEL_OLDEST: OnFull
ON_FULL_CANCEL_RUNNING: OnFull
OVERLAP_UNSPECIFIED: Overlap
OVERLAP_ALLOW: Overlap
OVERLAP_SKIP: Overlap
OVERLAP_WAIT: Overlap
OVERLAP_REPLACE: Overlap
CATCH_UP_UNSPECIFIED: CatchUp
CATCH_UP_SKIP: CatchUp
CATCH_UP_LAST: CatchUp
CATCH_UP_ALL: CatchUp
RUN_KIND_UNSPECIFIED: RunKind
RUN_KIND_SLOT: RunKind
RUN_KIND_TRIGGER: RunKind
RUN_KIND_BACKFILL: RunKind
MISSED_UNSPECIFIED: Missed
MISSED_DOWN: Missed
MISSED_OVERLAP: Missed
MISSED_REFUSED: Missed
SCHEDULE_STATE_UNSPECIFIED: ScheduleState
SCHEDULE_STATE_ACTIVE: ScheduleState
SCHEDULE_STATE_PAUSED: ScheduleState
SCHEDULE_STATE_OVER: ScheduleState
ON_FAILURE_UNSPECIFIED: OnFailure
ON_FAILURE_CONTINUE: OnFailure
ON_FAILURE_FAIL_FAST: OnFailure
BODY_KIND_UNSPECIFIED: BodyKind
BODY_KIND_RESULT: BodyKind
BODY_KIND_PAYLOAD: BodyKind
CALL_STAGE_UNSPECIFIED: CallStage
CALL_STAGE_PENDING: CallStage
CALL_STAGE_RESULT: CallStage
CALL_STAGE_ERROR: CallStage
CALL_STAGE_CANCELLED: CallStage
CALL_STAGE_LOST: CallStage
PERMISSION_UNSPECIFIED: Permission
PERMISSION_SUBMIT_TASKS: Permission
PERMISSION_READ_TASKS: Permission
PERMISSION_CANCEL_TASKS: Permission
PERMISSION_WORK: Permission
PERMISSION_ADMIN: Permission

class Refusal(_message.Message):
    __slots__ = ("code", "message", "retry_after", "quota", "limit", "used")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    code: RefusalCode
    message: str
    retry_after: _duration_pb2.Duration
    quota: str
    limit: int
    used: int
    def __init__(self, code: _Optional[_Union[RefusalCode, str]] = ..., message: _Optional[str] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., quota: _Optional[str] = ..., limit: _Optional[int] = ..., used: _Optional[int] = ...) -> None: ...

class RefusedItem(_message.Message):
    __slots__ = ("index", "refusal")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    index: int
    refusal: Refusal
    def __init__(self, index: _Optional[int] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Pace(_message.Message):
    __slots__ = ("how", "key", "span", "at_most", "drop")
    HOW_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    how: Pacing
    key: str
    span: _duration_pb2.Duration
    at_most: _duration_pb2.Duration
    drop: bool
    def __init__(self, how: _Optional[_Union[Pacing, str]] = ..., key: _Optional[str] = ..., span: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., at_most: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., drop: _Optional[bool] = ...) -> None: ...

class Callback(_message.Message):
    __slots__ = ("url", "on", "task_id")
    URL_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    url: str
    on: _containers.RepeatedScalarFieldContainer[CallbackOn]
    task_id: str
    def __init__(self, url: _Optional[str] = ..., on: _Optional[_Iterable[_Union[CallbackOn, str]]] = ..., task_id: _Optional[str] = ...) -> None: ...

class Callbacks(_message.Message):
    __slots__ = ("callbacks",)
    CALLBACKS_FIELD_NUMBER: _ClassVar[int]
    callbacks: _containers.RepeatedCompositeFieldContainer[Callback]
    def __init__(self, callbacks: _Optional[_Iterable[_Union[Callback, _Mapping]]] = ...) -> None: ...

class Trigger(_message.Message):
    __slots__ = ("queue", "on", "name", "key", "priority", "payload")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    queue: str
    on: _containers.RepeatedScalarFieldContainer[End]
    name: str
    key: str
    priority: int
    payload: TriggerPayload
    def __init__(self, queue: _Optional[str] = ..., on: _Optional[_Iterable[_Union[End, str]]] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., payload: _Optional[_Union[TriggerPayload, str]] = ...) -> None: ...

class Triggers(_message.Message):
    __slots__ = ("triggers",)
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    triggers: _containers.RepeatedCompositeFieldContainer[Trigger]
    def __init__(self, triggers: _Optional[_Iterable[_Union[Trigger, _Mapping]]] = ...) -> None: ...

class Retry(_message.Message):
    __slots__ = ("retries", "base", "factor", "cap")
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    retries: int
    base: _duration_pb2.Duration
    factor: float
    cap: _duration_pb2.Duration
    def __init__(self, retries: _Optional[int] = ..., base: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., factor: _Optional[float] = ..., cap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TaskSpec(_message.Message):
    __slots__ = ("id", "queue", "name", "key", "priority", "payload", "payload_upload", "alias", "headers", "tags", "run_at", "expires_at", "timeout", "retry", "depends_on", "on_dependency", "parent", "held", "same", "version", "pace", "callbacks", "keys", "needs")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    ON_DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    CALLBACKS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    name: str
    key: str
    priority: int
    payload: bytes
    payload_upload: str
    alias: str
    headers: _struct_pb2.Struct
    tags: _containers.RepeatedScalarFieldContainer[str]
    run_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    timeout: _duration_pb2.Duration
    retry: Retry
    depends_on: _containers.RepeatedScalarFieldContainer[str]
    on_dependency: OnDependency
    parent: str
    held: bool
    same: SameRequest
    version: str
    pace: Pace
    callbacks: _containers.RepeatedCompositeFieldContainer[Callback]
    keys: _containers.ScalarMap[str, str]
    needs: Needs
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., payload: _Optional[bytes] = ..., payload_upload: _Optional[str] = ..., alias: _Optional[str] = ..., headers: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., depends_on: _Optional[_Iterable[str]] = ..., on_dependency: _Optional[_Union[OnDependency, str]] = ..., parent: _Optional[str] = ..., held: _Optional[bool] = ..., same: _Optional[_Union[SameRequest, str]] = ..., version: _Optional[str] = ..., pace: _Optional[_Union[Pace, _Mapping]] = ..., callbacks: _Optional[_Iterable[_Union[Callback, _Mapping]]] = ..., keys: _Optional[_Mapping[str, str]] = ..., needs: _Optional[_Union[Needs, _Mapping]] = ...) -> None: ...

class Needs(_message.Message):
    __slots__ = ("resources", "labels", "prefer", "avoid", "sticky")
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LabelValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LabelValues, _Mapping]] = ...) -> None: ...
    class PreferEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LabelValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LabelValues, _Mapping]] = ...) -> None: ...
    class AvoidEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LabelValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LabelValues, _Mapping]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PREFER_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    STICKY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.ScalarMap[str, float]
    labels: _containers.MessageMap[str, LabelValues]
    prefer: _containers.MessageMap[str, LabelValues]
    avoid: _containers.MessageMap[str, LabelValues]
    sticky: str
    def __init__(self, resources: _Optional[_Mapping[str, float]] = ..., labels: _Optional[_Mapping[str, LabelValues]] = ..., prefer: _Optional[_Mapping[str, LabelValues]] = ..., avoid: _Optional[_Mapping[str, LabelValues]] = ..., sticky: _Optional[str] = ...) -> None: ...

class LabelValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Served(_message.Message):
    __slots__ = ("how", "task_id", "made_at", "worker")
    HOW_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    how: HowServed
    task_id: str
    made_at: _timestamp_pb2.Timestamp
    worker: str
    def __init__(self, how: _Optional[_Union[HowServed, str]] = ..., task_id: _Optional[str] = ..., made_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker: _Optional[str] = ...) -> None: ...

class SubmitTaskRequest(_message.Message):
    __slots__ = ("task", "parent_fence")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PARENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    task: TaskSpec
    parent_fence: int
    def __init__(self, task: _Optional[_Union[TaskSpec, _Mapping]] = ..., parent_fence: _Optional[int] = ...) -> None: ...

class SubmitTaskResponse(_message.Message):
    __slots__ = ("id", "served")
    ID_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    id: str
    served: Served
    def __init__(self, id: _Optional[str] = ..., served: _Optional[_Union[Served, _Mapping]] = ...) -> None: ...

class SubmitTasksRequest(_message.Message):
    __slots__ = ("tasks", "parent_fence")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskSpec]
    parent_fence: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskSpec, _Mapping]]] = ..., parent_fence: _Optional[int] = ...) -> None: ...

class SubmitTasksResponse(_message.Message):
    __slots__ = ("outcomes", "accepted")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SubmitOutcome]
    accepted: int
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SubmitOutcome, _Mapping]]] = ..., accepted: _Optional[int] = ...) -> None: ...

class SubmitOutcome(_message.Message):
    __slots__ = ("id", "served", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    served: Served
    refusal: Refusal
    def __init__(self, id: _Optional[str] = ..., served: _Optional[_Union[Served, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class StreamTasksRequest(_message.Message):
    __slots__ = ("ref", "tasks", "parent_fence")
    REF_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    ref: int
    tasks: _containers.RepeatedCompositeFieldContainer[TaskSpec]
    parent_fence: int
    def __init__(self, ref: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskSpec, _Mapping]]] = ..., parent_fence: _Optional[int] = ...) -> None: ...

class StreamTasksResponse(_message.Message):
    __slots__ = ("acks",)
    ACKS_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[SubmitAck]
    def __init__(self, acks: _Optional[_Iterable[_Union[SubmitAck, _Mapping]]] = ...) -> None: ...

class SubmitAck(_message.Message):
    __slots__ = ("ref", "accepted", "refused", "served", "ids", "refusal")
    REF_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ref: int
    accepted: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedItem]
    served: _containers.RepeatedCompositeFieldContainer[ServedItem]
    ids: _containers.RepeatedScalarFieldContainer[str]
    refusal: Refusal
    def __init__(self, ref: _Optional[int] = ..., accepted: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedItem, _Mapping]]] = ..., served: _Optional[_Iterable[_Union[ServedItem, _Mapping]]] = ..., ids: _Optional[_Iterable[str]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class ServedItem(_message.Message):
    __slots__ = ("index", "served")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    index: int
    served: Served
    def __init__(self, index: _Optional[int] = ..., served: _Optional[_Union[Served, _Mapping]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "namespace", "queue", "state", "name", "key", "alias", "priority", "tags", "headers", "batch", "parent", "submitted_by", "created_at", "due_at", "expires_at", "started_at", "ended_at", "updated_at", "forgotten_at", "worker", "fence", "attempts", "failures", "crashes", "interruptions", "depends_on", "waiting_for", "reason", "error", "progress", "signal", "timeout", "retries", "payload_size", "result_size", "payload", "result", "how", "steps", "waits_for", "events", "callbacks", "needs")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CRASHES_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CALLBACKS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    namespace: str
    queue: str
    state: TaskState
    name: str
    key: str
    alias: str
    priority: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    headers: _struct_pb2.Struct
    batch: int
    parent: str
    submitted_by: str
    created_at: _timestamp_pb2.Timestamp
    due_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    forgotten_at: _timestamp_pb2.Timestamp
    worker: str
    fence: int
    attempts: int
    failures: int
    crashes: int
    interruptions: int
    depends_on: _containers.RepeatedScalarFieldContainer[str]
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    reason: DeathReason
    error: TaskError
    progress: Progress
    signal: SignalStatus
    timeout: _duration_pb2.Duration
    retries: int
    payload_size: int
    result_size: int
    payload: bytes
    result: bytes
    how: HowServed
    steps: _containers.RepeatedCompositeFieldContainer[TaskStep]
    waits_for: str
    events: _containers.RepeatedCompositeFieldContainer[SentEvent]
    callbacks: _containers.RepeatedCompositeFieldContainer[Callback]
    needs: Needs
    def __init__(self, id: _Optional[str] = ..., namespace: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., alias: _Optional[str] = ..., priority: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., headers: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., batch: _Optional[int] = ..., parent: _Optional[str] = ..., submitted_by: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., forgotten_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., worker: _Optional[str] = ..., fence: _Optional[int] = ..., attempts: _Optional[int] = ..., failures: _Optional[int] = ..., crashes: _Optional[int] = ..., interruptions: _Optional[int] = ..., depends_on: _Optional[_Iterable[str]] = ..., waiting_for: _Optional[_Iterable[str]] = ..., reason: _Optional[_Union[DeathReason, str]] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., signal: _Optional[_Union[SignalStatus, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retries: _Optional[int] = ..., payload_size: _Optional[int] = ..., result_size: _Optional[int] = ..., payload: _Optional[bytes] = ..., result: _Optional[bytes] = ..., how: _Optional[_Union[HowServed, str]] = ..., steps: _Optional[_Iterable[_Union[TaskStep, _Mapping]]] = ..., waits_for: _Optional[str] = ..., events: _Optional[_Iterable[_Union[SentEvent, _Mapping]]] = ..., callbacks: _Optional[_Iterable[_Union[Callback, _Mapping]]] = ..., needs: _Optional[_Union[Needs, _Mapping]] = ...) -> None: ...

class SentEvent(_message.Message):
    __slots__ = ("event", "at", "by", "data_size")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    DATA_SIZE_FIELD_NUMBER: _ClassVar[int]
    event: str
    at: _timestamp_pb2.Timestamp
    by: str
    data_size: int
    def __init__(self, event: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., data_size: _Optional[int] = ...) -> None: ...

class TaskStep(_message.Message):
    __slots__ = ("name", "at", "took", "result_size", "is_late")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TOOK_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_LATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    at: _timestamp_pb2.Timestamp
    took: _duration_pb2.Duration
    result_size: int
    is_late: bool
    def __init__(self, name: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., took: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., result_size: _Optional[int] = ..., is_late: _Optional[bool] = ...) -> None: ...

class TaskError(_message.Message):
    __slots__ = ("type", "message", "trace")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    type: str
    message: str
    trace: str
    def __init__(self, type: _Optional[str] = ..., message: _Optional[str] = ..., trace: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("at", "percent", "note")
    AT_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    percent: float
    note: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., percent: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class SignalStatus(_message.Message):
    __slots__ = ("signal", "stage", "by", "at")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    signal: Signal
    stage: SignalStage
    by: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, signal: _Optional[_Union[Signal, str]] = ..., stage: _Optional[_Union[SignalStage, str]] = ..., by: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("id", "alias", "include_payload", "include_result")
    ID_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_RESULT_FIELD_NUMBER: _ClassVar[int]
    id: str
    alias: str
    include_payload: bool
    include_result: bool
    def __init__(self, id: _Optional[str] = ..., alias: _Optional[str] = ..., include_payload: _Optional[bool] = ..., include_result: _Optional[bool] = ...) -> None: ...

class GetTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class TaskFilter(_message.Message):
    __slots__ = ("states", "queue", "name", "key", "tag", "parent", "batch", "text", "older_than", "newer_than", "contains")
    STATES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    NEWER_THAN_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[TaskState]
    queue: str
    name: str
    key: str
    tag: str
    parent: str
    batch: int
    text: str
    older_than: _timestamp_pb2.Timestamp
    newer_than: _timestamp_pb2.Timestamp
    contains: str
    def __init__(self, states: _Optional[_Iterable[_Union[TaskState, str]]] = ..., queue: _Optional[str] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., tag: _Optional[str] = ..., parent: _Optional[str] = ..., batch: _Optional[int] = ..., text: _Optional[str] = ..., older_than: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., newer_than: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., contains: _Optional[str] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("filter", "order", "page_size", "page_token", "include_total")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_TOTAL_FIELD_NUMBER: _ClassVar[int]
    filter: TaskFilter
    order: TaskOrder
    page_size: int
    page_token: str
    include_total: bool
    def __init__(self, filter: _Optional[_Union[TaskFilter, _Mapping]] = ..., order: _Optional[_Union[TaskOrder, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_total: _Optional[bool] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token", "total")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    next_page_token: str
    total: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class WaitTaskRequest(_message.Message):
    __slots__ = ("id", "timeout")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    timeout: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitTaskResponse(_message.Message):
    __slots__ = ("task", "ended")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    task: Task
    ended: bool
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., ended: _Optional[bool] = ...) -> None: ...

class WatchTasksRequest(_message.Message):
    __slots__ = ("ids", "progress")
    IDS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    progress: bool
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., progress: _Optional[bool] = ...) -> None: ...

class WatchTasksResponse(_message.Message):
    __slots__ = ("ended", "progress", "refused")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ended: TaskEnded
    progress: TaskProgress
    refused: RefusedItem
    def __init__(self, ended: _Optional[_Union[TaskEnded, _Mapping]] = ..., progress: _Optional[_Union[TaskProgress, _Mapping]] = ..., refused: _Optional[_Union[RefusedItem, _Mapping]] = ...) -> None: ...

class TaskEnded(_message.Message):
    __slots__ = ("id", "state", "result", "result_size", "reason", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: TaskState
    result: bytes
    result_size: int
    reason: DeathReason
    error: TaskError
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., result: _Optional[bytes] = ..., result_size: _Optional[int] = ..., reason: _Optional[_Union[DeathReason, str]] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ...) -> None: ...

class TaskProgress(_message.Message):
    __slots__ = ("id", "progress")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    id: str
    progress: Progress
    def __init__(self, id: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("queue", "task_id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    task_id: str
    def __init__(self, queue: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events", "missed")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TaskEvent]
    missed: int
    def __init__(self, events: _Optional[_Iterable[_Union[TaskEvent, _Mapping]]] = ..., missed: _Optional[int] = ...) -> None: ...

class TaskEvent(_message.Message):
    __slots__ = ("at", "what", "task_id", "queue", "state", "by", "detail")
    AT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    what: str
    task_id: str
    queue: str
    state: TaskState
    by: str
    detail: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., what: _Optional[str] = ..., task_id: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., by: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ReadLogsRequest(_message.Message):
    __slots__ = ("id", "alias", "attempt", "level", "text", "since", "after", "before", "limit", "tail", "follow")
    ID_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    id: str
    alias: str
    attempt: int
    level: LogLevel
    text: str
    since: _timestamp_pb2.Timestamp
    after: str
    before: str
    limit: int
    tail: bool
    follow: bool
    def __init__(self, id: _Optional[str] = ..., alias: _Optional[str] = ..., attempt: _Optional[int] = ..., level: _Optional[_Union[LogLevel, str]] = ..., text: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., after: _Optional[str] = ..., before: _Optional[str] = ..., limit: _Optional[int] = ..., tail: _Optional[bool] = ..., follow: _Optional[bool] = ...) -> None: ...

class ReadLogsResponse(_message.Message):
    __slots__ = ("lines", "attempts", "has_more", "ended", "missing")
    LINES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[LogLine]
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptLog]
    has_more: bool
    ended: bool
    missing: str
    def __init__(self, lines: _Optional[_Iterable[_Union[LogLine, _Mapping]]] = ..., attempts: _Optional[_Iterable[_Union[AttemptLog, _Mapping]]] = ..., has_more: _Optional[bool] = ..., ended: _Optional[bool] = ..., missing: _Optional[str] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("id", "attempt", "number", "at", "level", "stream", "text", "logger")
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempt: int
    number: int
    at: _timestamp_pb2.Timestamp
    level: LogLevel
    stream: LogStream
    text: str
    logger: str
    def __init__(self, id: _Optional[str] = ..., attempt: _Optional[int] = ..., number: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., level: _Optional[_Union[LogLevel, str]] = ..., stream: _Optional[_Union[LogStream, str]] = ..., text: _Optional[str] = ..., logger: _Optional[str] = ...) -> None: ...

class AttemptLog(_message.Message):
    __slots__ = ("attempt", "fence", "lines", "dropped", "size", "last_at")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    fence: int
    lines: int
    dropped: int
    size: int
    last_at: _timestamp_pb2.Timestamp
    def __init__(self, attempt: _Optional[int] = ..., fence: _Optional[int] = ..., lines: _Optional[int] = ..., dropped: _Optional[int] = ..., size: _Optional[int] = ..., last_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RetryTerms(_message.Message):
    __slots__ = ("retries", "timeout", "priority")
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    retries: int
    timeout: _duration_pb2.Duration
    priority: int
    def __init__(self, retries: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., priority: _Optional[int] = ...) -> None: ...

class ActOnTasksRequest(_message.Message):
    __slots__ = ("action", "ids", "filter", "dry_run", "terms")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    action: TaskAction
    ids: _containers.RepeatedScalarFieldContainer[str]
    filter: TaskFilter
    dry_run: bool
    terms: RetryTerms
    def __init__(self, action: _Optional[_Union[TaskAction, str]] = ..., ids: _Optional[_Iterable[str]] = ..., filter: _Optional[_Union[TaskFilter, _Mapping]] = ..., dry_run: _Optional[bool] = ..., terms: _Optional[_Union[RetryTerms, _Mapping]] = ...) -> None: ...

class ActOnTasksResponse(_message.Message):
    __slots__ = ("changed", "requested", "refused", "more")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    changed: int
    requested: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedTask]
    more: bool
    def __init__(self, changed: _Optional[int] = ..., requested: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedTask, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class RefusedTask(_message.Message):
    __slots__ = ("id", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    refusal: Refusal
    def __init__(self, id: _Optional[str] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class SendEventRequest(_message.Message):
    __slots__ = ("id", "event", "data", "value")
    ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    id: str
    event: str
    data: bytes
    value: _struct_pb2.Value
    def __init__(self, id: _Optional[str] = ..., event: _Optional[str] = ..., data: _Optional[bytes] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...

class SendEventResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainTaskRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ExplainTaskResponse(_message.Message):
    __slots__ = ("id", "state", "causes")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: TaskState
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ...) -> None: ...

class Cause(_message.Message):
    __slots__ = ("why", "text", "facts")
    WHY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    why: str
    text: str
    facts: _struct_pb2.Struct
    def __init__(self, why: _Optional[str] = ..., text: _Optional[str] = ..., facts: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class GetTaskHistoryRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetTaskHistoryResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[HistoryEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[HistoryEntry, _Mapping]]] = ...) -> None: ...

class HistoryEntry(_message.Message):
    __slots__ = ("at", "what", "by", "detail")
    AT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    what: str
    by: str
    detail: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., what: _Optional[str] = ..., by: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("ref", "join", "start", "results", "progress", "heartbeat", "signal", "claim", "cancel_claim", "leave", "step", "suspend", "logs")
    REF_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CANCEL_CLAIM_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    ref: int
    join: Join
    start: StartAttempts
    results: ReportResults
    progress: ReportProgress
    heartbeat: Heartbeat
    signal: AnswerSignal
    claim: ClaimTasks
    cancel_claim: CancelClaim
    leave: Leave
    step: RecordStep
    suspend: Suspend
    logs: WriteLogs
    def __init__(self, ref: _Optional[int] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., start: _Optional[_Union[StartAttempts, _Mapping]] = ..., results: _Optional[_Union[ReportResults, _Mapping]] = ..., progress: _Optional[_Union[ReportProgress, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., signal: _Optional[_Union[AnswerSignal, _Mapping]] = ..., claim: _Optional[_Union[ClaimTasks, _Mapping]] = ..., cancel_claim: _Optional[_Union[CancelClaim, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., step: _Optional[_Union[RecordStep, _Mapping]] = ..., suspend: _Optional[_Union[Suspend, _Mapping]] = ..., logs: _Optional[_Union[WriteLogs, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("answers", "assignments", "signals", "drain", "lease_lost")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    LEASE_LOST_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    signals: _containers.RepeatedCompositeFieldContainer[SignalAsked]
    drain: bool
    lease_lost: bool
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., signals: _Optional[_Iterable[_Union[SignalAsked, _Mapping]]] = ..., drain: _Optional[bool] = ..., lease_lost: _Optional[bool] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("task_id", "fence")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("worker", "queues", "keys", "slots", "labels", "holding", "lease", "grace", "generation", "not_ready", "names", "resources")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    worker: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    labels: _containers.ScalarMap[str, str]
    holding: _containers.RepeatedCompositeFieldContainer[Attempt]
    lease: _duration_pb2.Duration
    grace: _duration_pb2.Duration
    generation: int
    not_ready: bool
    names: TaskNames
    resources: _containers.ScalarMap[str, float]
    def __init__(self, worker: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., holding: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., generation: _Optional[int] = ..., not_ready: _Optional[bool] = ..., names: _Optional[_Union[TaskNames, _Mapping]] = ..., resources: _Optional[_Mapping[str, float]] = ...) -> None: ...

class TaskNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class StartAttempts(_message.Message):
    __slots__ = ("attempts",)
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    def __init__(self, attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ...) -> None: ...

class ReportResults(_message.Message):
    __slots__ = ("finished", "failed", "released")
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    finished: _containers.RepeatedCompositeFieldContainer[Finish]
    failed: _containers.RepeatedCompositeFieldContainer[Fail]
    released: _containers.RepeatedCompositeFieldContainer[Attempt]
    def __init__(self, finished: _Optional[_Iterable[_Union[Finish, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[Fail, _Mapping]]] = ..., released: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("task_id", "fence", "result", "result_upload")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    result: bytes
    result_upload: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., result: _Optional[bytes] = ..., result_upload: _Optional[str] = ...) -> None: ...

class Fail(_message.Message):
    __slots__ = ("task_id", "fence", "error", "verdict", "retry_after", "crashed", "key")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    CRASHED_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    error: TaskError
    verdict: Verdict
    retry_after: _duration_pb2.Duration
    crashed: bool
    key: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., crashed: _Optional[bool] = ..., key: _Optional[str] = ...) -> None: ...

class ReportProgress(_message.Message):
    __slots__ = ("task_id", "fence", "percent", "note")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    percent: float
    note: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., percent: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class WriteLogs(_message.Message):
    __slots__ = ("task_id", "fence", "lines", "last")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    lines: _containers.RepeatedCompositeFieldContainer[WrittenLine]
    last: int
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[WrittenLine, _Mapping]]] = ..., last: _Optional[int] = ...) -> None: ...

class WrittenLine(_message.Message):
    __slots__ = ("text", "at", "level", "stream", "logger", "number")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    text: str
    at: _timestamp_pb2.Timestamp
    level: LogLevel
    stream: LogStream
    logger: str
    number: int
    def __init__(self, text: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., level: _Optional[_Union[LogLevel, str]] = ..., stream: _Optional[_Union[LogStream, str]] = ..., logger: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class LogsKept(_message.Message):
    __slots__ = ("kept", "dropped")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    kept: int
    dropped: int
    def __init__(self, kept: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("stats",)
    class StatsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STATS_FIELD_NUMBER: _ClassVar[int]
    stats: _containers.ScalarMap[str, float]
    def __init__(self, stats: _Optional[_Mapping[str, float]] = ...) -> None: ...

class AnswerSignal(_message.Message):
    __slots__ = ("task_id", "fence", "answer", "detail")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    answer: SignalAnswer
    detail: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., answer: _Optional[_Union[SignalAnswer, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class ClaimTasks(_message.Message):
    __slots__ = ("count", "wait")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    count: int
    wait: _duration_pb2.Duration
    def __init__(self, count: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CancelClaim(_message.Message):
    __slots__ = ("claim",)
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    claim: int
    def __init__(self, claim: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecordStep(_message.Message):
    __slots__ = ("task_id", "fence", "index", "name", "result", "took")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TOOK_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    index: int
    name: str
    result: bytes
    took: _duration_pb2.Duration
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., result: _Optional[bytes] = ..., took: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Suspend(_message.Message):
    __slots__ = ("task_id", "fence", "index", "name", "after", "event")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    index: int
    name: str
    after: _duration_pb2.Duration
    event: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., event: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("ref", "joined", "accepted", "claim_over", "refusal", "step_done", "suspended", "logs_kept")
    REF_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CLAIM_OVER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    STEP_DONE_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    LOGS_KEPT_FIELD_NUMBER: _ClassVar[int]
    ref: int
    joined: Joined
    accepted: Accepted
    claim_over: ClaimOver
    refusal: Refusal
    step_done: StepDone
    suspended: Suspended
    logs_kept: LogsKept
    def __init__(self, ref: _Optional[int] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., claim_over: _Optional[_Union[ClaimOver, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., step_done: _Optional[_Union[StepDone, _Mapping]] = ..., suspended: _Optional[_Union[Suspended, _Mapping]] = ..., logs_kept: _Optional[_Union[LogsKept, _Mapping]] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("resumed", "drop", "session", "lease")
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    resumed: _containers.RepeatedCompositeFieldContainer[Attempt]
    drop: _containers.RepeatedCompositeFieldContainer[Attempt]
    session: str
    lease: _duration_pb2.Duration
    def __init__(self, resumed: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., drop: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., session: _Optional[str] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("count", "refused")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    count: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedItem]
    def __init__(self, count: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedItem, _Mapping]]] = ...) -> None: ...

class ClaimOver(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepDone(_message.Message):
    __slots__ = ("result", "is_late")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    IS_LATE_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    is_late: bool
    def __init__(self, result: _Optional[bytes] = ..., is_late: _Optional[bool] = ...) -> None: ...

class Suspended(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task_id", "fence", "queue", "name", "key", "payload", "payload_size", "is_large", "headers", "tags", "attempt", "timeout", "claim", "steps", "inputs")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_LARGE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    queue: str
    name: str
    key: str
    payload: bytes
    payload_size: int
    is_large: bool
    headers: _struct_pb2.Struct
    tags: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    timeout: _duration_pb2.Duration
    claim: int
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., queue: _Optional[str] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_size: _Optional[int] = ..., is_large: _Optional[bool] = ..., headers: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., claim: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("node", "group", "task_id", "state", "result", "result_size", "is_large", "error")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_LARGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    node: str
    group: str
    task_id: str
    state: TaskState
    result: bytes
    result_size: int
    is_large: bool
    error: TaskError
    def __init__(self, node: _Optional[str] = ..., group: _Optional[str] = ..., task_id: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., result: _Optional[bytes] = ..., result_size: _Optional[int] = ..., is_large: _Optional[bool] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("index", "name", "result", "is_late")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    IS_LATE_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    result: bytes
    is_late: bool
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., result: _Optional[bytes] = ..., is_late: _Optional[bool] = ...) -> None: ...

class SignalAsked(_message.Message):
    __slots__ = ("task_id", "fence", "signal")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    signal: Signal
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., signal: _Optional[_Union[Signal, str]] = ...) -> None: ...

class BeatRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class BeatResponse(_message.Message):
    __slots__ = ("alive",)
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    alive: bool
    def __init__(self, alive: _Optional[bool] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker", "state", "queues", "keys", "slots", "load", "labels", "stats", "joined_at", "heard_at", "gone_at", "why_gone", "succeeded", "failed", "resources", "used")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class StatsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    JOINED_AT_FIELD_NUMBER: _ClassVar[int]
    HEARD_AT_FIELD_NUMBER: _ClassVar[int]
    GONE_AT_FIELD_NUMBER: _ClassVar[int]
    WHY_GONE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    worker: str
    state: WorkerState
    queues: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    load: int
    labels: _containers.ScalarMap[str, str]
    stats: _containers.ScalarMap[str, float]
    joined_at: _timestamp_pb2.Timestamp
    heard_at: _timestamp_pb2.Timestamp
    gone_at: _timestamp_pb2.Timestamp
    why_gone: str
    succeeded: int
    failed: int
    resources: _containers.ScalarMap[str, float]
    used: _containers.ScalarMap[str, float]
    def __init__(self, worker: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., queues: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., load: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., stats: _Optional[_Mapping[str, float]] = ..., joined_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., heard_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., gone_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., why_gone: _Optional[str] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., resources: _Optional[_Mapping[str, float]] = ..., used: _Optional[_Mapping[str, float]] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueuePolicy(_message.Message):
    __slots__ = ("on_lost", "on_restart", "restart_grace", "retries", "retry_base", "retry_factor", "retry_cap", "crash_limit", "interruption_limit", "prefer_other_worker", "priority_drop", "ageing", "time_to_live", "timeout", "depth_limit", "batch_size", "retention", "result_becomes", "held", "done", "stuck_after", "same", "cache", "cache_entries", "cache_bytes", "retry_jitter", "callbacks", "triggers", "fair_by", "fair_weights", "weight", "needs", "on_misfit")
    ON_LOST_FIELD_NUMBER: _ClassVar[int]
    ON_RESTART_FIELD_NUMBER: _ClassVar[int]
    RESTART_GRACE_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRY_BASE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    RETRY_CAP_FIELD_NUMBER: _ClassVar[int]
    CRASH_LIMIT_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTION_LIMIT_FIELD_NUMBER: _ClassVar[int]
    PREFER_OTHER_WORKER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_DROP_FIELD_NUMBER: _ClassVar[int]
    AGEING_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_LIVE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    RESULT_BECOMES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STUCK_AFTER_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETRY_JITTER_FIELD_NUMBER: _ClassVar[int]
    CALLBACKS_FIELD_NUMBER: _ClassVar[int]
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    FAIR_BY_FIELD_NUMBER: _ClassVar[int]
    FAIR_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    ON_MISFIT_FIELD_NUMBER: _ClassVar[int]
    on_lost: OnLost
    on_restart: OnRestart
    restart_grace: _duration_pb2.Duration
    retries: int
    retry_base: _duration_pb2.Duration
    retry_factor: float
    retry_cap: _duration_pb2.Duration
    crash_limit: int
    interruption_limit: int
    prefer_other_worker: bool
    priority_drop: int
    ageing: _duration_pb2.Duration
    time_to_live: _duration_pb2.Duration
    timeout: _duration_pb2.Duration
    depth_limit: int
    batch_size: int
    retention: _duration_pb2.Duration
    result_becomes: str
    held: bool
    done: Done
    stuck_after: _duration_pb2.Duration
    same: SameRequest
    cache: _duration_pb2.Duration
    cache_entries: int
    cache_bytes: int
    retry_jitter: float
    callbacks: Callbacks
    triggers: Triggers
    fair_by: str
    fair_weights: FairWeights
    weight: int
    needs: _struct_pb2.Struct
    on_misfit: OnMisfit
    def __init__(self, on_lost: _Optional[_Union[OnLost, str]] = ..., on_restart: _Optional[_Union[OnRestart, str]] = ..., restart_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retries: _Optional[int] = ..., retry_base: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_factor: _Optional[float] = ..., retry_cap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., crash_limit: _Optional[int] = ..., interruption_limit: _Optional[int] = ..., prefer_other_worker: _Optional[bool] = ..., priority_drop: _Optional[int] = ..., ageing: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., time_to_live: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., depth_limit: _Optional[int] = ..., batch_size: _Optional[int] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., result_becomes: _Optional[str] = ..., held: _Optional[bool] = ..., done: _Optional[_Union[Done, str]] = ..., stuck_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., same: _Optional[_Union[SameRequest, str]] = ..., cache: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cache_entries: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., retry_jitter: _Optional[float] = ..., callbacks: _Optional[_Union[Callbacks, _Mapping]] = ..., triggers: _Optional[_Union[Triggers, _Mapping]] = ..., fair_by: _Optional[str] = ..., fair_weights: _Optional[_Union[FairWeights, _Mapping]] = ..., weight: _Optional[int] = ..., needs: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., on_misfit: _Optional[_Union[OnMisfit, str]] = ...) -> None: ...

class FairWeights(_message.Message):
    __slots__ = ("weights",)
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.ScalarMap[str, int]
    def __init__(self, weights: _Optional[_Mapping[str, int]] = ...) -> None: ...

class StateCount(_message.Message):
    __slots__ = ("state", "count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    state: TaskState
    count: int
    def __init__(self, state: _Optional[_Union[TaskState, str]] = ..., count: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("queue", "counts", "depth", "workers", "policy", "paused_by", "oldest_ready_at", "share_count", "shares")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_AT_FIELD_NUMBER: _ClassVar[int]
    SHARE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    counts: _containers.RepeatedCompositeFieldContainer[StateCount]
    depth: int
    workers: int
    policy: QueuePolicy
    paused_by: str
    oldest_ready_at: _timestamp_pb2.Timestamp
    share_count: int
    shares: _containers.RepeatedCompositeFieldContainer[Share]
    def __init__(self, queue: _Optional[str] = ..., counts: _Optional[_Iterable[_Union[StateCount, _Mapping]]] = ..., depth: _Optional[int] = ..., workers: _Optional[int] = ..., policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., paused_by: _Optional[str] = ..., oldest_ready_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., share_count: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[Share, _Mapping]]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("share", "ready", "weight")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    share: str
    ready: int
    weight: int
    def __init__(self, share: _Optional[str] = ..., ready: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class GetQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class DeclareQueueRequest(_message.Message):
    __slots__ = ("queue", "preset", "policy")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    preset: str
    policy: QueuePolicy
    def __init__(self, queue: _Optional[str] = ..., preset: _Optional[str] = ..., policy: _Optional[_Union[QueuePolicy, _Mapping]] = ...) -> None: ...

class DeclareQueueResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: QueuePolicy
    def __init__(self, policy: _Optional[_Union[QueuePolicy, _Mapping]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PauseQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ResumeQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Limit(_message.Message):
    __slots__ = ("tag", "limit", "in_flight", "waiting")
    TAG_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    tag: str
    limit: int
    in_flight: int
    waiting: int
    def __init__(self, tag: _Optional[str] = ..., limit: _Optional[int] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class ListLimitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLimitsResponse(_message.Message):
    __slots__ = ("limits",)
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    limits: _containers.RepeatedCompositeFieldContainer[Limit]
    def __init__(self, limits: _Optional[_Iterable[_Union[Limit, _Mapping]]] = ...) -> None: ...

class SetLimitRequest(_message.Message):
    __slots__ = ("tag", "limit")
    TAG_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    tag: str
    limit: int
    def __init__(self, tag: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SetLimitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteLimitRequest(_message.Message):
    __slots__ = ("tag",)
    TAG_FIELD_NUMBER: _ClassVar[int]
    tag: str
    def __init__(self, tag: _Optional[str] = ...) -> None: ...

class DeleteLimitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeyNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyLimitSettings(_message.Message):
    __slots__ = ("queue", "task", "keys", "concurrency", "rate", "per", "burst", "cost", "cost_key", "on_full")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PER_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    COST_KEY_FIELD_NUMBER: _ClassVar[int]
    ON_FULL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    task: str
    keys: KeyNames
    concurrency: int
    rate: int
    per: _duration_pb2.Duration
    burst: int
    cost: int
    cost_key: str
    on_full: OnFull
    def __init__(self, queue: _Optional[str] = ..., task: _Optional[str] = ..., keys: _Optional[_Union[KeyNames, _Mapping]] = ..., concurrency: _Optional[int] = ..., rate: _Optional[int] = ..., per: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., burst: _Optional[int] = ..., cost: _Optional[int] = ..., cost_key: _Optional[str] = ..., on_full: _Optional[_Union[OnFull, str]] = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("values", "in_flight", "waiting", "opens_at")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OPENS_AT_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    in_flight: int
    waiting: int
    opens_at: _timestamp_pb2.Timestamp
    def __init__(self, values: _Optional[_Iterable[str]] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., opens_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class KeyLimit(_message.Message):
    __slots__ = ("name", "settings", "in_flight", "waiting", "opens_at", "gate_count", "gates")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OPENS_AT_FIELD_NUMBER: _ClassVar[int]
    GATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: KeyLimitSettings
    in_flight: int
    waiting: int
    opens_at: _timestamp_pb2.Timestamp
    gate_count: int
    gates: _containers.RepeatedCompositeFieldContainer[Gate]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[KeyLimitSettings, _Mapping]] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., opens_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., gate_count: _Optional[int] = ..., gates: _Optional[_Iterable[_Union[Gate, _Mapping]]] = ...) -> None: ...

class ListKeyLimitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListKeyLimitsResponse(_message.Message):
    __slots__ = ("key_limits",)
    KEY_LIMITS_FIELD_NUMBER: _ClassVar[int]
    key_limits: _containers.RepeatedCompositeFieldContainer[KeyLimit]
    def __init__(self, key_limits: _Optional[_Iterable[_Union[KeyLimit, _Mapping]]] = ...) -> None: ...

class DeclareKeyLimitsRequest(_message.Message):
    __slots__ = ("key_limits",)
    class KeyLimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: KeyLimitSettings
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[KeyLimitSettings, _Mapping]] = ...) -> None: ...
    KEY_LIMITS_FIELD_NUMBER: _ClassVar[int]
    key_limits: _containers.MessageMap[str, KeyLimitSettings]
    def __init__(self, key_limits: _Optional[_Mapping[str, KeyLimitSettings]] = ...) -> None: ...

class DeclareKeyLimitsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteKeyLimitRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteKeyLimitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Batch(_message.Message):
    __slots__ = ("queue", "number", "counts", "is_full")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    number: int
    counts: _containers.RepeatedCompositeFieldContainer[StateCount]
    is_full: bool
    def __init__(self, queue: _Optional[str] = ..., number: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[StateCount, _Mapping]]] = ..., is_full: _Optional[bool] = ...) -> None: ...

class ListBatchesRequest(_message.Message):
    __slots__ = ("queue", "page_size", "page_token")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    page_size: int
    page_token: str
    def __init__(self, queue: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBatchesResponse(_message.Message):
    __slots__ = ("batches", "next_page_token")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    next_page_token: str
    def __init__(self, batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetBatchRequest(_message.Message):
    __slots__ = ("queue", "number")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    number: int
    def __init__(self, queue: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class GetBatchResponse(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class Moments(_message.Message):
    __slots__ = ("moments",)
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    moments: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    def __init__(self, moments: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ...) -> None: ...

class Contract(_message.Message):
    __slots__ = ("queue", "name", "signature", "doc", "version", "versions", "content", "arguments", "returns", "workers", "declared_by", "declared_at")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    DECLARED_BY_FIELD_NUMBER: _ClassVar[int]
    DECLARED_AT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    signature: str
    doc: str
    version: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    content: str
    arguments: _struct_pb2.Struct
    returns: _struct_pb2.Struct
    workers: int
    declared_by: str
    declared_at: _timestamp_pb2.Timestamp
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., signature: _Optional[str] = ..., doc: _Optional[str] = ..., version: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., content: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., returns: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., workers: _Optional[int] = ..., declared_by: _Optional[str] = ..., declared_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListContractsRequest(_message.Message):
    __slots__ = ("queue", "name", "text")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    text: str
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ListContractsResponse(_message.Message):
    __slots__ = ("contracts",)
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    contracts: _containers.RepeatedCompositeFieldContainer[Contract]
    def __init__(self, contracts: _Optional[_Iterable[_Union[Contract, _Mapping]]] = ...) -> None: ...

class DeclareContractsRequest(_message.Message):
    __slots__ = ("queues", "contracts")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    contracts: _struct_pb2.Struct
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., contracts: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class DeclareContractsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteContractRequest(_message.Message):
    __slots__ = ("queue", "name")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteContractResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScheduleSettings(_message.Message):
    __slots__ = ("queue", "task", "key", "priority", "payload", "headers", "tags", "timeout", "time_to_live", "retry", "same", "version", "cron", "zone", "every", "times", "start", "end", "jitter", "overlap", "catch_up", "catch_up_within")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_LIVE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_WITHIN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    task: str
    key: str
    priority: int
    payload: bytes
    headers: _struct_pb2.Struct
    tags: Tags
    timeout: _duration_pb2.Duration
    time_to_live: _duration_pb2.Duration
    retry: Retry
    same: SameRequest
    version: str
    cron: str
    zone: str
    every: _duration_pb2.Duration
    times: Moments
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    jitter: _duration_pb2.Duration
    overlap: Overlap
    catch_up: CatchUp
    catch_up_within: _duration_pb2.Duration
    def __init__(self, queue: _Optional[str] = ..., task: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., time_to_live: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., same: _Optional[_Union[SameRequest, str]] = ..., version: _Optional[str] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., times: _Optional[_Union[Moments, _Mapping]] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., overlap: _Optional[_Union[Overlap, str]] = ..., catch_up: _Optional[_Union[CatchUp, str]] = ..., catch_up_within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "state", "settings", "next_at", "declared_by", "declared_at", "app", "orphaned_at", "paused_by", "fired", "missed", "missed_at", "why_missed", "trouble", "upcoming", "runs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    DECLARED_BY_FIELD_NUMBER: _ClassVar[int]
    DECLARED_AT_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_AT_FIELD_NUMBER: _ClassVar[int]
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    MISSED_AT_FIELD_NUMBER: _ClassVar[int]
    WHY_MISSED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    UPCOMING_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: ScheduleState
    settings: ScheduleSettings
    next_at: _timestamp_pb2.Timestamp
    declared_by: str
    declared_at: _timestamp_pb2.Timestamp
    app: str
    orphaned_at: _timestamp_pb2.Timestamp
    paused_by: str
    fired: int
    missed: int
    missed_at: _timestamp_pb2.Timestamp
    why_missed: Missed
    trouble: str
    upcoming: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    runs: _containers.RepeatedCompositeFieldContainer[ScheduleRun]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[ScheduleState, str]] = ..., settings: _Optional[_Union[ScheduleSettings, _Mapping]] = ..., next_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., declared_by: _Optional[str] = ..., declared_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., app: _Optional[str] = ..., orphaned_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., paused_by: _Optional[str] = ..., fired: _Optional[int] = ..., missed: _Optional[int] = ..., missed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., why_missed: _Optional[_Union[Missed, str]] = ..., trouble: _Optional[str] = ..., upcoming: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[ScheduleRun, _Mapping]]] = ...) -> None: ...

class ScheduleRun(_message.Message):
    __slots__ = ("slot_at", "at", "task_id", "how", "state")
    SLOT_AT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    slot_at: _timestamp_pb2.Timestamp
    at: _timestamp_pb2.Timestamp
    task_id: str
    how: RunKind
    state: TaskState
    def __init__(self, slot_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., task_id: _Optional[str] = ..., how: _Optional[_Union[RunKind, str]] = ..., state: _Optional[_Union[TaskState, str]] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("text", "page_size", "page_token")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    text: str
    page_size: int
    page_token: str
    def __init__(self, text: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules", "next_page_token")
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    next_page_token: str
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class DeclareScheduleRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: ScheduleSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[ScheduleSettings, _Mapping]] = ...) -> None: ...

class DeclareScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PauseScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class ResumeScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class TriggerScheduleRequest(_message.Message):
    __slots__ = ("name", "task_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    task_id: str
    def __init__(self, name: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class TriggerScheduleResponse(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class BackfillScheduleRequest(_message.Message):
    __slots__ = ("name", "since", "until", "again")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    again: bool
    def __init__(self, name: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., again: _Optional[bool] = ...) -> None: ...

class BackfillScheduleResponse(_message.Message):
    __slots__ = ("task_ids", "known", "refusal", "forgotten")
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    known: int
    refusal: Refusal
    forgotten: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ..., known: _Optional[int] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., forgotten: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ...) -> None: ...

class DeleteScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Compensation(_message.Message):
    __slots__ = ("queue", "name", "key", "payload", "headers")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    key: str
    payload: bytes
    headers: _struct_pb2.Struct
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class FlowNode(_message.Message):
    __slots__ = ("task", "name", "after", "group", "groups", "need", "compensation")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    COMPENSATION_FIELD_NUMBER: _ClassVar[int]
    task: TaskSpec
    name: str
    after: _containers.RepeatedScalarFieldContainer[str]
    group: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    need: int
    compensation: Compensation
    def __init__(self, task: _Optional[_Union[TaskSpec, _Mapping]] = ..., name: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., need: _Optional[int] = ..., compensation: _Optional[_Union[Compensation, _Mapping]] = ...) -> None: ...

class FlowGroup(_message.Message):
    __slots__ = ("name", "width", "open")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    width: int
    open: bool
    def __init__(self, name: _Optional[str] = ..., width: _Optional[int] = ..., open: _Optional[bool] = ...) -> None: ...

class SubmitFlowRequest(_message.Message):
    __slots__ = ("flow", "nodes", "groups", "on_failure", "output")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    flow: TaskSpec
    nodes: _containers.RepeatedCompositeFieldContainer[FlowNode]
    groups: _containers.RepeatedCompositeFieldContainer[FlowGroup]
    on_failure: OnFailure
    output: str
    def __init__(self, flow: _Optional[_Union[TaskSpec, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[FlowNode, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[FlowGroup, _Mapping]]] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., output: _Optional[str] = ...) -> None: ...

class SubmitFlowResponse(_message.Message):
    __slots__ = ("id", "node_ids")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AddNodesRequest(_message.Message):
    __slots__ = ("flow_id", "nodes", "close")
    FLOW_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    flow_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[FlowNode]
    close: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, flow_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[FlowNode, _Mapping]]] = ..., close: _Optional[_Iterable[str]] = ...) -> None: ...

class AddNodesResponse(_message.Message):
    __slots__ = ("node_ids",)
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetFlowRequest(_message.Message):
    __slots__ = ("id", "page_size", "page_token")
    ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    page_size: int
    page_token: str
    def __init__(self, id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetFlowResponse(_message.Message):
    __slots__ = ("flow", "next_page_token")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    flow: Flow
    next_page_token: str
    def __init__(self, flow: _Optional[_Union[Flow, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListFlowsRequest(_message.Message):
    __slots__ = ("states", "queue", "name", "text", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[TaskState]
    queue: str
    name: str
    text: str
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[TaskState, str]]] = ..., queue: _Optional[str] = ..., name: _Optional[str] = ..., text: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListFlowsResponse(_message.Message):
    __slots__ = ("flows", "next_page_token")
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    flows: _containers.RepeatedCompositeFieldContainer[Flow]
    next_page_token: str
    def __init__(self, flows: _Optional[_Iterable[_Union[Flow, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("id", "name", "state", "queue", "total", "done", "succeeded", "dead", "killed", "phase", "on_failure", "output", "alias", "tags", "submitted_by", "created_at", "deadline_at", "ended_at", "reason", "error", "groups", "nodes")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    KILLED_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: TaskState
    queue: str
    total: int
    done: int
    succeeded: int
    dead: int
    killed: int
    phase: str
    on_failure: OnFailure
    output: str
    alias: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    submitted_by: str
    created_at: _timestamp_pb2.Timestamp
    deadline_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    reason: DeathReason
    error: TaskError
    groups: _containers.RepeatedCompositeFieldContainer[FlowGroupStatus]
    nodes: _containers.RepeatedCompositeFieldContainer[FlowNodeStatus]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., queue: _Optional[str] = ..., total: _Optional[int] = ..., done: _Optional[int] = ..., succeeded: _Optional[int] = ..., dead: _Optional[int] = ..., killed: _Optional[int] = ..., phase: _Optional[str] = ..., on_failure: _Optional[_Union[OnFailure, str]] = ..., output: _Optional[str] = ..., alias: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., submitted_by: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[_Union[DeathReason, str]] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[FlowGroupStatus, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[FlowNodeStatus, _Mapping]]] = ...) -> None: ...

class FlowGroupStatus(_message.Message):
    __slots__ = ("name", "width", "open", "total", "done", "succeeded")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    width: int
    open: bool
    total: int
    done: int
    succeeded: int
    def __init__(self, name: _Optional[str] = ..., width: _Optional[int] = ..., open: _Optional[bool] = ..., total: _Optional[int] = ..., done: _Optional[int] = ..., succeeded: _Optional[int] = ...) -> None: ...

class FlowNodeStatus(_message.Message):
    __slots__ = ("id", "name", "state", "queue", "task_name", "after", "group", "groups", "need", "collect", "compensates", "worker", "attempts", "created_at", "started_at", "ended_at", "result_size", "reason", "error", "index")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEED_FIELD_NUMBER: _ClassVar[int]
    COLLECT_FIELD_NUMBER: _ClassVar[int]
    COMPENSATES_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: TaskState
    queue: str
    task_name: str
    after: _containers.RepeatedScalarFieldContainer[str]
    group: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    need: int
    collect: bool
    compensates: str
    worker: str
    attempts: _containers.RepeatedCompositeFieldContainer[FlowAttempt]
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    result_size: int
    reason: DeathReason
    error: TaskError
    index: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[TaskState, str]] = ..., queue: _Optional[str] = ..., task_name: _Optional[str] = ..., after: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., need: _Optional[int] = ..., collect: _Optional[bool] = ..., compensates: _Optional[str] = ..., worker: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[FlowAttempt, _Mapping]]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result_size: _Optional[int] = ..., reason: _Optional[_Union[DeathReason, str]] = ..., error: _Optional[_Union[TaskError, _Mapping]] = ..., index: _Optional[int] = ...) -> None: ...

class FlowAttempt(_message.Message):
    __slots__ = ("worker", "assigned_at", "started_at", "ended_at", "outcome")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    worker: str
    assigned_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    outcome: str
    def __init__(self, worker: _Optional[str] = ..., assigned_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[str] = ...) -> None: ...

class UploadBlobRequest(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class UploadBlobResponse(_message.Message):
    __slots__ = ("upload", "size")
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    upload: str
    size: int
    def __init__(self, upload: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class DownloadBlobRequest(_message.Message):
    __slots__ = ("task_id", "kind", "fence", "session", "offset", "length", "node")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    kind: BodyKind
    fence: int
    session: str
    offset: int
    length: int
    node: str
    def __init__(self, task_id: _Optional[str] = ..., kind: _Optional[_Union[BodyKind, str]] = ..., fence: _Optional[int] = ..., session: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class DownloadBlobResponse(_message.Message):
    __slots__ = ("size", "data")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    size: int
    data: bytes
    def __init__(self, size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("recipient", "body", "no_reply")
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    NO_REPLY_FIELD_NUMBER: _ClassVar[int]
    recipient: str
    body: bytes
    no_reply: bool
    def __init__(self, recipient: _Optional[str] = ..., body: _Optional[bytes] = ..., no_reply: _Optional[bool] = ...) -> None: ...

class CallResponse(_message.Message):
    __slots__ = ("stage", "body")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    stage: CallStage
    body: bytes
    def __init__(self, stage: _Optional[_Union[CallStage, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class BroadcastRequest(_message.Message):
    __slots__ = ("subject", "sender", "body")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    subject: str
    sender: str
    body: bytes
    def __init__(self, subject: _Optional[str] = ..., sender: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class BroadcastResponse(_message.Message):
    __slots__ = ("subscribers",)
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    subscribers: int
    def __init__(self, subscribers: _Optional[int] = ...) -> None: ...

class Interest(_message.Message):
    __slots__ = ("sender", "subject")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    sender: str
    subject: str
    def __init__(self, sender: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class ListenRequest(_message.Message):
    __slots__ = ("ref", "subscribe", "unsubscribe", "reply")
    REF_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    ref: int
    subscribe: Subscribe
    unsubscribe: Unsubscribe
    reply: CallReply
    def __init__(self, ref: _Optional[int] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., reply: _Optional[_Union[CallReply, _Mapping]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("recipients", "broadcasts")
    RECIPIENTS_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    recipients: _containers.RepeatedScalarFieldContainer[str]
    broadcasts: _containers.RepeatedCompositeFieldContainer[Interest]
    def __init__(self, recipients: _Optional[_Iterable[str]] = ..., broadcasts: _Optional[_Iterable[_Union[Interest, _Mapping]]] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("recipients", "broadcasts")
    RECIPIENTS_FIELD_NUMBER: _ClassVar[int]
    BROADCASTS_FIELD_NUMBER: _ClassVar[int]
    recipients: _containers.RepeatedScalarFieldContainer[str]
    broadcasts: _containers.RepeatedCompositeFieldContainer[Interest]
    def __init__(self, recipients: _Optional[_Iterable[str]] = ..., broadcasts: _Optional[_Iterable[_Union[Interest, _Mapping]]] = ...) -> None: ...

class CallReply(_message.Message):
    __slots__ = ("call", "stage", "body")
    CALL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    call: int
    stage: CallStage
    body: bytes
    def __init__(self, call: _Optional[int] = ..., stage: _Optional[_Union[CallStage, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class ListenResponse(_message.Message):
    __slots__ = ("answer", "called", "heard")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CALLED_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    answer: ListenAnswer
    called: Called
    heard: Heard
    def __init__(self, answer: _Optional[_Union[ListenAnswer, _Mapping]] = ..., called: _Optional[_Union[Called, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ...) -> None: ...

class ListenAnswer(_message.Message):
    __slots__ = ("ref", "refusal")
    REF_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ref: int
    refusal: Refusal
    def __init__(self, ref: _Optional[int] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Called(_message.Message):
    __slots__ = ("call", "recipient", "body")
    CALL_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    call: int
    recipient: str
    body: bytes
    def __init__(self, call: _Optional[int] = ..., recipient: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ("subject", "sender", "body", "missed")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    subject: str
    sender: str
    body: bytes
    missed: int
    def __init__(self, subject: _Optional[str] = ..., sender: _Optional[str] = ..., body: _Optional[bytes] = ..., missed: _Optional[int] = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("id", "name", "permissions", "queues", "namespace", "expires_at", "created_at", "created_by", "is_configured", "role")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    IS_CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    permissions: _containers.RepeatedScalarFieldContainer[Permission]
    queues: _containers.RepeatedScalarFieldContainer[str]
    namespace: str
    expires_at: _timestamp_pb2.Timestamp
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    is_configured: bool
    role: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[Permission, str]]] = ..., queues: _Optional[_Iterable[str]] = ..., namespace: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., is_configured: _Optional[bool] = ..., role: _Optional[str] = ...) -> None: ...

class CreateApiKeyRequest(_message.Message):
    __slots__ = ("name", "permissions", "queues", "namespace", "expires_at", "role")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    permissions: _containers.RepeatedScalarFieldContainer[Permission]
    queues: _containers.RepeatedScalarFieldContainer[str]
    namespace: str
    expires_at: _timestamp_pb2.Timestamp
    role: str
    def __init__(self, name: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[Permission, str]]] = ..., queues: _Optional[_Iterable[str]] = ..., namespace: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., role: _Optional[str] = ...) -> None: ...

class CreateApiKeyResponse(_message.Message):
    __slots__ = ("id", "token")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    token: str
    def __init__(self, id: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class ListApiKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListApiKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ApiKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[ApiKey, _Mapping]]] = ...) -> None: ...

class RevokeApiKeyRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RevokeApiKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NamespaceSettings(_message.Message):
    __slots__ = ("description", "weight", "tasks_queued", "bytes_stored", "submits_per_second", "submits_burst", "workers", "api_keys", "concurrent_attempts")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TASKS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    BYTES_STORED_FIELD_NUMBER: _ClassVar[int]
    SUBMITS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SUBMITS_BURST_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    API_KEYS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    description: str
    weight: int
    tasks_queued: int
    bytes_stored: int
    submits_per_second: int
    submits_burst: int
    workers: int
    api_keys: int
    concurrent_attempts: int
    def __init__(self, description: _Optional[str] = ..., weight: _Optional[int] = ..., tasks_queued: _Optional[int] = ..., bytes_stored: _Optional[int] = ..., submits_per_second: _Optional[int] = ..., submits_burst: _Optional[int] = ..., workers: _Optional[int] = ..., api_keys: _Optional[int] = ..., concurrent_attempts: _Optional[int] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("name", "settings", "used", "queues", "created_at", "created_by", "is_declared")
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    IS_DECLARED_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: NamespaceSettings
    used: _containers.ScalarMap[str, int]
    queues: int
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    is_declared: bool
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[NamespaceSettings, _Mapping]] = ..., used: _Optional[_Mapping[str, int]] = ..., queues: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., is_declared: _Optional[bool] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces",)
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[Namespace]
    def __init__(self, namespaces: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ...) -> None: ...

class GetNamespaceRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetNamespaceResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ...) -> None: ...

class DeclareNamespaceRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: NamespaceSettings
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[NamespaceSettings, _Mapping]] = ...) -> None: ...

class DeclareNamespaceResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ...) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ("killed",)
    KILLED_FIELD_NUMBER: _ClassVar[int]
    killed: int
    def __init__(self, killed: _Optional[int] = ...) -> None: ...
