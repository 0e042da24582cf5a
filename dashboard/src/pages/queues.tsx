import { useState } from "preact/hooks";
import { ask, may, visitor } from "../api";
import { pulse } from "../feed";
import { useFetched } from "../hooks";
import { Age, Badge, Bar, Card, Dialog, Empty, Fact, fullness, PageHead } from "../parts/basic";
import { attempt } from "../parts/notices";
import { SettingsEditor } from "../parts/settings";
import { Trends } from "../parts/trends";
import { sectionsFor } from "../policy";
import { toHash } from "../route";
import { useStore } from "../store";
import { STATES, type PolicyValue, type Queue } from "../types";
import { count, exact, rate, tally } from "../words";

const path = (queue: string, rest = "") => `queues/${encodeURIComponent(queue)}${rest}`;

async function pauseOrResume(queue: Queue): Promise<void> {
  const verb = queue.paused_by ? "resume" : "pause";
  await attempt(() => ask(path(queue.queue, `/${verb}`), { method: "POST" }), `Queue ${queue.queue}: ${verb}d.`);
}

function Pause({ queue }: { queue: Queue }) {
  return <button type="button" class="small" onClick={() => pauseOrResume(queue)}>{queue.paused_by ? "Resume" : "Pause"}</button>;
}

export function Queues() {
  const now = useStore(pulse);
  const [isNew, setNew] = useState(false);
  const queues = now?.queues ?? [];
  // A key that is limited to queues can create those.
  const own = visitor.get()?.queues ?? [];
  const isNone = (name: string) => !queues.some((queue) => queue.queue === name);
  return (
    <>
      <PageHead title="Queues">
        {may("admin") && (!own.length || own.some((name) => isNone(name))) && <button type="button" onClick={() => setNew(true)}>New queue</button>}
      </PageHead>
      <div class="card scroll">
        <table>
          <thead><tr>
            <th scope="col">Queue</th><th scope="col" class="number">Depth</th><th scope="col" class="number">Running</th><th scope="col" class="number less">Done a second</th>
            <th scope="col" class="less">Oldest ready</th><th scope="col" class="number less">Workers</th><th scope="col" class="less">Full</th><th />
          </tr></thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.queue}>
                <td class="wide"><a href={toHash("queues", queue.queue)}>{queue.queue}</a> {queue.paused_by && <Badge state="paused" />}{" "}
                  {isDeserted(queue) && <span class="badge state-dead" title="Tasks wait, and no worker serves the queue">no worker</span>}</td>
                <td class="number"><a href={toHash("tasks", "", { queue: queue.queue, state: "pending" })}>{count(queue.depth)}</a></td>
                <td class="number"><a href={toHash("tasks", "", { queue: queue.queue, state: "leased" })}>{count(running(queue))}</a></td>
                <td class="number less">{rate(now?.rates[queue.queue] ?? 0)}</td>
                <td class="less"><Age at={queue.oldest_ready_at} /></td>
                <td class="number less">{queue.workers}</td>
                <td class="less"><Fill queue={queue} /></td>
                <td class="end">{may("admin") && <Pause queue={queue} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {now && !queues.length && <Empty>There are no queues. The first task that is submitted to one makes it.</Empty>}
      </div>
      {isNew && <NewQueue names={own.filter(isNone)} onClose={() => setNew(false)} />}
    </>
  );
}

/** Whether tasks wait that no worker can take. A pool starts its own. */
function isDeserted(queue: Queue): boolean {
  return queue.workers === 0 && (queue.counts.ready ?? 0) > 0;
}

function running(queue: Queue): number {
  return tally(queue.counts, "leased");
}

function Fill({ queue }: { queue: Queue }) {
  const limit = Number(queue.policy["depth_limit"] ?? 0);
  if (!limit) return <span class="dim">no limit</span>;
  return <Bar parts={[{ value: queue.depth, tone: fullness(queue.depth, limit) }]} whole={limit} label={`${exact(queue.depth)} of ${exact(limit)}`} />;
}

function NewQueue({ names, onClose }: { names: string[]; onClose: () => void }) {
  const create = async (event: SubmitEvent) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get("name")).trim();
    if (await attempt(() => ask(path(name), { method: "PUT", body: {} }), `Queue ${name} is there.`)) {
      onClose();
      location.hash = toHash("queues", name);
    }
  };
  return (
    <Dialog title="New queue" onClose={onClose}>
      <form onSubmit={create} class="stack">
        <label class="field"><span>Name</span>
          {names.length ? <select name="name">{names.map((each) => <option key={each}>{each}</option>)}</select> : <input name="name" required maxLength={255} />}
        </label>
        <div class="row end">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary">Create</button>
        </div>
      </form>
    </Dialog>
  );
}

export function QueuePage({ name }: { name: string }) {
  const now = useStore(pulse);
  const queue = now?.queues.find((each) => each.queue === name);
  const [isEditing, setEditing] = useState(false);
  if (!now) return <PageHead title={name} />;
  if (!queue) return <><PageHead title={name} /><Empty>There is no queue {name}.</Empty></>;
  const remove = async () => {
    if (await attempt(() => ask(path(name), { method: "DELETE" }), `Queue ${name} is deleted.`)) location.hash = toHash("queues");
  };
  const isIdle = queue.depth + running(queue) === 0;
  return (
    <>
      <PageHead title={<>{name} {queue.paused_by && <Badge state="paused" />}</>} {...(queue.paused_by ? { note: `Paused by ${queue.paused_by}` } : {})}>
        <a class="button" href={toHash("tasks", "", { queue: name })}>Tasks</a>
        <a class="button" href={toHash("batches", name)}>Batches</a>
        {may("admin") && <button type="button" onClick={() => pauseOrResume(queue)}>{queue.paused_by ? "Resume" : "Pause"}</button>}
        {may("admin") && <button type="button" class="danger" disabled={!isIdle} title={isIdle ? "With its ended tasks" : "It has unfinished tasks"} onClick={remove}>Delete</button>}
      </PageHead>
      <div class="grid halves">
        <div class="stack">
          <Card title="Now">
            <dl class="facts">
              <Fact name="Depth">{exact(queue.depth)}</Fact>
              <Fact name="Done a second">{rate(now.rates[name] ?? 0)}</Fact>
              <Fact name="Oldest ready"><Age at={queue.oldest_ready_at} /></Fact>
              <Fact name="Workers">{queue.workers}</Fact>
              {STATES.filter((state) => queue.counts[state]).map((state) => (
                <Fact key={state} name={state}><a href={toHash("tasks", "", { queue: name, state })}>{exact(queue.counts[state] ?? 0)}</a></Fact>
              ))}
            </dl>
          </Card>
          {queue.share_count > 0 && <Shares queue={queue} />}
        </div>
        <Card title="Policy" aside={may("admin") && <button type="button" class="small" onClick={() => setEditing(true)}>Edit</button>}>
          <PolicyFacts policy={queue.policy} />
        </Card>
      </div>
      <Trends queue={name} />
      {isEditing && (
        <SettingsEditor title={`Policy of ${name}`} sections={sectionsFor(queue.policy)} settings={queue.policy} onClose={() => setEditing(false)}
          onSave={(policy) => attempt(() => ask(path(name), { method: "PUT", body: { policy } }), `The policy of ${name} has changed.`)} />
      )}
    </>
  );
}

/** The shares with the most ready tasks: each has its turn, however many tasks it has. */
function Shares({ queue }: { queue: Queue }) {
  const { data } = useFetched((signal) => ask<Queue>(path(queue.queue), { signal }), [queue.queue]);
  const shares = data?.shares ?? [];
  const more = queue.share_count - shares.length;
  const most = Math.max(...shares.map((each) => each.ready), 1);
  return (
    <Card title={`Shares by ${told(queue.policy["fair_by"])}`} aside={<span class="dim">{exact(queue.share_count)} take turns</span>}>
      <div class="scroll"><table>
        <thead><tr><th scope="col">Share</th><th class="less" /><th scope="col" class="number">Ready</th><th scope="col" class="number">Weight</th></tr></thead>
        <tbody>
          {shares.map((each) => (
            <tr key={each.share}>
              <td class="cut">{each.share || <span class="dim">none</span>}</td>
              <td class="less"><Bar parts={[{ value: each.ready, tone: "blue" }]} whole={most} label={`${each.share || "none"}: ${exact(each.ready)} ready`} /></td>
              <td class="number">{exact(each.ready)}</td><td class="number">{each.weight}</td>
            </tr>
          ))}
        </tbody>
      </table></div>
      {more > 0 && shares.length > 0 && <p class="dim">and {exact(more)} more</p>}
    </Card>
  );
}

function PolicyFacts({ policy }: { policy: Queue["policy"] }) {
  // Lists and maps are no fields of the form; they are changed over REST and on the command line.
  const lists = Object.entries(policy).filter(([, value]) => typeof value === "object" && Object.keys(value).length > 0);
  return (
    <>
      {sectionsFor(policy).map((section) => (
        <dl class="facts" key={section.title} aria-label={section.title}>
          {section.fields.map((field) => <Fact key={field.name} name={field.label}><span title={field.help}>{told(policy[field.name])}</span></Fact>)}
        </dl>
      ))}
      {lists.length > 0 && (
        <dl class="facts">{lists.map(([name, value]) => <Fact key={name} name={name.replace("_", " ")}><code>{JSON.stringify(value)}</code></Fact>)}</dl>
      )}
    </>
  );
}

function told(value: PolicyValue | undefined): string {
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? "") || "-";
}
