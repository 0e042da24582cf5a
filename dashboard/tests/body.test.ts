import { describe, expect, it } from "vitest";
import { dump, recognise, toBase64 } from "../src/body";
import { decodeMessagePack, NotMessagePack } from "../src/msgpack";

const bytes = (hex: string) => Uint8Array.from(hex.replaceAll(" ", "").match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const text = (value: string) => new TextEncoder().encode(value);

describe("MessagePack", () => {
  it.each([
    ["05", 5], ["e0", -32], ["c0", null], ["c3", true], ["a3 61 62 63", "abc"], ["cc ff", 255], ["cd 01 00", 256],
    ["d1 ff 00", -256], ["ca 3f 80 00 00", 1], ["cb 3f f8 00 00 00 00 00 00", 1.5], ["93 01 02 03", [1, 2, 3]],
    ["dc 00 01 c2", [false]], ["cf ff ff ff ff ff ff ff ff", "18446744073709551615"], ["c4 02 00 ff", "bytes 00ff"],
    ["d7 01 00 00 00 00 00 00 00 09", "extension 1: bytes 0000000000000009"], ["d9 01 78", "x"],
  ])("reads %s", (hex, value) => expect(decodeMessagePack(bytes(hex))).toEqual(value));

  it("reads maps, whatever their keys", () =>
    expect(JSON.stringify(decodeMessagePack(bytes("82 a1 61 01 02 c0")))).toBe('{"2":null,"a":1}'));

  it.each(["", "93 01", "c1", "a3 61", "05 05", "dd ff ff ff ff", "a1 ff", "91".repeat(70) + "c0"])("refuses %s", (hex) =>
    expect(() => decodeMessagePack(bytes(hex))).toThrow(NotMessagePack));
});

describe("what a body is", () => {
  it("knows JSON, and writes it well", () =>
    expect(recognise(text('{"a":[1]}'), "json", true)).toEqual({ look: "json", text: '{\n  "a": [\n    1\n  ]\n}' }));
  it("knows the arguments of a Python task", () =>
    expect(recognise(bytes("92 91 05 80"), undefined, true).look).toBe("value"));
  it("does not take bytes for values where the task says that they are bytes", () =>
    expect(recognise(bytes("92 91 05 80"), "bytes", true).look).toBe("hex"));
  it("knows text", () => expect(recognise(text("grüß dich\n"), undefined, true)).toEqual({ look: "text", text: "grüß dich\n" }));
  it("knows pictures", () =>
    expect(recognise(bytes("89 50 4e 47 0d 0a 1a 0a"), undefined, true)).toMatchObject({ look: "image", media: "image/png" }));
  it("shows part of a picture as bytes", () => expect(recognise(bytes("89 50 4e 47 0d 0a 1a 0a"), undefined, false).look).toBe("hex"));
  it("does not mind a letter that is cut in two", () => expect(recognise(text("aaü").subarray(0, 3), undefined, false).text).toBe("aa"));
  it("shows the rest as hex", () => expect(dump(bytes("00 41 ff"))).toBe(`00000000  00 41 ff${" ".repeat(39)}  ·A·`));
});

it("encodes what is typed", () => expect(toBase64("ü")).toBe("w7w="));
