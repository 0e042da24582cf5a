// Limits by key: the form of one, and what it says.

import { field, type Section } from "./policy";
import type { Query } from "./route";
import type { KeyLimit, LimitSettings, PolicyValue } from "./types";
import { exact } from "./words";

export const LIMIT_SECTIONS: Section[] = [
  {
    title: "Which tasks",
    fields: [
      field("queue", "Queue", "Empty for all"),
      field("task", "Task", "The name of the tasks; empty for any"),
      field("keys", "Keys", "With commas between them: tasks with equal values share the bounds. Empty: all of them do"),
    ],
  },
  {
    title: "How many",
    fields: [
      field("concurrency", "At once", "How many may run; -1 for any number"),
      field("rate", "Rate", "How many tokens come in each period; 0 for no limit of the rate"),
      field("per", "Period", "Of the rate, such as 1s, 1m or 1h"),
      field("burst", "Burst", "How many tokens are saved up; 0 for the rate"),
      field("cost", "Cost", "How many tokens a task takes"),
      field("cost_key", "Cost by key", "The key whose value is the cost; empty for none"),
      field("on_full", "When full", "What happens to tasks while as many run as may", ["wait", "cancel_newest", "cancel_oldest", "cancel_running"]),
    ],
  },
];

export const NO_LIMIT: LimitSettings = {
  queue: "", task: "", keys: [], concurrency: -1, rate: 0, per: "1s", burst: 0, cost: 1, cost_key: "", on_full: "wait",
};

/** The settings as a form has them. */
export function toForm({ keys, ...rest }: LimitSettings): Record<string, PolicyValue> {
  return { ...rest, keys: keys.join(", ") };
}

/** What was changed in the form, as the API takes it. */
export function fromForm({ keys, ...rest }: Record<string, PolicyValue>): Record<string, unknown> {
  return keys === undefined ? rest : { ...rest, keys: String(keys).split(/[\s,]+/).filter((each) => each) };
}

/** What a limit allows, in a line. */
export function boundsText(settings: LimitSettings): string {
  const { concurrency, rate, per, burst, cost, cost_key, on_full } = settings;
  const parts: string[] = [];
  if (concurrency >= 0) parts.push(`at most ${exact(concurrency)} at once`);
  if (rate) {
    const tokens = cost_key || cost > 1 ? " tokens" : "";
    parts.push(`${exact(rate)}${tokens} in ${per}${burst ? `, ${exact(burst)} saved up at most` : ""}`);
    if (cost_key) parts.push(`a task takes as many as its ${cost_key} says`);
    else if (cost > 1) parts.push(`a task takes ${exact(cost)}`);
  }
  if (!parts.length) parts.push("no bound of its own: workers close it");
  if (on_full !== "wait") parts.push(`when full: ${on_full.replace("_", " ")}`);
  return parts.join("; ");
}

/** The filter of the tasks that a limit can hold up. The list cannot tell apart values of keys. */
export function readyFilter({ settings: { queue, task } }: KeyLimit): Query {
  return { state: "ready", queue, name: task };
}
