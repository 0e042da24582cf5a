import assert from "node:assert/strict";
import { test } from "node:test";

import { parseAddress } from "../src/address.js";
import { FrameReader, frame, Kind } from "../src/frames.js";
import { idBytes, idText, newTaskId } from "../src/ids.js";
import { decode, encode } from "../src/msgpack.js";

const round = (value: unknown): unknown => decode(encode(value));

test("values come back as they were", () => {
  const values = [
    null, true, false, 0, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER,
    -1, -32, -33, -128, -129, -32_768, -32_769, -(2 ** 31), -(2 ** 31) - 1, Number.MIN_SAFE_INTEGER,
    0.5, -1e300, Infinity, 2n ** 64n - 1n, -(2n ** 63n), "", "é€😀", "x".repeat(40), "x".repeat(300), "x".repeat(70_000),
    [], [1, [2, [3]]], Array(70_000).fill(1), {}, { a: { b: [1, null] } },
    new Date(0), new Date(1_700_000_000_123), new Date(-1), new Date(8.64e15),
  ];
  for (const value of values) assert.deepEqual(round(value), value);
  assert.ok(Object.is(round(-0), -0));
  assert.ok(Number.isNaN(round(NaN)));
  for (const size of [0, 255, 256, 70_000]) assert.deepEqual(round(new Uint8Array(size)), Buffer.alloc(size));
  assert.equal(round(undefined), null);
  assert.deepEqual(round({ a: undefined, b: 1 }), { b: 1 });
  assert.deepEqual(round(new Map([["k", 1]])), { k: 1 });
});

test("what has no encoding is named", () => {
  assert.throws(() => encode(() => 1), /a function has no encoding/);
  assert.throws(() => encode(Symbol("s")), /a symbol has no encoding/);
  assert.throws(() => encode(2n ** 64n), RangeError);
  assert.throws(() => encode(new Date(NaN)), /invalid date/);
  const loop: unknown[] = [];
  loop.push(loop);
  assert.throws(() => encode(loop), /contains itself/);
});

test("damaged bytes raise an error and read nothing beyond the end", () => {
  const whole = encode({ list: [1, "two", new Uint8Array(3), 4.5, new Date(1)] });
  for (let size = 0; size < whole.length; size++) assert.throws(() => decode(whole.subarray(0, size)), RangeError);
  assert.throws(() => decode(Buffer.concat([whole, Buffer.of(0)])), /follows/);
  assert.throws(() => decode(Buffer.of(0xc1)), /begins no value/);
  assert.throws(() => decode(Buffer.of(0xd4, 5, 0)), /extension 5/);
});

test("a name of JavaScript's own is only a key", () => {
  const decoded = decode(encode(new Map([["__proto__", { polluted: true }]]))) as Record<string, unknown>;
  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
  assert.deepEqual(Object.keys(decoded), ["__proto__"]);
});

test("frames are found however the bytes are cut", () => {
  const bytes = Buffer.concat([frame(Kind.ACK, [1, { a: 1 }]), frame(Kind.HEARTBEAT, []), frame(Kind.ACK, [2, "x".repeat(9_999)])]);
  for (const step of [1, 3, 7, 1_000, bytes.length]) {
    const reader = new FrameReader();
    const found: unknown[] = [];
    for (let at = 0; at < bytes.length; at += step)
      for (const [kind, fields] of reader.feed(bytes.subarray(at, at + step))) found.push([kind, fields[0]]);
    assert.deepEqual(found, [[Kind.ACK, 1], [Kind.HEARTBEAT, undefined], [Kind.ACK, 2]]);
  }
});

test("ids and addresses", () => {
  const id = newTaskId();
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(idText(idBytes(id.replaceAll("-", "").toUpperCase())), id);
  assert.throws(() => idBytes("x"), /no id of a task/);
  assert.deepEqual(parseAddress("jackalopes://jk_a_b@h1:1,[::1]:2,h3"), {
    places: [{ host: "h1", port: 1 }, { host: "::1", port: 2 }, { host: "h3", port: 7420 }],
    isTls: true,
    token: "jk_a_b",
  });
  for (const bad of ["", "http://x", "jackalope://a:99999", "a b"]) assert.throws(() => parseAddress(bad), TypeError);
});
