import type { ComponentChild } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, may } from "../api";
import { argumentsLine, HEAD_BYTES } from "../body";
import type { Target } from "../bulk";
import { COLUMNS, type Column, columns, toggleColumn } from "../columns";
import { nowMs, pulse } from "../feed";
import { useFetched, useNow, useSettled } from "../hooks";
import { ConfirmAction } from "../parts/actions";
import { Age, Badge, Empty, PageHead, Problem, QueueLink, TaskLink, WorkerName } from "../parts/basic";
import { MomentFilter, TextFilter } from "../parts/filters";
import { EMPTY, type Filters, isFiltered, toApi, toFilter, toFilters, toQuery } from "../filters";
import { type Route, toHash } from "../route";
import { settle, step, type Still } from "../still";
import { createStore, useStore } from "../store";
import { ACTIONS, STATES, type Action, type Task, type TaskList } from "../types";
import { ACTION_WORDS, errorLine, exact, plural, ran, runSeconds, taskName } from "../words";

const PAGE_ROWS = 50;

/** A page of the list, and what it is a page of: the one before is shown until the next is there. */
interface Page extends TaskList {
  what: string;
  before: number;
}

/** What is shown of which list: the cursors of the pages before, and tasks up to a time. */
interface Shown {
  address: string;
  cursors: string[];
  /** The time of the first answer; null until it is there. */
  until: string | null;
  /** How often the list was asked for as it is now. */
  looks: number;
}

/** Whether new rows come by themselves. Otherwise they are counted, and no row moves. */
const live = createStore(false);

export function Tasks({ route }: { route: Route }) {
  const filters = toFilters(route.query);
  const address = toHash("tasks", "", toQuery(filters));
  const isLive = useStore(live);
  const [shown, setShown] = useState<Shown>({ address, cursors: [], until: null, looks: 0 });
  const { cursors, until, looks } = shown.address === address ? shown : { ...shown, cursors: [], until: null };
  const cursor = cursors.at(-1) ?? "";
  const before = cursors.length * PAGE_ROWS;
  const bound = until && !isLive && !filters.older_than ? { older_than: until } : {};
  const what = `${address} ${cursor} ${isLive} ${looks}`;
  const list = useFetched<Page>(
    async (signal) => {
      const query = { ...toApi(filters, nowMs()), ...bound, limit: PAGE_ROWS, cursor, payload_head: HEAD_BYTES };
      const page = await ask<TaskList>("tasks", { signal, query });
      return { ...page, what, before };
    },
    [what, until],
  );
  const isTurning = list.data?.what !== what;
  const still = useStill(list.data, isLive);
  const [total, setTotal] = useState<number | null>(null);
  useEffect(() => {
    if (!list.data || isTurning) return;
    if (list.data.total !== null) setTotal(list.data.total);
    if (until === null && list.data.tasks.length) setShown({ address, cursors, until: list.data.at, looks });
  }, [list.data]);
  const fresh = useFresh(filters, isLive ? null : until);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [isAll, setAll] = useState(false);
  const [action, setAction] = useState<Action | null>(null);
  const clear = () => { setChosen(new Set()); setAll(false); };
  useEffect(clear, [address, cursor]);

  const go = (next: Filters) => { location.hash = toHash("tasks", "", toQuery(next)); };
  const turn = (next: string[]) => setShown({ address, cursors: next, until, looks });
  const refresh = () => setShown({ address, cursors: [], until: null, looks: looks + 1 });
  const tasks = still.order.map((id) => still.rows.get(id) as Task);
  const first = list.data?.before ?? 0;
  const target: Target = isAll ? { filter: { ...toFilter(filters, nowMs()), ...bound } } : { tasks: [...chosen] };
  return (
    <>
      <PageHead title="Tasks">
        <label class="row check"><input type="checkbox" checked={isLive} onChange={() => live.set(!isLive)} /> Live</label>
        <ColumnChoice />
        {may("submit_tasks") && <a class="button primary" href={toHash("submit")}>Submit a task</a>}
      </PageHead>
      <FilterBar filters={filters} onChange={go} />
      <Problem failure={list.failure} />
      {may("cancel_tasks") && (
        <BulkBar chosen={isAll ? (total ?? 0) : chosen.size} isAll={isAll} total={total} onAct={setAction} onAll={() => setAll(true)} onNone={clear} />
      )}
      <div class="fresh" role="status">
        {(fresh > 0 || still.gone.size > 0) && !isTurning && (
          <button type="button" onClick={refresh}>
            {fresh > 0 ? `Show ${plural(fresh, "new task")}` : `${plural(still.gone.size, "task")} left this list: show it as it is now`}
          </button>
        )}
      </div>
      <TaskTable tasks={tasks} gone={still.gone} filters={filters} onSort={go} isLoading={isTurning}
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

/** The rows to show: those that were shown stay where they are, unless another list is asked for. */
function useStill(page: Page | null, isLive: boolean): Still {
  const kept = useRef<{ page: Page | null; still: Still }>({ page: null, still: settle(null, []) });
  const before = kept.current;
  if (page !== null && page !== before.page) {
    const isSame = !isLive && before.page?.what === page.what;
    kept.current = { page, still: settle(isSame ? before.still : null, page.tasks) };
  }
  return kept.current.still;
}

/** How many tasks of the list came after it was shown. */
function useFresh(filters: Filters, until: string | null): number {
  const { data } = useFetched<number>(
    async (signal) => {
      if (!until || filters.older_than) return 0;
      const query = { ...toApi(filters, nowMs()), newer_than: until, limit: 1 };
      return (await ask<TaskList>("tasks", { signal, query })).total ?? 0;
    },
    [until, toHash("tasks", "", toQuery(filters))],
  );
  return until ? (data ?? 0) : 0;
}

function ColumnChoice() {
  const shown = useStore(columns);
  return (
    <details class="choice">
      <summary class="button">Columns</summary>
      <div class="card">
        {(Object.entries(COLUMNS) as [Column, string][]).map(([name, label]) => (
          <label key={name} class="row check"><input type="checkbox" checked={shown.includes(name)} onChange={() => toggleColumn(name)} /> {label}</label>
        ))}
      </div>
    </details>
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
        <select value={filters.state} onChange={(event) => set({ state: event.currentTarget.value })}>
          <option value="">any</option>
          <option value="pending">not begun</option>
          <option value="leased">at a worker</option>
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
      <TextFilter label="In error or payload" value={filters.contains} onChange={(contains) => set({ contains })} />
      <MomentFilter label="Submitted" value={filters} onChange={set} />
      {field("name", "Name")}
      {field("tag", "Tag")}
      {field("key", "Key")}
      {filters.batch && <button type="button" class="chip" onClick={() => set({ batch: "" })}>batch {filters.batch} ×</button>}
      {filters.parent && <button type="button" class="chip" onClick={() => set({ parent: "" })}>children of …{filters.parent.slice(-8)} ×</button>}
      {isFiltered(filters) && <button type="button" class="plain" onClick={() => onChange({ ...EMPTY, sort: filters.sort })}>Clear</button>}
    </form>
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
  gone: ReadonlySet<string>;
  filters: Filters;
  onSort: (next: Filters) => void;
  isLoading: boolean;
  chosen: ReadonlySet<string> | null;
  isAll: boolean;
  onChoose: (next: ReadonlySet<string>) => void;
}

function TaskTable({ tasks, gone, filters, onSort, isLoading, chosen, isAll, onChoose }: TableProps) {
  const shown = useStore(columns);
  const every = tasks.length > 0 && tasks.every((task) => chosen?.has(task.id));
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const body = useKeys(tasks, chosen ? toggle : null);
  const sortable = (name: string, label: string, kind = "") => {
    const now = filters.sort === name ? "ascending" : filters.sort === `-${name}` ? "descending" : "none";
    return (
      <th key={name} aria-sort={now} scope="col" class={kind}>
        <button type="button" class="sort" onClick={() => onSort({ ...filters, sort: now === "descending" ? name : `-${name}` })}>
          {label} <span aria-hidden="true">{now === "ascending" ? "▲" : now === "descending" ? "▼" : ""}</span>
        </button>
      </th>
    );
  };
  const head = (name: Column) => name === "priority" || name === "created" || name === "ended"
    ? sortable(name, COLUMNS[name], name === "priority" ? "number" : "")
    : <th key={name} scope="col" class={name === "tries" ? "number" : ""}>{COLUMNS[name]}</th>;
  return (
    <div class="card scroll">
      <table aria-busy={isLoading} class="tasks-table">
        <thead>
          <tr>
            {chosen && (
              <th class="tick"><input type="checkbox" aria-label="Choose all on this page" checked={isAll || every} disabled={isLoading}
                onChange={() => onChoose(every || isAll ? new Set() : new Set(tasks.map((task) => task.id)))} /></th>
            )}
            <th scope="col">State</th>
            <th scope="col">Task</th>
            {shown.map(head)}
          </tr>
        </thead>
        <tbody ref={body}>
          {tasks.map((task) => (
            <tr key={task.id} tabIndex={-1} class={`${isAll || chosen?.has(task.id) ? "chosen" : ""} ${gone.has(task.id) ? "faded" : ""}`}>
              {chosen && (
                <td class="tick"><input type="checkbox" aria-label={`Choose ${taskName(task)} ${task.id}`}
                  checked={isAll || chosen.has(task.id)} disabled={isLoading} onChange={() => toggle(task.id)} /></td>
              )}
              <td><Badge state={task.state} /></td>
              <td class="wide"><TaskLink task={task} />{task.error && task.state !== "succeeded" && <p class="error-line">{errorLine(task)}</p>}</td>
              {shown.map((name) => CELLS[name](task))}
            </tr>
          ))}
        </tbody>
      </table>
      {!tasks.length && <Empty>{isLoading ? "Loading…" : isFiltered(filters) ? "No task matches." : "There are no tasks yet."}</Empty>}
    </div>
  );
}

const CELLS: Record<Column, (task: Task) => ComponentChild> = {
  arguments: (task) => <td key="arguments" class="cut mono arguments" title={argumentsOf(task)}>{argumentsOf(task)}</td>,
  queue: (task) => <td key="queue"><QueueLink queue={task.queue} /></td>,
  key: (task) => <td key="key" class="cut">{task.key}</td>,
  priority: (task) => <td key="priority" class="number">{task.priority}</td>,
  created: (task) => <td key="created"><Age at={task.created_at} /></td>,
  ended: (task) => <td key="ended"><Age at={task.ended_at} /></td>,
  ran: (task) => <td key="ran"><Run task={task} /></td>,
  tries: (task) => <td key="tries" class="number">{task.attempts}</td>,
  worker: (task) => <td key="worker" class="cut">{task.worker ? <WorkerName id={task.worker} /> : <span class="dim">-</span>}</td>,
  tags: (task) => <td key="tags" class="cut">{task.tags.join(", ")}</td>,
};

function argumentsOf(task: Task): string {
  return argumentsLine(task.payload, task.headers["content"]);
}

/** `j` and `k` go from row to row, Enter opens one, `x` chooses it. */
function useKeys(tasks: Task[], toggle: ((id: string) => void) | null) {
  const body = useRef<HTMLTableSectionElement>(null);
  const latest = useRef({ tasks, toggle });
  latest.current = { tasks, toggle };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (/^(INPUT|TEXTAREA|SELECT|BUTTON)$/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
      const rows = [...(body.current?.rows ?? [])];
      const at = rows.findIndex((row) => row.contains(document.activeElement));
      const task = latest.current.tasks[at];
      if (event.key === "j" || event.key === "k") rows[step(at, event.key === "j" ? 1 : -1, rows.length)]?.focus();
      else if (event.key === "Enter" && task && target.tagName === "TR") location.hash = toHash("task", task.id);
      else if (event.key === "x" && task) latest.current.toggle?.(task.id);
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  return body;
}

function Run({ task }: { task: Task }) {
  const now = useNow();
  const seconds = runSeconds(task, now);
  return seconds === null ? <span class="dim">-</span> : <span>{ran(seconds)}</span>;
}
