import { useState } from "preact/hooks";
import { ask, may } from "../api";
import { pulse } from "../feed";
import { useFetched } from "../hooks";
import { Age, Badge, Bar, Card, Dialog, Empty, Fact, Field, PageHead } from "../parts/basic";
import { attempt } from "../parts/notices";
import { Trends } from "../parts/trends";
import { changesOf, parseValue, sectionsFor, type Field as PolicyField } from "../policy";
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
  return (
    <>
      <PageHead title="Queues">
        {may("admin") && <button type="button" onClick={() => setNew(true)}>New queue</button>}
      </PageHead>
      <div class="card scroll">
        <table>
          <thead><tr>
            <th scope="col">Queue</th><th scope="col" class="number">Depth</th><th scope="col" class="number">Running</th><th scope="col" class="number">Done a second</th>
            <th scope="col">Oldest ready</th><th scope="col" class="number">Workers</th><th scope="col">Full</th><th />
          </tr></thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.queue}>
                <td class="wide"><a href={toHash("queues", queue.queue)}>{queue.queue}</a> {queue.paused_by && <Badge state="paused" />}{" "}
                  {isDeserted(queue) && <span class="badge state-dead" title="Tasks wait, and no worker serves the queue">no worker</span>}</td>
                <td class="number"><a href={toHash("tasks", "", { queue: queue.queue, state: "pending" })}>{count(queue.depth)}</a></td>
                <td class="number"><a href={toHash("tasks", "", { queue: queue.queue, state: "leased" })}>{count(running(queue))}</a></td>
                <td class="number">{rate(now?.rates[queue.queue] ?? 0)}</td>
                <td><Age at={queue.oldest_ready_at} /></td>
                <td class="number">{queue.workers}</td>
                <td><Fill queue={queue} /></td>
                <td class="end">{may("admin") && <Pause queue={queue} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {now && !queues.length && <Empty>There are no queues. The first task that is submitted to one makes it.</Empty>}
      </div>
      {isNew && <NewQueue onClose={() => setNew(false)} />}
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
  const tone = queue.depth > 0.9 * limit ? "red" : queue.depth > 0.7 * limit ? "amber" : "blue";
  return <Bar parts={[{ value: queue.depth, tone }]} whole={limit} label={`${exact(queue.depth)} of ${exact(limit)}`} />;
}

function NewQueue({ onClose }: { onClose: () => void }) {
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
        <label class="field"><span>Name</span><input name="name" required maxLength={255} /></label>
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
        <Card title="Policy" aside={may("admin") && <button type="button" class="small" onClick={() => setEditing(true)}>Edit</button>}>
          <PolicyFacts policy={queue.policy} />
        </Card>
      </div>
      {queue.share_count > 0 && <Shares queue={queue} />}
      <Trends queue={name} />
      {isEditing && <PolicyEditor queue={queue} onClose={() => setEditing(false)} />}
    </>
  );
}

/** The shares with the most ready tasks: each has its turn, however many tasks it has. */
function Shares({ queue }: { queue: Queue }) {
  const { data } = useFetched((signal) => ask<Queue>(path(queue.queue), { signal }), [queue.queue]);
  const shares = data?.shares ?? [];
  const more = queue.share_count - shares.length;
  return (
    <Card title={`Shares by ${told(queue.policy["fair_by"])}`} aside={<span class="dim">{exact(queue.share_count)} take turns</span>}>
      <table>
        <thead><tr><th scope="col">Share</th><th scope="col" class="number">Ready</th><th scope="col" class="number">Weight</th></tr></thead>
        <tbody>
          {shares.map((each) => (
            <tr key={each.share}><td>{each.share || <span class="dim">none</span>}</td><td class="number">{exact(each.ready)}</td><td class="number">{each.weight}</td></tr>
          ))}
        </tbody>
      </table>
      {more > 0 && shares.length > 0 && <p class="dim">and {exact(more)} more</p>}
    </Card>
  );
}

function PolicyFacts({ policy }: { policy: Queue["policy"] }) {
  return (
    <>
      {sectionsFor(policy).map((section) => (
        <dl class="facts" key={section.title} aria-label={section.title}>
          {section.fields.map((field) => <Fact key={field.name} name={field.label}><span title={field.help}>{told(policy[field.name])}</span></Fact>)}
        </dl>
      ))}
    </>
  );
}

function told(value: PolicyValue | undefined): string {
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value ?? "") || "-";
}

function PolicyEditor({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  // The policy as it was when the editor opened: a pulse must not change what somebody types.
  const [before] = useState(queue.policy);
  const [after, setAfter] = useState(queue.policy);
  const changes = changesOf(before, after);
  const number = Object.keys(changes).length;
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    const asked = () => ask(path(queue.queue), { method: "PUT", body: { policy: changes } });
    if (await attempt(asked, `The policy of ${queue.queue} has changed.`)) onClose();
  };
  const set = (name: string, text: string) => setAfter({ ...after, [name]: parseValue(text, before[name] as PolicyValue) });
  return (
    <Dialog title={`Policy of ${queue.queue}`} onClose={onClose}>
      <form onSubmit={save}>
        {sectionsFor(before).map((section) => (
          <fieldset key={section.title}>
            <legend>{section.title}</legend>
            <div class="form-grid">
              {section.fields.map((field) => (
                <Field key={field.name} label={field.label} help={field.help} class={field.name in changes ? "changed" : ""}>
                  {(tied) => <Input tied={tied} field={field} value={after[field.name] as PolicyValue} onChange={(text) => set(field.name, text)} />}
                </Field>
              ))}
            </div>
          </fieldset>
        ))}
        <div class="row end sticky">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={!number}>{number ? `Save ${number} ${number === 1 ? "change" : "changes"}` : "Nothing changed"}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Input({ tied, field, value, onChange }: { tied: object; field: PolicyField; value: PolicyValue; onChange: (text: string) => void }) {
  const choices = typeof value === "boolean" ? ["true", "false"] : field.choices;
  if (choices) {
    const all = choices.includes(String(value)) ? choices : [String(value), ...choices];
    return (
      <select {...tied} value={String(value)} onChange={(event) => onChange(event.currentTarget.value)}>
        {all.map((each) => <option key={each} value={each}>{typeof value === "boolean" ? (each === "true" ? "yes" : "no") : each}</option>)}
      </select>
    );
  }
  return <input {...tied} value={String(value)} onInput={(event) => onChange(event.currentTarget.value)} />;
}
