// Errors: everything that this package raises to its users.

/** The codes of refusals that a broker knows today; a later one may have others. */
export type RefusalCode =
  | "invalid"
  | "too_large"
  | "unknown_task"
  | "unknown_queue"
  | "unknown_worker"
  | "unknown_session"
  | "unknown_api_key"
  | "unknown_recipient"
  | "unknown_request"
  | "unknown_dependency"
  | "id_conflict"
  | "duplicate_alias"
  | "parent_ended"
  | "queue_full"
  | "queue_not_empty"
  | "too_many"
  | "policy_cycle"
  | "wrong_state"
  | "stale_fence"
  | "stale_session"
  | "unknown_exchange"
  | "unknown_rule"
  | "not_equivalent"
  | "locked"
  | "in_use"
  | "storage_failed"
  | "overloaded"
  | "rate_limited"
  | "unauthorised"
  | "forbidden"
  | "unknown_pool"
  | "unknown_blob"
  | "unknown_schedule"
  | "throttled"
  | "internal"
  | "unknown_namespace"
  | "namespace_not_empty"
  | "quota_exceeded"
  | (string & {});

/** Anything that this package has to report. */
export class JackalopeError extends Error {
  override name = "JackalopeError";
}

/** The broker could not be reached, or the connection to it is over. */
export class ConnectionLost extends JackalopeError {
  override name = "ConnectionLost";
}

/** The other end does not speak this protocol, or its certificate is not trusted. */
export class ProtocolError extends JackalopeError {
  override name = "ProtocolError";
}

/** The time that the caller allowed is over. */
export class TimedOut extends JackalopeError {
  override name = "TimedOut";
}

/** The broker refused. */
export class Refused extends JackalopeError {
  override name = "Refused";

  constructor(
    /** What kind of refusal this is, such as `queue_full`. */
    readonly code: RefusalCode,
    message: string,
    /** When asking again may help; 0 when it will not. */
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

/** Some tasks of a submit were not accepted. Has the code and the words of the first refusal. */
export class PartlyRefused<H = unknown> extends Refused {
  override name = "PartlyRefused";

  constructor(
    /** The refusal of each task that was not accepted, by its index. */
    readonly refused: ReadonlyMap<number, Refused>,
    /** One for each task; `null` for those that were not accepted. */
    readonly handles: readonly (H | null)[],
  ) {
    const first = [...refused.values()][0]!;
    const message = `${refused.size} of ${handles.length} tasks were not accepted: ${first.message}`;
    super(first.code, message, first.retryAfterMs);
  }
}

/** What an attempt at a task raised, in its worker. */
export interface RemoteError {
  readonly type: string;
  readonly message: string;
  readonly trace: string;
}

/** A task ended without success. */
export class TaskFailed extends JackalopeError {
  override name = "TaskFailed";

  constructor(
    readonly task: string,
    readonly state: "dead" | "killed",
    /** Why it is dead, such as `failed` or `expired`. */
    readonly reason: string | null,
    readonly error: RemoteError | null,
  ) {
    const why = reason === null ? "" : ` (${reason})`;
    super(`task ${task} is ${state}${why}${error ? `: ${error.type}: ${error.message}` : ""}`);
  }
}

/** Raised by a task that no worker need try again. */
export class Reject extends JackalopeError {
  override name = "Reject";
}

/** Raised by a task that is to be tried again after a time of its own choice. */
export class RetryLater extends JackalopeError {
  override name = "RetryLater";

  constructor(
    readonly afterMs: number,
    message = "",
  ) {
    super(message);
  }
}

/**
 * Raised by a task that came too soon, such as after a status 429. No task with this value of the key starts until
 * then, and then this one again. It counts as no failure.
 */
export class Throttled extends JackalopeError {
  override name = "Throttled";

  constructor(
    /** The key of a limit, or the name of a limit. */
    readonly key: string,
    readonly afterMs: number,
    message = "",
  ) {
    super(message);
  }
}

/** The reason of a task's `AbortSignal`: why it is to stop. */
export class Stopped extends JackalopeError {
  override name = "Stopped";

  constructor(
    /** `kill`, `pause` and `timeout` come from the broker; `lost` attempts belong to another
     * worker now, and `released` ones are handed back because this worker stops. */
    readonly why: "kill" | "pause" | "timeout" | "lost" | "released",
  ) {
    super(`the attempt is to stop: ${why}`);
  }
}
