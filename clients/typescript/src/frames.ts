// Frames: where one message of the native protocol ends and the next begins.

import { decode, encode } from "./msgpack.js";

/** What a frame carries: the kinds that a client or a worker sends or hears. */
export const Kind = {
  SUBMIT: 1,
  RESULT: 3,
  HEARTBEAT: 4,
  ACK: 5,
  NACK: 6,
  QUERY: 7,
  HELLO: 8,
  JOIN: 9,
  LEAVE: 10,
  ASSIGN: 11,
  START: 12,
  PROGRESS: 13,
  SIGNAL: 14,
  ACT: 15,
  WATCH: 16,
  ENDED: 17,
  MANAGE: 18,
  NOTICE: 21,
  UPLOAD: 28,
  FETCH: 29,
  MOVED: 30,
  LOGS: 35,
} as const;

export type Kind = (typeof Kind)[keyof typeof Kind];

const HEADER_BYTES = 5;

/** Put fields into a frame: length (4 bytes, counting what follows), kind (1 byte), body. */
export function frame(kind: Kind, fields: readonly unknown[]): Buffer {
  const body = encode(fields);
  const framed = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  framed.writeUInt32BE(body.length + 1);
  framed[4] = kind;
  body.copy(framed, HEADER_BYTES);
  return framed;
}

/** Cuts the bytes of a connection into frames, however they were cut on their way. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #size = 0;
  #wanted = HEADER_BYTES;

  /** Take bytes, and yield the kind and the fields of each frame that is now whole. */
  *feed(chunk: Buffer): Generator<[kind: number, fields: unknown[]]> {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#wanted) return; // Do not join the pieces of a large frame each time.
    let bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    while (bytes.length >= HEADER_BYTES && bytes.length >= 4 + bytes.readUInt32BE()) {
      const end = 4 + bytes.readUInt32BE();
      yield [bytes.readUInt8(4), decode(bytes.subarray(HEADER_BYTES, end)) as unknown[]];
      bytes = bytes.subarray(end);
    }
    this.#chunks = [bytes];
    this.#size = bytes.length;
    this.#wanted = bytes.length < HEADER_BYTES ? HEADER_BYTES : 4 + bytes.readUInt32BE();
  }
}
