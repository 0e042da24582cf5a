// A draft: a task that somebody writes by hand, and how it is submitted.

import type { Task } from "./types";

export interface Draft {
  queue: string;
  name: string;
  priority: string;
  key: string;
  tags: string;
  alias: string;
  retries: string;
  timeout: string;
  at: string;
  dependencies: string;
  held: boolean;
  payload: string;
}

export const EMPTY_DRAFT: Draft = {
  queue: "", name: "", priority: "150", key: "", tags: "", alias: "", retries: "", timeout: "", at: "",
  dependencies: "", held: false, payload: "",
};

export interface Submission {
  name: string;
  queue: string;
  priority: number;
  payload?: string;
  key?: string;
  alias?: string;
  tags?: string[];
  retries?: number;
  timeout_seconds?: number;
  run_at?: string;
  depends_on?: string[];
  headers?: Record<string, unknown>;
  held?: boolean;
}

export function problemsOf(draft: Draft): string {
  const priority = Number(draft.priority);
  if (!draft.name.trim()) return "Give the task a name.";
  if (!draft.queue.trim()) return "Name a queue.";
  if (!Number.isInteger(priority) || priority < 0 || priority > 255) return "A priority is 0 to 255.";
  return "";
}

/** What is empty is left out, so that the queue decides. */
export function toTask(draft: Draft, payload: string): Submission {
  const task: Submission = { name: draft.name.trim(), queue: draft.queue.trim(), priority: Number(draft.priority) };
  if (payload) task.payload = payload;
  if (draft.key.trim()) task.key = draft.key.trim();
  if (draft.alias.trim()) task.alias = draft.alias.trim();
  const [tags, dependencies] = [words(draft.tags), words(draft.dependencies)];
  if (tags.length) task.tags = tags;
  if (dependencies.length) task.depends_on = dependencies;
  if (draft.retries.trim()) task.retries = Number(draft.retries);
  if (draft.timeout.trim()) task.timeout_seconds = Number(draft.timeout);
  if (draft.at) task.run_at = new Date(draft.at).toISOString();
  if (draft.held) task.held = true;
  if (payload && isJson(draft.payload)) task.headers = { content: "json" };
  return task;
}

/** The alias is left out: it is the other task's own. */
export function fromTask(task: Task, payload: string): Draft {
  return {
    ...EMPTY_DRAFT,
    queue: task.queue,
    name: task.name,
    priority: String(task.priority),
    key: task.key,
    tags: task.tags.join(", "),
    retries: task.retries === null ? "" : String(task.retries),
    timeout: task.timeout_seconds === null ? "" : String(task.timeout_seconds),
    payload,
  };
}

function words(text: string): string[] {
  return text.split(/[,\s]+/).filter(Boolean);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
