import { describe, expect, it } from "vitest";
import { ago, amount, bytes, clock, count, needTexts, paceText, plural, ran, rate, runSeconds, shortId, span, taskName, workerName } from "../src/words";

const NOW = Date.parse("2030-01-02T03:04:05Z");
const before = (seconds: number) => new Date(NOW - seconds * 1000).toISOString();

describe("numbers", () => {
  it.each([[0, "0"], [1234, "1,234"], [99_999, "99,999"], [123_456, "123k"], [1_000_000, "1M"], [4_561_000, "4.56M"]])(
    "counts %d as %s", (value, text) => expect(count(value)).toBe(text));
  it.each([[0, "0"], [0.123, "0.12"], [3.44, "3.4"], [1234.4, "1,234"]])("says the rate %d as %s", (value, text) =>
    expect(rate(value)).toBe(text));
  it.each([[0, "0 B"], [1023, "1023 B"], [1536, "1.5 KiB"], [10 * 1024 * 1024, "10 MiB"]])("says %d bytes as %s", (value, text) =>
    expect(bytes(value)).toBe(text));
  it("knows one from many", () => expect([plural(1, "task"), plural(0, "task")]).toEqual(["1 task", "0 tasks"]));
});

describe("times", () => {
  it.each([
    [0, "0 s"], [0.0000004, "0 µs"], [0.00085, "850 µs"], [0.012, "12 ms"], [3.44, "3.4 s"], [59.4, "59 s"], [59.9, "1 m"],
    [125, "2 m 5 s"], [3600, "1 h"], [12_000, "3 h 20 m"], [4 * 86_400 + 7200, "4 d 2 h"],
  ])("says %d seconds as %s", (value, text) => expect(span(value)).toBe(text));
  it("does not say that nothing took no time", () => expect([ran(0), ran(2)]).toEqual(["< 1 ms", "2 s"]));
  it.each([[0.5, "just now"], [5, "5 s ago"], [60, "1 m ago"], [7300, "2 h ago"], [-180, "in 3 m"]])(
    "says %d seconds ago as %s", (seconds, text) => expect(ago(before(seconds), NOW)).toBe(text));
  it("has no age for what has not happened", () => expect(ago(null, NOW)).toBe("-"));
  it("names the day only if it is another", () => {
    expect(clock(before(1), NOW)).not.toContain("2030");
    expect(clock(before(86_400), NOW)).toContain("2030-01-01");
  });
  it("measures to the microsecond", () => {
    const task = { started_at: "2030-01-02T03:04:05.000100Z", ended_at: "2030-01-02T03:04:05.000442Z" };
    expect(runSeconds(task, NOW)).toBeCloseTo(0.000342, 6);
  });
  it("lets what has not ended run on", () =>
    expect(runSeconds({ started_at: before(3), ended_at: null }, NOW)).toBe(3));
});

it("shows the end of an id, which differs", () =>
  expect(shortId("01a1e229-2d33-794e-becb-478b7de2712b")).toBe("…7de2712b"));

describe("names", () => {
  it.each([["resize", "cat", "resize"], ["", "cat", "cat"], ["", "", ""]])("calls the task %j with the alias %j %j", (name, alias, shown) =>
    expect(taskName({ name, alias })).toBe(shown));
  it("calls a worker what it calls itself", () => {
    expect(workerName({ worker: "w", labels: { name: "machine" } })).toBe("machine");
    expect(workerName({ worker: "w", labels: {} })).toBe("w");
  });
});

describe("paces", () => {
  const pace = { key: "", span_seconds: null, at_most_seconds: null, drop: false };
  it.each([
    [{ ...pace, how: "replace" as const }, "replace"],
    [{ ...pace, how: "throttle" as const, span_seconds: 60, drop: true }, "throttle, one in 1 m, others are dropped"],
    [{ ...pace, how: "debounce" as const, span_seconds: 5, at_most_seconds: 60 }, "debounce, until 5 s without another, at most 1 m"],
  ])("says %o", (value, text) => expect(paceText(value)).toBe(text));
});

describe("resources", () => {
  it.each([[0, "0"], [2, "2"], [0.5, "0.5"], [1000, "1000"], [24 * 1024 ** 3, "24 GiB"]])("says the amount %d as %s", (value, text) =>
    expect(amount(value)).toBe(text));
  it("says what is needed", () =>
    expect(needTexts({ gpu: 1, mem: 8 * 1024 ** 3, arch: ["arm64", "x86"] })).toEqual(["gpu 1", "mem 8 GiB", "arch arm64 or x86"]));
});
