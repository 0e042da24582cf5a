// A worker with three tasks, for each of which the payload is bytes.
//
//     node dist/examples/worker.js --queue demo --concurrency 4
//
// JACKALOPE_BROKER is the address, JACKALOPE_TOKEN the token of an API key where one is needed, and
// JACKALOPE_CA a file with the certificate authority of a broker with TLS.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { Worker, type Context } from "../src/index.js";

const tasks = {
  reverse: (_: Context, payload: Uint8Array) => Uint8Array.from(payload).reverse(),

  fail: (_: Context, payload: Uint8Array) => {
    throw new Error(Buffer.from(payload).toString());
  },

  /** Sleep, report how far it has come, and wake up early when it is to stop. */
  sleep: async ({ signal, progress }: Context, payload: Uint8Array) => {
    const seconds = Number(Buffer.from(payload).toString());
    progress(50, "sleeping");
    await sleep(seconds * 1000, undefined, { signal });
    return Buffer.from(`slept ${seconds}`);
  },
};

const { values } = parseArgs({
  options: {
    queue: { type: "string", default: "demo" },
    name: { type: "string" },
    concurrency: { type: "string", default: "4" },
    drain: { type: "string", default: "10" },
    lease: { type: "string", default: "30" },
  },
});
const { JACKALOPE_TOKEN: token, JACKALOPE_CA: ca } = process.env;
const worker = new Worker({
  tasks,
  queues: [values.queue],
  concurrency: Number(values.concurrency),
  drainMs: Number(values.drain) * 1000,
  leaseMs: Number(values.lease) * 1000,
  log: (line) => console.error(line),
  ...(values.name && { name: values.name }),
  ...(token && { token }),
  ...(ca && { tls: { ca: readFileSync(ca) } }),
});
const how = await worker.run();
process.exit(how === "drained" ? 0 : 1); // A task that ignores its signal keeps nothing waiting.
