// The log of a task: what of it is shown, and how. Knows no part of the page.

export type LogLevel = "error" | "warn" | "info" | "debug" | "trace";

export interface LogLine {
  id: string;
  attempt: number;
  number: number;
  at: string | null;
  level: LogLevel;
  stream: "stdout" | "stderr" | "log";
  logger: string;
  text: string;
}

export interface AttemptLog {
  attempt: number;
  lines: number;
  dropped: number;
  size: number;
  last_at: string | null;
}

export interface LogPage {
  lines: LogLine[];
  attempts: AttemptLog[];
  has_more: boolean;
  missing: string;
}

/** How many lines the page holds; the oldest beyond that are asked for again. */
export const LINES_SHOWN_MAX = 5_000;

const COLOURS = /\x1b\[[0-9;]*m/g;
// As the command line has it: what moves the cursor, or turns the direction of writing.
const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** A line as people may see it: without colours, and with no character that pretends to be something else. */
export function shownText(text: string): string {
  return text.replace(COLOURS, "").replace(UNSAFE, (found) => {
    const code = found.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

export type Row = { kind: "attempt"; key: string; attempt: number } | { kind: "gap"; key: string; count: number } | { kind: "line"; key: string; line: LogLine };

/**
 * The rows of a log: lines, where an attempt begins, and where lines are missing. With a filter the
 * numbers have gaps that mean nothing; what stands before the first row may not have been loaded.
 */
export function rowsOf(lines: LogLine[], isFiltered: boolean, isWhole: boolean): Row[] {
  const rows: Row[] = [];
  let before: LogLine | null = null;
  for (const line of lines) {
    const isNew: boolean = before?.attempt !== line.attempt;
    if (isNew) rows.push({ kind: "attempt", key: `attempt ${line.id}`, attempt: line.attempt });
    const expected: number = isNew ? 1 : (before as LogLine).number + 1;
    const isKnown = !isNew || isWhole || before !== null;
    if (!isFiltered && isKnown && line.number > expected) rows.push({ kind: "gap", key: `gap ${line.id}`, count: line.number - expected });
    rows.push({ kind: "line", key: line.id, line });
    before = line;
  }
  return rows;
}

/** Add lines that came, leave out those that are there, and forget the oldest beyond the limit. */
export function addLines(have: LogLine[], more: LogLine[], most = LINES_SHOWN_MAX): { lines: LogLine[]; isCut: boolean } {
  const known = new Set(have.slice(-more.length - 100).map((line) => line.id));
  const lines = [...have, ...more.filter((line) => !known.has(line.id))];
  return lines.length > most ? { lines: lines.slice(-most), isCut: true } : { lines, isCut: false };
}
