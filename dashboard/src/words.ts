// Words: how numbers, times and sizes are said. Knows nothing of the page.

import { STATE_SETS, type Action, type Pace, type State, type Task } from "./types";

const NUMBER = new Intl.NumberFormat("en-GB");

/** 12,345; from a hundred thousand on shorter: 123k, 4.56M. */
export function count(value: number): string {
  if (value < 100_000) return NUMBER.format(value);
  const [divisor, unit] = value < 1_000_000 ? [1e3, "k"] : value < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${Number((value / (divisor as number)).toPrecision(3))}${unit}`;
}

/** Every digit. */
export function exact(value: number): string {
  return NUMBER.format(value);
}

export function plural(value: number, noun: string): string {
  return `${exact(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Per second: 0, 0.12, 3.4, 1,234. */
export function rate(value: number): string {
  if (value === 0) return "0";
  return value < 10 ? String(Number(value.toPrecision(2))) : count(Math.round(value));
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = "";
  for (const next of units) {
    if (size < 1024) break;
    size /= 1024;
    unit = next;
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

/** A span in seconds: 850 µs, 12 ms, 3.4 s, 2 m 5 s, 3 h 20 m, 4 d 2 h. */
export function span(seconds: number): string {
  if (seconds <= 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const steps: [number, string][] = [[86_400, "d"], [3_600, "h"], [60, "m"], [1, "s"]];
  const first = steps.findIndex(([length]) => whole >= length);
  const [length, unit] = steps[first] as [number, string];
  const [next, nextUnit] = steps[first + 1] as [number, string];
  const rest = Math.floor((whole % length) / next);
  return `${Math.floor(whole / length)} ${unit}${rest ? ` ${rest} ${nextUnit}` : ""}`;
}

/** How long something ran. The broker's clock stands still for what it does at once. */
export function ran(seconds: number): string {
  return seconds < 0.001 ? "< 1 ms" : span(seconds);
}

/** A span to the millisecond: 0.4 ms, 12 ms, 3,456 ms. */
export function milliseconds(seconds: number): string {
  const value = seconds * 1e3;
  return `${value < 10 ? Number(value.toFixed(1)) : exact(Math.round(value))} ms`;
}

/** How long ago, or how far ahead: "just now", "5 s ago", "in 3 m". */
export function ago(at: string | null, nowMs: number): string {
  if (!at) return "-";
  const seconds = (nowMs - Date.parse(at)) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  const steps: [number, string][] = [[86_400, "d"], [3_600, "h"], [60, "m"], [1, "s"]];
  const size = Math.abs(seconds);
  const [length, unit] = steps.find(([each]) => size >= each) as [number, string];
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/** The time of day, with the date if that is another day than today. */
export function clock(at: string | null, nowMs: number): string {
  if (!at) return "-";
  const time = new Date(at);
  const day = time.toDateString() === new Date(nowMs).toDateString() ? "" : `${isoDay(time)} `;
  return day + time.toLocaleTimeString("en-GB");
}

function isoDay(time: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** The last digits of an id. The first ones are a time, and the same for many tasks. */
export function shortId(id: string): string {
  return `…${id.slice(-8)}`;
}

/** How long an attempt has run, or the whole task took once it has ended; in seconds. */
export function runSeconds(
  task: { started_at: string | null; ended_at: string | null },
  nowMs: number,
): number | null {
  if (!task.started_at) return null;
  const end = task.ended_at ? toSeconds(task.ended_at) : nowMs / 1000;
  return Math.max(0, end - toSeconds(task.started_at));
}

/** A time in seconds, with the microseconds that dates of the browser leave out. */
export function toSeconds(at: string): number {
  const digits = /\.\d{3}(\d{1,3})/.exec(at)?.[1] ?? "";
  return Math.floor(Date.parse(at)) / 1000 + Number(digits.padEnd(3, "0")) / 1e6;
}

/** What can be done with a task in each state. The broker has the last word. */
const LEGAL: Record<State, readonly Action[]> = {
  held: ["play", "pause", "kill"],
  waiting: ["hold", "pause", "kill"],
  scheduled: ["retry", "hold", "pause", "kill"],
  ready: ["hold", "pause", "kill"],
  assigned: ["pause", "kill"],
  running: ["pause", "kill"],
  paused: ["play", "kill"],
  succeeded: ["purge"],
  dead: ["retry", "purge"],
  killed: ["retry", "purge"],
};

export function actionsFor(state: State): readonly Action[] {
  return LEGAL[state];
}

/** What each action is called on a button, and what it does. */
export const ACTION_WORDS: Record<Action, { label: string; does: string }> = {
  play: { label: "Play", does: "let it run" },
  pause: { label: "Pause", does: "stop it until it is played" },
  hold: { label: "Hold", does: "keep it from starting until it is played" },
  retry: { label: "Retry", does: "run it again" },
  kill: { label: "Kill", does: "end it, whether it runs or not" },
  purge: { label: "Delete", does: "forget it, with its payload and result" },
};

export const ENDED: readonly State[] = ["succeeded", "dead", "killed"];

export function isEnded(state: State): boolean {
  return ENDED.includes(state);
}

/** What a task is called: its function, or else the alias that it was given, as jobs of GridLike are. */
export function taskName(task: { name: string; alias: string }): string {
  return task.name || task.alias;
}

/** What a worker calls itself; its id if it has no other name. */
export function workerName(worker: { worker: string; labels: Record<string, string> }): string {
  return worker.labels["name"] || worker.worker;
}

/** How many of these are in a set of states. */
export function tally(counts: Partial<Record<State, number>>, set: string): number {
  return (STATE_SETS[set] ?? []).reduce((sum, state) => sum + (counts[state] ?? 0), 0);
}

/** What went wrong with a task, in a line. */
export function errorLine(task: Pick<Task, "error" | "reason">): string | null {
  if (!task.error) return task.reason;
  return task.error.message ? `${task.error.type}: ${task.error.message}` : task.error.type;
}

/** An amount of a resource, as a person writes it: 2, 0.5, 64 GiB. */
export function amount(value: number): string {
  const power = [5, 4, 3, 2, 1].find((each) => value > 0 && value % 1024 ** each === 0);
  return power ? `${value / 1024 ** power} ${"KMGTP"[power - 1]}iB` : String(value);
}

/** What a task needs of its worker, or which labels it goes by, one text each: `gpu 1`, `arch arm64 or x86`. */
export function needTexts(needs: Record<string, number | string[]>): string[] {
  return Object.entries(needs).map(([name, value]) => `${name} ${typeof value === "number" ? amount(value) : value.join(" or ")}`);
}

/** How a task is spread over time, in a line. */
export function paceText(pace: Pace): string {
  const words: string[] = [pace.how];
  if (pace.span_seconds) words.push(pace.how === "throttle" ? `one in ${span(pace.span_seconds)}` : `until ${span(pace.span_seconds)} without another`);
  if (pace.at_most_seconds) words.push(`at most ${span(pace.at_most_seconds)}`);
  if (pace.drop) words.push("others are dropped");
  return words.join(", ");
}
