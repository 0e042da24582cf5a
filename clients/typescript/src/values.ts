// Values: arguments and results as the Python library encodes them, so that both work together.

import { decode, encode } from "./msgpack.js";

/** How the payload and the result of a task are encoded: the header `content` of the task. */
export type Content = "msgpack" | "json" | "bytes";

const NOTHING = Buffer.alloc(0);

export function encodeCall(content: Content, args: readonly unknown[], kwargs: Record<string, unknown>): Uint8Array {
  if (content === "bytes") {
    const [only] = args;
    if (args.length !== 1 || !(only instanceof Uint8Array) || Object.keys(kwargs).length > 0)
      throw new TypeError("a task with content 'bytes' has one argument, which is bytes");
    return only;
  }
  if (args.length === 0 && Object.keys(kwargs).length === 0) return NOTHING;
  return content === "json" ? Buffer.from(JSON.stringify([args, kwargs])) : encode([args, kwargs]);
}

export function decodeCall(content: Content, payload: Uint8Array): [unknown[], Record<string, unknown>] {
  if (content === "bytes") return [[payload], {}];
  if (payload.length === 0) return [[], {}];
  return decodeValue(content, payload) as [unknown[], Record<string, unknown>];
}

/** Nothing at all (null, undefined, Python's None) is no bytes. */
export function encodeResult(content: Content, result: unknown): Uint8Array {
  if (result === null || result === undefined) return NOTHING;
  if (content === "bytes") {
    if (!(result instanceof Uint8Array)) throw new TypeError("the result of a task with content 'bytes' is bytes");
    return result;
  }
  return content === "json" ? Buffer.from(JSON.stringify(result)) : encode(result);
}

export function decodeResult(content: Content, result: Uint8Array): unknown {
  if (content === "bytes") return result;
  return result.length === 0 ? null : decodeValue(content, result);
}

function decodeValue(content: Content, bytes: Uint8Array): unknown {
  if (content === "json") return JSON.parse(Buffer.from(bytes).toString("utf8"));
  if (content === "msgpack") return decode(bytes);
  throw new TypeError(`the content ${JSON.stringify(content)} is not known here`);
}
