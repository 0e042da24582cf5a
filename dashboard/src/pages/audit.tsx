import { useEffect, useState } from "preact/hooks";
import { address, ask } from "../api";
import { nowMs } from "../feed";
import { spanMs } from "../filters";
import { useFetched } from "../hooks";
import { Clock, Empty, PageHead, Problem } from "../parts/basic";
import { MomentFilter, TextFilter } from "../parts/filters";
import { type Query, type Route, toHash } from "../route";
import type { Act } from "../types";

const PAGE_ROWS = 50;
const EMPTY = { by: "", what: "", text: "", within: "", newer_than: "", older_than: "" };
type Filters = typeof EMPTY;

/** The query of the API. A span of time ends now. */
function toApi({ within, ...rest }: Filters): Query {
  return within ? { ...rest, newer_than: new Date(nowMs() - spanMs(within)).toISOString() } : rest;
}

export function Audit({ route }: { route: Route }) {
  const filters = Object.fromEntries(Object.keys(EMPTY).map((name) => [name, route.query.get(name) ?? ""])) as Filters;
  const where = toHash("audit", "", filters);
  const [cursors, setCursors] = useState<string[]>([]);
  useEffect(() => setCursors([]), [where]);
  const cursor = cursors.at(-1) ?? "";
  const { data, failure, isLoading } = useFetched<{ acts: Act[]; cursor: string | null }>(
    (signal) => ask("audit", { signal, query: { ...toApi(filters), limit: PAGE_ROWS, cursor } }),
    [where, cursor],
  );
  const set = (part: Partial<Filters>) => { location.hash = toHash("audit", "", { ...filters, ...part }); };
  const text = (name: "by" | "what" | "text", label: string) => (
    <TextFilter label={label} value={filters[name]} onChange={(value) => set({ [name]: value })} />
  );
  const acts = data?.acts ?? [];
  return (
    <>
      <PageHead title="Audit" note="What administrators did, or tried to, the latest first. The broker keeps the latest 1,000 of each namespace.">
        <a class="button" href={address("audit", { ...toApi(filters), format: "jsonl" })} download="audit.jsonl">Export</a>
      </PageHead>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        {text("by", "Who")}
        {text("what", "What")}
        {text("text", "In any field")}
        <MomentFilter label="When" value={filters} onChange={set} />
        {Object.values(filters).some((each) => each) && <button type="button" class="plain" onClick={() => set(EMPTY)}>Clear</button>}
      </form>
      <Problem failure={failure} />
      <div class="card scroll">
        <table class="folds">
          <thead><tr><th scope="col">At</th><th scope="col">Who</th><th scope="col">What</th><th scope="col">Namespace</th><th scope="col">From</th><th scope="col">Outcome</th></tr></thead>
          <tbody>{acts.map((act) => <ActRow key={act.number} act={act} />)}</tbody>
        </table>
        {data && !acts.length && <Empty>No act matches.</Empty>}
      </div>
      <nav class="row spread pager" aria-label="Pages">
        <span class="dim" role="status">{acts.length ? `Page ${cursors.length + 1}` : "\u00a0"}</span>
        <span class="row">
          <button type="button" disabled={isLoading || !cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>Previous</button>
          <button type="button" disabled={isLoading || !data?.cursor} onClick={() => setCursors([...cursors, data?.cursor as string])}>Next</button>
        </span>
      </nav>
    </>
  );
}

function ActRow({ act }: { act: Act }) {
  return (
    <tr>
      <td><Clock at={act.at} /></td>
      <td class="cut" title={act.by}>{act.by || <span class="dim">-</span>}</td>
      <td class="wide">{act.what.replaceAll("_", " ")}<div class="dim whole">{act.about}</div></td>
      <td>{act.namespace || <span class="dim">-</span>}</td>
      <td>{act.origin || <span class="dim">-</span>}</td>
      <td>{act.outcome === "done" ? act.outcome : <span class="ink-red">{act.outcome.replaceAll("_", " ")}</span>}</td>
    </tr>
  );
}
