// Filters of the table of tasks: in the address of the page, as the API's query, and as the filter
// of an action on all that match.

import type { Query } from "./route";

export interface Filters {
  text: string;
  state: string;
  status: string;
  queue: string;
  name: string;
  key: string;
  tag: string;
  batch: string;
  parent: string;
  sort: string;
}

export const SORT = "-created";
export const EMPTY: Filters = {
  text: "", state: "", status: "", queue: "", name: "", key: "", tag: "", batch: "", parent: "", sort: SORT,
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

/** The same conditions, as the body of an action takes them. */
export function toFilter(filters: Filters): Record<string, unknown> {
  const { state, sort: _, batch, ...rest } = filters;
  const filter: Record<string, unknown> = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== ""));
  if (state) filter["states"] = [state];
  if (batch) filter["batch"] = Number(batch);
  return filter;
}
