import { describe, expect, it } from "vitest";
import { boundsText, fromForm, NO_LIMIT, toForm } from "../src/limits";
import { NO_QUOTAS, usesOf } from "../src/quotas";

describe("limits by key", () => {
  it.each([
    [{}, "no bound of its own: workers close it"],
    [{ concurrency: 2 }, "at most 2 at once"],
    [{ concurrency: 1, on_full: "cancel_oldest" }, "at most 1 at once; when full: cancel oldest"],
    [{ rate: 100, per: "1m", burst: 20 }, "100 in 1m, 20 saved up at most"],
    [{ rate: 90_000, per: "1m", cost_key: "tokens" }, "90,000 tokens in 1m; a task takes as many as its tokens says"],
    [{ rate: 9, cost: 3 }, "9 tokens in 1s; a task takes 3"],
  ])("says %o", (settings, text) => expect(boundsText({ ...NO_LIMIT, ...settings })).toBe(text));
  it("has its keys as a text in the form", () => {
    expect(toForm({ ...NO_LIMIT, keys: ["a", "b"] })["keys"]).toBe("a, b");
    expect(fromForm({ keys: " a,  b " })).toEqual({ keys: ["a", "b"] });
    expect(fromForm({ rate: 1 })).toEqual({ rate: 1 });
  });
});

describe("quotas", () => {
  const info = { name: "n", queues: 0, created_at: null, by: null, is_declared: true };
  it("compares what is used with what there is", () => {
    const settings = { ...NO_QUOTAS, bytes_stored: 1024, submits_per_second: 5, submits_burst: 20 } as Record<string, string | number>;
    const uses = usesOf({ ...info, settings, used: { tasks_queued: 7, bytes_stored: 512, submits_per_second: 3 } });
    expect(uses.map(({ text, limit }) => [text, limit])).toEqual([["7", null], ["512 B of 1.0 KiB", 1024], ["3 of 20", 20]]);
  });
});
