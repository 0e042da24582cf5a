// Task logs: what an attempt logs is numbered, bounded, and sent before its result.
//
// A line gets its number when it is written, so that what is dropped later shows as a gap, and a
// line that goes again over the next connection is not stored again. Lines never keep a result
// waiting: of more than may wait, the oldest are dropped.

import { AsyncLocalStorage } from "node:async_hooks";
import { format } from "node:util";

import type { Connection } from "./connection.js";
import { ConnectionLost } from "./errors.js";
import { Kind } from "./frames.js";

export type LogLevel = "error" | "warn" | "info" | "debug" | "trace";
type Stream = "stdout" | "stderr" | "log";
type Line = [number: number, atUs: number, text: string, level: LogLevel, stream: Stream];

/** Writes to the log of a task. Values are put together as by `console.log`. */
export type TaskLog = Readonly<Record<LogLevel, (...values: unknown[]) => void>>;

const LINE_CHARS_MAX = 16 * 1024;
const WAITING_LINES_MAX = 10_000;
const WAITING_CHARS_MAX = 512 * 1024;
const SEND_EVERY_MS = 100;
const LINES_PER_SEND_MAX = 200;
const BYTES_PER_SEND_MAX = 64 * 1024;
/** What was sent and not acknowledged: more waits, but for the last lines of attempts that end. */
const UNACKNOWLEDGED_CHARS_MAX = 1024 * 1024;
const UNACKNOWLEDGED_AT_END_CHARS_MAX = 16 * 1024 * 1024;
const FRAME_LINES_MAX = 2_000;
const FRAME_CHARS_MAX = 256 * 1024;

/** The lines of one attempt that were not sent yet. */
export class AttemptLines {
  /** The number of the last line, and of the last that was sent or dropped. */
  last = 0;
  sent = 0;
  #lines: Line[] = [];
  #chars = 0;
  #isOver = false;

  constructor(
    readonly held: readonly [Uint8Array, number],
    readonly noted: (lines: AttemptLines) => void,
  ) {}

  get log(): TaskLog {
    const write = (level: LogLevel) => (...values: unknown[]): void => this.write(level, "log", format(...values));
    return { error: write("error"), warn: write("warn"), info: write("info"), debug: write("debug"), trace: write("trace") };
  }

  get isWaiting(): boolean {
    return this.#lines.length > 0;
  }

  write(level: LogLevel, stream: Stream, text: string): void {
    if (this.#isOver) return;
    const atUs = Date.now() * 1000;
    for (const line of text.split("\n")) {
      const more = line.length - LINE_CHARS_MAX;
      const kept = more > 0 ? `${line.slice(0, LINE_CHARS_MAX)} … [${more} characters more]` : line;
      this.#lines.push([++this.last, atUs, kept, level, stream]);
      this.#chars += kept.length;
      while (this.#lines.length > WAITING_LINES_MAX || this.#chars > WAITING_CHARS_MAX) this.#chars -= this.#lines.shift()![2].length;
    }
    this.noted(this);
  }

  /** Return the oldest lines, and forget them. Bytes count, as in the rate that the broker allows. */
  take(linesMax: number, bytesMax: number): Line[] {
    let bytes = 0;
    let count = 0;
    while (count < this.#lines.length && count < linesMax && bytes < bytesMax) {
      const text = this.#lines[count++]![2];
      bytes += Buffer.byteLength(text);
      this.#chars -= text.length;
    }
    const taken = this.#lines.splice(0, count);
    this.sent = taken.at(-1)?.[0] ?? this.sent;
    return taken;
  }

  /** Take no more, and return all that waits. */
  finish(): Line[] {
    this.#isOver = true;
    return this.take(WAITING_LINES_MAX, Infinity);
  }
}

/** Sends the lines of all attempts of a worker. */
export class LogSender {
  #connection: Connection | null = null;
  #waiting = new Set<AttemptLines>();
  #unacknowledged = new Map<number, { fields: unknown[]; chars: number }>();
  #count = 0;
  #chars = 0;
  #timer: NodeJS.Timeout | undefined;

  readonly note = (lines: AttemptLines): void => {
    this.#waiting.add(lines);
    this.#timer ??= setTimeout(() => this.#sendWaiting(), SEND_EVERY_MS);
  };

  /** Send over a connection that has joined, and again what another one did not acknowledge. */
  resume(connection: Connection): void {
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const name of this.#unacknowledged.keys()) this.#ask(connection, name);
  }

  /** Send nothing until the worker has joined again. */
  suspend(): void {
    this.#connection = null;
  }

  /** Send all lines of an attempt, before its end is reported over the same connection. */
  finish(lines: AttemptLines): void {
    this.#waiting.delete(lines);
    const taken = lines.finish();
    if (lines.last === 0 || (taken.length === 0 && lines.sent === lines.last)) return;
    this.#send(lines, this.#chars > UNACKNOWLEDGED_AT_END_CHARS_MAX ? [] : taken, lines.last);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#waiting.clear();
  }

  #sendWaiting(): void {
    this.#timer = undefined;
    const connection = this.#connection;
    const mayGo = connection !== null && !connection.isCongested && this.#chars <= UNACKNOWLEDGED_CHARS_MAX;
    for (const lines of mayGo ? [...this.#waiting] : []) {
      this.#waiting.delete(lines);
      const taken = lines.take(LINES_PER_SEND_MAX, BYTES_PER_SEND_MAX);
      if (taken.length > 0) this.#send(lines, taken, lines.sent);
      if (lines.isWaiting) this.#waiting.add(lines); // Behind the others.
    }
    if (this.#waiting.size > 0) this.#timer = setTimeout(() => this.#sendWaiting(), SEND_EVERY_MS);
  }

  #send(lines: AttemptLines, taken: Line[], last: number): void {
    if (this.#connection !== null && !this.#connection.welcome.keepsLogs) return;
    let begin = 0;
    do {
      let chars = 0;
      let end = begin;
      while (end < taken.length && end - begin < FRAME_LINES_MAX && chars < FRAME_CHARS_MAX) chars += taken[end++]![2].length;
      const part = taken.slice(begin, end);
      const number = end === taken.length ? last : part.at(-1)![0];
      this.#unacknowledged.set(++this.#count, { fields: [...lines.held, part, number], chars });
      this.#chars += chars;
      if (this.#connection !== null) this.#ask(this.#connection, this.#count);
      begin = end;
    } while (begin < taken.length);
  }

  #ask(connection: Connection, name: number): void {
    const settle = (error?: Error): void => {
      if (error instanceof ConnectionLost) return; // It goes again.
      this.#chars -= this.#unacknowledged.get(name)?.chars ?? 0;
      this.#unacknowledged.delete(name);
    };
    if (!connection.welcome.keepsLogs) return settle();
    connection.request(Kind.LOGS, this.#unacknowledged.get(name)!.fields).then(() => settle(), settle);
  }
}

// The console: what a task prints is that of its asynchronous context.

const METHODS = {
  log: ["info", "stdout"],
  info: ["info", "stdout"],
  debug: ["debug", "stdout"],
  warn: ["warn", "stderr"],
  error: ["error", "stderr"],
  trace: ["trace", "stderr"],
} as const;

type Method = keyof typeof METHODS;
type Print = (...values: unknown[]) => void;

const printing = new AsyncLocalStorage<AttemptLines>();
/** What stands in for a method of the console, and that method. */
const taps = new WeakMap<Print, Print>();
let users = 0;

/** Run the function of a task; what it prints with `console` goes to its log as well. */
export function withConsole<T>(lines: AttemptLines, run: () => T): T {
  return printing.run(lines, run);
}

/** Capture the console of this process until the returned function is called. */
export function captureConsole(): () => void {
  users++;
  for (const name of Object.keys(METHODS) as Method[]) {
    const given: Print = console[name];
    if (taps.has(given)) continue;
    const [level, stream] = METHODS[name];
    const tap: Print = (...values) => {
      given(...values);
      printing.getStore()?.write(level, stream, format(...values));
    };
    taps.set(tap, given);
    console[name] = tap;
  }
  let isOver = false;
  return () => {
    if (!isOver && --users === 0)
      for (const name of Object.keys(METHODS) as Method[]) console[name] = taps.get(console[name]) ?? console[name];
    isOver = true;
  };
}
