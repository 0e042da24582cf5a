// The log of a task, as it grows.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, ask, namespace } from "../api";
import { useSettled } from "../hooks";
import { addLines, type AttemptLog, type LogLevel, type LogLine, type LogPage, rowsOf, shownText } from "../logs";
import type { Task } from "../types";
import { exact, isEnded, plural } from "../words";
import { attempt as trying } from "./notices";
import { Card, Empty } from "./basic";

const PAGE_LINES = 500;
const TOGETHER_MS = 50;
const NEAR_END_PX = 30;
const LEVELS: LogLevel[] = ["error", "warn", "info", "debug", "trace"];

interface Shown {
  lines: LogLine[];
  attempts: AttemptLog[];
  missing: string;
  hasEarlier: boolean;
  isOver: boolean;
}

const NOTHING: Shown = { lines: [], attempts: [], missing: "", hasEarlier: false, isOver: false };

export function LogsCard({ task }: { task: Task }) {
  const [attempt, setAttempt] = useState(0);
  const [level, setLevel] = useState<LogLevel>("trace");
  const [search, setSearch] = useState("");
  const text = useSettled(search.trim());
  const query = { attempt, level, text };
  const { shown, loadEarlier } = useLog(task, query);
  const [isFollowing, setFollowing] = useState(true);
  const frame = useRef<HTMLDivElement>(null);
  const isFiltered = level !== "trace" || text !== "";
  const rows = useMemo(() => rowsOf(shown.lines, isFiltered, !shown.hasEarlier), [shown.lines, isFiltered, shown.hasEarlier]);
  useEffect(() => {
    if (isFollowing && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [rows, isFollowing]);
  const onScroll = () => {
    const { current } = frame;
    if (current) setFollowing(current.scrollHeight - current.scrollTop - current.clientHeight < NEAR_END_PX);
  };
  if (!task.attempts && !shown.lines.length) return null;
  const dropped = shown.attempts.filter((each) => each.dropped && (!attempt || each.attempt === attempt));
  const numbers = Array.from({ length: Math.max(task.attempts, shown.attempts.at(-1)?.attempt ?? 0) }, (_, index) => index + 1);
  return (
    <Card title="Log" aside={<span class="dim" role="status">{shown.isOver ? plural(shown.lines.length, "line") : isFollowing ? "live" : "paused"}</span>}>
      <div class="log-tools">
        <input type="search" aria-label="Search the log" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <select aria-label="Level" value={level} onChange={(event) => setLevel(event.currentTarget.value as LogLevel)}>
          {LEVELS.map((each) => <option key={each} value={each}>{each === "trace" ? "all levels" : each === "error" ? "error" : `${each} and above`}</option>)}
        </select>
        {numbers.length > 1 && (
          <select aria-label="Attempt" value={String(attempt)} onChange={(event) => setAttempt(Number(event.currentTarget.value))}>
            <option value="0">all attempts</option>
            {numbers.map((each) => <option key={each} value={String(each)}>attempt {each}</option>)}
          </select>
        )}
        <button type="button" class="small" aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>{isFollowing ? "Pause" : "Follow"}</button>
      </div>
      {dropped.map((each) => (
        <p key={each.attempt} class="dim">Attempt {each.attempt}: {exact(each.dropped)} of {exact(each.lines + each.dropped)} lines were dropped, because there were too many.</p>
      ))}
      {shown.missing && <p class="ink-amber">{shown.missing}</p>}
      {rows.length > 0 ? (
        <div class="log" ref={frame} onScroll={onScroll} tabIndex={0} role="log" aria-label="Lines">
          {shown.hasEarlier && <button type="button" class="plain" onClick={() => trying(loadEarlier)}>Show earlier lines</button>}
          {rows.map((row) => {
            if (row.kind === "attempt") return <div key={row.key} class="log-mark">Attempt {row.attempt}</div>;
            if (row.kind === "gap") return <div key={row.key} class="log-mark log-gap">{exact(row.count)} lines dropped</div>;
            return <Line key={row.key} line={row.line} />;
          })}
        </div>
      ) : (
        <Empty>{isFiltered ? "No line is like that." : shown.isOver ? "It printed and logged nothing." : "Nothing printed or logged yet."}</Empty>
      )}
    </Card>
  );
}

function Line({ line }: { line: LogLine }) {
  const at = line.at ? new Date(line.at).toLocaleTimeString("en-GB") : "";
  const about = `${line.at ?? ""} ${line.stream}, line ${line.number} of attempt ${line.attempt}`;
  return (
    <div class={`log-line log-${line.level}`}>
      <time title={about}>{at}</time>
      <span class="log-level">{line.level}</span>
      <span class="log-text">{line.logger && <span class="dim">{shownText(line.logger)}: </span>}{shownText(line.text)}</span>
    </div>
  );
}

interface Filters {
  attempt: number;
  level: LogLevel;
  text: string;
}

/** The lines of a task that are wanted: the last ones, and from then on all that come. */
function useLog(task: Task, { attempt, level, text }: Filters) {
  const [shown, setShown] = useState<Shown>(NOTHING);
  const [turn, setTurn] = useState(0);
  const path = `tasks/${task.id}/logs`;
  const filters = { ...(attempt ? { attempt } : {}), level, ...(text ? { text } : {}) };
  useEffect(() => {
    setShown(NOTHING);
    const query = { ...filters, follow: "true", tail: "true", limit: PAGE_LINES, namespace: namespace.get() };
    const source = new EventSource(address(path, query));
    let waiting: LogLine[] = [];
    let timer = 0;
    let isFirst = true;
    const flush = () => {
      timer = 0;
      const more = waiting;
      waiting = [];
      setShown((before) => {
        const { lines, isCut } = addLines(before.lines, more);
        return { ...before, lines, hasEarlier: before.hasEarlier || isCut };
      });
    };
    source.addEventListener("line", (event) => {
      waiting.push(JSON.parse(event.data) as LogLine);
      if (!timer) timer = window.setTimeout(flush, TOGETHER_MS);
    });
    source.addEventListener("attempts", (event) => {
      const told = JSON.parse(event.data) as Omit<LogPage, "lines">;
      const hasEarlier = isFirst && told.has_more;
      isFirst = false;
      setShown((before) => ({ ...before, attempts: told.attempts, missing: told.missing, hasEarlier: before.hasEarlier || hasEarlier }));
    });
    source.addEventListener("end", (event) => {
      const { ended } = JSON.parse(event.data) as { ended: boolean };
      if (!ended) return; // The broker goes away; the browser connects again.
      source.close();
      setShown((before) => ({ ...before, isOver: true }));
    });
    return () => {
      source.close();
      window.clearTimeout(timer);
    };
  }, [path, attempt, level, text, turn]);
  // A task that had ended and is tried again.
  useEffect(() => {
    if (shown.isOver && !isEnded(task.state)) setTurn(turn + 1);
  }, [task.state, shown.isOver]);
  const loadEarlier = async () => {
    const query = { ...filters, tail: "true", limit: PAGE_LINES, before: shown.lines[0]?.id ?? "" };
    const page = await ask<LogPage>(path, { query });
    setShown((before) => ({ ...before, lines: [...page.lines, ...before.lines], hasEarlier: page.has_more }));
  };
  return { shown, loadEarlier };
}
