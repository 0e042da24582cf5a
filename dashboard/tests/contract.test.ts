import { describe, expect, it } from "vitest";
import { askedFor, callOf, type Contract, helpFor } from "../src/contract";

const RESIZE: Contract = {
  queue: "images", name: "resize", signature: "", doc: "", content: "msgpack",
  parameters: [
    { name: "path", schema: { type: "string" }, required: true },
    { name: "width", schema: { type: "integer" }, default: 320 },
    { name: "mode", kind: "name", schema: { enum: ["fit", "fill"] }, default: "fit" },
    { name: "turn", schema: { type: "boolean" }, default: false },
    { name: "points", schema: { type: "array" }, default: null },
  ],
};

describe("a form made of a contract", () => {
  it("asks for each argument in the way of its type", () => {
    expect(RESIZE.parameters.map((each) => askedFor(each).how)).toEqual(["text", "number", "choice", "choice", "json"]);
    expect(RESIZE.parameters.map(helpFor)).toEqual(["", "Empty: 320", 'Empty: "fit"', "Empty: false", "JSON. Empty: null"]);
  });

  it("leaves out what is empty, and sends values of their types", () => {
    const given = { path: "cat.png", width: "64", mode: '"fill"', turn: "true", points: "[1, 2]" };
    expect(JSON.parse(callOf(RESIZE, given).payload)).toEqual([
      [], { path: "cat.png", width: 64, mode: "fill", turn: true, points: [1, 2] },
    ]);
    expect(callOf(RESIZE, { path: "123" })).toEqual({ payload: '[[],{"path":"123"}]', problems: [] });
  });

  it("says all that is wrong", () => {
    const broken: Contract = { ...RESIZE, parameters: [...RESIZE.parameters, { name: "n", schema: { type: "number" }, required: true }] };
    expect(callOf(broken, { points: "[1", width: "wide" }).problems).toEqual([
      "width: is no number", "points: is not JSON", "n: is required",
    ]);
  });

  it("puts arguments in their places where further ones follow", () => {
    const rest: Contract = {
      ...RESIZE,
      parameters: [
        { name: "first", kind: "place", schema: { type: "string" }, required: true },
        { name: "second", schema: { type: "integer" } },
        { name: "args", kind: "rest" },
        { name: "named", kind: "rest_named" },
      ],
    };
    const given = { first: "a", second: "2", args: "[3, 4]", named: '{"x": 5}' };
    expect(callOf(rest, given).payload).toBe('[["a",2,3,4],{"x":5}]');
    expect(callOf(rest, { first: "a", args: "3", named: "[]" }).problems).toEqual(["args: is no list", "named: is no object"]);
  });
});
