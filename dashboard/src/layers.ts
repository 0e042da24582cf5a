// The graph of a flow: each node right of all that it waits for. Only says where things stand.

import { type Edge, NODE_HEIGHT, NODE_WIDTH, type Node as Placed } from "./graph";
import type { FlowNode } from "./types";

const GAP_X = 56;
const GAP_Y = 12;

export interface Layers {
  nodes: Placed[];
  edges: Edge[];
  width: number;
  height: number;
}

/** What each node waits for, among those that are known: nodes by id, and the members of groups. */
export function predecessors(nodes: FlowNode[]): Map<string, string[]> {
  const known = new Set(nodes.map((node) => node.id));
  const members = new Map<string, string[]>();
  for (const node of nodes) if (node.group) members.set(node.group, [...(members.get(node.group) ?? []), node.id]);
  return new Map(nodes.map((node) => [
    node.id,
    [...node.after.filter((id) => known.has(id)), ...node.groups.flatMap((group) => members.get(group) ?? [])],
  ]));
}

export function layOutFlow(nodes: FlowNode[]): Layers {
  const before = predecessors(nodes);
  const depths = new Map<string, number>();
  const depth = (id: string): number => {
    const found = depths.get(id);
    if (found !== undefined) return found;
    depths.set(id, 0); // A cycle cannot be; should there be one, it ends here.
    const own = Math.max(-1, ...(before.get(id) ?? []).map(depth)) + 1;
    depths.set(id, own);
    return own;
  };
  const columns: FlowNode[][] = [];
  for (const node of nodes) (columns[depth(node.id)] ??= []).push(node);
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  const height = tallest * (NODE_HEIGHT + GAP_Y) - GAP_Y;
  const placed = new Map<string, Placed>();
  columns.forEach((column, x) => column.forEach((node, row) => {
    const top = (height - (column.length * (NODE_HEIGHT + GAP_Y) - GAP_Y)) / 2;
    placed.set(node.id, { id: node.id, role: "child", x: x * (NODE_WIDTH + GAP_X), y: top + row * (NODE_HEIGHT + GAP_Y) });
  }));
  const edges = nodes.flatMap((node) => (before.get(node.id) ?? []).map((from) => ({
    from: placed.get(from) as Placed, to: placed.get(node.id) as Placed,
  })));
  return { nodes: [...placed.values()], edges, width: columns.length * (NODE_WIDTH + GAP_X) - GAP_X, height };
}
