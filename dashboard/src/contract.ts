// Contracts: what a task takes, as its workers say, and the call that a form makes of it.

export type Schema = Record<string, unknown>;

export interface Parameter {
  name: string;
  kind?: "any" | "place" | "name" | "rest" | "rest_named";
  schema?: Schema;
  required?: boolean;
  default?: unknown;
}

export interface Contract {
  queue: string;
  name: string;
  signature: string;
  doc: string;
  content: string;
  parameters: Parameter[];
}

/** How an argument is asked for: by a choice, a number, a line of text, or as JSON. */
export type Asked = { how: "choice"; choices: unknown[] } | { how: "number" | "text" | "json" };

const NUMBERS = ["integer", "number"];

export function askedFor(parameter: Parameter): Asked {
  const schema = parameter.schema ?? {};
  const isRest = parameter.kind === "rest" || parameter.kind === "rest_named";
  if (isRest) return { how: "json" };
  if (Array.isArray(schema.enum)) return { how: "choice", choices: schema.enum };
  if (schema.type === "boolean") return { how: "choice", choices: [true, false] };
  if (NUMBERS.includes(String(schema.type))) return { how: "number" };
  return { how: schema.type === "string" ? "text" : "json" };
}

export function helpFor(parameter: Parameter): string {
  if (parameter.kind === "rest") return "A list of further arguments, as JSON";
  if (parameter.kind === "rest_named") return "An object of further arguments by name, as JSON";
  const type = askedFor(parameter).how === "json" ? "JSON" : "";
  if (parameter.required) return type;
  const known = parameter.default === undefined ? "" : `Empty: ${JSON.stringify(parameter.default)}`;
  return [type, known].filter(Boolean).join(". ");
}

/**
 * The payload of a call as JSON, and what is wrong. Empty fields are left out; text that is required is sent
 * empty. Names go by name, but for parameters that are given by place alone.
 */
export function callOf(contract: Contract, given: Record<string, string>): { payload: string; problems: string[] } {
  const args: unknown[] = [];
  let kwargs: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const parameter of contract.parameters) {
    const asked = askedFor(parameter);
    const text = given[parameter.name] ?? "";
    if (!text.trim() && !(parameter.required && asked.how === "text")) {
      if (parameter.required) problems.push(`${parameter.name}: is required`);
      continue;
    }
    const value = asked.how === "text" ? text : parsed(text);
    if (value === undefined || (asked.how === "number" && typeof value !== "number")) {
      problems.push(`${parameter.name}: is ${asked.how === "number" ? "no number" : "not JSON"}`);
    } else if (parameter.kind === "rest") {
      if (Array.isArray(value)) args.push(...value);
      else problems.push(`${parameter.name}: is no list`);
    } else if (parameter.kind === "rest_named") {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) kwargs = { ...kwargs, ...value };
      else problems.push(`${parameter.name}: is no object`);
    } else if (parameter.kind === "place" || (parameter.kind !== "name" && takesFurther(contract))) args.push(value);
    else kwargs[parameter.name] = value;
  }
  return { payload: JSON.stringify([args, kwargs]), problems };
}

/** Further arguments by place stand behind all others that are given by place. */
function takesFurther(contract: Contract): boolean {
  return contract.parameters.some((each) => each.kind === "rest");
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
