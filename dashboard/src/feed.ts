// The feed: the live connection of this page, as its parts see it.

import { namespace, refreshVisitor, socketAddress } from "./api";
import { type Connection, Live, type Wire } from "./live";
import { createStore } from "./store";
import type { Pulse } from "./types";

export const connection = createStore<Connection>("connecting");
export const pulse = createStore<Pulse | null>(null);

/** The broker's clock less ours, so that ages are right on a machine whose clock is not. */
let aheadMs = 0;

export function nowMs(): number {
  return Date.now() + aheadMs;
}

export function startFeed(): () => void {
  const live = new Live(
    {
      open: () => new WebSocket(socketAddress("pulse")) as unknown as Wire,
      later: (call, ms) => window.setTimeout(call, ms),
      forget: (timer) => window.clearTimeout(timer),
      chance: Math.random,
    },
    {
      connection(now) {
        connection.set(now);
        // It may be that the broker is there, and lets us in no more.
        if (now === "lost") void refreshVisitor().catch(() => undefined);
      },
      pulse(next) {
        if (next.stats.now) aheadMs = Date.parse(next.stats.now) - Date.now();
        pulse.set(next);
      },
    },
  );
  const hurry = () => live.hurry();
  window.addEventListener("online", hurry);
  document.addEventListener("visibilitychange", hurry);
  const elsewhere = namespace.subscribe(() => pulse.set(null));
  live.start();
  return () => {
    elsewhere();
    window.removeEventListener("online", hurry);
    document.removeEventListener("visibilitychange", hurry);
    live.stop();
    pulse.set(null);
  };
}
