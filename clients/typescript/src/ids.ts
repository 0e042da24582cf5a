// Ids of tasks: UUIDs of version 7, which begin with the time. Texts here, 16 bytes on the wire.

import { randomBytes } from "node:crypto";

/** Return a new id. */
export function newTaskId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  return idText(bytes);
}

export function idText(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString("hex");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export function idBytes(text: string): Buffer {
  const hex = text.replaceAll("-", "");
  if (!/^[0-9a-f]{32}$/i.test(hex)) throw new TypeError(`${JSON.stringify(text)} is no id of a task`);
  return Buffer.from(hex, "hex");
}
