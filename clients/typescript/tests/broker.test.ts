// Against the broker at JACKALOPE_BROKER, which pytest starts and stops: see tests/clients.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { connect, createServer, type AddressInfo } from "node:net";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { Client, PartlyRefused, Refused, Reject, RetryLater, Stopped, TaskFailed, Throttled, TimedOut, Worker, newTaskId, type Context, type Progress } from "../src/index.js";
import { idBytes } from "../src/ids.js";

const QUEUE = "typescript-tests";
const NARROW = "typescript-narrow";
const options = { queue: QUEUE };
const client = new Client({ name: "tests" });
const stopped: string[] = [];
let tries = 0;

const worker = new Worker({
  queues: [QUEUE, NARROW],
  concurrency: 8,
  tasks: {
    add: (_: Context, a: number, b: number) => a + b,
    echo: (_: Context, value: unknown) => value,
    keywords: ({ kwargs }: Context) => kwargs,
    about: ({ name, queue, attempt, headers }: Context) => ({ name, queue, attempt, headers }),
    fail: (_: Context, message: string) => {
      throw new Error(message);
    },
    reject: () => {
      throw new Reject("never again");
    },
    later: () => {
      if (++tries < 3) throw new RetryLater(10);
      return tries;
    },
    sleep: async ({ signal, progress }: Context, ms: number) => {
      progress(25, "a quarter");
      signal.addEventListener("abort", () => stopped.push((signal.reason as Stopped).why));
      await sleep(ms, undefined, { signal });
    },
  },
});
const running = worker.run({ handleSignals: false });

after(async () => {
  await worker.drain(0);
  assert.equal(await running, "drained");
  client.close();
});

test("values there and back", async () => {
  const handle = await client.submit<number>("add", [2, 3], options);
  assert.equal(await handle.result({ timeoutMs: 20_000 }), 5);
  const value = { text: "é€😀", list: [1, -1, 0.5, null, true], large: 2n ** 60n, when: new Date(1_700_000_000_123) };
  assert.deepEqual(await (await client.submit("echo", [value], options)).result(), value);
  assert.equal(await (await client.submit("echo", [null], options)).result(), null);
  assert.deepEqual(await (await client.submit("echo", [{ a: [1] }], { ...options, content: "json" })).result(), { a: [1] });
  assert.deepEqual(await (await client.submit("keywords", [], { ...options, kwargs: { size: 3 } })).result(), { size: 3 });
  const about = await client.submit("about", [], { ...options, headers: { trace: 7 } });
  assert.deepEqual(await about.result(), { name: "about", queue: QUEUE, attempt: 1, headers: { trace: 7 } });
  assert.equal((await client.handle(handle.id).view()).state, "succeeded");
  assert.deepEqual((await handle.explain()).map((cause) => cause.why), ["ended"]);
});

test("bodies that fit into no frame", async () => {
  const large = Buffer.alloc(20 * 1024 * 1024, "jackalope");
  const handle = await client.submit<Uint8Array>("echo", [large], { ...options, content: "bytes" });
  assert.ok(Buffer.compare(Buffer.from(await handle.result({ timeoutMs: 60_000 })), large) === 0);
});

test("many at once", async () => {
  const tasks = Array.from({ length: 3_000 }, (_, n) => ({ ...options, name: "add", args: [n, 1] }));
  const handles = await client.submitMany<number>(tasks);
  assert.deepEqual(await Promise.all(handles.map((handle) => handle.result())), tasks.map((_, n) => n + 1));
});

test("the same id once more is the same task", async () => {
  const id = newTaskId();
  const [first, second] = [await client.submit("echo", [1], { ...options, id }), await client.submit("echo", [1], { ...options, id })];
  assert.equal(first.id, second.id);
  await assert.rejects(client.submit("echo", [2], { ...options, id }), (error: Refused) => error instanceof Refused && error.code === "id_conflict");
});

test("failures", async () => {
  const failed = await client.submit("fail", ["on purpose"], { ...options, retry: { retries: 0 } });
  await assert.rejects(failed.result(), (error: TaskFailed) => {
    assert.ok(error instanceof TaskFailed);
    assert.deepEqual([error.state, error.reason, error.error?.type, error.error?.message], ["dead", "failed", "Error", "on purpose"]);
    assert.match(error.error!.trace, /broker\.test/);
    return true;
  });
  await assert.rejects((await client.submit("reject", [], options)).result(), { reason: "rejected" });
  assert.equal(await (await client.submit("later", [], options)).result({ timeoutMs: 20_000 }), 3);
});

test("progress, kill and waits that end early", async () => {
  const handle = await client.submit("sleep", [60_000], options);
  const heard = new Promise<Progress>((resolve) => void handle.wait({ onProgress: resolve }).catch(() => {}));
  assert.deepEqual(await heard, { percent: 25, note: "a quarter" });
  await assert.rejects(handle.result({ timeoutMs: 50 }), TimedOut);
  await assert.rejects(handle.result({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  assert.equal((await handle.view()).state, "running");
  assert.equal(await handle.kill(), "requested");
  await assert.rejects(handle.result({ timeoutMs: 20_000 }), { state: "killed" });
  assert.deepEqual(stopped, ["kill"]);
});

test("refusals have codes and delays", async () => {
  const nothing = client.handle(newTaskId());
  // One after the other: a refusal that nothing waits for yet ends the process.
  for (const ask of [() => nothing.view(), () => nothing.result(), () => nothing.kill()])
    await assert.rejects(ask, { name: "Refused", code: "unknown_task", retryAfterMs: 0 });
  const queue = "typescript-full";
  const policy = await client.declareQueue(queue, { depth_limit: 2 });
  assert.equal(policy["depth_limit"], 2);
  const tasks = Array.from({ length: 3 }, () => ({ queue, name: "wait" }));
  await assert.rejects(client.submitMany(tasks), (error: PartlyRefused) => {
    assert.ok(error instanceof PartlyRefused);
    assert.deepEqual([...error.refused.keys()], [2]);
    assert.deepEqual(error.handles.map((handle) => handle !== null), [true, true, false]);
    assert.ok(error.code === "queue_full" && error.retryAfterMs > 0);
    return true;
  });
  const page = await client.tasks({ queue, limit: 1 });
  assert.equal(page.tasks.length, 1);
  assert.notEqual(page.cursor, "");
});

test("a patient submit waits as long as a full queue asks it to", async () => {
  const queue = NARROW;
  await client.declareQueue(queue, { depth_limit: 20 });
  for (let n = 0; n < 10; n++) await (await client.submit("echo", [n], { queue })).result();
  const tasks = Array.from({ length: 100 }, () => ({ queue, name: "sleep", args: [5] }));
  const handles = await client.submitMany(tasks, { patienceMs: 60_000 });
  await Promise.all(handles.map((handle) => handle.result({ timeoutMs: 60_000 })));
  assert.equal(new Set(handles.map((handle) => handle.id)).size, 100);
});

test("a worker is given no more than it has", async () => {
  const queue = "typescript-gpus";
  let now = 0;
  let most = 0;
  const train = async (_: Context, ms: number): Promise<number> => {
    most = Math.max(most, ++now);
    await sleep(ms);
    return --now;
  };
  const gpus = new Worker({ queues: [queue], concurrency: 8, resources: { gpu: 2, mem: "64GiB" }, labels: { arch: "arm64" }, tasks: { train } });
  const done = gpus.run({ handleSignals: false });
  try {
    const needs = { gpu: 1, mem: "0.5GiB", arch: ["arm64", "amd64"] };
    const small = await client.submitMany(Array.from({ length: 5 }, () => ({ name: "train", args: [50], queue, needs, prefer: { zone: "a" }, sticky: "user-1" })));
    await Promise.all(small.map((handle) => handle.result({ timeoutMs: 20_000 })));
    assert.equal(most, 2);
    const large = await client.submit("train", [1], { queue, needs: { gpu: 4 } });
    const [cause] = await large.explain();
    assert.equal(cause!.why, "needs_unmet");
    assert.match(cause!.text, /lacks 2 gpu/);
    await assert.rejects(client.submit("train", [1], { queue, needs: { gpu: -1 } }), RangeError);
  } finally {
    await gpus.drain(0);
    await done;
  }
});

test("calls that do not fit what a worker declares are refused", async () => {
  const queue = "typescript-contracts";
  const double = (_: Context, n: number): number => 2 * n;
  const parameters = [{ name: "n", schema: { type: "number" }, required: true }];
  const declaring = new Worker({ queues: [queue], tasks: { double }, contracts: { double: { version: "1", parameters } } });
  const done = declaring.run({ handleSignals: false });
  try {
    const isDeclared = async (): Promise<boolean> => JSON.stringify(await client.query("contracts", { queue })).includes('"double"');
    const until = Date.now() + 10_000;
    while (!(await isDeclared())) {
      assert.ok(Date.now() < until, "no contract was declared");
      await sleep(20);
    }
    assert.equal(await (await client.submit("double", [4], { queue })).result({ timeoutMs: 10_000 }), 8);
    for (const wrong of [["four"], [], [1, 2]])
      await assert.rejects(client.submit("double", wrong, { queue }), { name: "Refused", code: "invalid" });
  } finally {
    await declaring.drain(0);
    await done;
  }
});

test("a worker declares limits by key, and closes a key that was throttled", async () => {
  const queue = "typescript-limits";
  let running = 0;
  let most = 0;
  let isThrottled = false;
  const hold = async (): Promise<void> => {
    most = Math.max(most, ++running);
    await sleep(20);
    running--;
  };
  const push = (): string => {
    if (isThrottled) return "sent";
    isThrottled = true;
    throw new Throttled("host", 50, "429");
  };
  const limits = { "ts-users": { queue, keys: ["user"], concurrency: 2 }, "ts-hosts": { queue, keys: ["host"], rate: 100, perMs: 60_000, cost: "size" } };
  // The tasks are there before the worker is: its limits hold from the first of them on.
  const held = await client.submitMany(Array.from({ length: 6 }, () => ({ name: "hold", queue, kwargs: { user: "ada" } })));
  const pushed = await client.submit<string>("push", [], { queue, kwargs: { host: "a", size: 3 }, retry: { retries: 0 } });
  const limiting = new Worker({ queues: [queue], concurrency: 8, tasks: { hold, push }, limits });
  const done = limiting.run({ handleSignals: false });
  try {
    for (const handle of held) await handle.result({ timeoutMs: 20_000 });
    assert.equal(most, 2);
    assert.equal(await pushed.result({ timeoutMs: 20_000 }), "sent"); // Without a retry, and no failure.
    assert.ok(isThrottled);
    const found = (await client.query("key_limits", {})) as { name: string; settings: Record<string, unknown> }[];
    const hosts = found.find((each) => each.name === "ts-hosts");
    assert.deepEqual([hosts?.settings["per_us"], hosts?.settings["cost_key"]], [60_000_000, "size"]);
  } finally {
    await limiting.drain(0);
    await done;
  }
});

interface LogPage {
  lines: { text: string; level: string; stream: string; number: number }[];
  attempts: { lines: number; dropped: number }[];
}

async function logsOf(handle: { id: string }): Promise<LogPage> {
  return (await client.query("logs", { id: idBytes(handle.id), limit: 10_000 })) as LogPage;
}

test("what a task logs and prints is kept, and complete when the result is there", async () => {
  const queue = "typescript-logs";
  const printed: string[] = [];
  const speak = async ({ log }: Context, name: string): Promise<void> => {
    log.info("hello %s", name, { size: 3 });
    await sleep(5);
    console.log("printed by", name);
    console.error("two\nlines");
    log.error(new Error("broken").message);
  };
  const flood = ({ log }: Context, lines: number): void => {
    for (let n = 1; n <= lines; n++) log.debug(`line ${n}`);
    log.warn("y".repeat(100_000));
  };
  const [log, error] = [console.log, console.error];
  console.log = console.error = (...values: unknown[]): void => void printed.push(values.join(" "));
  const talker = new Worker({ queues: [queue], concurrency: 4, tasks: { speak, flood, silent: () => 1 } });
  const done = talker.run({ handleSignals: false });
  try {
    const handles = await Promise.all(["Ada", "Bob", "Cy"].map((name) => client.submit("speak", [name], { queue })));
    for (const [index, name] of ["Ada", "Bob", "Cy"].entries()) {
      await handles[index]!.result({ timeoutMs: 20_000 });
      const { lines } = await logsOf(handles[index]!);
      assert.deepEqual(
        lines.map(({ stream, level, text }) => [stream, level, text]),
        [
          ["log", "info", `hello ${name} { size: 3 }`],
          ["stdout", "info", `printed by ${name}`],
          ["stderr", "error", "two"],
          ["stderr", "error", "lines"],
          ["log", "error", "broken"],
        ],
      );
    }
    assert.deepEqual(printed.filter((line) => line.startsWith("printed")).sort(), ["printed by Ada", "printed by Bob", "printed by Cy"]);

    const much = await client.submit("flood", [30_000], { queue });
    await much.result({ timeoutMs: 20_000 });
    const { lines, attempts } = await logsOf(much);
    assert.equal(attempts[0]!.lines + attempts[0]!.dropped, 30_001);
    assert.ok(attempts[0]!.dropped > 0);
    const end = lines.at(-1)!;
    assert.deepEqual([end.number, end.level], [30_001, "warn"]);
    assert.ok(end.text.length < 20_000 && end.text.includes("more]"));

    const silent = await client.submit("silent", [], { queue });
    await silent.result({ timeoutMs: 20_000 });
    assert.deepEqual(await logsOf(silent).then((page) => page.attempts), []);
  } finally {
    await talker.drain(0);
    await done;
    [console.log, console.error] = [log, error];
  }
});

test("lines that a lost connection took along are sent again, once", async () => {
  const queue = "typescript-logs-again";
  let lose = (): void => {};
  const steps: string[] = [];
  const talk = async ({ log }: Context): Promise<void> => {
    for (let n = 0; n < 40; n++) {
      log.info(`line ${n}`);
      if (n % 10 === 5) lose();
      await sleep(20);
    }
  };
  const proxy = createServer((socket) => {
    const [host, port] = (process.env["JACKALOPE_BROKER"] ?? "").replace("jackalope://", "").split(":");
    const onward = connect(Number(port), host!);
    lose = () => {
      steps.push("lost");
      socket.unpipe(onward).resume(); // What is sent from now on reaches nobody.
      setTimeout(() => [socket, onward].forEach((end) => end.destroy()), 250);
    };
    for (const end of [socket, onward]) end.on("error", () => {});
    socket.pipe(onward).pipe(socket);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const broker = `jackalope://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const talker = new Worker({ address: broker, queues: [queue], tasks: { talk } });
  const done = talker.run({ handleSignals: false });
  try {
    const handle = await client.submit("talk", [], { queue });
    await handle.result({ timeoutMs: 30_000 });
    const { lines } = await logsOf(handle);
    assert.ok(steps.length >= 1);
    assert.deepEqual(lines.map((line) => line.text), Array.from({ length: 40 }, (_, n) => `line ${n}`));
  } finally {
    await talker.drain(0);
    await done;
    proxy.close();
  }
});

test("the console is given back when the last worker ends", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [
    ...["--input-type=module", "--eval"],
    `import { Worker } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
     const before = console.log;
     const worker = new Worker({ queues: ["typescript-console"], tasks: {} });
     const done = worker.run({ handleSignals: false });
     const during = console.log;
     await worker.drain(0);
     await done;
     console.log(during !== before, console.log === before);`,
  ]);
  assert.equal(stdout, "true true\n");
});
