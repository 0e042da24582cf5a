// Bulk actions: on the tasks that were chosen, or on all that match a filter, however many.

import type { Action, ActionResult } from "./types";

export type Target = { tasks: string[] } | { filter: Record<string, unknown> };

export interface Outcome {
  changed: number;
  requested: number;
  refused: { task: string; error: { error: string } }[];
}

/** What shall be otherwise when tasks are tried again; what is left out stays as it was. */
export interface Terms {
  retries?: number;
  timeout_seconds?: number;
  priority?: number;
}

/** The terms that were filled in, if any were. */
export function toTerms(fields: Record<keyof Terms, string>): Terms | undefined {
  const filled = Object.entries(fields).filter(([, text]) => text.trim() !== "");
  return filled.length ? Object.fromEntries(filled.map(([name, text]) => [name, Number(text)])) : undefined;
}

/** How the broker is asked. */
export type Ask = (body: object) => Promise<ActionResult>;

/** How many tasks the action would change; `more` if the broker stopped counting there. */
export async function countTasks(action: Action, target: Target, ask: Ask): Promise<ActionResult> {
  return ask({ action, ...target, dry_run: true });
}

/** Do it. The broker changes so many at a time; it is asked again until none is left. */
export async function actOn(action: Action, target: Target, ask: Ask, terms?: Terms): Promise<Outcome> {
  const outcome: Outcome = { changed: 0, requested: 0, refused: [] };
  for (;;) {
    const result = await ask({ action, ...target, ...(terms && { terms }) });
    outcome.changed += result.changed;
    outcome.requested += result.requested;
    outcome.refused.push(...result.refused);
    // A kill that is only asked for changes no state: the same tasks would match again.
    if (!result.more || result.changed === 0) return outcome;
  }
}
