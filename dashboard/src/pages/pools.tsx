import { ask, may } from "../api";
import { useFetched } from "../hooks";
import { Age, Badge, Card, Clock, Empty, PageHead, Problem, QueueLink } from "../parts/basic";
import { attempt } from "../parts/notices";
import { toHash } from "../route";
import type { Group, GroupAction, Pool } from "../types";
import { exact, plural } from "../words";

const GROUPS_SHOWN = 200;
const DONE: Record<GroupAction, string> = { start: "is started", stop: "stops", pin: "stays up", unpin: "stops when idle" };

export function Pools() {
  const { data, failure, reload } = useFetched<{ pools: Pool[] }>((signal) => ask("pools", { signal }), []);
  const pools = data?.pools ?? [];
  return (
    <>
      <PageHead title="Pools" note="Workers that are started for a key when work for it arrives." />
      <Problem failure={failure} />
      {data && !pools.length && <div class="card"><Empty>No queue has a pool.</Empty></div>}
      <div class="stack">
        {pools.map((pool) => <PoolCard key={pool.queue} pool={pool} onChange={reload} />)}
      </div>
    </>
  );
}

function PoolCard({ pool, onChange }: { pool: Pool; onChange: () => void }) {
  const act = async (key: string, action: GroupAction) => {
    const ask_ = () => ask(`pools/${encodeURIComponent(pool.queue)}/groups`, { method: "POST", body: { key, action } });
    if (await attempt(ask_, `The group of key “${key}” ${DONE[action]}.`)) onChange();
  };
  const start = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    await act(String(new FormData(form).get("key")), "start");
    form.reset();
  };
  const workers = pool.groups.reduce((sum, group) => sum + group.workers.length, 0);
  const aside = <span class="dim">launcher {String(pool.settings.launcher)}{pool.settings.version && `, version ${pool.settings.version}`}</span>;
  return (
    <Card title={pool.queue} aside={aside}>
      <p class="dim">
        {exact(pool.up)} of {String(pool.settings.groups_max)} groups up, {exact(pool.waiting)} waiting,{" "}
        {plural(workers, "worker")}; {exact(pool.launched)} launched, {exact(pool.failed)} failed;{" "}
        queue <QueueLink queue={pool.queue} />,{" "}
        <a href={toHash("tasks", "", { queue: pool.queue, state: "dead" })}>poisonous and other dead tasks</a>
      </p>
      {!pool.groups.length && <Empty>No key has workers or tasks.</Empty>}
      {pool.groups.length > 0 && (
        <div class="scroll">
          <table>
            <thead><tr><th>Key</th><th>State</th><th class="number">Ready</th><th class="number">Running</th><th class="number">Workers</th><th class="number">Rate</th><th>Active</th><th>Launches</th><th /></tr></thead>
            <tbody>{pool.groups.slice(0, GROUPS_SHOWN).map((group) => <GroupRow key={group.key} group={group} act={act} />)}</tbody>
          </table>
        </div>
      )}
      {pool.failures.length > 0 && (
        <>
          <h3>Failed launches</h3>
          <ul class="plain-list">
            {[...pool.failures].reverse().map((each) => (
              <li key={each.at + each.key} class="failure"><Clock at={each.at} /> <code>{each.key}</code> <span class="ink-red">{each.why}</span></li>
            ))}
          </ul>
        </>
      )}
      {pool.groups.length > GROUPS_SHOWN && <p class="dim">and {exact(pool.groups.length - GROUPS_SHOWN)} more</p>}
      {may("admin") && (
        <form class="row wrap" onSubmit={start}>
          <label class="field"><span>Key</span><input name="key" /></label>
          <button type="submit" class="low">Start</button>
        </form>
      )}
    </Card>
  );
}

function GroupRow({ group, act }: { group: Group; act: (key: string, action: GroupAction) => void }) {
  const isUp = group.state === "active" || group.state === "unbound";
  return (
    <tr>
      <td>{group.key || <em>none</em>}</td>
      <td>{group.trouble ? <span class="badge state-dead" title={group.trouble}>failing</span> : <Badge state={group.state} />}{group.is_pinned && <span class="dim"> pinned</span>}</td>
      <td class="number">{exact(group.ready)}</td>
      <td class="number">{exact(group.leased)}</td>
      <td class="number">{group.workers.length} of {group.wanted}</td>
      <td class="number">{group.rate ? `${group.rate.toFixed(1)}/s` : "-"}</td>
      <td><Age at={group.active_at} /></td>
      <td>
        {group.launches.map((launch) => <div key={launch.launch}><code class="dim" title={launch.detail}>{launch.launch}</code> {launch.state}</div>)}
        {group.trouble && <p class="problem">{group.trouble}</p>}
      </td>
      <td>
        {may("admin") && (
          <span class="row nowrap">
            <button type="button" class="small" onClick={() => act(group.key, group.is_pinned ? "unpin" : "pin")}>{group.is_pinned ? "Unpin" : "Pin"}</button>
            {isUp && !group.is_pinned && <button type="button" class="small" onClick={() => act(group.key, "stop")}>Stop</button>}
          </span>
        )}
      </td>
    </tr>
  );
}
