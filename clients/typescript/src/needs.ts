// Needs: what a task asks of its worker, and what a worker has.
//
// Amounts travel as whole numbers of thousandths, so that half a processor is exact.

/** An amount: a number, or a text with a unit such as "64GiB" or "500m". */
export type Amount = number | string;

/** Amounts of resources, and values of labels of which one will do. */
export type Needs = Readonly<Record<string, Amount | readonly string[]>>;

/** Labels, each with a value or with several of which one will do. */
export type Labels = Readonly<Record<string, string | readonly string[]>>;

/** Where a task wants to run. */
export interface Placement {
  /** What its worker must have: numbers and sizes are resources, other texts are labels. */
  needs?: Needs;
  /** Labels of workers that it goes to first. */
  prefer?: Labels;
  /** Labels of workers that it goes to only if no other could run it. */
  avoid?: Labels;
  /** The next task of the same queue and value goes to the same worker, if that has room. */
  sticky?: string;
}

const SIZE = /^(\d{1,20})(?:\.(\d{1,9}))?(m|[kMGTP]B?|[KMGTP]iB?)?$/;
const POWERS = "kMGTP";

/** Return an amount in thousandths. */
export function thousandths(name: string, amount: Amount): number | bigint {
  if (typeof amount === "number") return safe(BigInt(Math.round(checked(name, amount) * 1000)));
  const found = SIZE.exec(amount.trim());
  if (found === null) throw new RangeError(`${name}: must be a number or a text such as "64GiB", got ${JSON.stringify(amount)}`);
  const [, whole = "", fraction = "", unit = ""] = found;
  const digits = BigInt(whole + fraction) * scale(unit);
  const parts = 10n ** BigInt(fraction.length);
  if (digits % parts !== 0n) throw new RangeError(`${name}: is finer than a thousandth: ${amount}`);
  return safe(digits / parts);
}

/** Return the resources of a worker as JOIN takes them. */
export function resourcesOf(given: Readonly<Record<string, Amount>>): Record<string, number | bigint> {
  return Object.fromEntries(Object.entries(given).map(([name, amount]) => [name, thousandths(name, amount)]));
}

/** Return what a task asks of its worker as SUBMIT takes it; null for nothing. */
export function needsOf({ needs = {}, prefer = {}, avoid = {}, sticky = "" }: Placement): unknown[] | null {
  const given = Object.entries(needs);
  const isAmount = (value: Amount | readonly string[]): value is Amount =>
    typeof value === "number" || (typeof value === "string" && Boolean(SIZE.exec(value.trim())?.[3]));
  const resources = given.flatMap(([name, value]) => (isAmount(value) ? [[name, thousandths(name, value)] as const] : []));
  const labels = given.filter(([, value]) => !isAmount(value)) as [string, string | readonly string[]][];
  const parts = [sorted(resources), pairs(labels), pairs(Object.entries(prefer)), pairs(Object.entries(avoid))];
  return sticky === "" && parts.every((part) => part.length === 0) ? null : [...parts, sticky];
}

function pairs(labels: [string, string | readonly string[]][]): (readonly [string, string[]])[] {
  return sorted(labels.map(([name, values]) => [name, [...new Set(typeof values === "string" ? [values] : values)].sort()] as const));
}

/** Equal needs are equal, however they were written. */
function sorted<T extends readonly [string, ...unknown[]]>(pairs: T[]): T[] {
  return pairs.sort(([a], [b]) => (a < b ? -1 : 1));
}

function scale(unit: string): bigint {
  if (unit === "") return 1000n;
  if (unit === "m") return 1n;
  const base = unit.includes("i") ? 1024n : 1000n;
  return 1000n * base ** BigInt(POWERS.indexOf(unit[0]!.replace("K", "k")) + 1);
}

function checked(name: string, amount: number): number {
  if (!Number.isFinite(amount) || amount < 0) throw new RangeError(`${name}: must be a number that is not negative, got ${amount}`);
  return amount;
}

const safe = (amount: bigint): number | bigint => (amount <= Number.MAX_SAFE_INTEGER ? Number(amount) : amount);
