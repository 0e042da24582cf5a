// A connection: one socket from HELLO to its end, and the requests that wait for an answer.
//
// It neither reconnects, which is the session's matter, nor repeats anything: a request that was
// not answered fails with `ConnectionLost`, and its caller decides.

import { connect as connectPlain, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

import type { Place, Reach } from "./address.js";
import { ConnectionLost, JackalopeError, ProtocolError, Refused } from "./errors.js";
import { frame, FrameReader, Kind } from "./frames.js";

const VERSION = 1;
const AGENT = "jackalope-client 0.1.0 (node)";
const GREETING_MS = 10_000;

/** Silence of this many heartbeats means that the other end is gone. */
const SILENT_HEARTBEATS_MAX = 3;

/** Parts of a large body that are under way at once. */
const PARTS_OPEN = 4;

/** A body that is kept by the broker under a name, because it fits into no frame. */
export type BlobRef = readonly [name: string, size: number, digest: string];

/** What the broker answered to HELLO. */
export interface Welcome {
  readonly heartbeatMs: number;
  readonly frameBytesMax: number;
  readonly partBytesMax: number;
  readonly members: readonly string[];
  readonly server: string;
  /** Whether the broker keeps what tasks log. */
  readonly keepsLogs: boolean;
}

/** Another member of the cluster leads it. */
export class Redirected extends ConnectionLost {
  constructor(readonly place: string) {
    super(`the broker is at ${place}`);
  }
}

export interface Listener {
  /** A message that answers no request. */
  heard(kind: number, fields: unknown[]): void;
  /** The connection is over; `why` is a refusal if the broker wants this peer no more. */
  lost(why: JackalopeError): void;
}

interface Waiting {
  resolve(body: unknown): void;
  reject(error: JackalopeError): void;
}

export class Connection {
  welcome!: Welcome;
  #socket: Socket;
  #listener: Listener;
  #reader = new FrameReader();
  #waiting = new Map<number, Waiting>();
  #lastRef = 0;
  #lastUpload = 0;
  #isCorked = false;
  #why: JackalopeError | null = null;
  #sentAt = Date.now();
  #heardAt = Date.now();
  #beating: NodeJS.Timeout | undefined;
  #greeted: { resolve(): void; reject(error: Error): void } | null = null;

  /** Connect and say HELLO. Raises `Redirected` if another member of the cluster leads. */
  static async open(place: Place, reach: Required<Pick<Reach, "namespace" | "token" | "name">> & Pick<Reach, "tls">, isTls: boolean, listener: Listener): Promise<Connection> {
    const { tls } = reach;
    const socket = isTls
      ? connectTls({
          ...place,
          ...(tls?.ca !== undefined && { ca: tls.ca }),
          // A name for an address makes no sense to TLS, which then compares the address itself.
          ...(tls?.serverName !== undefined && { servername: tls.serverName }),
          rejectUnauthorized: !tls?.insecureSkipVerify,
        })
      : connectPlain({ ...place });
    socket.setNoDelay(true);
    const connection = new Connection(socket, listener);
    const hello = [VERSION, reach.namespace, reach.token, reach.name, AGENT, "", true, true];
    await connection.#greet(isTls ? "secureConnect" : "connect", hello);
    return connection;
  }

  private constructor(socket: Socket, listener: Listener) {
    this.#socket = socket;
    this.#listener = listener;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.#why ??= isOfTls(error)
        ? new ProtocolError(`TLS: ${error.message} (${error.code})`)
        : new ConnectionLost(error.message);
    });
    socket.on("close", () => this.#closed());
  }

  /** Whether to wait before sending what can wait. */
  get isCongested(): boolean {
    return this.#socket.writableNeedDrain;
  }

  get isOpen(): boolean {
    return this.#why === null;
  }

  #greet(event: string, hello: unknown[]): Promise<void> {
    const late = setTimeout(() => this.abort("no answer to HELLO"), GREETING_MS);
    return new Promise<void>((resolve, reject) => {
      this.#greeted = { resolve, reject };
      this.#socket.once(event, () => this.send(Kind.HELLO, hello));
    }).finally(() => clearTimeout(late));
  }

  // Sending.

  /** Send a message that has no answer. What is sent in one turn of the loop leaves in one write. */
  send(kind: Kind, fields: readonly unknown[]): void {
    this.#write(frame(kind, fields));
  }

  /** Send a request, and return the body of its ACK. */
  request(kind: Kind, fields: readonly unknown[]): Promise<unknown> {
    if (this.#why !== null) return Promise.reject(this.#why);
    const ref = ++this.#lastRef;
    let framed: Buffer;
    try {
      framed = frame(kind, [ref, ...fields]);
      if (framed.length - 4 > this.welcome.frameBytesMax)
        throw new Refused("too_large", `a message of ${framed.length} bytes fits into no frame`);
    } catch (error) {
      return Promise.reject(error);
    }
    const answered = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(ref, { resolve, reject });
    });
    this.#write(framed);
    return answered;
  }

  #write(framed: Buffer): void {
    if (this.#why !== null) return;
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#isCorked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(framed);
    this.#sentAt = Date.now();
  }

  // Bodies that fit into no frame.

  /** The largest body that has a place in a frame, next to what else is there. */
  get inlineBytesMax(): number {
    return Math.floor(this.welcome.frameBytesMax / 2) - 1024;
  }

  /** Return a body as a request names it: itself, or what the broker calls it after an upload. */
  async bodyToSend(body: Uint8Array): Promise<Uint8Array | BlobRef> {
    const { partBytesMax } = this.welcome;
    if (body.length <= this.inlineBytesMax || partBytesMax === 0) return body;
    const upload = ++this.#lastUpload;
    const answers: Promise<unknown>[] = [];
    for (let at = 0; at < body.length; at += partBytesMax) {
      const isLast = at + partBytesMax >= body.length;
      const part = body.subarray(at, at + partBytesMax);
      answers.push(this.request(Kind.UPLOAD, [upload, part, isLast]));
      if (answers.length >= PARTS_OPEN) await answers[answers.length - PARTS_OPEN];
    }
    return (await Promise.all(answers)).at(-1) as BlobRef;
  }

  /** Return a body that a message has or names: of a task's result, or of an attempt's payload. */
  async fetch(task: Uint8Array, body: Uint8Array | BlobRef, fence = 0, node = ""): Promise<Uint8Array> {
    if (body instanceof Uint8Array) return body;
    const size = body[1];
    const whole = Buffer.allocUnsafe(size);
    let at = 0;
    while (at < size) {
      const part = (await this.request(Kind.FETCH, [task, fence, at, 0, fence > 0, node])) as { data: Uint8Array };
      if (part.data.length === 0) throw new ProtocolError(`a body of ${size} bytes ends at ${at}`);
      whole.set(part.data, at);
      at += part.data.length;
    }
    return whole;
  }

  // Receiving.

  #read(chunk: Buffer): void {
    this.#heardAt = Date.now();
    try {
      for (const [kind, fields] of this.#reader.feed(chunk)) if (this.isOpen) this.#hear(kind, fields);
    } catch (error) {
      this.#end(new ProtocolError(`cannot read what the broker sent: ${(error as Error).message}`));
    }
  }

  #hear(kind: number, fields: unknown[]): void {
    switch (kind) {
      case Kind.HELLO:
        return this.#welcomed(fields);
      case Kind.MOVED:
        return this.#end(new Redirected(String(fields[0])));
      case Kind.ACK:
        this.#take(fields[0])?.resolve(fields[1]);
        return;
      case Kind.NACK: {
        const [ref, code, message, retryAfterUs = 0] = fields as [number, string, string, number?];
        const refused = new Refused(code, message, retryAfterUs / 1000);
        if (ref === 0) this.#end(refused);
        else this.#take(ref)?.reject(refused);
        return;
      }
      case Kind.HEARTBEAT:
        return; // It has done its work by coming.
      default:
        this.#listener.heard(kind, fields);
    }
  }

  #take(ref: unknown): Waiting | undefined {
    const waiting = this.#waiting.get(ref as number);
    this.#waiting.delete(ref as number);
    return waiting;
  }

  #welcomed(fields: unknown[]): void {
    const [, , , heartbeatUs, frameBytesMax, server, partBytesMax = 0, members = [], , keepsLogs = false] = fields as [
      number, number, string, number, number, string, number?, string[]?, unknown?, boolean?,
    ];
    const heartbeatMs = heartbeatUs / 1000;
    this.welcome = { heartbeatMs, frameBytesMax, partBytesMax, members, server, keepsLogs };
    this.#beating = setInterval(() => this.#beat(heartbeatMs), heartbeatMs / 3);
    this.#greeted?.resolve();
    this.#greeted = null;
  }

  /** Send something when there was nothing to send, and give up a broker that sends nothing. */
  #beat(heartbeatMs: number): void {
    const now = Date.now();
    if (now - this.#heardAt > SILENT_HEARTBEATS_MAX * heartbeatMs) this.abort("the broker is silent");
    else if (now - this.#sentAt >= heartbeatMs / 2)
      this.send(Kind.HEARTBEAT, [0, { rss_bytes: process.memoryUsage.rss() }]);
  }

  // Ending.

  /** Close the connection after what was sent. */
  close(): void {
    this.#why ??= new ConnectionLost("closed on this side");
    this.#listener = { heard: () => {}, lost: () => {} };
    this.#socket.end();
    setTimeout(() => this.#socket.destroy(), 2_000).unref();
  }

  abort(reason: string): void {
    this.#end(new ConnectionLost(reason));
  }

  #end(why: JackalopeError): void {
    this.#why ??= why;
    this.#socket.destroy();
  }

  #closed(): void {
    const why = (this.#why ??= new ConnectionLost("the broker closed the connection"));
    clearInterval(this.#beating);
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    // What was under way is lost with the connection, whatever the broker thinks of this peer.
    const lost = why instanceof ConnectionLost ? why : new ConnectionLost(why.message, { cause: why });
    for (const each of waiting) each.reject(lost);
    if (this.#greeted !== null) this.#greeted.reject(why);
    else this.#listener.lost(why);
  }
}

function isOfTls(error: NodeJS.ErrnoException): boolean {
  return /^(ERR_TLS|ERR_SSL|EPROTO|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)/.test(error.code ?? "");
}
