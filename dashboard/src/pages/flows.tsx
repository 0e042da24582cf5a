import { useState } from "preact/hooks";
import { ask, Failure, may } from "../api";
import { useFetched, useNow } from "../hooks";
import { curve, NODE_HEIGHT, NODE_WIDTH } from "../graph";
import { layOutFlow } from "../layers";
import { Age, Badge, Bar, Card, Empty, Fact, PageHead, Problem, QueueLink } from "../parts/basic";
import { Gantt, type GanttRow, type Span } from "../parts/gantt";
import { attempt, notify } from "../parts/notices";
import { toHash } from "../route";
import type { Action, Flow, FlowNode, State } from "../types";
import { ACTION_WORDS, actionsFor, exact, milliseconds, plural, shortId, toSeconds } from "../words";

const PAGE_ROWS = 50;
const NODES_SHOWN = 100;

interface FlowList {
  flows: Flow[];
  cursor: string | null;
}

function Progress({ flow }: { flow: Flow }) {
  const parts = [{ value: flow.succeeded, tone: "green" }, { value: flow.dead, tone: "red" }, { value: flow.killed, tone: "grey" }];
  return (
    <span class="row nowrap">
      <Bar parts={parts} whole={flow.total} label={`${flow.done} of ${flow.total} nodes done`} />
      <span class="number">{exact(flow.done)} of {exact(flow.total)}</span>
    </span>
  );
}

export function Flows() {
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.at(-1) ?? "";
  const { data, failure } = useFetched<FlowList>((signal) => ask("flows", { signal, query: { limit: PAGE_ROWS, cursor } }), [cursor]);
  const flows = data?.flows ?? [];
  return (
    <>
      <PageHead title="Flows" note="Graphs of tasks that were submitted at once." />
      <Problem failure={failure} />
      <div class="card scroll">
        <table>
          <thead><tr><th scope="col">State</th><th scope="col">Flow</th><th scope="col">Progress</th><th scope="col">Queue</th><th scope="col">Created</th><th scope="col">Ended</th></tr></thead>
          <tbody>
            {flows.map((flow) => (
              <tr key={flow.id}>
                <td><Badge state={flow.state} /> {flow.phase && flow.phase !== "running" && <span class="dim">{flow.phase}</span>}</td>
                <td class="wide"><a href={toHash("flows", flow.id)}>{flow.name || flow.alias || "without a name"}</a> <code class="dim">{shortId(flow.id)}</code></td>
                <td><Progress flow={flow} /></td>
                <td><QueueLink queue={flow.queue} /></td>
                <td><Age at={flow.created_at} /></td>
                <td><Age at={flow.ended_at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
        {data && !flows.length && <Empty>There are no flows.</Empty>}
      </div>
      <nav class="row end pager" aria-label="Pages">
        <button type="button" disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>Previous</button>
        <button type="button" disabled={!data?.cursor} onClick={() => setCursors([...cursors, data?.cursor as string])}>Next</button>
      </nav>
    </>
  );
}

export function FlowPage({ id }: { id: string }) {
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.at(-1) ?? "";
  const { data, failure, reload } = useFetched<Flow>(
    (signal) => ask(`flows/${encodeURIComponent(id)}`, { signal, query: { limit: NODES_SHOWN, cursor } }),
    [id, cursor],
  );
  if (failure instanceof Failure && failure.status === 404) {
    return <><PageHead title="Flow" /><Empty>There is no flow {id}. It may have been deleted, or its time to be kept is over.</Empty></>;
  }
  if (!data) return <><PageHead title="Flow" /><Problem failure={failure} /></>;
  const first = cursors.length * NODES_SHOWN;
  return (
    <>
      <PageHead title={<>{data.name || "Flow"} <Badge state={data.state} /></>} note={data.id}>
        <FlowActions flow={data} onDone={reload} />
      </PageHead>
      <Problem failure={failure} />
      <div class="stack">
        <FlowFacts flow={data} />
        {data.total > NODES_SHOWN && (
          <nav class="row spread pager" aria-label="Pages of nodes">
            <span class="dim">nodes {exact(first + 1)} to {exact(first + data.nodes.length)} of {exact(data.total)}</span>
            <span class="row">
              <button type="button" class="small" disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>Previous</button>
              <button type="button" class="small" disabled={!data.cursor} onClick={() => setCursors([...cursors, data.cursor as string])}>Next</button>
            </span>
          </nav>
        )}
        <Card title="Graph"><Graph nodes={data.nodes} /></Card>
        <Card title="Attempts"><Bars nodes={data.nodes} /></Card>
      </div>
    </>
  );
}

function FlowActions({ flow, onDone }: { flow: Flow; onDone: () => void }) {
  const act = async (action: Action) => {
    const done = await attempt(async () => {
      await ask(`tasks/${flow.id}/${action}`, { method: "POST" });
      notify(`${ACTION_WORDS[action].label}: done.`);
    });
    if (!done) return;
    if (action === "purge") location.hash = toHash("flows");
    else onDone();
  };
  return (
    <>
      {may("cancel_tasks") && actionsFor(flow.state).filter((action) => action !== "hold").map((action) => (
        <button key={action} type="button" title={ACTION_WORDS[action].does} class={action === "kill" || action === "purge" ? "danger" : ""} onClick={() => act(action)}>
          {ACTION_WORDS[action].label}
        </button>
      ))}
      <a class="button" href={toHash("task", flow.id)}>As a task</a>
    </>
  );
}

function FlowFacts({ flow }: { flow: Flow }) {
  return (
    <Card title="Facts">
      <Progress flow={flow} />
      {flow.error && <p class="error-line whole">{flow.error.type}: {flow.error.message}</p>}
      <dl class="facts spaced">
        <Fact name="Queue"><QueueLink queue={flow.queue} /></Fact>
        <Fact name="Submitted"><Age at={flow.created_at} />{flow.by && ` by ${flow.by}`}</Fact>
        {flow.ended_at && <Fact name="Ended"><Age at={flow.ended_at} /></Fact>}
        {flow.expires_at && <Fact name="Deadline"><Age at={flow.expires_at} /></Fact>}
        <Fact name="On failure">{flow.on_failure.replace("_", " ")}</Fact>
        {flow.phase && <Fact name="Phase">{flow.phase}</Fact>}
        {flow.output && <Fact name="Result of">{flow.output}</Fact>}
        {flow.groups.map((group) => (
          <Fact key={group.name} name={`Group ${group.name}`}>
            {exact(group.done)} of {plural(group.total, "node")}{group.is_open && ", open"}{group.width > 0 && `, ${group.width} at a time`}
          </Fact>
        ))}
      </dl>
    </Card>
  );
}

function Graph({ nodes }: { nodes: FlowNode[] }) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const graph = layOutFlow(nodes);
  return (
    <div class="scroll flow-graph" tabIndex={0} role="group" aria-label="The nodes of the flow">
      <svg class="graph" width={graph.width + 4} height={graph.height + 4} viewBox={`-2 -2 ${graph.width + 4} ${graph.height + 4}`}>
        {graph.edges.map((edge) => <path key={edge.from.id + edge.to.id} d={curve(edge)} class="edge" />)}
        {graph.nodes.map((place) => {
          const node = known.get(place.id) as FlowNode;
          const note = node.compensates ? `undoes ${node.compensates}` : node.name;
          return (
            <a key={place.id} href={toHash("task", place.id)} aria-label={`${node.node}: ${node.state}`}>
              <title>{`${node.node}: ${node.state}${node.error ? `: ${node.error.message}` : ""}`}</title>
              <rect x={place.x} y={place.y} width={NODE_WIDTH} height={NODE_HEIGHT} rx={8} class={`node state-${node.state}`} />
              <text x={place.x + 12} y={place.y + 18} class="node-name">{cut(node.node)}</text>
              <text x={place.x + 12} y={place.y + 34} class="node-note">{cut(`${node.state} · ${note}`, 26)}</text>
            </a>
          );
        })}
      </svg>
    </div>
  );
}

const TONES: Partial<Record<State, string>> = { succeeded: "green", dead: "red", killed: "grey", paused: "amber" };
const OUTCOME_TONES: Record<string, string> = { finish: "green", fail: "red", lose: "red", release: "amber", stop: "amber", suspend: "violet" };

/** A row for each node that has begun: its attempts, and how long they took together. */
function rowsOf(nodes: FlowNode[]): GanttRow[] {
  return nodes.filter((node) => node.attempts.length).map((node) => {
    const spans: Span[] = node.attempts.map((each) => ({
      from: each.started_at ?? each.assigned_at,
      to: each.ended_at,
      tone: each.outcome ? (OUTCOME_TONES[each.outcome] ?? TONES[node.state] ?? "teal") : "teal",
      title: `${node.node} at ${each.worker}${each.outcome ? `: ${each.outcome}` : ""}`,
    }));
    const seconds = spans.reduce((sum, each) => sum + (each.to ? toSeconds(each.to) - toSeconds(each.from) : 0), 0);
    return { key: node.id, label: <a href={toHash("task", node.id)}>{node.node}</a>, spans, note: milliseconds(seconds) };
  });
}

function Bars({ nodes }: { nodes: FlowNode[] }) {
  const now = useNow();
  const rows = rowsOf(nodes);
  return rows.length ? <Gantt rows={rows} nowMs={now} label="When each node ran" /> : <Empty>No node has begun.</Empty>;
}

function cut(text: string, most = 20): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
