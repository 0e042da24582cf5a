// The graph of a task: what it waits for and belongs to on the left, itself, its children on the
// right. Only says where things stand; drawing is somebody else's work.

export interface Node {
  id: string;
  role: "parent" | "dependency" | "self" | "child";
  x: number;
  y: number;
}

export interface Edge {
  from: Node;
  to: Node;
}

export interface Graph {
  nodes: Node[];
  edges: Edge[];
  width: number;
  height: number;
}

export const NODE_WIDTH = 170;
export const NODE_HEIGHT = 44;
const GAP_X = 56;
const GAP_Y = 14;

export function layOut(self: string, parent: string | null, dependencies: string[], children: string[]): Graph {
  const before: Pick<Node, "id" | "role">[] = [
    ...(parent ? [{ id: parent, role: "parent" as const }] : []),
    ...dependencies.map((id) => ({ id, role: "dependency" as const })),
  ];
  const after = children.map((id) => ({ id, role: "child" as const }));
  const columns = [before, [{ id: self, role: "self" as const }], after].filter((column) => column.length);
  const tallest = Math.max(...columns.map((column) => column.length));
  const height = tallest * (NODE_HEIGHT + GAP_Y) - GAP_Y;
  const nodes = columns.flatMap((column, index) => {
    const top = (height - (column.length * (NODE_HEIGHT + GAP_Y) - GAP_Y)) / 2;
    return column.map((each, row) => ({
      ...each,
      x: index * (NODE_WIDTH + GAP_X),
      y: top + row * (NODE_HEIGHT + GAP_Y),
    }));
  });
  const centre = nodes.find((node) => node.role === "self") as Node;
  const edges = nodes
    .filter((node) => node !== centre)
    .map((node) => (node.role === "child" ? { from: centre, to: node } : { from: node, to: centre }));
  return { nodes, edges, width: columns.length * (NODE_WIDTH + GAP_X) - GAP_X, height };
}

/** The line between two nodes, for the `d` of a path. */
export function curve({ from, to }: Edge): string {
  const [x1, y1] = [from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2];
  const [x2, y2] = [to.x, to.y + NODE_HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}
