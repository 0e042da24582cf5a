import { useState } from "preact/hooks";
import { ask, may } from "../api";
import type { Target } from "../bulk";
import { type Group, group } from "../dead";
import { useFetched } from "../hooks";
import { ConfirmAction } from "../parts/actions";
import { Age, Empty, PageHead, Problem, QueueLink, TaskLink } from "../parts/basic";
import { toHash } from "../route";
import type { Action, TaskList } from "../types";
import { exact, plural } from "../words";

/** So many of the latest are put into groups. */
const GROUPED_MAX = 1_000;
const SHOWN_MAX = 20;

export function DeadLetters() {
  const { data, failure, reload } = useFetched<TaskList>(
    (signal) => ask("tasks", { signal, query: { state: "dead", sort: "-ended", limit: GROUPED_MAX } }),
    [],
  );
  const [asked, setAsked] = useState<{ action: Action; target: Target } | null>(null);
  const groups = group(data?.tasks ?? []);
  const total = data?.total ?? 0;
  const all = { filter: { states: ["dead"] } };
  const note = !data ? "" : total > GROUPED_MAX
    ? `${exact(total)} tasks are dead; the latest ${exact(GROUPED_MAX)} are grouped here.`
    : `${plural(total, "task")}, by queue, name and error`;
  return (
    <>
      <PageHead title="Dead letters" note={note}>
        {may("cancel_tasks") && total > 0 && (
          <>
            <button type="button" onClick={() => setAsked({ action: "retry", target: all })}>Retry all</button>
            <button type="button" class="danger" onClick={() => setAsked({ action: "purge", target: all })}>Delete all</button>
          </>
        )}
      </PageHead>
      <Problem failure={failure} />
      {data && !groups.length && <div class="card"><Empty>No task is dead.</Empty></div>}
      <div class="stack">
        {groups.map((each) => <GroupCard key={each.key} group={each} onAct={(action) =>
          setAsked({ action, target: { tasks: each.tasks.map((task) => task.id) } })} />)}
      </div>
      {asked && <ConfirmAction {...asked} onClose={() => setAsked(null)} onDone={() => { setAsked(null); reload(); }} />}
    </>
  );
}

function GroupCard({ group: { queue, name, error, tasks, latest }, onAct }: { group: Group; onAct: (action: Action) => void }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="card" aria-label={`${name} in ${queue}`}>
      <header class="card-head">
        <h2>{name || "Tasks"} <span class="dim">in <QueueLink queue={queue} /></span></h2>
        <div class="row">
          <span class="dim">{plural(tasks.length, "task")}, latest <Age at={latest} /></span>
          {may("cancel_tasks") && <button type="button" class="small" onClick={() => onAct("retry")}>Retry</button>}
          {may("cancel_tasks") && <button type="button" class="small danger" onClick={() => onAct("purge")}>Delete</button>}
        </div>
      </header>
      <p class="error-line whole">{error}</p>
      <button type="button" class="plain" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "Hide" : "Show"} the tasks</button>
      {isOpen && (
        <ul class="plain-list">
          {tasks.slice(0, SHOWN_MAX).map((task) => (
            <li key={task.id} class="row spread">
              <TaskLink task={task} />
              <span class="row dim">{plural(task.attempts, "attempt")}, {task.reason}, <Age at={task.ended_at} />
                {may("submit_tasks") && <a href={toHash("submit", "", { from: task.id })}>submit a copy…</a>}</span>
            </li>
          ))}
          {tasks.length > SHOWN_MAX && <li><a href={toHash("tasks", "", { state: "dead", queue, name, sort: "-ended" })}>All {plural(tasks.length, "task")}</a></li>}
        </ul>
      )}
    </section>
  );
}
