// Hooks: how parts of the page load what they show, and keep it fresh.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { namespace } from "./api";
import { connection, nowMs, pulse } from "./feed";
import { type Route, parseRoute } from "./route";
import { useStore } from "./store";

export interface Fetched<T> {
  data: T | null;
  failure: Error | null;
  isLoading: boolean;
  reload: () => void;
}

/** Fresh data must not cost the broker more than a part of its time. */
const REST_FACTOR = 5;
const REST_MS_MIN = 1_000;

/**
 * Load something, again whenever `deps` change, and again when the broker has moved on: at most
 * once a second, and less often if it takes long. What is shown stays until the new is there.
 */
export function useFetched<T>(
  load: (signal: AbortSignal) => Promise<T>,
  deps: unknown[],
  isLive = true,
): Fetched<T> {
  const [state, setState] = useState<Omit<Fetched<T>, "reload">>({ data: null, failure: null, isLoading: true });
  const here = useStore(namespace);
  const sequence = useStore(pulse)?.sequence;
  const isConnected = useStore(connection) === "live";
  const [turn, setTurn] = useState(0);
  const pace = useRef({ ended: 0, took: 0, isBusy: false, isDue: false, timer: 0 });
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    const control = new AbortController();
    const began = performance.now();
    pace.current.isBusy = true;
    setState((before) => ({ ...before, isLoading: true }));
    const settle = () => {
      if (control.signal.aborted) return;
      const now = performance.now();
      Object.assign(pace.current, { isBusy: false, ended: now, took: now - began });
      if (pace.current.isDue) schedule();
    };
    latest.current(control.signal).then(
      (data) => {
        if (!control.signal.aborted) setState({ data, failure: null, isLoading: false });
        settle();
      },
      (failure: Error) => {
        if (!control.signal.aborted) setState((before) => ({ ...before, failure, isLoading: false }));
        settle();
      },
    );
    return () => control.abort();
  }, [...deps, here, turn]);

  const schedule = useCallback(() => {
    const { current } = pace;
    current.isDue = true;
    if (current.isBusy) return;
    window.clearTimeout(current.timer);
    const rest = Math.max(REST_MS_MIN, current.took * REST_FACTOR) - (performance.now() - current.ended);
    current.timer = window.setTimeout(() => {
      current.isDue = false;
      setTurn((before) => before + 1);
    }, Math.max(0, rest));
  }, []);

  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else if (isLive && isConnected && sequence !== undefined) schedule();
  }, [sequence, isLive, isConnected]);
  useEffect(() => () => window.clearTimeout(pace.current.timer), []);

  const reload = useCallback(() => setTurn((before) => before + 1), []);
  return { ...state, reload };
}

/** The time, once a second, so that ages grow. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(nowMs);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(nowMs()), everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
  return now;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const look = () => setRoute(parseRoute(location.hash));
    window.addEventListener("hashchange", look);
    return () => window.removeEventListener("hashchange", look);
  }, []);
  return route;
}

/** A value that follows another once that has been still for a moment. */
export function useSettled<T>(value: T, ms = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(() => value), ms);
    return () => window.clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
