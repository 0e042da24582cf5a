// Inputs: what the predecessors of a node of a flow left, and where its arguments refer to them.

import { Reference } from "./msgpack.js";
import { type Content, decodeResult } from "./values.js";

/** What a predecessor of a node of a flow left. */
export interface Input {
  readonly node: string;
  /** The group that it was a member of; empty if it is waited for by its own name. */
  readonly group: string;
  readonly state: string;
  /** What it returned, as bytes; empty if it failed. */
  readonly result: Uint8Array;
  /** What its last attempt raised, if it failed. */
  readonly error: { type: string; message: string } | null;
}

/** Stands in the place of the result of a node that failed, for a task that collects failures. */
export class NodeError {
  constructor(
    readonly node: string,
    readonly state: string,
    readonly type = "",
    readonly message = "",
  ) {}
}

/** Put results in the place of the references in a value. */
export function replaceReferences(value: unknown, inputs: readonly Input[], content: Content): unknown {
  const replace = (each: unknown): unknown => replaceReferences(each, inputs, content);
  if (Array.isArray(value)) return value.map(replace);
  if (value === null || typeof value !== "object" || value instanceof Uint8Array || value instanceof Date) return value;
  const found = value instanceof Reference ? value : fromPlain(value as Record<string, unknown>);
  if (found === null) return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, replace(each)]));
  const encoded = (found.content || content) as Content;
  if (found.node) {
    const one = inputs.find(({ node }) => node === found.node);
    return one === undefined ? null : valueOf(one, encoded);
  }
  const several = found.group
    ? inputs.filter(({ group }) => group === found.group)
    : found.nodes.flatMap((name) => inputs.find(({ node }) => node === name) ?? []);
  return several.map((each) => valueOf(each, encoded));
}

function valueOf(input: Input, content: Content): unknown {
  if (input.state === "succeeded") return decodeResult(content, input.result);
  return new NodeError(input.node, input.state, input.error?.type, input.error?.message);
}

/** The form of a reference in JSON. */
function fromPlain(value: Record<string, unknown>): Reference | null {
  const { $result: one, $results: many, content = "", ...rest } = value;
  if (Object.keys(rest).length > 0 || typeof content !== "string" || (one === undefined) === (many === undefined)) return null;
  if (typeof one === "string" && one !== "") return new Reference(one, "", [], content);
  if (typeof many === "string" && many !== "") return new Reference("", many, [], content);
  const isList = Array.isArray(many) && many.every((name) => typeof name === "string");
  return isList ? new Reference("", "", many as string[], content) : null;
}
