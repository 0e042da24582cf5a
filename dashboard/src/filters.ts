// Filters of the table of tasks: in the address of the page, as the API's query, and as the filter
// of an action on all that match.

import type { Query } from "./route";
import { STATE_SETS } from "./types";

export interface Filters {
  text: string;
  /** A state, or a set of them. */
  state: string;
  queue: string;
  name: string;
  key: string;
  tag: string;
  batch: string;
  parent: string;
  /** In the error or the payload. */
  contains: string;
  /** Submitted within this time, such as `1h`. */
  within: string;
  /** Submitted between these times, which may be empty. */
  newer_than: string;
  older_than: string;
  sort: string;
}

export const SORT = "-created";
export const EMPTY: Filters = {
  text: "", state: "", queue: "", name: "", key: "", tag: "", batch: "", parent: "",
  contains: "", within: "", newer_than: "", older_than: "", sort: SORT,
};

const NAMES = Object.keys(EMPTY) as (keyof Filters)[];

export function toFilters(query: URLSearchParams): Filters {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? EMPTY[name]])) as unknown as Filters;
}

export function toQuery(filters: Filters): Query {
  return { ...filters, sort: filters.sort === SORT ? "" : filters.sort };
}

export function isFiltered(filters: Filters): boolean {
  return NAMES.some((name) => name !== "sort" && filters[name] !== "");
}

const UNITS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The milliseconds of `15m`, `1h` or `7d`; 0 for anything else. */
export function spanMs(within: string): number {
  const [, number, unit] = /^(\d+)([mhd])$/.exec(within) ?? [];
  return number && unit ? Number(number) * (UNITS[unit] as number) : 0;
}

/** The query of the API. A span of time ends now. */
export function toApi({ within, ...filters }: Filters, nowMs: number): Query {
  const since = spanMs(within);
  const query = { ...toQuery({ ...filters, within: "" }), state: STATE_SETS[filters.state] ?? filters.state };
  return since ? { ...query, newer_than: new Date(nowMs - since).toISOString() } : query;
}

/** The same conditions, as the body of an action takes them. */
export function toFilter(filters: Filters, nowMs: number): Record<string, unknown> {
  const { state, sort: _, batch, within, ...rest } = filters;
  if (spanMs(within)) rest.newer_than = new Date(nowMs - spanMs(within)).toISOString();
  const filter: Record<string, unknown> = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== ""));
  if (state) filter["states"] = STATE_SETS[state] ?? [state];
  if (batch) filter["batch"] = Number(batch);
  return filter;
}
