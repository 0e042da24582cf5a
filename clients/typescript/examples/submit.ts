// Submit tasks and print their results: `<index> <result>`, in the order in which they end.
//
//     node dist/examples/submit.js --queue demo --name reverse --count 10 abc

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

import { Client, Refused, TaskFailed } from "../src/index.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    queue: { type: "string", default: "demo" },
    name: { type: "string", default: "reverse" },
    count: { type: "string", default: "1" },
  },
});
const { JACKALOPE_TOKEN: token, JACKALOPE_CA: ca } = process.env;
const client = new Client({
  name: "submit",
  ...(token && { token }),
  ...(ca && { tls: { ca: readFileSync(ca) } }),
});
const [payload = ""] = positionals;

async function one(index: number): Promise<void> {
  const args = [Buffer.from(payload.replace("%", String(index)))];
  const options = { queue: values.queue, content: "bytes", patienceMs: 60_000 } as const;
  const handle = await client.submit<Uint8Array>(values.name, args, options);
  console.log(`${index} ${Buffer.from(await handle.result()).toString()}`);
}

try {
  await Promise.all(Array.from({ length: Number(values.count) }, (_, index) => one(index)));
} catch (error) {
  if (error instanceof Refused) console.error(`refused ${error.code}: ${error.message}`);
  else if (error instanceof TaskFailed) console.error(`failed ${error.reason}: ${error.error?.message}`);
  else throw error;
  process.exitCode = 1;
} finally {
  client.close();
}
