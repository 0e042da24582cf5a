// Bars over time: when attempts waited and ran, to the millisecond.

import type { ComponentChildren } from "preact";
import { toSeconds, span } from "../words";

export interface Span {
  from: string;
  /** Null while it lasts. */
  to: string | null;
  tone: string;
  title: string;
}

export interface GanttRow {
  key: string;
  label: ComponentChildren;
  spans: Span[];
  note: ComponentChildren;
}

/** So much of the width a bar has at least, so that a short one can be seen. */
const SHARE_MIN = 0.4;

export function Gantt({ rows, nowMs, label }: { rows: GanttRow[]; nowMs: number; label: string }) {
  const spans = rows.flatMap((row) => row.spans);
  if (!spans.length) return null;
  const now = nowMs / 1000;
  const begin = Math.min(...spans.map((each) => toSeconds(each.from)));
  const end = Math.max(...spans.map((each) => (each.to ? toSeconds(each.to) : now)));
  const whole = Math.max(end - begin, 0.001);
  const share = (seconds: number) => (100 * (seconds - begin)) / whole;
  return (
    <div class="gantt" role="img" aria-label={label}>
      {rows.map((row) => (
        <div key={row.key} class="gantt-row">
          <span class="cut">{row.label}</span>
          <span class="gantt-line">
            {row.spans.map((each) => {
              const left = share(toSeconds(each.from));
              const width = share(each.to ? toSeconds(each.to) : now) - left;
              return <span key={each.from + each.title} title={each.title} class={`fill-${each.tone}`} style={{ left: `${Math.min(left, 100 - SHARE_MIN)}%`, width: `${Math.max(width, SHARE_MIN)}%` }} />;
            })}
          </span>
          <span class="number dim">{row.note}</span>
        </div>
      ))}
      <div class="gantt-row dim"><span /><span class="gantt-axis"><small>0</small><small>{span(whole / 2)}</small><small>{span(whole)}</small></span><span /></div>
    </div>
  );
}
