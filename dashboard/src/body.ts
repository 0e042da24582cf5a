// Bodies: what the bytes of a payload or result are, and how to show them.

import { decodeMessagePack } from "./msgpack";

/** How much of a body the page loads. What is larger can be downloaded. */
export const SHOWN_BYTES_MAX = 256 * 1024;

export type Look = "value" | "json" | "text" | "image" | "hex";

export interface Shown {
  look: Look;
  text: string;
  /** The media type of an image. */
  media?: string;
}

const IMAGES: [string, (bytes: Uint8Array) => boolean][] = [
  ["image/png", (b) => starts(b, [0x89, 0x50, 0x4e, 0x47])],
  ["image/jpeg", (b) => starts(b, [0xff, 0xd8, 0xff])],
  ["image/gif", (b) => starts(b, [0x47, 0x49, 0x46, 0x38])],
  ["image/webp", (b) => starts(b, [0x52, 0x49, 0x46, 0x46]) && starts(b.subarray(8), [0x57, 0x45, 0x42, 0x50])],
];

/** Guess what the bytes are. `content` is what the task says of itself, if it does. */
export function recognise(bytes: Uint8Array, content: unknown, isWhole: boolean): Shown {
  const image = IMAGES.find(([, fits]) => fits(bytes));
  if (image && isWhole) return { look: "image", text: "", media: image[0] };
  const text = asText(bytes, isWhole);
  if (isWhole) {
    // One byte of MessagePack is also a letter: text that is JSON or reads well comes first,
    // unless the task comes from a client that says nothing, and so means MessagePack.
    const json = text === null ? undefined : attempt(() => JSON.parse(text) as unknown);
    if (json !== undefined) return { look: "json", text: pretty(json) };
    const value = content === undefined ? attempt(() => decodeMessagePack(bytes)) : undefined;
    if (value !== undefined && (typeof value === "object" || text === null)) {
      return { look: "value", text: pretty(value) };
    }
  }
  if (text !== null) return { look: "text", text };
  return { look: "hex", text: dump(bytes) };
}

export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "null";
}

/** The text, if it is one that can be shown. */
export function asText(bytes: Uint8Array, isWhole: boolean): string | null {
  try {
    // A cut may have split the last letter.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isWhole });
    return /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** Sixteen bytes a line: where, in hex, and as letters. */
export function dump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function starts(bytes: Uint8Array, head: number[]): boolean {
  return head.every((byte, index) => bytes[index] === byte);
}

function attempt<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch {
    return undefined;
  }
}

/** How much of a payload a list asks for. */
export const HEAD_BYTES = 200;

/** The arguments of a task in one line, as far as the beginning of its payload tells. */
export function argumentsLine(head: string | null, content: unknown): string {
  if (!head) return "";
  const bytes = Uint8Array.from(atob(head), (letter) => letter.charCodeAt(0));
  const isWhole = bytes.length < HEAD_BYTES;
  const json = (text: string) => JSON.parse(text) as unknown;
  const value = !isWhole || content === "bytes" ? undefined
    : content === "json" ? attempt(() => json(new TextDecoder().decode(bytes))) : attempt(() => decodeMessagePack(bytes));
  if (Array.isArray(value) && value.length === 2 && Array.isArray(value[0])) {
    const named = Object.entries((value[1] ?? {}) as Record<string, unknown>).map(([name, each]) => `${name}=${JSON.stringify(each)}`);
    return [...value[0].map((each) => JSON.stringify(each)), ...named].join(", ");
  }
  if (value !== undefined && value !== null) return JSON.stringify(value);
  const text = asText(bytes, isWhole);
  if (text !== null) return isWhole ? text : `${text}…`;
  const readable = new TextDecoder().decode(bytes).replace(/[^\x20-\x7e\u00a0-\uffef]+|\ufffd+/g, " ").trim();
  return `${readable}${isWhole ? "" : "…"}`;
}

/** Text to base64, as the API takes payloads. */
export function toBase64(text: string): string {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}
