// Routes: which page an address stands for. They live behind the #, so that the page works below
// any path, and the broker serves one file.

export interface Route {
  page: string;
  name: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const [page = "", ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // A broken escape is taken as it stands.
  }
  return { page: page || "overview", name, query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)) };
}

export type Query = Record<string, string | number | readonly string[] | null | undefined>;

export function toHash(page: string, name = "", query: Query = {}): string {
  const parameters = toParameters(query).toString();
  const path = name ? `${page}/${encodeURIComponent(name)}` : page;
  return `#/${path}${parameters ? `?${parameters}` : ""}`;
}

/** Leaves out what is empty. */
export function toParameters(query: Query): URLSearchParams {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (typeof value === "object" && value !== null) for (const each of value) parameters.append(key, each);
    else if (value !== undefined && value !== null && value !== "") parameters.set(key, String(value));
  }
  return parameters;
}
