// Limits by key: how many tasks with the same keys run at once, and how many start in a span of time.

/** What a limit allows. Tasks that lack one of its keys are not limited. */
export interface Limit {
  /** Only tasks of this queue, or of this name; all if they are left out. */
  queue?: string;
  task?: string;
  /** The keys by whose values tasks are counted apart; none for one count of all. */
  keys?: readonly string[];
  /** How many run at once. */
  concurrency?: number;
  /** How many start in each period of `perMs`, a second if that is left out. */
  rate?: number;
  perMs?: number;
  /** How many may start together; as many as the rate if it is left out. */
  burst?: number;
  /** How much of the rate a task takes, or the key whose value that is. */
  cost?: number | string;
  /** What happens while as many run as may; `wait` if it is left out. */
  onFull?: "wait" | "cancel_newest" | "cancel_oldest" | "cancel_running";
}

/** Return all settings of a limit, as the broker takes them, which checks them. */
export function settingsOf(limit: Limit): Record<string, unknown> {
  const { queue = "", task = "", keys = [], concurrency = -1, rate = 0, perMs = 1_000, burst = 0, cost = 1, onFull = "wait" } = limit;
  const costs = typeof cost === "string" ? { cost: 1, cost_key: cost } : { cost, cost_key: "" };
  return { queue, task, keys, concurrency, rate, per_us: Math.round(perMs * 1_000), burst, ...costs, on_full: onFull };
}
