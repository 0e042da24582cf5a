// What happened over time: throughput, latency and depth, of everything or of one queue.

import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../api";
import { useFetched, useNow } from "../hooks";
import { shownSpan, SPANS, toColumns } from "../series";
import type { Series } from "../types";
import { count, rate, span } from "../words";
import { Card, Problem } from "./basic";
import { Chart } from "./chart";

const FRESH_MS = 10_000;

export function Trends({ queue = "" }: { queue?: string }) {
  const [hours, setHours] = useState(1);
  const now = useNow(FRESH_MS);
  const [turn, setTurn] = useState(0);
  useEffect(() => setTurn((before) => before + 1), [now]);
  const { data, failure } = useFetched<Series>(
    (signal) => ask("series", { signal, query: { queue, since: new Date(now - hours * 3_600_000).toISOString() } }),
    [queue, hours, turn],
    false,
  );
  const columns = useMemo(() => toColumns(data), [data]);
  const [from, to] = shownSpan(columns.times, now / 1000, hours);
  const chooser = (
    <div class="segments" role="group" aria-label="Time span">
      {SPANS.map((each) => (
        <button key={each.hours} type="button" aria-pressed={each.hours === hours} onClick={() => setHours(each.hours)}>{each.label}</button>
      ))}
    </div>
  );
  const shared = { times: columns.times, from, to };
  return (
    <>
      <Problem failure={failure} />
      <div class="grid charts">
        <Card title="Throughput" aside={chooser}>
          <Chart {...shared} label="Tasks a second" format={(value) => `${rate(value)}/s`} lines={[
            { label: "Submitted", tone: "blue", values: columns.submitted },
            { label: "Succeeded", tone: "green", values: columns.succeeded, isFilled: true },
            { label: "Dead", tone: "red", values: columns.dead },
          ]} />
        </Card>
        <Card title="Latency">
          <Chart {...shared} label="Seconds, nineteen of twenty tasks" format={span} lines={[
            { label: "Submit to end, p95", tone: "violet", values: columns.finished },
            { label: "In queue, p95", tone: "amber", values: columns.queued },
            { label: "Ran, p50", tone: "teal", values: columns.started },
          ]} />
        </Card>
        <Card title="Depth">
          <Chart {...shared} isWhole label="Tasks" format={(value) => count(Math.round(value))} lines={[
            { label: "Queued", tone: "blue", values: columns.depth, isFilled: true },
            { label: "At workers", tone: "teal", values: columns.leased },
          ]} />
        </Card>
      </div>
    </>
  );
}
