// The client: submit tasks, wait for them, ask about them and act on them.
//
// Everything that it sends may be repeated: a submit names its ids, and the rest is a question or
// an action that is the same twice. So what a lost connection left unanswered is sent again.

import { setTimeout as pause } from "node:timers/promises";

import type { Reach } from "./address.js";
import type { BlobRef, Connection } from "./connection.js";
import { ConnectionLost, JackalopeError, PartlyRefused, Refused, TaskFailed, TimedOut, type RemoteError } from "./errors.js";
import { Kind } from "./frames.js";
import { idBytes, idText, newTaskId } from "./ids.js";
import { needsOf, type Placement } from "./needs.js";
import { Session } from "./session.js";
import { decodeResult, encodeCall, type Content } from "./values.js";

const ITEMS_PER_REQUEST_MAX = 10_000;
const REQUEST_MS = 30_000;

/** What stands around a task in a frame is less than this, headers and tags aside. */
const SPARE_BYTES = 4096;

/** How long to wait, and what ends the wait early. */
export interface Waiting {
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** What few tasks ask for. */
export interface TaskOptions extends Placement {
  queue?: string;
  /** Which workers may run it, when some serve only some keys. */
  key?: string;
  /** 0 to 255, 150 by default; the higher runs first. */
  priority?: number;
  /** The id, a UUID, for a submit that another process may repeat. */
  id?: string;
  kwargs?: Record<string, unknown>;
  content?: Content;
  alias?: string;
  headers?: Record<string, unknown>;
  tags?: readonly string[];
  runAt?: Date;
  expiresAt?: Date;
  timeoutMs?: number;
  retry?: { retries: number; baseMs?: number; factor?: number; capMs?: number };
  dependsOn?: readonly string[];
  onDependency?: "dead" | "run";
  parent?: string;
  held?: boolean;
  same?: "run" | "unique" | "cached" | "refresh";
  version?: string;
}

/** A task to submit. */
export interface NewTask extends TaskOptions {
  name: string;
  args?: readonly unknown[];
}

export interface SubmitOptions extends Waiting {
  /** Wait this long for a full queue or a busy broker, as it asks to; not at all by default. */
  patienceMs?: number;
}

export type State =
  | "held" | "waiting" | "scheduled" | "ready" | "assigned" | "running" | "paused"
  | "succeeded" | "dead" | "killed";

/** A task as the broker shows it; what is 0, empty or false is left out. */
export interface TaskView {
  id: string;
  queue: string;
  name: string;
  state: State;
  priority: number;
  attempts: number;
  failures: number;
  crashes: number;
  interruptions: number;
  worker: string;
  reason: string | null;
  error: RemoteError | null;
  progress: Progress | null;
}

/** How far an attempt has come. */
export interface Progress {
  percent: number | null;
  note: string;
}

export interface TaskPage {
  tasks: TaskView[];
  /** If not empty: give it with the same question for the next page. */
  cursor: string;
}

/** How a task ended. */
export interface Ended {
  id: string;
  state: "succeeded" | "dead" | "killed";
  result: Uint8Array;
  reason: string | null;
  error: RemoteError | null;
}

export type Action = "hold" | "play" | "pause" | "kill" | "retry" | "purge";

export interface Acted {
  /** Tasks that are now what was asked for. */
  changed: number;
  /** Tasks whose worker was asked. */
  requested: number;
  refused: Map<string, Refused>;
}

interface RawRefusal {
  code: string;
  message: string;
  retry_after_us: number;
}

type RawError = readonly [type: string, message?: string, trace?: string];

interface Watch {
  ended: Promise<Ended>;
  resolve(ended: Ended): void;
  reject(error: Error): void;
  followers: Set<(progress: Progress) => void>;
}

/** A connection to a broker, for those who submit tasks. */
export class Client {
  #session: Session;
  #watches = new Map<string, Watch>();

  constructor(reach: Reach = {}) {
    this.#session = new Session(reach, {
      opened: (connection) => this.#watchAgain(connection),
      heard: (kind, fields, connection) => this.#heard(kind, fields, connection),
      lost: () => {},
      ended: (why) => this.#over(why),
    });
    this.#session.start();
  }

  /** End the connection. What is still waited for fails. */
  close(): void {
    this.#session.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  // Submitting.

  /** Submit a task. It is durable when the promise is kept. */
  async submit<R = unknown>(name: string, args: readonly unknown[] = [], options: TaskOptions & SubmitOptions = {}): Promise<Handle<R>> {
    try {
      const [handle] = await this.submitMany<R>([{ ...options, name, args }], options);
      return handle!;
    } catch (error) {
      throw error instanceof PartlyRefused ? error.refused.get(0) : error;
    }
  }

  /**
   * Submit many tasks. Each is accepted or refused on its own: `PartlyRefused` has the handles of
   * those that were accepted.
   */
  async submitMany<R = unknown>(tasks: readonly NewTask[], options: SubmitOptions = {}): Promise<Handle<R>[]> {
    const prepared = tasks.map(prepare);
    const handles: (Handle<R> | null)[] = tasks.map(() => null);
    let left = prepared.map((_, index) => index);
    const refused = new Map<number, Refused>();
    const until = Date.now() + (options.patienceMs ?? 0);
    for (;;) {
      refused.clear();
      for (const some of chunks(left, prepared)) {
        const answer = await this.#submit(some.map((index) => prepared[index]!), options);
        for (const [at, index] of some.entries()) {
          const refusal = answer.refused.get(at);
          if (refusal) refused.set(index, refusal);
          else handles[index] = new Handle<R>(this, answer.ids[at]!, prepared[index]!.content);
        }
      }
      left = [...refused].filter(([, refusal]) => refusal.retryAfterMs > 0).map(([index]) => index);
      const waitMs = Math.max(...left.map((index) => refused.get(index)!.retryAfterMs));
      if (left.length === 0 || Date.now() + waitMs > until) break;
      await pause(waitMs * (1 + Math.random() / 4), undefined, options.signal && { signal: options.signal });
    }
    const all = new Map([...refused].filter(([index]) => handles[index] === null));
    if (all.size > 0) throw new PartlyRefused(all, handles);
    return handles as Handle<R>[];
  }

  async #submit(tasks: Prepared[], options: SubmitOptions): Promise<{ ids: string[]; refused: Map<number, Refused> }> {
    const body = (await this.#ask(async (connection) => {
      const specs: unknown[] = [];
      for (const task of tasks) {
        const [id, queue, name, key, priority] = task.fields;
        specs.push([id, queue, name, key, priority, await connection.bodyToSend(task.payload), task.options]);
      }
      return connection.request(Kind.SUBMIT, [specs]);
    }, options)) as { refused: [number, RawRefusal][]; served?: [number, { task: Uint8Array }][] };
    const ids = tasks.map((task) => idText(task.fields[0]));
    for (const [index, served] of body.served ?? []) ids[index] = idText(served.task);
    return { ids, refused: new Map(body.refused.map(([index, why]) => [index, toRefused(why)])) };
  }

  /** Return the handle of a task that was submitted elsewhere. */
  handle<R = unknown>(id: string, content: Content = "msgpack"): Handle<R> {
    return new Handle<R>(this, idText(idBytes(id)), content);
  }

  // Waiting.

  /** Wait until a task has ended. */
  wait(id: string, options: Waiting & { onProgress?: (progress: Progress) => void } = {}): Promise<Ended> {
    let watch = this.#watches.get(id);
    if (watch === undefined) {
      watch = newWatch();
      this.#watches.set(id, watch);
      void this.#watch(id, watch, false);
    }
    const { onProgress } = options;
    if (onProgress) {
      watch.followers.add(onProgress);
      void this.#watch(id, watch, true);
    }
    return within(watch.ended, options, `task ${id} has not ended`).finally(() => {
      if (onProgress) watch.followers.delete(onProgress);
    });
  }

  async #watch(id: string, watch: Watch, progress: boolean): Promise<void> {
    try {
      const body = (await this.#ask((connection) => connection.request(Kind.WATCH, [[idBytes(id)], progress]))) as { refused: [number, RawRefusal][] };
      if (body.refused[0]) throw toRefused(body.refused[0][1]);
    } catch (error) {
      this.#watches.delete(id);
      watch.reject(error as Error);
    }
  }

  /** A watch ends with its connection: repeat them all. */
  #watchAgain(connection: Connection): void {
    for (const progress of [false, true]) {
      const ids = [...this.#watches].filter(([, watch]) => watch.followers.size > 0 === progress).map(([id]) => id);
      for (let at = 0; at < ids.length; at += ITEMS_PER_REQUEST_MAX) {
        const some = ids.slice(at, at + ITEMS_PER_REQUEST_MAX).map(idBytes);
        connection.request(Kind.WATCH, [some, progress]).catch(() => {}); // Repeated once more.
      }
    }
  }

  #heard(kind: number, fields: unknown[], connection: Connection): void {
    if (kind === Kind.ENDED)
      for (const ended of fields[0] as RawEnded[]) void this.#ended(ended, connection);
    if (kind === Kind.PROGRESS) {
      const [task, , percent = null, note = ""] = fields as [Uint8Array, number, number?, string?];
      for (const follow of this.#watches.get(idText(task))?.followers ?? []) follow({ percent, note });
    }
  }

  async #ended([task, state, body = Buffer.alloc(0), reason = null, error = null]: RawEnded, connection: Connection): Promise<void> {
    const id = idText(task);
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    try {
      const result = await connection.fetch(task, body);
      this.#watches.delete(id);
      watch.resolve({ id, state, result, reason, error: toError(error) });
    } catch (why) {
      if (why instanceof ConnectionLost) return; // The next connection brings the end again.
      this.#watches.delete(id);
      watch.reject(why as Error);
    }
  }

  #over(why: JackalopeError): void {
    for (const watch of this.#watches.values()) watch.reject(why);
    this.#watches.clear();
  }

  // Asking and acting.

  /** Return a task. */
  async task(id: string, options: Waiting = {}): Promise<TaskView> {
    return toView((await this.query("task", { id: idBytes(id) }, options)) as RawView);
  }

  /** List tasks, the latest first. */
  async tasks(about: { queue?: string; name?: string; states?: readonly State[]; text?: string; limit?: number; cursor?: string } = {}, options: Waiting = {}): Promise<TaskPage> {
    const page = (await this.query("tasks", about, options)) as { tasks: RawView[]; cursor: string };
    return { tasks: page.tasks.map(toView), cursor: page.cursor };
  }

  /** Explain why a task is not running, or why it ended as it did. */
  async explain(id: string, options: Waiting = {}): Promise<{ why: string; text: string }[]> {
    const view = (await this.query("explain", { id: idBytes(id) }, options)) as { causes: { why: string; text: string }[] };
    return view.causes;
  }

  /** Do something with tasks; the workers of those that run are asked. */
  async act(action: Action, ids: readonly string[], options: Waiting = {}): Promise<Acted> {
    const body = (await this.#ask((connection) => connection.request(Kind.ACT, [action, ids.map(idBytes)]), options)) as {
      changed: number; requested: number; refused: [Uint8Array, RawRefusal][];
    };
    const refused = new Map(body.refused.map(([task, why]) => [idText(task), toRefused(why)]));
    return { changed: body.changed, requested: body.requested, refused };
  }

  /** Create a queue, or change its policy: by the names of the settings, durations as `_us`. */
  async declareQueue(queue: string, changes: Record<string, unknown> = {}, preset = "", options: Waiting = {}): Promise<Record<string, unknown>> {
    const about = { queue, changes, ...(preset && { preset }) };
    const body = await this.#ask((connection) => connection.request(Kind.MANAGE, ["declare_queue", about]), options);
    return (body as { policy: Record<string, unknown> }).policy;
  }

  /** Ask any of the questions of the protocol. */
  query(what: string, about: Record<string, unknown> = {}, options: Waiting = {}): Promise<unknown> {
    return this.#ask((connection) => connection.request(Kind.QUERY, [what, about]), options);
  }

  /** Send a request over the connection that is open, and again over the next if it is lost. */
  #ask(send: (connection: Connection) => Promise<unknown>, options: Waiting = {}): Promise<unknown> {
    const asked = async (): Promise<unknown> => {
      for (;;) {
        const connection = await this.#session.ready();
        try {
          return await send(connection);
        } catch (error) {
          if (!(error instanceof ConnectionLost)) throw error;
          if (controller.signal.aborted) throw error;
        }
      }
    };
    const controller = new AbortController();
    const { timeoutMs = REQUEST_MS, signal } = options;
    return within(asked(), { timeoutMs, ...(signal && { signal }) }, "the broker has not answered").finally(() => controller.abort());
  }
}

/** A task that was submitted: its future result. */
export class Handle<R = unknown> {
  #client: Client;

  constructor(
    client: Client,
    readonly id: string,
    readonly content: Content,
  ) {
    this.#client = client;
  }

  /** Return the result when the task has succeeded. Raises `TaskFailed` if it ends otherwise. */
  async result(options: Waiting & { onProgress?: (progress: Progress) => void } = {}): Promise<R> {
    const { state, result, reason, error } = await this.wait(options);
    if (state !== "succeeded") throw new TaskFailed(this.id, state, reason, error);
    return decodeResult(this.content, result) as R;
  }

  wait(options: Waiting & { onProgress?: (progress: Progress) => void } = {}): Promise<Ended> {
    return this.#client.wait(this.id, options);
  }

  view(options: Waiting = {}): Promise<TaskView> {
    return this.#client.task(this.id, options);
  }

  explain(options: Waiting = {}): Promise<{ why: string; text: string }[]> {
    return this.#client.explain(this.id, options);
  }

  /** Kill the task: at once if it waits; its worker is asked if it runs. */
  async kill(options: Waiting = {}): Promise<"changed" | "requested"> {
    const { requested, refused } = await this.#client.act("kill", [this.id], options);
    const why = refused.get(this.id);
    if (why) throw why;
    return requested > 0 ? "requested" : "changed";
  }
}

// Shapes on the wire.

interface Prepared {
  fields: [id: Buffer, queue: string, name: string, key: string, priority: number];
  payload: Uint8Array;
  options: unknown[] | null;
  content: Content;
}

type RawEnded = [Uint8Array, Ended["state"], (Uint8Array | BlobRef)?, (string | null)?, (RawError | null)?];

interface RawView {
  id: Uint8Array;
  queue: string;
  state: State;
  error?: { type: string; message?: string; trace?: string };
  progress?: { percent?: number; note?: string };
  [key: string]: unknown;
}

function prepare(task: NewTask): Prepared {
  const { name, args = [], kwargs = {}, content = "msgpack", queue = "default", key = "", priority = 150 } = task;
  const headers = content === "msgpack" ? task.headers : { ...task.headers, content };
  const { retry } = task;
  const needs = needsOf(task);
  const options = [
    task.alias ?? "",
    headers ?? {},
    task.tags ?? [],
    dateUs(task.runAt),
    dateUs(task.expiresAt),
    us(task.timeoutMs ?? 0),
    retry ? [retry.retries, us(retry.baseMs ?? 5_000), retry.factor ?? 2, us(retry.capMs ?? 3_600_000)] : null,
    (task.dependsOn ?? []).map(idBytes),
    task.onDependency ?? "dead",
    task.parent === undefined ? Buffer.alloc(0) : idBytes(task.parent),
    task.held ?? false,
    task.same ?? null,
    task.version ?? "",
    // What the broker sets, and what this package does not send.
    Buffer.alloc(0), null, null, null, [], {}, "",
    needs,
  ];
  const isPlain = (["alias", "tags", "runAt", "expiresAt", "timeoutMs", "retry", "dependsOn", "onDependency", "parent", "held", "same", "version"] as const).every((option) => task[option] === undefined);
  return {
    fields: [idBytes(task.id ?? newTaskId()), queue, name, key, priority],
    payload: encodeCall(content, args, kwargs),
    options: isPlain && headers === undefined && needs === null ? null : options,
    content,
  };
}

/** Divide tasks so that each part fits into one request. */
function* chunks(indices: number[], tasks: Prepared[], bytesMax = 4 * 1024 * 1024): Generator<number[]> {
  let some: number[] = [];
  let bytes = 0;
  for (const index of indices) {
    const size = tasks[index]!.payload.length + SPARE_BYTES;
    if (some.length > 0 && (bytes + size > bytesMax || some.length === 1_000)) {
      yield some;
      some = [];
      bytes = 0;
    }
    some.push(index);
    bytes += size;
  }
  if (some.length > 0) yield some;
}

const us = (ms: number): number => Math.round(ms * 1000);
const dateUs = (date: Date | undefined): number => (date === undefined ? 0 : us(date.getTime()));

function toRefused({ code, message, retry_after_us }: RawRefusal): Refused {
  return new Refused(code, message, retry_after_us / 1000);
}

function toError(error: RawError | null): RemoteError | null {
  return error && { type: error[0], message: error[1] ?? "", trace: error[2] ?? "" };
}

function toView(raw: RawView): TaskView {
  const count = (key: string): number => (raw[key] as number | undefined) ?? 0;
  const text = (key: string): string => (raw[key] as string | undefined) ?? "";
  const { error, progress } = raw;
  return {
    id: idText(raw.id),
    queue: raw.queue,
    name: text("name"),
    state: raw.state,
    priority: count("priority"),
    attempts: count("attempts"),
    failures: count("failures"),
    crashes: count("crashes"),
    interruptions: count("interruptions"),
    worker: text("worker"),
    reason: text("reason") || null,
    error: error ? { type: error.type, message: error.message ?? "", trace: error.trace ?? "" } : null,
    progress: progress ? { percent: progress.percent ?? null, note: progress.note ?? "" } : null,
  };
}

function newWatch(): Watch {
  let resolve!: Watch["resolve"];
  let reject!: Watch["reject"];
  const ended = new Promise<Ended>((done, failed) => {
    resolve = done;
    reject = failed;
  });
  ended.catch(() => {}); // Those who wait hear of it; a watch that nobody awaits any more is no fault.
  return { ended, resolve, reject, followers: new Set() };
}

/** Wait for a promise, for a time or until a signal. */
async function within<T>(promise: Promise<T>, { timeoutMs, signal }: Waiting, what: string): Promise<T> {
  if (timeoutMs === undefined && signal === undefined) return promise;
  promise.catch(() => {});
  let timer: NodeJS.Timeout | undefined;
  let aborted: (() => void) | undefined;
  const given = new Promise<never>((_, reject) => {
    if (timeoutMs !== undefined)
      timer = setTimeout(() => reject(new TimedOut(`${what} after ${timeoutMs / 1000} s`)), timeoutMs);
    aborted = () => reject(signal!.reason);
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted);
  });
  try {
    return await Promise.race([promise, given]);
  } finally {
    clearTimeout(timer);
    if (aborted) signal?.removeEventListener("abort", aborted);
  }
}
