// MessagePack: encode and decode values, with dates as its timestamps.

/** What has an encoding. Maps and plain objects are maps, `undefined` is nil. */
export type Value =
  | null
  | undefined
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | Date
  | readonly Value[]
  | ReadonlyMap<string, Value>
  | { readonly [key: string]: Value };

/** As deep as the broker lets values nest, with room for what stands around them in a frame. */
const DEPTH_MAX = 128;
const TIMESTAMP = -1;
const REFERENCE = 82;

/** Encode a value. Whole numbers beyond 64 bits, functions and cycles raise an error. */
export function encode(value: unknown): Buffer {
  const writer = new Writer();
  writer.value(value, 0);
  return writer.done();
}

class Writer {
  #buffer = Buffer.allocUnsafe(256);
  #size = 0;

  done(): Buffer {
    return this.#buffer.subarray(0, this.#size);
  }

  value(value: unknown, depth: number): void {
    if (depth > DEPTH_MAX) throw new RangeError("the value nests too deep, or contains itself");
    if (value === null || value === undefined) this.#byte(0xc0);
    else if (typeof value === "boolean") this.#byte(value ? 0xc3 : 0xc2);
    else if (typeof value === "number") this.#number(value);
    else if (typeof value === "bigint") this.#integer(value);
    else if (typeof value === "string") this.#string(value);
    else if (value instanceof Uint8Array) this.#bytes(value);
    else if (value instanceof Date) this.#date(value);
    else if (Array.isArray(value)) {
      this.#head(value.length, 0x90, 16, 0xdc);
      for (const item of value) this.value(item, depth + 1);
    } else if (typeof value === "object") this.#map(value, depth);
    else throw new TypeError(`a ${typeof value} has no encoding`);
  }

  #map(value: object, depth: number): void {
    const entries: [unknown, unknown][] =
      value instanceof Map ? [...value] : Object.entries(value).filter(([, item]) => item !== undefined);
    this.#head(entries.length, 0x80, 16, 0xde);
    for (const [key, item] of entries) {
      this.value(key, depth + 1);
      this.value(item, depth + 1);
    }
  }

  #number(value: number): void {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) this.#integer(value);
    else this.#room(9).#tag(0xcb, (at) => this.#buffer.writeDoubleBE(value, at), 8);
  }

  /** Numbers and BigInts compare with each other, so that one ladder serves both. */
  #integer(value: number | bigint): void {
    const small = Number(value);
    this.#room(9);
    const buffer = this.#buffer;
    if (value >= 0) {
      if (value < 0x80) this.#byte(small);
      else if (value < 0x100) this.#tag(0xcc, (at) => buffer.writeUInt8(small, at), 1);
      else if (value < 0x10000) this.#tag(0xcd, (at) => buffer.writeUInt16BE(small, at), 2);
      else if (value < 2 ** 32) this.#tag(0xce, (at) => buffer.writeUInt32BE(small, at), 4);
      else this.#tag(0xcf, (at) => buffer.writeBigUInt64BE(BigInt(value), at), 8);
    } else if (value >= -0x20) this.#byte(small & 0xff);
    else if (value >= -0x80) this.#tag(0xd0, (at) => buffer.writeInt8(small, at), 1);
    else if (value >= -0x8000) this.#tag(0xd1, (at) => buffer.writeInt16BE(small, at), 2);
    else if (value >= -(2 ** 31)) this.#tag(0xd2, (at) => buffer.writeInt32BE(small, at), 4);
    else this.#tag(0xd3, (at) => buffer.writeBigInt64BE(BigInt(value), at), 8);
  }

  #string(text: string): void {
    const size = Buffer.byteLength(text, "utf8");
    if (size < 32) this.#byte(0xa0 | size);
    else this.#length(size, 0xd9, 0xda, 0xdb);
    this.#room(size);
    this.#size += this.#buffer.write(text, this.#size, "utf8");
  }

  #bytes(bytes: Uint8Array): void {
    this.#length(bytes.length, 0xc4, 0xc5, 0xc6);
    this.#room(bytes.length);
    this.#buffer.set(bytes, this.#size);
    this.#size += bytes.length;
  }

  /** Dates are whole milliseconds: seconds in 34 bits, nanoseconds in 30; or in 12 bytes. */
  #date(date: Date): void {
    const ms = date.getTime();
    if (Number.isNaN(ms)) throw new RangeError("an invalid date has no encoding");
    const seconds = Math.floor(ms / 1000);
    const nanoseconds = (ms - seconds * 1000) * 1_000_000;
    this.#room(15);
    const buffer = this.#buffer;
    if (seconds >= 0 && seconds < 2 ** 32 && nanoseconds === 0) {
      this.#tag(0xd6, (at) => buffer.writeInt8(TIMESTAMP, at), 1);
      this.#size = buffer.writeUInt32BE(seconds, this.#size);
    } else if (seconds >= 0 && seconds < 2 ** 34) {
      this.#tag(0xd7, (at) => buffer.writeInt8(TIMESTAMP, at), 1);
      const both = (BigInt(nanoseconds) << 34n) | BigInt(seconds);
      this.#size = buffer.writeBigUInt64BE(both, this.#size);
    } else {
      this.#tag(0xc7, (at) => buffer.writeUInt8(12, at), 1);
      this.#size = buffer.writeInt8(TIMESTAMP, this.#size);
      this.#size = buffer.writeUInt32BE(nanoseconds, this.#size);
      this.#size = buffer.writeBigInt64BE(BigInt(seconds), this.#size);
    }
  }

  /** Write the size of an array or map: in the tag itself, or after it in 2 or 4 bytes. */
  #head(size: number, small: number, smallMax: number, tag: number): void {
    if (size < smallMax) this.#byte(small | size);
    else this.#length(size, 0, tag, tag + 1);
  }

  /** Write a size in 1 byte, where there is a tag for that, in 2 or in 4. */
  #length(size: number, tag8: number, tag16: number, tag32: number): void {
    this.#room(5);
    if (tag8 !== 0 && size < 0x100) this.#tag(tag8, (at) => this.#buffer.writeUInt8(size, at), 1);
    else if (size < 0x10000) this.#tag(tag16, (at) => this.#buffer.writeUInt16BE(size, at), 2);
    else this.#tag(tag32, (at) => this.#buffer.writeUInt32BE(size, at), 4);
  }

  #byte(byte: number): void {
    this.#room(1);
    this.#buffer[this.#size++] = byte;
  }

  #tag(tag: number, fill: (at: number) => void, size: number): void {
    this.#buffer[this.#size] = tag;
    fill(this.#size + 1);
    this.#size += 1 + size;
  }

  #room(size: number): this {
    const wanted = this.#size + size;
    if (wanted > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(wanted, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.#size);
      this.#buffer = larger;
    }
    return this;
  }
}

/** Decode one value. Whole numbers beyond 2**53 become BigInts; maps become plain objects. */
export function decode(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (!reader.isDone) throw new RangeError("something follows the value");
  return value;
}

/** An argument that stands for what other nodes of a flow return. */
export class Reference {
  constructor(
    readonly node: string,
    readonly group: string,
    readonly nodes: readonly string[],
    readonly content: string,
  ) {}
}

class Reader {
  #bytes: Buffer;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isDone(): boolean {
    return this.#at === this.#bytes.length;
  }

  value(): unknown {
    const tag = this.#uint(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.#map(tag & 0x0f);
    if (tag < 0xa0) return this.#array(tag & 0x0f);
    if (tag < 0xc0) return this.#text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    return this.#tagged(tag);
  }

  #tagged(tag: number): unknown {
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xca:
        return this.#take(4).readFloatBE();
      case 0xcb:
        return this.#take(8).readDoubleBE();
      case 0xcf:
        return safe(this.#take(8).readBigUInt64BE());
      case 0xd0:
        return this.#take(1).readInt8();
      case 0xd1:
        return this.#take(2).readInt16BE();
      case 0xd2:
        return this.#take(4).readInt32BE();
      case 0xd3:
        return safe(this.#take(8).readBigInt64BE());
    }
    if (tag >= 0xc4 && tag <= 0xc6) return this.#take(this.#uint(1 << (tag - 0xc4)));
    if (tag >= 0xc7 && tag <= 0xc9) return this.#extension(this.#uint(1 << (tag - 0xc7)));
    if (tag >= 0xcc && tag <= 0xce) return this.#uint(1 << (tag - 0xcc));
    if (tag >= 0xd4 && tag <= 0xd8) return this.#extension(1 << (tag - 0xd4));
    if (tag >= 0xd9 && tag <= 0xdb) return this.#text(this.#uint(1 << (tag - 0xd9)));
    if (tag >= 0xdc && tag <= 0xdd) return this.#array(this.#uint(2 << (tag - 0xdc)));
    if (tag >= 0xde && tag <= 0xdf) return this.#map(this.#uint(2 << (tag - 0xde)));
    throw new RangeError(`0x${tag.toString(16)} begins no value`);
  }

  #array(size: number): unknown[] {
    const items: unknown[] = [];
    for (let n = 0; n < size; n++) items.push(this.value());
    return items;
  }

  #map(size: number): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    for (let n = 0; n < size; n++) entries.push([String(this.value()), this.value()]);
    return Object.fromEntries(entries);
  }

  #extension(size: number): Date | Reference {
    const kind = this.#take(1).readInt8();
    const body = this.#take(size);
    if (kind === REFERENCE) {
      const [node = "", group = "", nodes = [], content = ""] = new Reader(body).value() as [string?, string?, string[]?, string?];
      return new Reference(node, group, nodes, content);
    }
    if (kind !== TIMESTAMP) throw new RangeError(`extension ${kind} of MessagePack is not known`);
    if (size === 4) return new Date(body.readUInt32BE() * 1000);
    if (size === 8) {
      const both = body.readBigUInt64BE();
      return new Date(Number(both & 0x3ffffffffn) * 1000 + Number(both >> 34n) / 1_000_000);
    }
    if (size === 12) return new Date(Number(body.readBigInt64BE(4)) * 1000 + body.readUInt32BE() / 1_000_000);
    throw new RangeError(`a timestamp of ${size} bytes`);
  }

  #text(size: number): string {
    return this.#take(size).toString("utf8");
  }

  #uint(size: number): number {
    return this.#take(size).readUIntBE(0, size);
  }

  #take(size: number): Buffer {
    const end = this.#at + size;
    if (end > this.#bytes.length) throw new RangeError("the bytes end within a value");
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }
}

function safe(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
