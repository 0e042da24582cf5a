import { ask, may } from "../api";
import { pulse } from "../feed";
import { useFetched } from "../hooks";
import { Age, Bar, Empty, Meter, PageHead, QueueLink, TaskLink } from "../parts/basic";
import { attempt } from "../parts/notices";
import { useStore } from "../store";
import { STATE_SETS, type Task, type TaskList, type Worker } from "../types";
import { amount, bytes, exact, plural, span, runSeconds, workerName } from "../words";
import { useNow } from "../hooks";

const RUNNING_MAX = 1_000;

/** Labels that the card tells in other words. */
const TOLD = ["name", "host", "hostname", "pid"];

export function Workers() {
  const now = useStore(pulse);
  const running = useFetched<TaskList>(
    (signal) => ask("tasks", { signal, query: { state: STATE_SETS.leased, limit: RUNNING_MAX, sort: "created" } }),
    [],
  );
  const workers = now?.workers ?? [];
  const held = new Map<string, Task[]>();
  for (const task of running.data?.tasks ?? []) {
    const worker = task.worker ?? "";
    held.set(worker, [...(held.get(worker) ?? []), task]);
  }
  return (
    <>
      <PageHead title="Workers" note={now ? `${plural(workers.filter((worker) => worker.state !== "gone").length, "worker")} here` : "Waiting for the broker…"} />
      {now && !workers.length && <div class="card"><Empty>No worker is connected, and none has left lately.</Empty></div>}
      <div class="grid cards">
        {workers.map((worker) => <WorkerCard key={worker.worker} worker={worker} tasks={held.get(worker.worker) ?? []} />)}
      </div>
    </>
  );
}

function WorkerCard({ worker, tasks }: { worker: Worker; tasks: Task[] }) {
  const now = useNow();
  const isGone = worker.state === "gone";
  const drain = () => attempt(
    () => ask(`workers/${encodeURIComponent(worker.worker)}/drain`, { method: "POST" }),
    `${worker.worker} takes no more tasks and finishes what it has.`,
  );
  const { cpu_percent: cpu, memory_mb: megabytes } = worker.stats;
  const memory = worker.stats["memory_bytes"] ?? worker.stats["rss_bytes"] ?? (megabytes && megabytes * 1024 * 1024);
  const where = [worker.labels["host"] ?? worker.labels["hostname"], worker.labels["pid"] && `pid ${worker.labels["pid"]}`].filter(Boolean).join(", ");
  const labels = Object.entries(worker.labels).filter(([name]) => !TOLD.includes(name));
  return (
    <section class={`card worker ${isGone ? "faded" : ""}`} aria-label={`Worker ${worker.worker}`}>
      <header class="card-head">
        <h2 class="cut"><span class={`dot worker-${worker.state}`} /> {workerName(worker)}
          {workerName(worker) !== worker.worker && <> <code class="dim">{worker.worker}</code></>}</h2>
        <span class="row">
          <span class="dim">{worker.state}</span>
          {may("admin", "namespace") && !isGone && worker.state !== "draining" && <button type="button" class="small" onClick={drain}>Drain</button>}
        </span>
      </header>
      {isGone ? <p class="dim">Left <Age at={worker.gone_at} />{worker.why_gone && `: ${worker.why_gone}`}</p> : (
        <>
          <div class="bar-row">
            {worker.slots > 0 && <Bar parts={[{ value: worker.load, tone: "teal" }]} whole={worker.slots} label={`${worker.load} of ${worker.slots} slots busy`} />}
            <span class="number">{worker.slots > 0 ? `${worker.load} of ${worker.slots} slots` : `has ${plural(worker.load, "task")}, and asks for each by itself`}</span>
          </div>
          <div class="meters">
            {Object.entries(worker.resources).map(([name, whole]) => (
              <Meter key={name} name={name} used={worker.used[name] ?? 0} whole={whole} tone="teal" text={`${amount(worker.used[name] ?? 0)} of ${amount(whole)}`} />
            ))}
          </div>
          <p class="dim">
            {cpu !== undefined && `CPU ${Math.round(cpu)} % · `}
            {memory !== undefined && `${bytes(memory)} · `}
            heard <Age at={worker.heard_at} /> · here since <Age at={worker.joined_at} />
          </p>
          <p class="dim">{where && `${where} · `}serves {worker.queues.map((queue, index) => <span key={queue}>{index > 0 && ", "}<QueueLink queue={queue} /></span>)}
            {worker.keys.length > 0 && ` (keys ${worker.keys.join(", ")})`}</p>
          {labels.length > 0 && <p aria-label="Labels">{labels.map(([name, value]) => <span key={name} class="chip">{name} {value}</span>)}</p>}
        </>
      )}
      <p class="dim">{exact(worker.succeeded)} succeeded, {exact(worker.failed)} failed</p>
      {tasks.length > 0 && (
        <ul class="plain-list tasks">
          {tasks.slice(0, 10).map((task) => (
            <li key={task.id} class="row spread">
              <TaskLink task={task} />
              <span class="dim">{span(runSeconds(task, now) ?? 0)}</span>
            </li>
          ))}
          {tasks.length > 10 && <li class="dim">and {tasks.length - 10} more</li>}
        </ul>
      )}
    </section>
  );
}
