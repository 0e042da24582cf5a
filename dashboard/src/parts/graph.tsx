// The small graph of a task and its relatives.

import { curve, layOut, NODE_HEIGHT, NODE_WIDTH } from "../graph";
import { toHash } from "../route";
import type { Task } from "../types";
import { shortId, taskName } from "../words";

const ROLES = { parent: "belongs to", dependency: "waits for", self: "this task", child: "child" };

export function Relatives(props: { task: Task; known: Map<string, Task>; children: string[] }) {
  const { task, known } = props;
  const graph = layOut(task.id, task.parent, task.depends_on, props.children);
  return (
    <div class="scroll">
      <svg
        class="graph" role="img" aria-label="The task, what it waits for, and its children"
        width={graph.width + 4} height={graph.height + 4} viewBox={`-2 -2 ${graph.width + 4} ${graph.height + 4}`}
      >
        {graph.edges.map((edge) => <path key={edge.from.id + edge.to.id} d={curve(edge)} class="edge" />)}
        {graph.nodes.map((node) => {
          const found = known.get(node.id);
          return (
            <a key={node.id} href={toHash("task", node.id)} aria-label={`${ROLES[node.role]}: ${(found && taskName(found)) || node.id}, ${found?.state ?? "unknown"}`}>
              <rect x={node.x} y={node.y} width={NODE_WIDTH} height={NODE_HEIGHT} rx={8} class={`node state-${found?.state ?? "none"} ${node.role === "self" ? "self" : ""}`} />
              <text x={node.x + 12} y={node.y + 18} class="node-name">{cut((found && taskName(found)) || shortId(node.id))}</text>
              <text x={node.x + 12} y={node.y + 34} class="node-note">{`${ROLES[node.role]} · ${found?.state ?? "forgotten"}`}</text>
            </a>
          );
        })}
      </svg>
    </div>
  );
}

function cut(text: string): string {
  return text.length > 20 ? `${text.slice(0, 19)}…` : text;
}
