// The live connection: the pulse of the broker, and what to do when it stops.
//
// A pulse says how everything is now, so nothing has to be caught up with after a loss: the next
// one is the truth again. Silence is a loss too: the broker speaks at least every few seconds.

import type { Pulse } from "./types";

export type Connection = "connecting" | "live" | "lost";

export interface Wire {
  onmessage: ((event: { data: string }) => void) | null;
  onclose: (() => void) | null;
  close(): void;
}

export interface Surroundings {
  open(): Wire;
  later(call: () => void, ms: number): number;
  forget(timer: number): void;
  chance(): number;
}

export interface Told {
  connection(now: Connection): void;
  pulse(pulse: Pulse): void;
}

export const SILENCE_MS = 12_000;
const WAIT_MS_FIRST = 500;
const WAIT_MS_MAX = 10_000;

/** How long to wait before the next try: longer each time, and not all pages at once. */
export function waitMs(tries: number, chance: number): number {
  const whole = Math.min(WAIT_MS_FIRST * 2 ** tries, WAIT_MS_MAX);
  return Math.round(whole * (0.5 + chance / 2));
}

export class Live {
  private wire: Wire | null = null;
  private timer: number | null = null;
  private tries = 0;
  private isOver = false;

  constructor(
    private readonly around: Surroundings,
    private readonly told: Told,
  ) {}

  start(): void {
    this.told.connection("connecting");
    this.connect();
  }

  stop(): void {
    this.isOver = true;
    this.drop();
  }

  /** Try again now: somebody looks at the page, or the network is back. */
  hurry(): void {
    if (this.wire === null && !this.isOver) this.connect();
  }

  private connect(): void {
    this.drop();
    const wire = this.around.open();
    this.wire = wire;
    this.await(SILENCE_MS, () => this.lose());
    wire.onmessage = (event) => this.hear(event.data);
    wire.onclose = () => this.lose();
  }

  private hear(text: string): void {
    const message = JSON.parse(text) as Pulse | { type: "quiet" };
    this.tries = 0;
    this.told.connection("live");
    this.await(SILENCE_MS, () => this.lose());
    if (message.type === "pulse") this.told.pulse(message);
  }

  private lose(): void {
    this.drop();
    if (this.isOver) return;
    this.told.connection("lost");
    this.await(waitMs(this.tries, this.around.chance()), () => this.connect());
    this.tries += 1;
  }

  private await(ms: number, call: () => void): void {
    if (this.timer !== null) this.around.forget(this.timer);
    this.timer = this.around.later(call, ms);
  }

  private drop(): void {
    if (this.timer !== null) this.around.forget(this.timer);
    this.timer = null;
    const wire = this.wire;
    this.wire = null;
    if (wire === null) return;
    wire.onmessage = wire.onclose = null;
    wire.close();
  }
}
