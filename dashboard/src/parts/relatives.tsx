// The relatives of a task, a screenful at a time.

import { useState } from "preact/hooks";
import { ask } from "../api";
import { useFetched } from "../hooks";
import { toHash } from "../route";
import type { Task, TaskList } from "../types";
import { exact } from "../words";
import { Card, Problem } from "./basic";
import { Relatives } from "./graph";

const SHOWN_MAX = 12;

interface Found {
  known: Map<string, Task>;
  children: TaskList;
}

export function RelativesCard({ task }: { task: Task }) {
  const [cursors, setCursors] = useState<string[]>([]);
  const [begin, setBegin] = useState(0);
  const dependencies = task.depends_on.slice(begin, begin + SHOWN_MAX);
  const cursor = cursors.at(-1) ?? "";
  const [total, setTotal] = useState(0);
  const { data, failure } = useFetched<Found>(
    async (signal) => {
      const query = { parent: task.id, limit: SHOWN_MAX, sort: "created", cursor };
      const children = await ask<TaskList>("tasks", { signal, query });
      if (children.total !== null) setTotal(children.total);
      const others = [task.parent, ...dependencies].filter((each) => each !== null);
      const found = await Promise.all(others.map((each) => ask<Task>(`tasks/${each}`, { signal }).catch(() => null)));
      const known = [task, ...children.tasks, ...found.filter((each) => each !== null)];
      return { known: new Map(known.map((each) => [each.id, each])), children };
    },
    [task.id, task.state, cursor, begin],
  );
  const children = data?.children.tasks.map((each) => each.id) ?? [];
  if (!task.parent && !task.depends_on.length && !total) return null;
  const first = cursors.length * SHOWN_MAX;
  return (
    <Card title="Relatives" aside={total > 0 && <a href={toHash("tasks", "", { parent: task.id })}>Children</a>}>
      <Problem failure={failure} />
      {data && <Relatives task={{ ...task, depends_on: dependencies }} known={data.known} children={children} />}
      {task.depends_on.length > SHOWN_MAX && (
        <Pager what="it waits for" first={begin} shown={dependencies.length} total={task.depends_on.length}
          onBack={begin ? () => setBegin(begin - SHOWN_MAX) : null}
          onNext={begin + SHOWN_MAX < task.depends_on.length ? () => setBegin(begin + SHOWN_MAX) : null} />
      )}
      {total > SHOWN_MAX && (
        <Pager what="children" first={first} shown={children.length} total={total}
          onBack={cursors.length ? () => setCursors(cursors.slice(0, -1)) : null}
          onNext={data?.children.cursor ? () => setCursors([...cursors, data.children.cursor as string]) : null} />
      )}
    </Card>
  );
}

function Pager(props: { what: string; first: number; shown: number; total: number; onBack: (() => void) | null; onNext: (() => void) | null }) {
  return (
    <nav class="row spread pager" aria-label={`Pages: ${props.what}`}>
      <span class="dim">{props.what}: {exact(props.first + 1)} to {exact(props.first + props.shown)} of {exact(props.total)}</span>
      <span class="row">
        <button type="button" class="small" disabled={!props.onBack} onClick={() => props.onBack?.()}>Previous</button>
        <button type="button" class="small" disabled={!props.onNext} onClick={() => props.onNext?.()}>Next</button>
      </span>
    </nav>
  );
}
