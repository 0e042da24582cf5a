// Series: what the broker did over time, made into columns that a chart can draw.

import type { Point, Series, Spread } from "./types";

export const SPANS = [
  { label: "1 h", hours: 1 },
  { label: "6 h", hours: 6 },
  { label: "1 d", hours: 24 },
  { label: "7 d", hours: 168 },
];

const SPAN_S_MIN = 120;

export interface Columns {
  times: number[];
  submitted: (number | null)[];
  succeeded: (number | null)[];
  dead: (number | null)[];
  depth: (number | null)[];
  leased: (number | null)[];
  queued: (number | null)[];
  started: (number | null)[];
  finished: (number | null)[];
}

/** Where the broker did not run there is no point: the lines are broken there, not drawn across. */
export function toColumns(series: Series | null): Columns {
  const step = series?.step_s ?? 10;
  const points: (Point | null)[] = [];
  const times: number[] = [];
  for (const point of series?.points ?? []) {
    const at = Date.parse(point.at) / 1000;
    const last = times.at(-1);
    if (last !== undefined && at - last > step * 1.5) {
      times.push(last + step);
      points.push(null);
    }
    times.push(at);
    points.push(point);
  }
  const each = (read: (point: Point) => number | null) => points.map((point) => (point ? read(point) : null));
  return {
    times,
    submitted: each((point) => point.submitted / step),
    succeeded: each((point) => point.succeeded / step),
    dead: each((point) => point.dead / step),
    depth: each((point) => point.depth),
    leased: each((point) => point.leased),
    queued: each((point) => part(point.queued, "p95_s")),
    started: each((point) => part(point.started, "p50_s")),
    finished: each((point) => part(point.finished, "p95_s")),
  };
}

/** The span that was asked for, but not from before there was anything: a young broker has no past. */
export function shownSpan(times: number[], now: number, hours: number): [number, number] {
  const first = Math.min(times[0] ?? -Infinity, now - SPAN_S_MIN);
  return [Math.max(now - hours * 3_600, first), now];
}

function part(spread: Spread | null, name: "p50_s" | "p95_s"): number | null {
  return spread?.number ? spread[name] : null;
}
