// Namespaces: the form of their settings, and how much of their quotas is used.

import { field, type Section } from "./policy";
import type { NamespaceInfo, PolicyValue } from "./types";
import { bytes, exact } from "./words";

export const DESCRIPTION: Section = { title: "Namespace", fields: [field("description", "Description", "For people")] };

/** What only those change who administer the whole broker. */
export const QUOTAS: Section = {
  title: "Quotas, 0 for none",
  fields: [
    field("tasks_queued", "Tasks that wait", "More are refused"),
    field("bytes_stored", "Bytes of payloads", "Of unfinished tasks; more are refused"),
    field("submits_per_second", "Submits a second", "In the long run; more are refused"),
    field("submits_burst", "Submits at once", "0 for as many as in a second"),
    field("workers", "Workers", "Connected; more are refused"),
    field("api_keys", "API keys", "Of the namespace; more are refused"),
    field("concurrent_attempts", "Running tasks", "More wait, and are not refused"),
    field("weight", "Weight", "Its turns at workers that serve several namespaces"),
  ],
};

export const NO_QUOTAS: Record<string, PolicyValue> = {
  description: "", ...Object.fromEntries(QUOTAS.fields.map(({ name }) => [name, name === "weight" ? 1 : 0])),
};

export interface Use {
  name: string;
  used: number;
  /** null where there is no quota. */
  limit: number | null;
  text: string;
}

const UNMEASURED = ["submits_burst", "weight"];

/** How much of each quota is used; what is not counted without a quota is left out. */
export function usesOf({ settings, used }: NamespaceInfo): Use[] {
  return QUOTAS.fields.filter(({ name }) => !UNMEASURED.includes(name) && used[name] !== undefined).map(({ name, label }) => {
    const told = name === "bytes_stored" ? bytes : exact;
    const value = used[name] as number;
    // Of the rate it is the bucket that fills, and empties by itself.
    const limit = Number((name === "submits_per_second" && settings["submits_burst"]) || settings[name] || 0) || null;
    return { name: label, used: value, limit, text: limit === null ? told(value) : `${told(value)} of ${told(limit)}` };
  });
}
