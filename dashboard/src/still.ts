// A table that stands still: rows keep their places while what they show goes on.

import type { Task } from "./types";

export interface Still {
  order: string[];
  rows: Map<string, Task>;
  /** Rows that are not in the list any more. They stay, so that no other takes their place. */
  gone: ReadonlySet<string>;
}

/** The rows that are shown when a list comes: those from before stay where they are. */
export function settle(before: Still | null, tasks: Task[]): Still {
  const found = new Map(tasks.map((task) => [task.id, task]));
  if (before === null || before.order.length === 0) return { order: [...found.keys()], rows: found, gone: new Set() };
  const { order } = before;
  const rows = new Map(order.map((id) => [id, found.get(id) ?? (before.rows.get(id) as Task)]));
  return { order, rows, gone: new Set(order.filter((id) => !found.has(id))) };
}

/** The row to go to with the keyboard from one, so many further on; the first if none is chosen. */
export function step(at: number, by: number, length: number): number {
  if (at < 0) return length ? 0 : -1;
  return Math.max(0, Math.min(length - 1, at + by));
}
