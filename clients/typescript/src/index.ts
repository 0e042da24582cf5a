// Submit tasks to a Jackalope broker, and run them, from Node.

export type { Reach } from "./address.js";
export {
  Client,
  Handle,
  type Acted,
  type Action,
  type Ended,
  type NewTask,
  type Progress,
  type State,
  type SubmitOptions,
  type TaskOptions,
  type TaskPage,
  type TaskView,
  type Waiting,
} from "./client.js";
export {
  ConnectionLost,
  JackalopeError,
  PartlyRefused,
  ProtocolError,
  Refused,
  Reject,
  RetryLater,
  Stopped,
  TaskFailed,
  Throttled,
  TimedOut,
  type RefusalCode,
  type RemoteError,
} from "./errors.js";
export { newTaskId } from "./ids.js";
export type { Limit } from "./limits.js";
export { NodeError, type Input } from "./inputs.js";
export type { LogLevel, TaskLog } from "./logs.js";
export type { Amount, Labels, Needs, Placement } from "./needs.js";
export type { Content } from "./values.js";
export { Worker, type Context, type Contract, type TaskFunction, type WorkerOptions } from "./worker.js";
