// MessagePack, read only: the encoding of payloads and results unless a task says otherwise.
//
// What comes out can be written as JSON: large integers and bytes become text.

const TEXT = new TextDecoder("utf-8", { fatal: true });
const DEPTH_MAX = 64;

export class NotMessagePack extends Error {}

/** The value that the bytes stand for, all of them. */
export function decodeMessagePack(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (reader.at !== bytes.length) throw new NotMessagePack("bytes are left over");
  return value;
}

class Reader {
  at = 0;
  private readonly view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  value(depth: number): unknown {
    if (depth > DEPTH_MAX) throw new NotMessagePack("too deep");
    const head = this.number(1);
    if (head < 0x80) return head;
    if (head < 0x90) return this.map(head & 0x0f, depth);
    if (head < 0xa0) return this.list(head & 0x0f, depth);
    if (head < 0xc0) return this.text(head & 0x1f);
    if (head >= 0xe0) return head - 0x100;
    switch (head) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return this.binary(this.number(1 << (head - 0xc4)));
      case 0xc7: case 0xc8: case 0xc9: return this.extension(this.number(1 << (head - 0xc7)));
      case 0xca: return this.take(4, (at) => this.view.getFloat32(at));
      case 0xcb: return this.take(8, (at) => this.view.getFloat64(at));
      case 0xcc: case 0xcd: case 0xce: return this.number(1 << (head - 0xcc));
      case 0xcf: return plain(this.take(8, (at) => this.view.getBigUint64(at)));
      case 0xd0: return this.take(1, (at) => this.view.getInt8(at));
      case 0xd1: return this.take(2, (at) => this.view.getInt16(at));
      case 0xd2: return this.take(4, (at) => this.view.getInt32(at));
      case 0xd3: return plain(this.take(8, (at) => this.view.getBigInt64(at)));
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.extension(1 << (head - 0xd4));
      case 0xd9: case 0xda: case 0xdb: return this.text(this.number(1 << (head - 0xd9)));
      case 0xdc: return this.list(this.number(2), depth);
      case 0xdd: return this.list(this.number(4), depth);
      case 0xde: return this.map(this.number(2), depth);
      case 0xdf: return this.map(this.number(4), depth);
      default: throw new NotMessagePack(`no value begins with ${head}`);
    }
  }

  private take<T>(size: number, read: (at: number) => T): T {
    if (this.at + size > this.bytes.length) throw new NotMessagePack("it ends too early");
    const found = read(this.at);
    this.at += size;
    return found;
  }

  private number(size: number): number {
    return this.take(size, (at) =>
      size === 1 ? this.view.getUint8(at) : size === 2 ? this.view.getUint16(at) : this.view.getUint32(at),
    );
  }

  private text(size: number): string {
    return this.take(size, (at) => {
      try {
        return TEXT.decode(this.bytes.subarray(at, at + size));
      } catch {
        throw new NotMessagePack("text is not UTF-8");
      }
    });
  }

  private binary(size: number): string {
    return this.take(size, (at) => `bytes ${toHex(this.bytes.subarray(at, at + size))}`);
  }

  private extension(size: number): string {
    const kind = this.take(1, (at) => this.view.getInt8(at));
    return `extension ${kind}: ${this.binary(size)}`;
  }

  private list(length: number, depth: number): unknown[] {
    this.foresee(length);
    return Array.from({ length }, () => this.value(depth + 1));
  }

  private map(length: number, depth: number): Record<string, unknown> {
    this.foresee(length);
    const found: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    for (let index = 0; index < length; index += 1) {
      const key = this.value(depth + 1);
      found[typeof key === "string" ? key : JSON.stringify(key)] = this.value(depth + 1);
    }
    return found;
  }

  /** Each value takes a byte at least: a length that promises more is none. */
  private foresee(length: number): void {
    if (length > this.bytes.length - this.at) throw new NotMessagePack("it ends too early");
  }
}

function plain(value: bigint): number | string {
  return value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : String(value);
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
