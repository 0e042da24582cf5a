// The columns of the table of tasks: which there are, and which this browser shows.

import { createStore } from "./store";

export const COLUMNS = {
  arguments: "Arguments", queue: "Queue", key: "Key", priority: "Priority", created: "Created", ended: "Ended",
  ran: "Ran", tries: "Tries", worker: "Worker", tags: "Tags",
} as const;
export type Column = keyof typeof COLUMNS;

const SHOWN: Column[] = ["arguments", "queue", "priority", "created", "ended", "ran", "tries", "worker"];
const KEPT = "jackalope.columns";

export function parseColumns(text: string | null): Column[] {
  if (text === null) return SHOWN;
  const named = new Set(text.split(","));
  return (Object.keys(COLUMNS) as Column[]).filter((name) => named.has(name));
}

export const columns = createStore<Column[]>(parseColumns(localStorage.getItem(KEPT)));

columns.subscribe(() => localStorage.setItem(KEPT, columns.get().join(",")));

export function toggleColumn(name: Column): void {
  const now = new Set(columns.get());
  if (!now.delete(name)) now.add(name);
  columns.set((Object.keys(COLUMNS) as Column[]).filter((each) => now.has(each)));
}
