import { useState } from "preact/hooks";
import { ask, may } from "../api";
import { useFetched } from "../hooks";
import { Age, Badge, Bar, Card, Empty, PageHead, Problem, TaskLink, WorkerName } from "../parts/basic";
import { attempt } from "../parts/notices";
import { toHash } from "../route";
import { STATE_SETS, type Limit, type TaskList } from "../types";

const path = (tag: string) => `limits/${encodeURIComponent(tag)}`;

export function Limits() {
  const { data, failure, reload } = useFetched<{ limits: Limit[] }>((signal) => ask("limits", { signal }), []);
  const limits = data?.limits ?? [];
  const set = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const values = new FormData(form);
    const [tag, limit] = [String(values.get("tag")).trim(), Number(values.get("limit"))];
    if (await attempt(() => ask(path(tag), { method: "PUT", body: { limit } }), `Tag ${tag}: at most ${limit}.`)) {
      form.reset();
      reload();
    }
  };
  return (
    <>
      <PageHead title="Tag limits" note="How many tasks with a tag may be at workers at once." />
      <Problem failure={failure} />
      {data && !limits.length && <div class="card"><Empty>No tag has a limit.</Empty></div>}
      <div class="stack">
        {limits.map((limit) => <LimitCard key={limit.tag} limit={limit} onChange={reload} />)}
      </div>
      {may("admin") && (
        <Card title="Set a limit">
          <form class="row wrap" onSubmit={set}>
            <label class="field"><span>Tag</span><input name="tag" required /></label>
            <label class="field"><span>At most</span><input name="limit" type="number" min="0" required /></label>
            <button type="submit" class="primary low">Set</button>
          </form>
        </Card>
      )}
    </>
  );
}

function LimitCard({ limit, onChange }: { limit: Limit; onChange: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const isFull = limit.in_flight >= limit.limit;
  const remove = async () => {
    if (await attempt(() => ask(path(limit.tag), { method: "DELETE" }), `Tag ${limit.tag} has no limit any more.`)) onChange();
  };
  const aside = (
    <>
      <button type="button" class="small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>What holds it</button>
      <a class="button small" href={toHash("tasks", "", { tag: limit.tag })}>Tasks</a>
      {may("admin") && <button type="button" class="small danger" onClick={remove}>Remove</button>}
    </>
  );
  return (
    <Card title={limit.tag} aside={aside}>
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
