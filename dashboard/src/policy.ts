// The policy of a queue, as a form: what each field is, and what has been changed.

import type { PolicyValue } from "./types";

export interface Field {
  name: string;
  label: string;
  help: string;
  choices?: string[];
}

export interface Section {
  title: string;
  fields: Field[];
}

export const field = (name: string, label: string, help: string, choices?: string[]): Field =>
  choices ? { name, label, help, choices } : { name, label, help };

/** Durations are written as 30s, 5m, 2h or 7d. A field that is not listed is shown by its name. */
export const SECTIONS: Section[] = [
  {
    title: "When something goes wrong",
    fields: [
      field("retries", "Retries", "How many failures are tried again"),
      field("retry_base", "First wait", "Before the first retry"),
      field("retry_factor", "Wait factor", "Each further wait is so many times longer"),
      field("retry_cap", "Longest wait", "No wait is longer"),
      field("retry_jitter", "Jitter", "By which part of itself a wait is shortened at most, by chance"),
      field("crash_limit", "Crash limit", "How many lost workers a task may cost; 0 for any number"),
      field("interruption_limit", "Interruption limit", "How many interruptions; 0 for any number"),
      field("on_lost", "Worker lost", "What becomes of its running tasks", ["requeue", "pause", "dead"]),
      field("on_restart", "Broker restart", "What becomes of leases", ["keep", "requeue"]),
      field("restart_grace", "Restart grace", "How long a lease outlives a restart"),
      field("prefer_other_worker", "Prefer another worker", "After a failure"),
      field("priority_drop", "Priority drop", "What a failure costs in priority"),
    ],
  },
  {
    title: "Limits",
    fields: [
      field("timeout", "Time limit", "Of an attempt; 0 for none"),
      field("time_to_live", "Time to live", "Dead if not begun by then; 0 for none"),
      field("depth_limit", "Depth limit", "How many may wait; 0 for any number"),
      field("stuck_after", "Stuck after", "An attempt that takes longer is shown as stuck; 0 for never"),
      field("ageing", "Ageing", "Each such wait counts as one step of priority; 0 for none"),
      field("fair_by", "Fair by", "The key by whose values tasks take turns; empty for none"),
      field("weight", "Weight", "How many turns it has among the queues of a worker; 0 for the most urgent first"),
    ],
  },
  {
    title: "Tasks",
    fields: [
      field("retention", "Kept for", "After its end; forever is possible"),
      field("batch_size", "Batch size", "How many tasks fill a batch"),
      field("result_becomes", "Result becomes", "The queue in which each result becomes a task"),
      field("held", "Held", "New tasks wait to be played"),
      field("on_misfit", "Call does not fit", "What becomes of a task whose arguments its workers do not take", ["refuse", "warn", "off"]),
      field("done", "Done when", "A task counts as done", ["processed", "received"]),
    ],
  },
  {
    title: "Requests",
    fields: [
      field("same", "Asked for the same", "What to do with a task that asks for what another does", ["run", "unique", "cached"]),
      field("cache", "Answers good for", "How long an answer is good for who asks again; 0 keeps none"),
      field("cache_entries", "Answers at most", "How many; the least recently used goes first"),
      field("cache_bytes", "Bytes at most", "How many bytes they may have together"),
    ],
  },
];

/** The sections, with whatever else the broker knows at the end. */
export function sectionsFor(policy: Record<string, PolicyValue>): Section[] {
  const known = new Set(SECTIONS.flatMap((section) => section.fields.map((each) => each.name)));
  // A list is no field of this form.
  const others = Object.keys(policy).filter((name) => !known.has(name) && typeof policy[name] !== "object");
  const sections = SECTIONS.map((section) => ({
    ...section,
    fields: section.fields.filter((each) => each.name in policy),
  }));
  if (others.length) sections.push({ title: "Other", fields: others.map((name) => field(name, name, "")) });
  return sections.filter((section) => section.fields.length);
}

/** What was typed, of the kind that the field has now. Durations stay as they were written. */
export function parseValue(text: string, before: PolicyValue): PolicyValue {
  if (typeof before === "boolean") return text === "true";
  if (typeof before === "number" && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  return text.trim();
}

/** Only what differs. */
export function changesOf(
  before: Record<string, PolicyValue>,
  after: Record<string, PolicyValue>,
): Record<string, PolicyValue> {
  return Object.fromEntries(Object.entries(after).filter(([name, value]) => before[name] !== value));
}
