import { useEffect, useRef, useState } from "preact/hooks";
import { ask, may } from "../api";
import type { Target } from "../bulk";
import { pulse } from "../feed";
import { useFetched, useNow, useSettled } from "../hooks";
import { ConfirmAction } from "../parts/actions";
import { Age, Badge, Empty, PageHead, Problem, QueueLink, TaskLink, WorkerName } from "../parts/basic";
import { EMPTY, type Filters, isFiltered, toFilter, toFilters, toQuery } from "../filters";
import { type Route, toHash } from "../route";
import { useStore } from "../store";
import { ACTIONS, STATES, type Action, type Task, type TaskList } from "../types";
import { ACTION_WORDS, exact, plural, ran, runSeconds, taskName } from "../words";

const PAGE_ROWS = 50;

/** A page of the list, and what it is a page of: the one before is shown until the next is there. */
interface Page extends TaskList {
  address: string;
  before: number;
}

export function Tasks({ route }: { route: Route }) {
  const filters = toFilters(route.query);
  const address = toHash("tasks", "", toQuery(filters));
  // The cursors of the pages before this one; the filters that they belong to.
  const [pages, setPages] = useState<{ address: string; cursors: string[] }>({ address, cursors: [] });
  const cursors = pages.address === address ? pages.cursors : [];
  const cursor = cursors.at(-1) ?? "";
  const before = cursors.length * PAGE_ROWS;
  const list = useFetched<Page>(
    async (signal) => {
      const page = await ask<TaskList>("tasks", { signal, query: { ...toQuery(filters), limit: PAGE_ROWS, cursor } });
      return { ...page, address, before };
    },
    [address, cursor],
  );
  const isTurning = list.data?.address !== address || list.data.before !== before;
  const [total, setTotal] = useState<number | null>(null);
  useEffect(() => {
    if (list.data && list.data.total !== null) setTotal(list.data.total);
  }, [list.data]);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [isAll, setAll] = useState(false);
  const [action, setAction] = useState<Action | null>(null);
  const clear = () => { setChosen(new Set()); setAll(false); };
  useEffect(clear, [address, cursor]);

  const go = (next: Filters) => { location.hash = toHash("tasks", "", toQuery(next)); };
  const turn = (next: string[]) => setPages({ address, cursors: next });
  const tasks = list.data?.tasks ?? [];
  const first = list.data?.before ?? 0;
  const target: Target = isAll ? { filter: toFilter(filters) } : { task_ids: [...chosen] };
  return (
    <>
      <PageHead title="Tasks">
        {may("submit_tasks") && <a class="button primary" href={toHash("submit")}>Submit a task</a>}
      </PageHead>
      <FilterBar filters={filters} onChange={go} />
      <Problem failure={list.failure} />
      {may("cancel_tasks") && (
        <BulkBar chosen={isAll ? (total ?? 0) : chosen.size} isAll={isAll} total={total} onAct={setAction} onAll={() => setAll(true)} onNone={clear} />
      )}
      <TaskTable tasks={tasks} filters={filters} onSort={go} isLoading={isTurning}
        chosen={may("cancel_tasks") ? chosen : null} isAll={isAll} onChoose={(next) => { setChosen(next); setAll(false); }} />
      <nav class="row spread pager" aria-label="Pages">
        <span class="dim" role="status">
          {tasks.length ? `${exact(first + 1)} to ${exact(first + tasks.length)}${total === null ? "" : ` of ${exact(total)}`}` : "\u00a0"}
        </span>
        <span class="row">
          <button type="button" disabled={isTurning || !cursors.length} onClick={() => turn(cursors.slice(0, -1))}>Previous</button>
          <button type="button" disabled={isTurning || !list.data?.cursor} onClick={() => turn([...cursors, list.data?.cursor as string])}>Next</button>
        </span>
      </nav>
      {action && (
        <ConfirmAction action={action} target={target} onClose={() => setAction(null)}
          onDone={() => { setAction(null); clear(); list.reload(); }} />
      )}
    </>
  );
}

function FilterBar({ filters, onChange }: { filters: Filters; onChange: (next: Filters) => void }) {
  const queues = useStore(pulse)?.queues ?? [];
  const [text, setText] = useState(filters.text);
  const settled = useSettled(text);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => setText(filters.text), [filters.text]);
  useEffect(() => {
    if (settled === text && settled !== filters.text) onChange({ ...filters, text: settled });
  }, [settled]);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
      event.preventDefault();
      search.current?.focus();
    };
    window.addEventListener("keydown", focus);
    return () => window.removeEventListener("keydown", focus);
  }, []);
  const set = (part: Partial<Filters>) => onChange({ ...filters, ...part });
  const field = (name: "name" | "key" | "tag", label: string) => (
    <TextFilter key={name} label={label} value={filters[name]} onChange={(value) => set({ [name]: value })} />
  );
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label class="field grow">
        <span>Search</span>
        <input ref={search} type="search" placeholder="in name, key and alias  ( / )" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>State</span>
        <select value={filters.status ? `=${filters.status}` : filters.state} onChange={(event) => {
          const value = event.currentTarget.value;
          set(value.startsWith("=") ? { state: "", status: value.slice(1) } : { state: value, status: "" });
        }}>
          <option value="">any</option>
          <option value="=pending">not begun</option>
          <option value="=in_progress">at a worker</option>
          {STATES.map((state) => <option key={state} value={state}>{state}</option>)}
        </select>
      </label>
      <label class="field">
        <span>Queue</span>
        <select value={filters.queue} onChange={(event) => set({ queue: event.currentTarget.value, batch: "" })}>
          <option value="">any</option>
          {filters.queue && !queues.some((queue) => queue.queue === filters.queue) && <option>{filters.queue}</option>}
          {queues.map((queue) => <option key={queue.queue}>{queue.queue}</option>)}
        </select>
      </label>
      {field("name", "Name")}
      {field("tag", "Tag")}
      {field("key", "Key")}
      {filters.batch && <button type="button" class="chip" onClick={() => set({ batch: "" })}>batch {filters.batch} ×</button>}
      {filters.parent && <button type="button" class="chip" onClick={() => set({ parent: "" })}>children of …{filters.parent.slice(-8)} ×</button>}
      {isFiltered(filters) && <button type="button" class="plain" onClick={() => onChange({ ...EMPTY, sort: filters.sort })}>Clear</button>}
    </form>
  );
}

/** A filter of free text. What is typed stays while the list below moves, and counts when it is done. */
function TextFilter(props: { label: string; value: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(props.value);
  useEffect(() => setDraft(props.value), [props.value]);
  return (
    <label class="field">
      <span>{props.label}</span>
      <input value={draft} onInput={(event) => setDraft(event.currentTarget.value)} onChange={(event) => props.onChange(event.currentTarget.value.trim())} />
    </label>
  );
}

function BulkBar(props: {
  chosen: number; isAll: boolean; total: number | null; onAct: (action: Action) => void; onAll: () => void; onNone: () => void;
}) {
  if (!props.chosen) return null;
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on the chosen tasks">
      <span>{props.isAll ? `All ${plural(props.chosen, "task")} that match` : `${plural(props.chosen, "task")} chosen`}</span>
      {!props.isAll && props.total !== null && props.total > props.chosen && (
        <button type="button" class="plain" onClick={props.onAll}>Choose all {exact(props.total)} that match</button>
      )}
      <span class="row">
        {ACTIONS.map((action) => (
          <button key={action} type="button" class={action === "kill" || action === "purge" ? "small danger" : "small"} title={ACTION_WORDS[action].does} onClick={() => props.onAct(action)}>
            {ACTION_WORDS[action].label}
          </button>
        ))}
      </span>
      <button type="button" class="plain" onClick={props.onNone}>Choose none</button>
    </div>
  );
}

interface TableProps {
  tasks: Task[];
  filters: Filters;
  onSort: (next: Filters) => void;
  isLoading: boolean;
  chosen: ReadonlySet<string> | null;
  isAll: boolean;
  onChoose: (next: ReadonlySet<string>) => void;
}

function TaskTable({ tasks, filters, onSort, isLoading, chosen, isAll, onChoose }: TableProps) {
  const every = tasks.length > 0 && tasks.every((task) => chosen?.has(task.task_id));
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const sortable = (name: string, label: string, kind = "") => {
    const now = filters.sort === name ? "ascending" : filters.sort === `-${name}` ? "descending" : "none";
    return (
      <th aria-sort={now} scope="col" class={kind}>
        <button type="button" class="sort" onClick={() => onSort({ ...filters, sort: now === "descending" ? name : `-${name}` })}>
          {label} <span aria-hidden="true">{now === "ascending" ? "▲" : now === "descending" ? "▼" : ""}</span>
        </button>
      </th>
    );
  };
  return (
    <div class="card scroll">
      <table aria-busy={isLoading}>
        <thead>
          <tr>
            {chosen && (
              <th class="tick"><input type="checkbox" aria-label="Choose all on this page" checked={isAll || every} disabled={isLoading}
                onChange={() => onChoose(every || isAll ? new Set() : new Set(tasks.map((task) => task.task_id)))} /></th>
            )}
            <th scope="col">State</th>
            <th scope="col">Task</th>
            <th scope="col">Queue</th>
            {sortable("priority", "Priority", "number")}
            {sortable("created", "Created")}
            {sortable("ended", "Ended")}
            <th scope="col">Ran</th>
            <th scope="col" class="number">Tries</th>
            <th scope="col">Worker</th>
          </tr>
        </thead>
        <tbody>
          {tasks.map((task) => (
            <tr key={task.task_id} class={isAll || chosen?.has(task.task_id) ? "chosen" : ""}>
              {chosen && (
                <td class="tick"><input type="checkbox" aria-label={`Choose ${taskName(task)} ${task.task_id}`}
                  checked={isAll || chosen.has(task.task_id)} disabled={isLoading} onChange={() => toggle(task.task_id)} /></td>
              )}
              <td><Badge state={task.state} /></td>
              <td class="wide"><TaskLink task={task} />{task.error && task.state !== "succeeded" && <p class="error-line">{task.error}</p>}</td>
              <td><QueueLink queue={task.queue} /></td>
              <td class="number">{task.priority}</td>
              <td><Age at={task.created_at} /></td>
              <td><Age at={task.ended_at} /></td>
              <td><Run task={task} /></td>
              <td class="number">{task.attempts}</td>
              <td class="cut">{task.worker_id ? <WorkerName id={task.worker_id} /> : <span class="dim">-</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {!tasks.length && <Empty>{isLoading ? "Loading…" : isFiltered(filters) ? "No task matches." : "There are no tasks yet."}</Empty>}
    </div>
  );
}

function Run({ task }: { task: Task }) {
  const now = useNow();
  const seconds = runSeconds(task, now);
  return seconds === null ? <span class="dim">-</span> : <span>{ran(seconds)}</span>;
}
