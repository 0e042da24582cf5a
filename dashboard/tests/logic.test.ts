import { describe, expect, it } from "vitest";
import { attemptsOf } from "../src/attempts";
import { argumentsLine, HEAD_BYTES } from "../src/body";
import { actOn, toTerms } from "../src/bulk";
import { essence, group } from "../src/dead";
import { EMPTY_DRAFT, fromTask, problemsOf, toTask } from "../src/draft";
import { EMPTY, isFiltered, toFilter, toFilters, toQuery } from "../src/filters";
import { layOut } from "../src/graph";
import { layOutFlow } from "../src/layers";
import { changesOf, parseValue, sectionsFor } from "../src/policy";
import { parseRoute, toHash, toParameters } from "../src/route";
import { shownSpan, toColumns } from "../src/series";
import { settle, step } from "../src/still";
import type { FlowNode, Point, Task } from "../src/types";

describe("routes", () => {
  it("reads what it writes", () => {
    const route = parseRoute(toHash("queues", "a/b ü?", { state: "dead", tag: ["x", "y"], no: "" }));
    expect([route.page, route.name, route.query.get("state"), route.query.getAll("tag")]).toEqual(["queues", "a/b ü?", "dead", ["x", "y"]]);
  });
  it.each(["", "#", "#/"])("begins with the overview for %j", (hash) => expect(parseRoute(hash).page).toBe("overview"));
  it("does not fall over a broken escape", () => expect(parseRoute("#/queues/%zz").name).toBe("%zz"));
  it("leaves out what is empty", () => expect(toParameters({ a: "", b: null, c: undefined, d: 0 }).toString()).toBe("d=0"));
});

describe("filters", () => {
  it("come back from the address", () => {
    const filters = { ...EMPTY, state: "dead", text: "x y", batch: "3" };
    expect(toFilters(toParameters(toQuery(filters)))).toEqual(filters);
  });
  it("mean the same to an action", () =>
    expect(toFilter({ ...EMPTY, state: "dead", batch: "3", queue: "q" }, 0)).toEqual({ states: ["dead"], batch: 3, queue: "q" }));
  it("are none when only sorted", () => expect(isFiltered({ ...EMPTY, sort: "priority" })).toBe(false));
});

describe("bulk actions", () => {
  const result = (changed: number, requested: number, more: boolean) => ({ changed, requested, more, refused: [] });
  it("go on until nothing is left", async () => {
    const answers = [result(10_000, 0, true), result(10_000, 1, true), result(5, 0, false)];
    const outcome = await actOn("kill", { filter: {} }, async () => answers.shift() ?? result(0, 0, false));
    expect([outcome.changed, outcome.requested, answers]).toEqual([20_005, 1, []]);
  });
  it("take terms that were filled in, and nothing for those that were not", async () => {
    const terms = toTerms({ retries: "0", timeout_seconds: " ", priority: "" });
    expect(terms).toEqual({ retries: 0 });
    expect(toTerms({ retries: "", timeout_seconds: "", priority: "" })).toBeUndefined();
    const asked: object[] = [];
    await actOn("retry", { tasks: ["a"] }, async (body) => { asked.push(body); return result(1, 0, false); }, terms);
    expect(asked).toEqual([{ action: "retry", tasks: ["a"], terms: { retries: 0 } }]);
  });
  it("do not go round for ever where nothing changes", async () => {
    let asked = 0;
    await actOn("kill", { filter: {} }, async () => { asked += 1; return result(0, 10_000, true); });
    expect(asked).toBe(1);
  });
});

describe("attempts", () => {
  const at = (what: string, second: number, detail = "") => ({ what, at: `2030-01-01T00:00:0${second}Z`, by: "w", detail });
  it("are told apart", () => {
    const found = attemptsOf([at("submit", 0), at("assign", 1), at("start", 2), at("fail", 3, "no"), at("due", 4), at("assign", 5)]);
    expect(found.map((each) => [each.end, each.detail, each.started !== null])).toEqual([["fail", "no", true], ["", "", false]]);
  });
  it("end where a task waits at a step", () => {
    const found = attemptsOf([at("assign", 1), at("start", 2), at("suspend", 3, "sleeps"), at("due", 4), at("assign", 5)]);
    expect(found.map((each) => [each.end, each.detail])).toEqual([["suspend", "sleeps"], ["", ""]]);
  });
  it("are none before the first", () => expect(attemptsOf([at("submit", 0), at("kill", 1)])).toEqual([]));
});

describe("dead letters", () => {
  const dead = (error: string, ended: string, queue = "q") => ({ queue, name: "t", error: { type: error, message: "" }, ended_at: ended }) as unknown as Task;
  it("are put together by what stays the same", () => {
    const groups = group([dead("no card 17", "1"), dead("no card 4.5", "3"), dead("other", "2"), dead("no card 1", "2", "r")]);
    expect(groups.map((each) => [each.queue, each.tasks.length, each.error])).toEqual([["q", 2, "no card 4.5"], ["q", 1, "other"], ["r", 1, "no card 1"]]);
  });
  it("ignore ids and addresses", () =>
    expect(essence("task 01a1e229-2d33-794e-becb-478b7de2712b at 0xdeadbeef")).toBe("task … at …"));
});

describe("drafts", () => {
  const draft = { ...EMPTY_DRAFT, name: " n ", queue: "q", tags: "a, b", retries: "0", payload: "[1]" };
  it("leave out what is not said", () =>
    expect(toTask(draft, "WzFd")).toEqual({
      name: "n", queue: "q", priority: 150, payload: "WzFd", tags: ["a", "b"], retries: 0, headers: { content: "json" },
    }));
  it("do not call text JSON", () => expect(toTask({ ...draft, payload: "x" }, "eA==").headers).toBeUndefined());
  it("say what is missing", () => {
    expect(problemsOf(EMPTY_DRAFT)).toContain("name");
    expect(problemsOf({ ...draft, queue: " " })).toContain("queue");
    expect(problemsOf({ ...draft, priority: "256" })).toContain("255");
    expect(problemsOf(draft)).toBe("");
  });
  it("come from another task, but for its alias", () => {
    const task = { queue: "q", name: "n", priority: 9, key: "k", tags: ["a"], alias: "mine", retries: null, timeout_seconds: 3 } as unknown as Task;
    expect(fromTask(task, "p")).toMatchObject({ queue: "q", priority: "9", alias: "", retries: "", timeout: "3", payload: "p" });
  });
});

describe("policies", () => {
  const policy = { retries: 3, held: false, retention: "7d", novel: "x" };
  it("have a place for every field", () =>
    expect(sectionsFor(policy).flatMap((section) => section.fields.map((field) => field.name)).sort()).toEqual(Object.keys(policy).sort()));
  it("keep the kind of what is typed", () =>
    expect([parseValue("5", 3), parseValue("true", false), parseValue(" 2h ", "7d"), parseValue("", 3)]).toEqual([5, true, "2h", ""]));
  it("say what has changed", () => expect(changesOf(policy, { ...policy, retries: 4 })).toEqual({ retries: 4 }));
});

describe("the graph", () => {
  it("puts relatives on their sides", () => {
    const { nodes, edges } = layOut("me", "mum", ["a", "b"], ["kid"]);
    const x = Object.fromEntries(nodes.map((node) => [node.id, node.x]));
    expect(x["mum"]).toBe(x["a"]);
    expect((x["a"] as number) < (x["me"] as number) && (x["me"] as number) < (x["kid"] as number)).toBe(true);
    expect(edges.map((edge) => [edge.from.id, edge.to.id])).toEqual([["mum", "me"], ["a", "me"], ["b", "me"], ["me", "kid"]]);
  });
  it("leaves no two in one place", () => {
    const { nodes } = layOut("me", null, ["a", "b", "c"], []);
    expect(new Set(nodes.map((node) => `${node.x},${node.y}`)).size).toBe(4);
  });
});

describe("series", () => {
  const point = (second: number) => ({ at: new Date(second * 1000).toISOString(), submitted: 20, finished: { number: 1, p95_s: 2 }, started: null }) as Point;
  it("break where the broker did not run", () => {
    const { times, submitted } = toColumns({ step_s: 10, points: [point(0), point(10), point(100)] });
    expect([times, submitted]).toEqual([[0, 10, 20, 100], [2, 2, null, 2]]);
  });
  it("show no time before the broker's first", () => {
    expect(shownSpan([], 10_000, 1)).toEqual([6_400, 10_000]);
    expect(shownSpan([9_000], 10_000, 1)).toEqual([9_000, 10_000]);
    expect(shownSpan([9_990], 10_000, 1)).toEqual([9_880, 10_000]);
    expect(shownSpan([10], 10_000, 1)).toEqual([6_400, 10_000]);
  });
  it("have no latency where nothing ended", () => {
    const { finished, started } = toColumns({ step_s: 10, points: [point(0)] });
    expect([finished, started]).toEqual([[2], [null]]);
  });
});

describe("the graph of a flow", () => {
  const node = (id: string, after: string[] = [], group: string | null = null, groups: string[] = []) =>
    ({ id, after, group, groups }) as unknown as FlowNode;

  it("puts each node right of all that it waits for", () => {
    const { nodes, edges } = layOutFlow([node("a"), node("b", ["a"]), node("c", ["a", "b"]), node("d")]);
    const x = new Map(nodes.map((each) => [each.id, each.x]));
    expect(x.get("a")).toBe(0);
    expect(x.get("d")).toBe(0);
    expect((x.get("c") as number) > (x.get("b") as number)).toBe(true);
    expect(edges).toHaveLength(3);
  });

  it("ties a join to the members of its group", () => {
    const { edges } = layOutFlow([node("m1", [], "g"), node("m2", [], "g"), node("join", [], null, ["g"])]);
    expect(edges.map((edge) => [edge.from.id, edge.to.id])).toEqual([["m1", "join"], ["m2", "join"]]);
  });

  it("leaves out what is on another page", () => {
    expect(layOutFlow([node("b", ["elsewhere"])]).edges).toEqual([]);
  });
});

describe("a table that stands still", () => {
  const task = (id: string, state = "ready") => ({ id, state }) as unknown as Task;

  it("keeps rows in their places and shows what they are now", () => {
    const first = settle(null, [task("a"), task("b")]);
    const then = settle(first, [task("c"), task("b", "running")]);
    expect(then.order).toEqual(["a", "b"]);
    expect(then.rows.get("b")?.state).toBe("running");
    expect([...then.gone]).toEqual(["a"]);
  });

  it("begins anew when it was empty", () => {
    expect(settle(settle(null, []), [task("a")]).order).toEqual(["a"]);
  });

  it("goes from row to row and not beyond", () => {
    expect([step(-1, 1, 3), step(0, -1, 3), step(2, 1, 3), step(-1, 1, 0)]).toEqual([0, 0, 2, -1]);
  });
});

describe("arguments in a line", () => {
  it("are read from JSON and from what Python sends", () => {
    expect(argumentsLine(btoa('[["cat.png", 3], {"fast": true}]'), "json")).toBe('"cat.png", 3, fast=true');
    expect(argumentsLine(btoa("\x92\x91\x07\x80"), undefined)).toBe("7");
    expect(argumentsLine(null, undefined)).toBe("");
    expect(argumentsLine(btoa("x".repeat(HEAD_BYTES)), undefined)).toBe(`${"x".repeat(HEAD_BYTES)}…`);
  });
});
