import { ask } from "../api";
import { pulse } from "../feed";
import { useFetched } from "../hooks";
import { Age, Bar, Card, Empty, PageHead, TaskLink, Tile } from "../parts/basic";
import { Trends } from "../parts/trends";
import { toHash } from "../route";
import { useStore } from "../store";
import type { Stats, TaskList, Worker } from "../types";
import { count, errorLine, plural, rate, span, tally, workerName } from "../words";

export function Overview() {
  const now = useStore(pulse);
  if (!now) return <PageHead title="Overview" note="Waiting for the broker…" />;
  const { stats, rates } = now;
  const perSecond = Object.values(rates).reduce((sum, each) => sum + each, 0);
  const pending = tally(stats.counts, "pending");
  const resting = pending - (stats.counts.ready ?? 0);
  return (
    <>
      <PageHead title="Overview" />
      {now.trouble && <p class="problem" role="alert">New tasks are refused: {now.trouble}</p>}
      <div class="grid tiles">
        <Tile label="Queued" value={pending} tone="blue" href={toHash("tasks", "", { state: "pending" })}
          note={resting ? `${count(stats.counts.ready ?? 0)} ready` : "all ready"} />
        <Tile label="Running" value={tally(stats.counts, "leased")} tone="teal" href={toHash("tasks", "", { state: "leased" })}
          note={`${rate(perSecond)}/s done`} />
        <Tile label="Succeeded" value={stats.succeeded_last_hour} tone="green" href={toHash("tasks", "", { state: "succeeded", sort: "-ended" })}
          note="in the last hour" />
        <Tile label="Dead" value={stats.dead_last_hour} tone={stats.dead_last_hour ? "red" : ""} href={toHash("dead")}
          note="in the last hour" />
        <Tile label="Workers" value={stats.workers} href={toHash("workers")} note={slots(now.workers)} />
        <Tile label="Mean run" value={span(stats.mean_run_s)} note="in the last hour" />
      </div>
      <Trends />
      <div class="grid thirds">
        <Depth stats={stats} />
        <Health workers={now.workers} />
        <Failures dead={stats.ended.dead ?? 0} />
      </div>
    </>
  );
}

function slots(workers: Worker[]): string {
  const there = workers.filter((worker) => worker.state !== "gone");
  const [load, all] = [there.reduce((n, w) => n + w.load, 0), there.reduce((n, w) => n + w.slots, 0)];
  return all ? `${count(load)} of ${count(all)} slots busy` : "none connected";
}

function Depth({ stats }: { stats: Stats }) {
  const tiers = stats.depth_by_tier;
  const most = Math.max(tiers.high, tiers.normal, tiers.low, 1);
  return (
    <Card title="Ready by priority">
      <dl class="bars">
        {(["high", "normal", "low"] as const).map((tier) => (
          <div key={tier} class="bar-row">
            <dt>{tier}</dt>
            <dd><Bar parts={[{ value: tiers[tier], tone: "blue" }]} whole={most} label={`${tier}: ${plural(tiers[tier], "task")}`} /></dd>
            <dd class="number">{count(tiers[tier])}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}

function Health({ workers }: { workers: Worker[] }) {
  const shown = workers.slice(0, 8);
  return (
    <Card title="Workers" aside={<a href={toHash("workers")}>All</a>}>
      {!shown.length && <Empty>No worker is connected. <code>jackalope worker module:app</code> starts one.</Empty>}
      <ul class="plain-list">
        {shown.map((worker) => (
          <li key={worker.worker} class="worker-line">
            <span class={`dot worker-${worker.state}`} title={worker.state} />
            <span class="cut" title={worker.worker}>{workerName(worker)}</span>
            {worker.state === "gone" ? <span class="dim">gone <Age at={worker.gone_at} /></span> : (
              <>
                <Bar parts={[{ value: worker.load, tone: "teal" }]} whole={worker.slots || worker.load} label={`${worker.load} of ${worker.slots || "any"} slots busy`} />
                <span class="number dim">{worker.load}{worker.slots > 0 && `/${worker.slots}`}</span>
              </>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Failures({ dead }: { dead: number }) {
  const { data } = useFetched<TaskList>(
    (signal) => ask("tasks", { signal, query: { state: "dead", sort: "-ended", limit: 6 } }),
    [dead],
    false,
  );
  return (
    <Card title="Recent failures" aside={<a href={toHash("dead")}>All</a>}>
      {data && !data.tasks.length && <Empty>No task is dead.</Empty>}
      <ul class="plain-list">
        {data?.tasks.map((task) => (
          <li key={task.id} class="failure">
            <div class="row spread"><TaskLink task={task} /><span class="dim"><Age at={task.ended_at} /></span></div>
            <p class="error-line">{errorLine(task)}</p>
          </li>
        ))}
      </ul>
    </Card>
  );
}
