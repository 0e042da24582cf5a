import { useState } from "preact/hooks";
import { ask } from "../api";
import { pulse } from "../feed";
import { useFetched } from "../hooks";
import { Bar, Empty, PageHead, Problem } from "../parts/basic";
import { toHash } from "../route";
import { useStore } from "../store";
import { ENDED, exact } from "../words";
import type { Batch } from "../types";

const PAGE_ROWS = 50;

export function Batches({ name }: { name: string }) {
  const queues = useStore(pulse)?.queues ?? [];
  const queue = name || queues[0]?.queue || "";
  const [before, setBefore] = useState(0);
  const { data, failure } = useFetched<{ batches: Batch[] }>(
    (signal) => queue
      ? ask(`queues/${encodeURIComponent(queue)}/batches`, { signal, query: { limit: PAGE_ROWS, before } })
      : Promise.resolve({ batches: [] }),
    [queue, before],
  );
  const batches = data?.batches ?? [];
  return (
    <>
      <PageHead title="Batches" note="Tasks of a queue are numbered off into batches. One that is full does not change any more.">
        <label class="field">
          <span>Queue</span>
          <select value={queue} onChange={(event) => { setBefore(0); location.hash = toHash("batches", event.currentTarget.value); }}>
            {queues.map((each) => <option key={each.queue}>{each.queue}</option>)}
          </select>
        </label>
      </PageHead>
      <Problem failure={failure} />
      <div class="card scroll">
        <table>
          <thead><tr><th scope="col">Batch</th><th scope="col">Progress</th><th scope="col" class="number">Ended</th><th scope="col" class="number">Dead</th><th scope="col">Full</th></tr></thead>
          <tbody>{batches.map((batch) => <Row key={batch.number} batch={batch} />)}</tbody>
        </table>
        {!batches.length && <Empty>There are no batches here.</Empty>}
      </div>
      <nav class="row end pager" aria-label="Pages">
        <button type="button" disabled={!before} onClick={() => setBefore(0)}>Latest</button>
        <button type="button" disabled={batches.length < PAGE_ROWS} onClick={() => setBefore(batches.at(-1)?.number ?? 0)}>Older</button>
      </nav>
    </>
  );
}

function Row({ batch }: { batch: Batch }) {
  const { counts } = batch;
  const whole = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const ended = ENDED.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  return (
    <tr>
      <td><a href={toHash("tasks", "", { queue: batch.queue, batch: batch.number, sort: "created" })}>{batch.number}</a></td>
      <td class="wide">
        <Bar whole={whole} label={`${exact(ended)} of ${exact(whole)} ended`} parts={[
          { value: counts.succeeded ?? 0, tone: "green" },
          { value: counts.dead ?? 0, tone: "red" },
          { value: counts.killed ?? 0, tone: "grey" },
        ]} />
      </td>
      <td class="number">{exact(ended)} of {exact(whole)}</td>
      <td class="number">{exact(counts.dead ?? 0)}</td>
      <td>{batch.is_full ? "yes" : "filling"}</td>
    </tr>
  );
}
