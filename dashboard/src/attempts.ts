// Attempts: the tries at a task, told apart in its history.

import type { Happening } from "./types";

export interface Attempt {
  worker: string;
  assigned: string | null;
  started: string | null;
  ended: string | null;
  /** The event that ended it; empty while it lasts. */
  end: string;
  detail: string;
}

const ENDS = new Set(["finish", "fail", "release", "stop", "lose", "suspend"]);

export function attemptsOf(history: Happening[]): Attempt[] {
  const attempts: Attempt[] = [];
  let open: Attempt | null = null;
  for (const { what, at, by, detail } of history) {
    if (what === "assign") {
      open = { worker: by, assigned: at, started: null, ended: null, end: "", detail: "" };
      attempts.push(open);
    } else if (open && what === "start") {
      open.started = at;
    } else if (open && ENDS.has(what)) {
      Object.assign(open, { ended: at, end: what, detail });
      open = null;
    }
  }
  return attempts;
}
