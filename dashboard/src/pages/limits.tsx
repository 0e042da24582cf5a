import { useState } from "preact/hooks";
import { ask, may } from "../api";
import { useFetched } from "../hooks";
import { boundsText, fromForm, LIMIT_SECTIONS, NO_LIMIT, readyFilter, toForm } from "../limits";
import { Age, Badge, Bar, Card, Confirm, Empty, Fact, PageHead, Problem, QueueLink, TaskLink, WorkerName } from "../parts/basic";
import { attempt } from "../parts/notices";
import { SettingsEditor } from "../parts/settings";
import { toHash } from "../route";
import { STATE_SETS, type Gate, type KeyLimit, type Limit, type PolicyValue, type TaskList } from "../types";
import { exact } from "../words";

const path = (tag: string) => `limits/${encodeURIComponent(tag)}`;
const keyPath = (name: string) => `key-limits/${encodeURIComponent(name)}`;

const declare = (name: string, changes: Record<string, PolicyValue>) =>
  attempt(() => ask(keyPath(name), { method: "PUT", body: fromForm(changes) }), `Limit ${name} is set.`);

export function Limits() {
  const byKey = useFetched<{ key_limits: KeyLimit[] }>((signal) => ask("key-limits", { signal }), []);
  const byTag = useFetched<{ limits: Limit[] }>((signal) => ask("limits", { signal }), []);
  const [isNew, setNew] = useState(false);
  const keyLimits = byKey.data?.key_limits ?? [];
  const save = async (changes: Record<string, PolicyValue>, name: string) => {
    const isDone = await declare(name, changes);
    if (isDone) byKey.reload();
    return isDone;
  };
  return (
    <>
      <PageHead title="Limits" note="How many tasks may run at once, and how many start in a span of time.">
        {may("admin", "namespace") && <button type="button" onClick={() => setNew(true)}>New limit by key</button>}
      </PageHead>
      <Problem failure={byKey.failure ?? byTag.failure} />
      <div class="stack">
        {byKey.data && !keyLimits.length && <Card title="Limits by key"><Empty>There is no limit by key.</Empty></Card>}
        {keyLimits.map((limit) => <KeyLimitCard key={limit.name} limit={limit} onChange={byKey.reload} />)}
        <TagLimits limits={byTag.data?.limits ?? null} onChange={byTag.reload} />
      </div>
      {isNew && <SettingsEditor title="New limit by key" isNew sections={LIMIT_SECTIONS} settings={toForm(NO_LIMIT)} onSave={save} onClose={() => setNew(false)} />}
    </>
  );
}

function KeyLimitCard({ limit, onChange }: { limit: KeyLimit; onChange: () => void }) {
  const [asked, setAsked] = useState<"change" | "delete" | null>(null);
  const { name, settings } = limit;
  const close = () => setAsked(null);
  const save = async (changes: Record<string, PolicyValue>) => {
    const isDone = await declare(name, changes);
    if (isDone) onChange();
    return isDone;
  };
  const remove = async () => {
    close();
    if (await attempt(() => ask(keyPath(name), { method: "DELETE" }), `Limit ${name} is deleted.`)) onChange();
  };
  const aside = (
    <>
      <a class="button small" href={toHash("tasks", "", readyFilter(limit))}>Ready tasks</a>
      {may("admin", "namespace") && <button type="button" class="small" onClick={() => setAsked("change")}>Change</button>}
      {may("admin", "namespace") && <button type="button" class="small danger" onClick={() => setAsked("delete")}>Delete</button>}
    </>
  );
  return (
    <Card title={name} aside={aside}>
      <p class="dim">
        {settings.task ? <>Tasks <strong>{settings.task}</strong></> : "All tasks"}
        {settings.queue ? <> in queue <QueueLink queue={settings.queue} /></> : " in all queues"}
        {settings.keys.length > 0 && <>, each <strong>{settings.keys.join(" and ")}</strong> by itself</>}: {boundsText(settings)}.
      </p>
      <dl class="facts brief spaced">
        <Fact name="Running">{exact(limit.in_flight)}</Fact>
        <Fact name="Waiting">{exact(limit.waiting)}</Fact>
        <Fact name="Opens">{limit.opens_at ? <Age at={limit.opens_at} /> : <span class="dim">-</span>}</Fact>
        {settings.keys.length > 0 && <Fact name="Values in use">{exact(limit.gate_count)}</Fact>}
      </dl>
      {limit.gates.length > 0 && <Gates limit={limit} />}
      {asked === "change" && <SettingsEditor title={`Limit ${name}`} sections={LIMIT_SECTIONS} settings={toForm(settings)} onSave={save} onClose={close} />}
      {asked === "delete" && (
        <Confirm title={`Delete limit ${name}`} action="Delete" onConfirm={remove} onClose={close}>
          <p>{exact(limit.waiting)} waiting tasks of {exact(limit.gate_count)} values are held up by it no more. Workers whose tasks have this limit declare it again when they start.</p>
        </Confirm>
      )}
    </Card>
  );
}

/** The busiest values of the keys: how much of the bound each uses, and what waits for it. */
function Gates({ limit: { settings, gates, gate_count } }: { limit: KeyLimit }) {
  const { keys, concurrency } = settings;
  const more = gate_count - gates.length;
  const use = ({ in_flight }: Gate) => (concurrency < 0 ? exact(in_flight) : `${exact(in_flight)} of ${exact(concurrency)}`);
  return (
    <div class="scroll spaced">
      <table>
        <thead><tr>
          {keys.map((key) => <th key={key} scope="col">{key}</th>)}
          {concurrency >= 0 && <th class="less" />}
          <th scope="col" class="number">Running</th><th scope="col" class="number">Waiting</th><th scope="col">Opens</th>
        </tr></thead>
        <tbody>
          {gates.map((gate) => (
            <tr key={gate.values.join("\0")}>
              {keys.map((key, index) => <td key={key} class="cut">{gate.values[index]}</td>)}
              {concurrency >= 0 && (
                <td class="less"><Bar parts={[{ value: gate.in_flight, tone: gate.in_flight >= concurrency ? "amber" : "teal" }]} whole={concurrency} label={use(gate)} /></td>
              )}
              <td class="number">{use(gate)}</td>
              <td class="number">{exact(gate.waiting)}</td>
              <td>{gate.opens_at ? <Age at={gate.opens_at} /> : <span class="dim">-</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {more > 0 && <p class="dim">These are the busiest; {exact(more)} more are in use.</p>}
    </div>
  );
}

function TagLimits({ limits, onChange }: { limits: Limit[] | null; onChange: () => void }) {
  const set = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const values = new FormData(form);
    const [tag, limit] = [String(values.get("tag")).trim(), Number(values.get("limit"))];
    if (await attempt(() => ask(path(tag), { method: "PUT", body: { limit } }), `Tag ${tag}: at most ${limit}.`)) {
      form.reset();
      onChange();
    }
  };
  return (
    <>
      {limits?.map((limit) => <TagCard key={limit.tag} limit={limit} onChange={onChange} />)}
      {(may("admin", "namespace") || limits?.length === 0) && (
        <Card title="Limits of tags" aside={<span class="dim">How many tasks with a tag may run at once</span>}>
          {limits?.length === 0 && <Empty>No tag has a limit.</Empty>}
          {may("admin", "namespace") && (
            <form class="row wrap" onSubmit={set}>
              <label class="field"><span>Tag</span><input name="tag" required /></label>
              <label class="field"><span>At most</span><input name="limit" type="number" min="0" required /></label>
              <button type="submit" class="primary low">Set</button>
            </form>
          )}
        </Card>
      )}
    </>
  );
}

function TagCard({ limit, onChange }: { limit: Limit; onChange: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const isFull = limit.in_flight >= limit.limit;
  const remove = async () => {
    if (await attempt(() => ask(path(limit.tag), { method: "DELETE" }), `Tag ${limit.tag} has no limit any more.`)) onChange();
  };
  const aside = (
    <>
      <button type="button" class="small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>What holds it</button>
      <a class="button small" href={toHash("tasks", "", { tag: limit.tag, state: "ready" })}>Ready tasks</a>
      {may("admin", "namespace") && <button type="button" class="small danger" onClick={remove}>Remove</button>}
    </>
  );
  return (
    <Card title={`Tag ${limit.tag}`} aside={aside}>
      <div class="bar-row">
        <Bar parts={[{ value: limit.in_flight, tone: isFull ? "amber" : "teal" }]} whole={limit.limit} label={`${limit.in_flight} of ${limit.limit} in use`} />
        <span class="number">{limit.in_flight} of {limit.limit}</span>
      </div>
      {isOpen && <Holders tag={limit.tag} />}
    </Card>
  );
}

function Holders({ tag }: { tag: string }) {
  const { data, failure } = useFetched<TaskList>(
    (signal) => ask("tasks", { signal, query: { tag, state: STATE_SETS.leased, limit: 20, sort: "created" } }),
    [tag],
  );
  return (
    <>
      <Problem failure={failure} />
      {data && !data.tasks.length && <Empty>No task with it is at a worker.</Empty>}
      <ul class="plain-list">
        {data?.tasks.map((task) => (
          <li key={task.id} class="row spread">
            <TaskLink task={task} /><span class="row"><span class="dim">{task.worker && <WorkerName id={task.worker} />}, since <Age at={task.started_at} /></span><Badge state={task.state} /></span>
          </li>
        ))}
      </ul>
    </>
  );
}
