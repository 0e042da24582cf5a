#!/usr/bin/env node
// A Jackalope worker in plain JavaScript: Node 18 or newer, no packages.
//
//     node worker.mjs --address 127.0.0.1:7420 --queues js --slots 4
//
// It speaks the native protocol, which docs/reference/protocol.md describes to the byte. The file
// has four parts, each of which can be copied without the ones below it:
//
//     1. MessagePack   encode(value) and decode(bytes)
//     2. Frames        where one message ends and the next begins
//     3. Worker        joins, runs tasks, reports, and comes back after a lost connection
//     4. Tasks         the functions that this worker offers
//
// Three rules make a worker correct, and most of part 3 follows from them:
//
//     - An attempt is ours from ASSIGN until the broker has acknowledged how it ended. Until then
//       it is named in `holding` whenever we join.
//     - A report is sent again, over whichever connection is open, until it is acknowledged.
//     - `stale_fence`, or `drop` in the answer to JOIN, means that an attempt is no longer ours:
//       stop it, and say nothing more about it.

import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

// ---------------------------------------------------------------------------- 1. MessagePack

/** Encode null, booleans, numbers, BigInts, strings, bytes, arrays, Maps and plain objects. */
export function encode(value) {
  const parts = [];
  write(parts, value);
  return Buffer.concat(parts);
}

function write(parts, value) {
  if (value === null || value === undefined) parts.push(Buffer.of(0xc0));
  else if (typeof value === "boolean") parts.push(Buffer.of(value ? 0xc3 : 0xc2));
  else if (typeof value === "bigint" || Number.isSafeInteger(value)) writeInteger(parts, value);
  else if (typeof value === "number") writeFloat(parts, value);
  else if (typeof value === "string") writeString(parts, Buffer.from(value, "utf8"));
  else if (value instanceof Uint8Array) writeBytes(parts, value);
  else if (Array.isArray(value)) {
    writeSize(parts, value.length, 0x90, 16, 0xdc);
    for (const item of value) write(parts, item);
  } else if (typeof value === "object") {
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    writeSize(parts, entries.length, 0x80, 16, 0xde);
    for (const [key, item] of entries) {
      write(parts, key);
      write(parts, item);
    }
  } else throw new TypeError(`a ${typeof value} has no encoding`);
}

function writeInteger(parts, value) {
  // Numbers and BigInts compare with each other, so that one ladder serves both.
  if (value >= 0) {
    if (value < 0x80) parts.push(Buffer.of(Number(value)));
    else if (value < 0x100) parts.push(Buffer.of(0xcc, Number(value)));
    else if (value < 0x10000) parts.push(tagged(0xcd, 2, (b) => b.writeUInt16BE(Number(value), 1)));
    else if (value < 2 ** 32) parts.push(tagged(0xce, 4, (b) => b.writeUInt32BE(Number(value), 1)));
    else parts.push(tagged(0xcf, 8, (b) => b.writeBigUInt64BE(BigInt(value), 1)));
  } else if (value >= -0x20) parts.push(Buffer.of(Number(value) & 0xff));
  else if (value >= -0x80) parts.push(tagged(0xd0, 1, (b) => b.writeInt8(Number(value), 1)));
  else if (value >= -0x8000) parts.push(tagged(0xd1, 2, (b) => b.writeInt16BE(Number(value), 1)));
  else if (value >= -(2 ** 31)) parts.push(tagged(0xd2, 4, (b) => b.writeInt32BE(Number(value), 1)));
  else parts.push(tagged(0xd3, 8, (b) => b.writeBigInt64BE(BigInt(value), 1)));
}

function writeFloat(parts, value) {
  parts.push(tagged(0xcb, 8, (b) => b.writeDoubleBE(value, 1)));
}

function writeString(parts, bytes) {
  const { length } = bytes;
  if (length < 32) parts.push(Buffer.of(0xa0 | length));
  else if (length < 0x100) parts.push(Buffer.of(0xd9, length));
  else if (length < 0x10000) parts.push(tagged(0xda, 2, (b) => b.writeUInt16BE(length, 1)));
  else parts.push(tagged(0xdb, 4, (b) => b.writeUInt32BE(length, 1)));
  parts.push(bytes);
}

function writeBytes(parts, bytes) {
  const { length } = bytes;
  if (length < 0x100) parts.push(Buffer.of(0xc4, length));
  else if (length < 0x10000) parts.push(tagged(0xc5, 2, (b) => b.writeUInt16BE(length, 1)));
  else parts.push(tagged(0xc6, 4, (b) => b.writeUInt32BE(length, 1)));
  parts.push(bytes);
}

/** Write the size of an array or map: in the tag itself, or after it in 2 or 4 bytes. */
function writeSize(parts, size, small, smallMax, tag) {
  if (size < smallMax) parts.push(Buffer.of(small | size));
  else if (size < 0x10000) parts.push(tagged(tag, 2, (b) => b.writeUInt16BE(size, 1)));
  else parts.push(tagged(tag + 1, 4, (b) => b.writeUInt32BE(size, 1)));
}

function tagged(tag, size, fill) {
  const buffer = Buffer.alloc(1 + size);
  buffer[0] = tag;
  fill(buffer);
  return buffer;
}

/** Decode one value. Whole numbers beyond 2**53 become BigInts; maps become plain objects. */
export function decode(bytes) {
  const source = { bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), at: 0 };
  const value = read(source);
  if (source.at !== bytes.length) throw new RangeError("something follows the value");
  return value;
}

function read(source) {
  const tag = source.bytes.readUInt8(source.at++);
  if (tag < 0x80) return tag;
  if (tag < 0x90) return readMap(source, tag & 0x0f);
  if (tag < 0xa0) return readArray(source, tag & 0x0f);
  if (tag < 0xc0) return readString(source, tag & 0x1f);
  if (tag >= 0xe0) return tag - 0x100;
  const reader = READERS[tag];
  if (reader === undefined) throw new RangeError(`0x${tag.toString(16)} begins no value`);
  return reader(source);
}

const READERS = {
  0xc0: () => null,
  0xc2: () => false,
  0xc3: () => true,
  0xc4: (source) => readBytes(source, readNumber(source, 1)),
  0xc5: (source) => readBytes(source, readNumber(source, 2)),
  0xc6: (source) => readBytes(source, readNumber(source, 4)),
  0xca: (source) => take(source, 4).readFloatBE(),
  0xcb: (source) => take(source, 8).readDoubleBE(),
  0xcc: (source) => readNumber(source, 1),
  0xcd: (source) => readNumber(source, 2),
  0xce: (source) => readNumber(source, 4),
  0xcf: (source) => safe(take(source, 8).readBigUInt64BE()),
  0xd0: (source) => take(source, 1).readInt8(),
  0xd1: (source) => take(source, 2).readInt16BE(),
  0xd2: (source) => take(source, 4).readInt32BE(),
  0xd3: (source) => safe(take(source, 8).readBigInt64BE()),
  0xd9: (source) => readString(source, readNumber(source, 1)),
  0xda: (source) => readString(source, readNumber(source, 2)),
  0xdb: (source) => readString(source, readNumber(source, 4)),
  0xdc: (source) => readArray(source, readNumber(source, 2)),
  0xdd: (source) => readArray(source, readNumber(source, 4)),
  0xde: (source) => readMap(source, readNumber(source, 2)),
  0xdf: (source) => readMap(source, readNumber(source, 4)),
};

function take(source, size) {
  const end = source.at + size;
  if (end > source.bytes.length) throw new RangeError("the bytes end within a value");
  const taken = source.bytes.subarray(source.at, end);
  source.at = end;
  return taken;
}

const readNumber = (source, size) => take(source, size).readUIntBE(0, size);
const readString = (source, size) => take(source, size).toString("utf8");
const readBytes = (source, size) => take(source, size);
const readArray = (source, size) => Array.from({ length: size }, () => read(source));
const readMap = (source, size) =>
  Object.fromEntries(Array.from({ length: size }, () => [String(read(source)), read(source)]));

function safe(value) {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

// --------------------------------------------------------------------------------- 2. Frames

/** What a frame carries. */
export const Kind = {
  RESULT: 3,
  HEARTBEAT: 4,
  ACK: 5,
  NACK: 6,
  HELLO: 8,
  JOIN: 9,
  LEAVE: 10,
  ASSIGN: 11,
  START: 12,
  PROGRESS: 13,
  SIGNAL: 14,
  NOTICE: 21,
};

/** Put fields into a frame: length (4 bytes, counting what follows), kind (1 byte), body. */
export function frame(kind, fields) {
  const body = encode(fields);
  const header = Buffer.alloc(5);
  header.writeUInt32BE(body.length + 1);
  header[4] = kind;
  return Buffer.concat([header, body]);
}

/** Cuts the bytes of a connection into frames, however they were cut on their way. */
export class FrameReader {
  #chunks = [];
  #size = 0;
  #wanted = 5;

  /** Take bytes, and yield the kind and the fields of each frame that is now whole. */
  *feed(chunk) {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#wanted) return; // Do not join the pieces of a large frame each time.
    let bytes = Buffer.concat(this.#chunks);
    while (bytes.length >= 5 && bytes.length >= 4 + bytes.readUInt32BE()) {
      const end = 4 + bytes.readUInt32BE();
      yield [bytes[4], decode(bytes.subarray(5, end))];
      bytes = bytes.subarray(end);
    }
    this.#chunks = [bytes];
    this.#size = bytes.length;
    this.#wanted = bytes.length < 5 ? 5 : 4 + bytes.readUInt32BE();
  }
}

// --------------------------------------------------------------------------------- 3. Worker

const VERSION = 1;
const SECOND_US = 1_000_000;
const BACKOFF_MS = { first: 50, last: 5_000 };
const GREETING_MS = 10_000;
const LAST_WORD_MS = 5_000;

// What stands around the reports in a frame, and around each report, is less than this.
const SPARE_BYTES = 200;

/** One try at a task, from ASSIGN until the broker has acknowledged its end. */
class Attempt {
  constructor([task, fence, queue, name, key, payload, options, number, timeoutUs]) {
    Object.assign(this, { task, fence, queue, name, key, payload, number, timeoutUs });
    this.headers = options[1] ?? {};
    this.id = `${task.toString("hex")}/${fence}`;
    this.stop = new AbortController(); // Its signal goes to the task's function.
    this.report = null; // How it ended, once it has: { what, fields, size }.
    this.forget();
  }

  /** Forget what was sent over a connection that is lost: it is sent again over the next one. */
  forget() {
    this.isStartSent = false; // Twice does no harm: the second is refused with wrong_state.
    this.isReportSent = false;
  }

  get held() {
    return [this.task, this.fence];
  }
}

/** Runs tasks of a broker, whatever happens to the connection. */
export class Worker {
  #settings;
  #tasks;
  #attempts = new Map();
  #socket = null;
  #isJoined = false;
  #isLeaving = false;
  #welcome = null;
  #frameBytesMax = Infinity;
  #refs = 0;
  #answers = new Map(); // What to do with the answer to each request.
  #generation = 0;
  #failedConnects = 0;
  #sentAt = 0;
  #heardAt = 0;
  #isFlushing = false;
  #beating = null;
  #reconnecting = null;
  #settled = () => {}; // Called whenever an attempt is settled, while leaving.
  #over;
  #end;

  /**
   * @param {object} settings host, port, namespace, token, name, queues, keys, slots, leaseS, graceS
   * @param {Record<string, Function>} tasks by name: `(args, kwargs, context) => result`
   */
  constructor(settings, tasks) {
    this.#settings = {
      host: "127.0.0.1",
      port: 7420,
      namespace: "default",
      token: "",
      // Stable over reconnects, and different from every other worker of the namespace.
      name: `javascript-${hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`,
      queues: ["default"],
      keys: [],
      slots: 1,
      leaseS: 30,
      graceS: 10,
      ...settings,
    };
    this.#tasks = tasks;
    this.#over = new Promise((resolve) => (this.#end = resolve));
  }

  /** Work until `drain` is done, or until the broker wants this worker no more. */
  run() {
    this.#connect();
    return this.#over;
  }

  // The connection.

  #connect() {
    const { host, port, namespace, token, name } = this.#settings;
    const socket = connect({ host, port, noDelay: true });
    const reader = new FrameReader();
    const isPresent = () => this.#socket === socket;
    this.#socket = socket;
    const greeting = setTimeout(() => !this.#welcome && socket.destroy(), GREETING_MS);
    socket.on("connect", () => {
      this.#send(Kind.HELLO, [VERSION, namespace, token, name, "javascript-example 1", ""]);
    });
    socket.on("data", (chunk) => {
      this.#heardAt = Date.now();
      try {
        for (const [kind, fields] of reader.feed(chunk)) if (isPresent()) this.#hear(kind, fields);
      } catch (error) {
        log(`cannot read what the broker sent: ${error.message}`);
        socket.destroy();
      }
    });
    socket.on("error", (error) => log(`connection: ${error.message}`));
    socket.on("close", () => {
      clearTimeout(greeting);
      if (isPresent()) this.#lost();
    });
  }

  /** Forget what belonged to the connection, and try again: sooner at first, later each time. */
  #lost() {
    this.#disconnect();
    for (const attempt of this.#attempts.values()) attempt.forget();
    const wait = Math.min(BACKOFF_MS.first * 2 ** this.#failedConnects++, BACKOFF_MS.last);
    this.#reconnecting = setTimeout(() => this.#connect(), wait * (0.5 + Math.random() / 2));
  }

  #disconnect() {
    const socket = this.#socket;
    clearInterval(this.#beating);
    clearTimeout(this.#reconnecting);
    this.#socket = this.#welcome = null; // From now on its events mean nothing.
    this.#isJoined = false;
    this.#answers.clear();
    socket?.destroy();
  }

  #quit(code) {
    this.#disconnect();
    this.#end(code);
  }

  #send(kind, fields) {
    this.#socket.write(frame(kind, fields));
    this.#sentAt = Date.now();
  }

  /** Send a request. `answered(body, refusal)` gets the body of its ACK, or the NACK. */
  #ask(kind, fields, answered) {
    const ref = ++this.#refs;
    this.#answers.set(ref, answered);
    this.#send(kind, [ref, ...fields]);
  }

  #hear(kind, fields) {
    switch (kind) {
      case Kind.HELLO:
        return this.#welcomed(fields);
      case Kind.ACK:
        return this.#answer(fields[0], fields[1], null);
      case Kind.NACK: {
        const [ref, code, message, retryAfterUs = 0] = fields;
        if (ref === 0) return log(`not let in: ${message} (${code})`);
        return this.#answer(ref, null, { code, message, retryAfterUs });
      }
      case Kind.ASSIGN:
        return fields[0].forEach((assignment) => this.#begin(new Attempt(assignment)));
      case Kind.SIGNAL:
        return this.#signal(...fields);
      case Kind.NOTICE:
        return this.#notice(...fields);
      // HEARTBEAT has done its work by coming. What a later broker may send besides is for others.
    }
  }

  #answer(ref, body, refusal) {
    const answered = this.#answers.get(ref);
    this.#answers.delete(ref);
    answered?.(body, refusal);
  }

  #welcomed([version, session, pulse, heartbeatUs, frameBytesMax, server]) {
    log(`connected to ${server}, session ${session}`);
    this.#welcome = { heartbeatUs };
    this.#frameBytesMax = frameBytesMax;
    this.#beating = setInterval(() => this.#beat(), heartbeatUs / 1000 / 3);
    this.#join();
  }

  /** Say something when there was nothing to say, and give up a broker that says nothing. */
  #beat() {
    const now = Date.now();
    const beatMs = this.#welcome.heartbeatUs / 1000;
    if (now - this.#heardAt > 3 * beatMs) {
      log("the broker is silent");
      this.#socket.destroy();
    } else if (now - this.#sentAt >= beatMs / 2) {
      this.#send(Kind.HEARTBEAT, [0, { rss_bytes: process.memoryUsage().rss }]);
    }
  }

  #notice(what, detail = "") {
    log(`the broker says ${what}${detail && `: ${detail}`}`);
    if (what === "drain" && !this.#isLeaving) this.drain(); // It is repeated at each JOIN.
    if (what === "lease_lost") this.#join(); // The answer says which attempts to drop.
    if (what === "replaced") {
      // Another process has taken this name. To come back would only drive it out in turn.
      for (const attempt of this.#attempts.values()) this.#drop(attempt);
      this.#quit(1);
    }
    // `goodbye` and `error`: the broker closes the connection, and we come back.
  }

  // Joining.

  #join() {
    const { name, queues, keys, slots, leaseS, graceS } = this.#settings;
    const wanted = this.#isLeaving ? 0 : slots;
    const holding = [...this.#attempts.values()].map((attempt) => attempt.held);
    this.#isJoined = false; // Reports wait for the answer.
    // Microseconds, which still are a safe number, and never the same twice.
    this.#generation = Math.max(Date.now() * 1000, this.#generation + 1);
    const fields = [name, queues, keys, wanted, { language: "javascript" }, holding];
    const times = [leaseS * SECOND_US, graceS * SECOND_US, this.#generation];
    this.#ask(Kind.JOIN, [...fields, ...times], (body, refusal) => {
      if (refusal) return this.#notLetIn(refusal);
      this.#isJoined = true;
      this.#failedConnects = 0;
      for (const [task, fence] of body.drop) {
        const attempt = this.#attempts.get(`${task.toString("hex")}/${fence}`);
        if (attempt) this.#drop(attempt);
      }
      this.#flush(); // What ended or began while there was no connection.
    });
  }

  #notLetIn({ code, message, retryAfterUs }) {
    log(`cannot join: ${message} (${code})`);
    if (code === "invalid") return this.#quit(2);
    // A disk without room, too many workers, a join overtaken by our own: that passes.
    const socket = this.#socket;
    setTimeout(() => socket.destroy(), Math.max(retryAfterUs / 1000, 1_000));
  }

  // Attempts.

  async #begin(attempt) {
    if (this.#attempts.has(attempt.id)) return; // Told twice; it is already running.
    this.#attempts.set(attempt.id, attempt);
    if (this.#isLeaving) return this.#ended(attempt, "released");
    this.#flush(); // START.
    try {
      const call = this.#tasks[attempt.name];
      if (call === undefined) throw new Rejected(`this worker has no task ${attempt.name}`);
      const [args, kwargs] = decodeCall(attempt);
      const context = {
        task: attempt.task.toString("hex"),
        attempt: attempt.number,
        fence: attempt.fence,
        signal: attempt.stop.signal,
        progress: (percent, note = "") => this.#progress(attempt, percent, note),
      };
      const result = encodeResult(attempt, await call(args, kwargs, context));
      if (result.length > this.#frameBytesMax - 2 * SPARE_BYTES)
        throw new Rejected(`a result of ${result.length} bytes does not fit into a frame`);
      this.#ended(attempt, "finished", [result]);
    } catch (error) {
      this.#failed(attempt, error);
    }
  }

  #failed(attempt, error) {
    if (attempt.stop.signal.aborted) return this.#ended(attempt, attempt.stop.signal.reason);
    const { name = "Error", message = String(error), stack = "" } = error ?? {};
    const { verdict = "retry", retryAfterUs = 0 } = error ?? {};
    this.#ended(attempt, "failed", [[name, message, stack], verdict, retryAfterUs]);
  }

  /** Note how an attempt ended: `finished`, `failed`, `released` or, after a signal, `stopped`. */
  #ended(attempt, what, fields = []) {
    if (this.#attempts.get(attempt.id) !== attempt || attempt.report) return;
    attempt.report = { what, fields, size: encode(fields).length + SPARE_BYTES };
    this.#flush();
  }

  /** Forget an attempt whose end is acknowledged. */
  #settle(attempt) {
    this.#attempts.delete(attempt.id);
    this.#settled();
  }

  /** Abandon an attempt that is no longer ours. */
  #drop(attempt) {
    this.#settle(attempt);
    attempt.stop.abort("dropped");
  }

  #progress(attempt, percent, note) {
    if (this.#isJoined) this.#send(Kind.PROGRESS, [0, ...attempt.held, percent, note]);
  }

  #signal(task, fence, signal) {
    const attempt = this.#attempts.get(`${task.toString("hex")}/${fence}`);
    if (attempt === undefined || attempt.report) return; // Its end is on its way.
    this.#ask(Kind.SIGNAL, [...attempt.held, "delivered", ""], () => {});
    log(`${signal} of task ${attempt.id}`);
    attempt.stop.abort("stopped"); // The task says `stopped` by ending: see #failed.
  }

  // Reports.

  /** Send what the broker does not know yet, all of this turn of the event loop in one frame. */
  #flush() {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => {
      this.#isFlushing = false;
      if (!this.#isJoined) return;
      const attempts = [...this.#attempts.values()];
      this.#reportStarts(attempts.filter((a) => !a.isStartSent && !a.report));
      const ended = attempts.filter((a) => a.report && !a.isReportSent);
      ended.forEach((attempt) => (attempt.isReportSent = true));
      for (const some of this.#frames(ended.filter((a) => a.report.what !== "stopped")))
        this.#reportResults(some);
      ended.filter((a) => a.report.what === "stopped").forEach((a) => this.#reportStop(a));
    });
  }

  #reportStarts(attempts) {
    if (attempts.length === 0) return;
    attempts.forEach((attempt) => (attempt.isStartSent = true));
    this.#ask(Kind.START, [attempts.map((attempt) => attempt.held)], (body, refusal) => {
      // Without START a task still ends well, so a refusal of the whole is not worth a retry.
      if (refusal) return;
      for (const [index, { code }] of body.refused)
        if (code === "stale_fence") this.#drop(attempts[index]);
    });
  }

  /** Divide attempts so that the reports of each part fit into one frame. */
  *#frames(attempts) {
    let some = [];
    let size = SPARE_BYTES;
    for (const attempt of attempts) {
      if (some.length > 0 && size + attempt.report.size > this.#frameBytesMax) {
        yield some;
        some = [];
        size = SPARE_BYTES;
      }
      some.push(attempt);
      size += attempt.report.size;
    }
    if (some.length > 0) yield some;
  }

  #reportResults(attempts) {
    const of = (what) => attempts.filter(({ report }) => report.what === what);
    const lists = ["finished", "failed", "released"].map(of);
    const fields = lists.map((list) => list.map((a) => [...a.held, ...a.report.fields]));
    this.#ask(Kind.RESULT, fields, (body, refusal) => {
      if (refusal) return this.#again(attempts, refusal);
      const refused = new Map(body.refused);
      lists.flat().forEach((attempt, index) => this.#reported(attempt, refused.get(index)));
    });
  }

  #reportStop(attempt) {
    this.#ask(Kind.SIGNAL, [...attempt.held, "stopped", ""], (_, refusal) => {
      if (refusal && !["stale_fence", "wrong_state"].includes(refusal.code))
        return this.#again([attempt], refusal);
      this.#reported(attempt, refusal);
    });
  }

  #reported(attempt, refusal) {
    if (refusal?.code === "too_large") {
      attempt.report = null;
      attempt.isReportSent = false;
      return this.#ended(attempt, "failed", [["TooLarge", refusal.message, ""], "dead", 0]);
    }
    if (refusal) log(`task ${attempt.id}: ${refusal.message} (${refusal.code})`);
    this.#settle(attempt);
  }

  /** Report again what was refused as a whole, once that may help. */
  #again(attempts, { code, message, retryAfterUs }) {
    log(`report refused: ${message} (${code})`);
    attempts.forEach((attempt) => (attempt.isReportSent = false));
    if (code === "unknown_session") return this.#join();
    setTimeout(() => this.#flush(), Math.max(retryAfterUs / 1000, 500));
  }

  // Leaving.

  /** Take no more tasks, wait for those that run, hand back what is left, and leave. */
  async drain(waitMs = 10_000) {
    if (this.#isLeaving) return this.#release(); // Asked twice: do not wait.
    this.#isLeaving = true;
    if (this.#isJoined) this.#join(); // Again, now with no slots: nothing new will come.
    const idle = new Promise((resolve) => {
      this.#settled = () => this.#attempts.size === 0 && resolve();
      this.#settled();
    });
    await Promise.race([idle, pause(waitMs)]);
    this.#release();
    // A broker that is away takes the attempts back by itself, once their lease is over.
    await Promise.race([idle, pause(LAST_WORD_MS)]);
    if (!this.#welcome) return this.#quit(0);
    this.#isJoined = false; // Nothing is reported after LEAVE: it hands back all that is left.
    this.#ask(Kind.LEAVE, [], () => this.#quit(0));
  }

  #release() {
    for (const attempt of this.#attempts.values()) {
      this.#ended(attempt, "released");
      attempt.stop.abort("released");
    }
  }
}

/** An error after which no worker need try again. */
export class Rejected extends Error {
  name = "Rejected";
  verdict = "reject";
}

// Arguments and results: MessagePack unless the task's header `content` says otherwise. Nothing at
// all (None, null, undefined) is no bytes.

function decodeCall({ headers, payload }) {
  if (headers.content === "bytes") return [[payload], {}];
  if (payload.length === 0) return [[], {}];
  return headers.content === "json" ? JSON.parse(payload.toString("utf8")) : decode(payload);
}

function encodeResult({ headers }, result) {
  if (result === null || result === undefined) return Buffer.alloc(0);
  if (headers.content === "bytes") return Buffer.from(result);
  return headers.content === "json" ? Buffer.from(JSON.stringify(result)) : encode(result);
}

const log = (text) => console.error(`${new Date().toISOString()} ${text}`);

// ---------------------------------------------------------------------------------- 4. Tasks

/** What this worker can do: replace these by your own. */
const tasks = {
  echo: ([value]) => value,

  add: ([a, b]) => a + b,

  fail: ([message]) => {
    throw new Error(message);
  },

  /** Sleep, tell how far it has come, and wake up early when it is to stop. */
  sleep: async ([seconds], _kwargs, { signal, progress }) => {
    for (let slept = 0; slept < seconds; slept++) {
      progress((100 * slept) / seconds, "sleeping");
      await pause(1000 * Math.min(1, seconds - slept), undefined, { signal });
    }
    return seconds;
  },
};

async function main() {
  const { values } = parseArgs({
    options: {
      address: { type: "string", default: "127.0.0.1:7420" },
      namespace: { type: "string", default: "default" },
      name: { type: "string" },
      queues: { type: "string", default: "js" },
      slots: { type: "string", default: "4" },
      drain: { type: "string", default: "10" },
    },
  });
  const [, host, port] = /^(?:jackalope:\/\/)?(.*?)(?::(\d+))?$/.exec(values.address);
  const worker = new Worker(
    {
      host,
      port: Number(port ?? 7420),
      namespace: values.namespace,
      queues: values.queues.split(","),
      slots: Number(values.slots),
      ...(values.name && { name: values.name }),
    },
    tasks,
  );
  for (const name of ["SIGTERM", "SIGINT"])
    process.on(name, () => worker.drain(Number(values.drain) * 1000));
  process.exitCode = await worker.run();
  process.exit(); // A task that ignores its signal keeps nobody waiting.
}

// Only when this file was started, not when it was imported.
if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await main();
