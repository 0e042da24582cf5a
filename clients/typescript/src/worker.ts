// The worker: joins, runs tasks, reports, and comes back after a lost connection.
//
// Three rules make it correct, and most of what follows comes from them:
//
//   - An attempt is ours from ASSIGN until the broker has acknowledged how it ended. Until then it
//     is named in `holding` whenever we join.
//   - A report is sent again, over whichever connection is open, until it is acknowledged.
//   - `stale_fence`, or `drop` in the answer to JOIN, means that an attempt is no longer ours: stop
//     it, and report nothing more about it.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";

import type { Reach } from "./address.js";
import type { BlobRef, Connection } from "./connection.js";
import { ConnectionLost, JackalopeError, Refused, Reject, RetryLater, Stopped, Throttled } from "./errors.js";
import { Kind } from "./frames.js";
import { idText } from "./ids.js";
import { type Input, replaceReferences } from "./inputs.js";
import { type Limit, settingsOf } from "./limits.js";
import { type Amount, resourcesOf } from "./needs.js";
import { AttemptLines, captureConsole, LogSender, withConsole, type TaskLog } from "./logs.js";
import { Session } from "./session.js";
import { decodeCall, encodeResult, type Content } from "./values.js";

const LEASE_MS = 30_000;
const LAST_WORD_MS = 5_000;
const REPORT_AGAIN_MS = 500;

/** What a task's function learns about its attempt. */
export interface Context {
  /** The id of the task. */
  readonly id: string;
  readonly name: string;
  readonly queue: string;
  readonly key: string;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  readonly fence: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly kwargs: Readonly<Record<string, unknown>>;
  /** Of a node of a flow, what its predecessors left. */
  readonly inputs: readonly Input[];
  /** Aborted when the attempt is to stop; its reason is `Stopped`. */
  readonly signal: AbortSignal;
  /** Report how far the attempt has come: 0 to 100, or null if unknown. */
  progress(percent: number | null, note?: string): void;
  /** Writes to the log of the task, which the broker keeps: `log.info("got %d rows", rows)`. */
  readonly log: TaskLog;
}

// A function takes what arguments it likes: those of the call, which no type can know here.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type TaskFunction = (context: Context, ...args: any[]) => unknown;

/** What a task takes and returns. */
export interface Contract {
  /** Tells it from others, such as a hash of the code. */
  version?: string;
  parameters?: readonly { name: string; kind?: "any" | "place" | "name" | "rest" | "rest_named"; schema?: object; required?: boolean; default?: unknown }[];
  returns?: object;
  definitions?: Record<string, object>;
  content?: Content;
  doc?: string;
}

export interface WorkerOptions extends Reach {
  /** The functions, by the names of the tasks that they run. */
  tasks: Record<string, TaskFunction>;
  queues?: readonly string[];
  /** Serve only tasks with these keys. */
  keys?: readonly string[];
  /** How many attempts run at once. */
  concurrency?: number;
  /** How long the broker waits for a silent worker, and for a lost connection to come back. */
  leaseMs?: number;
  graceMs?: number;
  /** How long `drain` waits for what runs. */
  drainMs?: number;
  labels?: Record<string, string>;
  /** How much of what it has for tasks that need it, such as `{ gpu: 2, mem: "64GiB" }`. */
  resources?: Readonly<Record<string, Amount>>;
  /** What the tasks take, by their names; the broker refuses calls that do not fit. */
  contracts?: Readonly<Record<string, Contract>>;
  /** The limits by key that hold for the tasks, by name; declared once, if the API key permits it. */
  limits?: Readonly<Record<string, Limit>>;
  /** Keep what tasks print with `console` in their logs; true by default. It is printed as well. */
  captureConsole?: boolean;
  /** Where a line goes about what happens; nowhere by default. */
  log?: (line: string) => void;
}

type Outcome = "finished" | "failed" | "released" | "stopped";
type RawAssignment = [
  task: Uint8Array, fence: number, queue: string, name: string, key: string,
  payload: Uint8Array | BlobRef, options: [unknown, Record<string, unknown>?, ...unknown[]], attempt: number,
  timeoutUs?: number, claim?: number, envelope?: unknown, steps?: unknown[], retriesLeft?: number, inputs?: RawInput[],
];
type RawInput = [
  node: string, task: Uint8Array, state: string, result?: Uint8Array | BlobRef, error?: string[] | null, group?: string,
];
/** Where the options of a task have what it does after failures, and what makes it a node of a flow. */
const ON_DEPENDENCY = 8;
const NODE = 15;

/** One try at a task, from ASSIGN until the broker has acknowledged its end. */
class Attempt {
  readonly id: string;
  readonly stop = new AbortController();
  report: { what: Outcome; fields: unknown[]; body: Uint8Array | null } | null = null;
  isStartSent = false;
  isReportSent = false;
  lines: AttemptLines | null = null;

  constructor(
    readonly task: Uint8Array,
    readonly fence: number,
    readonly given: RawAssignment,
  ) {
    this.id = `${idText(task)}/${fence}`;
  }

  get held(): [Uint8Array, number] {
    return [this.task, this.fence];
  }

  get headers(): Record<string, unknown> {
    return this.given[6][1] ?? {};
  }

  get content(): Content {
    return (this.headers["content"] as Content | undefined) ?? "msgpack";
  }
}

/** Runs tasks of a broker, whatever happens to the connection. */
export class Worker {
  readonly name: string;
  #options: WorkerOptions;
  #session: Session;
  #attempts = new Map<string, Attempt>();
  #joined: Connection | null = null;
  #isLeaving = false;
  #isFlushing = false;
  #hasLimited = false;
  #generation = 0;
  #logs = new LogSender();
  #beating: NodeJS.Timeout | undefined;
  #settled: () => void = () => {};
  #over: Promise<"drained" | "replaced">;
  #end!: { resolve(how: "drained" | "replaced"): void; reject(why: Error): void };

  constructor(options: WorkerOptions) {
    this.#options = options;
    // Stable over reconnects, and different from every other worker of the namespace.
    this.name = options.name ?? `node-${hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.#over = new Promise((resolve, reject) => (this.#end = { resolve, reject }));
    this.#over.catch(() => {});
    this.#session = new Session({ ...options, name: this.name }, {
      opened: (connection) => void this.#join(connection),
      heard: (kind, fields, connection) => this.#heard(kind, fields, connection),
      lost: () => this.#lost(),
      ended: (why) => this.#end.reject(why),
    });
  }

  /**
   * Work until `drain` is done. SIGTERM and SIGINT drain, and a second one hands back at once,
   * unless `handleSignals` is false. Raises an error if the broker does not let this worker in.
   */
  async run({ handleSignals = true } = {}): Promise<"drained" | "replaced"> {
    const drain = (): void => void this.drain();
    const signals = handleSignals ? (["SIGTERM", "SIGINT"] as const) : [];
    for (const signal of signals) process.on(signal, drain);
    const release = this.#options.captureConsole === false ? () => {} : captureConsole();
    this.#session.start();
    // The connection sends its own; these are for a lease that is shorter than that.
    const beat = (): void => this.#joined?.send(Kind.HEARTBEAT, [0]);
    this.#beating = setInterval(beat, (this.#options.leaseMs ?? LEASE_MS) / 4);
    try {
      return await this.#over;
    } finally {
      clearInterval(this.#beating);
      release();
      this.#logs.close();
      for (const signal of signals) process.off(signal, drain);
      this.#session.close();
    }
  }

  // The connection.

  #heard(kind: number, fields: unknown[], connection: Connection): void {
    if (kind === Kind.ASSIGN) {
      for (const given of fields[0] as RawAssignment[]) {
        const attempt = new Attempt(given[0], given[1], given);
        if (!this.#attempts.has(attempt.id)) void this.#begin(attempt); // It may be told twice.
      }
    } else if (kind === Kind.SIGNAL) this.#signal(...(fields as [Uint8Array, number, string]));
    else if (kind === Kind.NOTICE) this.#notice(String(fields[0]), connection);
  }

  #notice(what: string, connection: Connection): void {
    this.#log(`the broker says ${what}`);
    if (what === "drain" && !this.#isLeaving) void this.drain(); // It is repeated at each JOIN.
    if (what === "lease_lost") void this.#join(connection); // The answer says what to drop.
    if (what === "replaced") {
      // Another process has taken this name. To come back would only drive it out in turn.
      for (const attempt of this.#attempts.values()) this.#drop(attempt);
      this.#end.resolve("replaced");
    }
    // `goodbye` and `error`: the broker closes the connection, and the session comes back.
  }

  /** What was sent over a connection that is lost is sent again over the next one. */
  #lost(): void {
    this.#joined = null;
    this.#logs.suspend();
    for (const attempt of this.#attempts.values()) attempt.isStartSent = attempt.isReportSent = false;
  }

  async #join(connection: Connection): Promise<void> {
    const { queues = ["default"], keys = [], concurrency = 1, labels = {}, resources = {}, leaseMs = LEASE_MS, graceMs = 10_000, tasks } = this.#options;
    const holding = [...this.#attempts.values()].map((attempt) => attempt.held);
    this.#joined = null; // Reports wait for the answer.
    // Microseconds, which still are a safe number, and never the same twice.
    this.#generation = Math.max(Date.now() * 1000, this.#generation + 1);
    const slots = this.#isLeaving ? 0 : concurrency;
    const fields = [this.name, queues, keys, slots, { language: "javascript", ...labels }, holding];
    const times = [leaseMs * 1000, graceMs * 1000, this.#generation];
    this.#limit(connection); // Before the first task is assigned.
    try {
      const body = (await connection.request(Kind.JOIN, [...fields, ...times, true, -1, Object.keys(tasks), "", resourcesOf(resources)])) as { drop: [Uint8Array, number][] };
      this.#joined = connection;
      for (const [task, fence] of body.drop) {
        const attempt = this.#attempts.get(`${idText(task)}/${fence}`);
        if (attempt) this.#drop(attempt);
      }
      this.#logs.resume(connection); // Lines go before the end that they belong to.
      this.#flush(); // What ended or began while there was no connection.
      this.#declare(connection, queues);
    } catch (error) {
      await this.#notLetIn(connection, error as JackalopeError);
    }
  }

  /** Declare the limits of the tasks once, so that coming back undoes no live change. */
  #limit(connection: Connection): void {
    const { limits = {} } = this.#options;
    if (this.#hasLimited || Object.keys(limits).length === 0) return;
    const settings = Object.fromEntries(Object.entries(limits).map(([name, limit]) => [name, settingsOf(limit)]));
    this.#hasLimited = true;
    connection.request(Kind.MANAGE, ["declare_limits", { limits: settings }]).catch((error: Error) => {
      if (error instanceof ConnectionLost) this.#hasLimited = false;
      this.#log(`limits not declared: ${error.message}`);
    });
  }

  /** Declare what the tasks take, whenever the worker has joined. */
  #declare(connection: Connection, queues: readonly string[]): void {
    const { contracts } = this.#options;
    if (contracts === undefined) return;
    connection
      .request(Kind.MANAGE, ["declare_contracts", { queues, contracts }])
      .catch((error: Error) => this.#log(`contracts not declared: ${error.message}`));
  }

  async #notLetIn(connection: Connection, error: JackalopeError): Promise<void> {
    if (error instanceof ConnectionLost) return;
    this.#log(`cannot join: ${error.message}`);
    if (!(error instanceof Refused) || ["invalid", "forbidden"].includes(error.code)) return this.#end.reject(error);
    // A disk without room, too many workers, a join overtaken by our own: that passes.
    await pause(Math.max(error.retryAfterMs, 1_000));
    if (this.#joined === null) connection.abort("joining again");
  }

  // Attempts.

  async #begin(attempt: Attempt): Promise<void> {
    this.#attempts.set(attempt.id, attempt);
    if (this.#isLeaving) return this.#ended(attempt, "released");
    this.#flush(); // START.
    const { content } = attempt;
    try {
      const [, fence, queue, name, key, , , number] = attempt.given;
      const run = this.#options.tasks[name];
      if (run === undefined) throw new Reject(`this worker has no task ${JSON.stringify(name)}`);
      const inputs = await this.#inputs(attempt);
      const [args, kwargs] = this.#call(attempt, await this.#body(attempt, attempt.given[5]), inputs);
      const lines = (attempt.lines = new AttemptLines(attempt.held, this.#logs.note));
      const context: Context = {
        id: idText(attempt.task),
        name, queue, key, fence, kwargs, inputs,
        attempt: number,
        headers: attempt.headers,
        signal: attempt.stop.signal,
        progress: (percent, note = "") => this.#joined?.send(Kind.PROGRESS, [0, ...attempt.held, percent, note]),
        // Most tasks log nothing.
        get log() {
          return lines.log;
        },
      };
      const result = encodeResult(content, await withConsole(lines, () => run(context, ...args)));
      this.#ended(attempt, "finished", [], result);
    } catch (error) {
      this.#failed(attempt, error);
    }
  }

  #call(attempt: Attempt, payload: Uint8Array, inputs: readonly Input[]): [unknown[], Record<string, unknown>] {
    const { content, given } = attempt;
    const isNode = inputs.length > 0 || Boolean(given[6][NODE]);
    const [first] = inputs;
    if (isNode && content === "bytes" && payload.length === 0 && first) return [[first.result], {}];
    const call = decodeCall(content, payload);
    return isNode && content !== "bytes" ? (replaceReferences(call, inputs, content) as typeof call) : call;
  }

  async #inputs(attempt: Attempt): Promise<Input[]> {
    const given = attempt.given[13] ?? [];
    const collects = attempt.given[6][ON_DEPENDENCY] === "run";
    const inputs: Input[] = [];
    for (const [node, , state, body = new Uint8Array(), error = null, group = ""] of given) {
      if (state !== "succeeded" && !collects) continue;
      const result = await this.#body(attempt, body, node);
      inputs.push({ node, group, state, result, error: error && { type: error[0] ?? "", message: error[1] ?? "" } });
    }
    return inputs;
  }

  async #body(attempt: Attempt, body: Uint8Array | BlobRef, node = ""): Promise<Uint8Array> {
    for (;;) {
      attempt.stop.signal.throwIfAborted();
      try {
        return await (await this.#session.ready()).fetch(attempt.task, body, attempt.fence, node);
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        await pause(REPORT_AGAIN_MS);
      }
    }
  }

  #failed(attempt: Attempt, error: unknown): void {
    const { signal } = attempt.stop;
    if (signal.aborted) return this.#ended(attempt, signal.reason.why === "released" ? "released" : "stopped");
    const { name = "Error", message = String(error), stack = "" } = error instanceof Error ? error : {};
    const isTimed = error instanceof RetryLater || error instanceof Throttled;
    const afterUs = isTimed ? Math.max(1, Math.round(error.afterMs * 1000)) : 0;
    const verdict = error instanceof Reject ? "reject" : error instanceof Throttled ? "throttled" : "retry";
    const throttled = error instanceof Throttled ? [false, error.key] : [];
    this.#ended(attempt, "failed", [[name, message, stack], verdict, afterUs, ...throttled]);
  }

  #ended(attempt: Attempt, what: Outcome, fields: unknown[] = [], body: Uint8Array | null = null): void {
    if (this.#attempts.get(attempt.id) !== attempt || attempt.report) return;
    attempt.report = { what, fields, body };
    if (attempt.lines) this.#logs.finish(attempt.lines);
    this.#flush();
  }

  /** Forget an attempt whose end is acknowledged. */
  #settle(attempt: Attempt): void {
    this.#attempts.delete(attempt.id);
    this.#settled();
  }

  /** Abandon an attempt that is no longer ours. */
  #drop(attempt: Attempt): void {
    this.#settle(attempt);
    attempt.stop.abort(new Stopped("lost"));
  }

  #signal(task: Uint8Array, fence: number, signal: string): void {
    const attempt = this.#attempts.get(`${idText(task)}/${fence}`);
    if (attempt === undefined || attempt.report) return; // Its end is on its way.
    this.#log(`${signal} of task ${attempt.id}`);
    this.#joined?.request(Kind.SIGNAL, [...attempt.held, "delivered"]).catch(() => {});
    attempt.stop.abort(new Stopped(signal as Stopped["why"])); // It has stopped when it has ended.
  }

  // Reports.

  /** Send what the broker does not know yet, all of this turn of the event loop in one frame. */
  #flush(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => {
      this.#isFlushing = false;
      const connection = this.#joined;
      if (connection === null) return;
      const attempts = [...this.#attempts.values()];
      this.#reportStarts(connection, attempts.filter((each) => !each.isStartSent && !each.report));
      const ended = attempts.filter((each) => each.report && !each.isReportSent);
      for (const attempt of ended) attempt.isReportSent = true;
      for (const some of parts(ended.filter((each) => each.report!.what !== "stopped"), connection.inlineBytesMax))
        void this.#reportResults(connection, some);
      for (const attempt of ended) if (attempt.report!.what === "stopped") void this.#reportStop(connection, attempt);
    });
  }

  #reportStarts(connection: Connection, attempts: Attempt[]): void {
    if (attempts.length === 0) return;
    for (const attempt of attempts) attempt.isStartSent = true;
    connection.request(Kind.START, [attempts.map((attempt) => attempt.held)]).then(
      (body) => {
        for (const [index, { code }] of (body as { refused: [number, { code: string }][] }).refused)
          if (code === "stale_fence") this.#drop(attempts[index]!);
      },
      () => {}, // Without START a task still ends well: a refusal of the whole is not worth a retry.
    );
  }

  async #reportResults(connection: Connection, attempts: Attempt[]): Promise<void> {
    const lists = (["finished", "failed", "released"] as const).map((what) => attempts.filter((each) => each.report!.what === what));
    try {
      const [finished, failed, released] = lists as [Attempt[], Attempt[], Attempt[]];
      const results: unknown[] = [];
      for (const attempt of finished) results.push([...attempt.held, await connection.bodyToSend(attempt.report!.body!)]);
      const failures = failed.map((attempt) => [...attempt.held, ...attempt.report!.fields]);
      const body = (await connection.request(Kind.RESULT, [results, failures, released.map((each) => each.held)])) as {
        refused: [number, { code: string; message: string }][];
      };
      const refused = new Map(body.refused);
      for (const [index, attempt] of lists.flat().entries()) this.#reported(attempt, refused.get(index));
    } catch (error) {
      await this.#again(connection, attempts, error as JackalopeError);
    }
  }

  async #reportStop(connection: Connection, attempt: Attempt): Promise<void> {
    try {
      await connection.request(Kind.SIGNAL, [...attempt.held, "stopped"]);
      this.#reported(attempt, undefined);
    } catch (error) {
      if (error instanceof Refused && ["stale_fence", "wrong_state"].includes(error.code)) this.#reported(attempt, error);
      else await this.#again(connection, [attempt], error as JackalopeError);
    }
  }

  #reported(attempt: Attempt, refusal: { code: string; message: string } | undefined): void {
    if (refusal?.code === "too_large") {
      attempt.report = null;
      attempt.isReportSent = false;
      return this.#ended(attempt, "failed", [["TooLarge", refusal.message, ""], "dead", 0]);
    }
    if (refusal) this.#log(`task ${attempt.id}: ${refusal.message} (${refusal.code})`);
    this.#settle(attempt);
  }

  /** Report again what was refused as a whole, once that may help. */
  async #again(connection: Connection, attempts: Attempt[], error: JackalopeError): Promise<void> {
    if (error instanceof ConnectionLost) return; // The next connection reports it.
    this.#log(`report refused: ${error.message}`);
    if (error instanceof Refused && error.code === "too_large")
      for (const attempt of attempts) this.#reported(attempt, error);
    else {
      for (const attempt of attempts) attempt.isReportSent = false;
      if (error instanceof Refused && error.code === "unknown_session") return this.#join(connection);
      await pause(Math.max(error instanceof Refused ? error.retryAfterMs : 0, REPORT_AGAIN_MS));
      this.#flush();
    }
  }

  // Leaving.

  /** Take no more tasks, wait for those that run, hand back what is left, and leave. */
  async drain(waitMs = this.#options.drainMs ?? 10_000): Promise<void> {
    if (this.#isLeaving) return this.#release(); // Asked twice: do not wait.
    this.#isLeaving = true;
    const stop = new AbortController();
    const wait = (ms: number): Promise<void> => pause(ms, undefined, { signal: stop.signal }).catch(() => {});
    if (this.#joined) void this.#join(this.#joined); // Again, now with no slots: nothing new will come.
    const idle = new Promise<void>((resolve) => {
      this.#settled = () => this.#attempts.size === 0 && resolve();
      this.#settled();
    });
    await Promise.race([idle, wait(waitMs)]);
    this.#release();
    // A broker that is away takes the attempts back by itself, once their lease is over.
    await Promise.race([idle, wait(LAST_WORD_MS)]);
    const { connection } = this.#session;
    this.#joined = null; // Nothing is reported after LEAVE: it hands back all that is left.
    await Promise.race([connection?.request(Kind.LEAVE, []).catch(() => {}), wait(LAST_WORD_MS)]);
    stop.abort();
    this.#end.resolve("drained");
  }

  #release(): void {
    for (const attempt of this.#attempts.values()) {
      this.#ended(attempt, "released");
      attempt.stop.abort(new Stopped("released"));
    }
  }

  #log(line: string): void {
    this.#options.log?.(line);
  }
}

/** Divide attempts so that the reports of each part fit into one frame. */
function* parts(attempts: Attempt[], bytesMax: number): Generator<Attempt[]> {
  let some: Attempt[] = [];
  let bytes = 0;
  for (const attempt of attempts) {
    // An error is cut by the broker, and a body that is too large for a frame goes apart from it.
    const size = 512 + Math.min(attempt.report!.body?.length ?? 100_000, bytesMax);
    if (some.length > 0 && (bytes + size > bytesMax || some.length === 1_000)) {
      yield some;
      some = [];
      bytes = 0;
    }
    some.push(attempt);
    bytes += size;
  }
  if (some.length > 0) yield some;
}
