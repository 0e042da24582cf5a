// The shapes of the API, as far as the page reads them.

export const STATES = [
  "held", "waiting", "scheduled", "ready", "assigned", "running", "paused", "succeeded", "dead", "killed",
] as const;
export type State = (typeof STATES)[number];

/** Sets of states that are asked for as one. */
export const STATE_SETS: Record<string, readonly State[]> = {
  pending: ["held", "waiting", "scheduled", "ready", "paused"],
  leased: ["assigned", "running"],
};

export const ACTIONS = ["play", "pause", "hold", "retry", "kill", "purge"] as const;
export type Action = (typeof ACTIONS)[number];

export const PERMISSIONS = ["submit_tasks", "read_tasks", "cancel_tasks", "work", "admin"] as const;
export type Permission = (typeof PERMISSIONS)[number];

export const ROLES = ["read", "submit", "work", "operate", "admin"] as const;

export interface ApiKey {
  id: string;
  name: string;
  permissions: Permission[];
  queues: string[];
  namespace: string | null;
  expires_at: string | null;
  created_at: string | null;
  configured: boolean;
  role: string | null;
}

export interface Visitor {
  needs_key: boolean;
  name: string | null;
  permissions: Permission[];
  queues: string[];
  /** The namespace that the key is limited to; null for none. */
  namespace: string | null;
  namespaces: string[];
  expires_at: string | null;
  version: string;
  is_cluster: boolean;
}

export interface Member {
  node: string;
  role: string;
  epoch: number;
  applied: number;
  lag: number;
  clock_offset_s: number;
  version: string;
  level_max: number;
  heard_s: number | null;
  why: string;
}

export interface ClusterInfo {
  cluster: string;
  node: string;
  condition: string;
  problems: string[];
  leader: string;
  epoch: number;
  level: number;
  members: Member[];
  log: { engine: string; size: number; leader: string; copies: { node: string; is_current: boolean; lag: number }[] } | null;
  failovers: { epoch: number; node: string; at: string }[];
}

export interface Stats {
  succeeded_last_hour: number;
  dead_last_hour: number;
  workers: number;
  mean_run_s: number;
  depth_by_tier: { high: number; normal: number; low: number };
  counts: Partial<Record<State, number>>;
  ended: Partial<Record<State, number>>;
  sessions: number;
  started_at: string;
  now: string | null;
  durability: string;
  version: string;
}

export type PolicyValue = string | number | boolean;

export interface Queue {
  queue: string;
  depth: number;
  counts: Partial<Record<State, number>>;
  workers: number;
  paused_by: string | null;
  oldest_ready_at: string | null;
  /** How many shares have ready tasks. Those with the most are there when one queue is asked for. */
  share_count: number;
  shares: Share[];
  policy: Record<string, PolicyValue>;
}

export interface Share {
  share: string;
  ready: number;
  weight: number;
}

export interface Worker {
  worker: string;
  load: number;
  heard_at: string | null;
  joined_at: string | null;
  state: string;
  queues: string[];
  keys: string[];
  slots: number;
  labels: Record<string, string>;
  stats: Record<string, number>;
  gone_at: string | null;
  why_gone: string | null;
  succeeded: number;
  failed: number;
  /** How much of what it has, and how much of that its tasks take. */
  resources: Amounts;
  used: Amounts;
}

export type Amounts = Record<string, number>;
export type Labels = Record<string, string[]>;

export type GroupAction = "start" | "stop" | "pin" | "unpin";

export interface Launch {
  launch: string;
  state: string;
  version: string;
  detail: string;
}

export interface Group {
  key: string;
  state: string;
  wanted: number;
  ready: number;
  leased: number;
  workers: string[];
  launches: Launch[];
  is_pinned: boolean;
  active_at: string | null;
  rate: number;
  failures: number;
  trouble: string | null;
}

export interface Pool {
  queue: string;
  settings: Record<string, PolicyValue>;
  up: number;
  waiting: number;
  launched: number;
  failed: number;
  groups: Group[];
  failures: { at: string; key: string; why: string }[];
}

export interface Pulse {
  type: "pulse";
  sequence: number;
  stats: Stats;
  queues: Queue[];
  rates: Record<string, number>;
  workers: Worker[];
  trouble: string;
}

export interface Task {
  id: string;
  name: string;
  priority: number;
  created_at: string;
  updated_at: string | null;
  failures: number;
  worker: string | null;
  queue: string;
  state: State;
  key: string;
  alias: string;
  tags: string[];
  headers: Record<string, unknown>;
  batch: number;
  parent: string | null;
  by: string;
  due_at: string | null;
  expires_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  forget_at: string | null;
  timeout_seconds: number | null;
  retries: number | null;
  attempts: number;
  fence: number | null;
  crashes: number;
  interruptions: number;
  depends_on: string[];
  waiting_for: string[];
  reason: string | null;
  error: { type: string; message: string; trace: string } | null;
  progress: { at: string | null; percent: number | null; note: string } | null;
  request: { signal: string; stage: string; by: string; at: string | null } | null;
  payload_size: number;
  payload: string | null;
  result_size: number;
  how: string | null;
  answer: AnswerOf | null;
  steps: Step[];
  waits_for: string | null;
  events: SentEvent[];
  callbacks: CallbackOf[];
  pace: Pace | null;
  /** Amounts of resources, and labels with the values that will do. */
  needs: Record<string, number | string[]>;
  prefer: Labels;
  avoid: Labels;
  sticky: string;
}

/** Where the end of a task is posted, and the task that does so once it has ended. */
export interface CallbackOf {
  url: string;
  on: string[];
  task: string | null;
}

/** How a task is spread over time, with others of its kind. */
export interface Pace {
  how: "debounce" | "throttle" | "replace";
  key: string;
  span_seconds: number | null;
  at_most_seconds: number | null;
  drop: boolean;
}

/** A step of a task that is done for good. */
export interface Step {
  name: string;
  at: string | null;
  took_seconds: number | null;
  size: number;
  is_late: boolean;
}

/** An event that was sent to a task and is not waited for yet. */
export interface SentEvent {
  event: string;
  at: string | null;
  by: string;
  size: number;
}

/** Who made the answer to a request, and who had use of it. */
export interface AnswerOf {
  identity: string;
  version: string;
  worker: string | null;
  made_at: string | null;
  until_at: string | null;
  uses: number;
  used_at: string | null;
  used_by: string | null;
  pinned_by: string | null;
}

/** An answer that is kept, and the task that gave it. */
export interface Answer extends AnswerOf {
  queue: string;
  task: string;
  name: string;
  size: number;
}

export interface TaskList {
  tasks: Task[];
  total: number | null;
  cursor: string | null;
  at: string | null;
}

export interface Happening {
  at: string | null;
  what: string;
  by: string;
  detail: string;
}

export interface Explanation {
  state: State;
  causes: { why: string; text: string; facts: Record<string, string | number> }[];
}

export interface Batch {
  queue: string;
  number: number;
  counts: Partial<Record<State, number>>;
  is_full: boolean;
}

export interface Run {
  slot_at: string;
  at: string;
  task: string;
  how: string;
  state: State | null;
}

export interface Schedule {
  name: string;
  state: string;
  settings: { queue: string; task: string; cron: string; zone: string; every: string; times: string[] };
  next_at: string | null;
  app: string | null;
  orphaned_at: string | null;
  fired: number;
  missed: number;
  missed_at: string | null;
  why_missed: string | null;
  trouble: string | null;
  upcoming: string[];
  runs: Run[];
}

/** A node of a flow: a task, and what it waits for. */
export interface FlowNode {
  id: string;
  node: string;
  state: State;
  queue: string;
  name: string;
  after: string[];
  group: string | null;
  groups: string[];
  compensates: string | null;
  attempts: { worker: string; assigned_at: string; started_at: string | null; ended_at: string | null; outcome: string | null }[];
  error: { type: string; message: string } | null;
}

export interface Flow {
  id: string;
  name: string;
  state: State;
  queue: string;
  total: number;
  done: number;
  succeeded: number;
  dead: number;
  killed: number;
  phase: string | null;
  on_failure: string;
  output: string | null;
  alias: string | null;
  by: string;
  created_at: string;
  expires_at: string | null;
  ended_at: string | null;
  error: { type: string; message: string } | null;
  groups: { name: string; width: number; is_open: boolean; total: number; done: number; succeeded: number }[];
  nodes: FlowNode[];
  cursor: string | null;
}

export interface Limit {
  tag: string;
  limit: number;
  in_flight: number;
}

/** The use of a limit by the tasks with some values of its keys. */
export interface Gate {
  values: string[];
  in_flight: number;
  waiting: number;
  opens_at: string | null;
}

export interface LimitSettings {
  queue: string;
  task: string;
  keys: string[];
  /** How many may run at once; -1 for any number. */
  concurrency: number;
  rate: number;
  per: string;
  burst: number;
  cost: number;
  cost_key: string;
  on_full: string;
}

export interface KeyLimit {
  name: string;
  settings: LimitSettings;
  in_flight: number;
  waiting: number;
  opens_at: string | null;
  gate_count: number;
  gates: Gate[];
}

export interface NamespaceInfo {
  name: string;
  settings: Record<string, string | number>;
  used: Record<string, number>;
  queues: number;
  created_at: string | null;
  by: string | null;
  is_declared: boolean;
}

/** What an administrator did, or tried to. */
export interface Act {
  number: number;
  at: string;
  what: string;
  by: string;
  namespace: string;
  about: string;
  origin: string;
  outcome: string;
}

export interface Spread {
  number: number;
  mean_s: number;
  p50_s: number;
  p95_s: number;
  p99_s: number;
}

export interface Point {
  at: string;
  submitted: number;
  succeeded: number;
  dead: number;
  killed: number;
  failures: number;
  depth: number;
  leased: number;
  workers: number;
  per_second: number;
  queued: Spread | null;
  started: Spread | null;
  finished: Spread | null;
}

export interface Series {
  step_s: number;
  points: Point[];
}

export interface ActionResult {
  changed: number;
  requested: number;
  refused: { task: string; error: { error: string } }[];
  more: boolean;
}
