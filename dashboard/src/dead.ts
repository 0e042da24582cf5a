// Dead letters: tasks that ended badly, put together by what they have in common.

import type { Task } from "./types";
import { errorLine } from "./words";

export interface Group {
  key: string;
  queue: string;
  name: string;
  error: string;
  tasks: Task[];
  latest: string;
}

/** What stays the same in an error when ids, numbers and addresses change. */
export function essence(error: string): string {
  return error
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, "…")
    .replace(/0x[0-9a-f]+/gi, "…")
    .replace(/\d+(\.\d+)?/g, "…")
    .slice(0, 300);
}

/** The largest groups first. */
export function group(tasks: Task[]): Group[] {
  const groups = new Map<string, Group>();
  for (const task of tasks) {
    const error = errorLine(task) ?? "no error was given";
    const key = JSON.stringify([task.queue, task.name, essence(error)]);
    const found = groups.get(key);
    if (found) {
      found.tasks.push(task);
      if ((task.ended_at ?? "") > found.latest) [found.latest, found.error] = [task.ended_at ?? "", error];
    } else {
      groups.set(key, {
        key, queue: task.queue, name: task.name, error, tasks: [task], latest: task.ended_at ?? "",
      });
    }
  }
  return [...groups.values()].sort((a, b) => b.tasks.length - a.tasks.length || b.latest.localeCompare(a.latest));
}
