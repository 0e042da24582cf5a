// A store: one value that several parts of the page look at.

import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  subscribe(call: () => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const calls = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const call of [...calls]) call();
    },
    subscribe(call) {
      calls.add(call);
      return () => void calls.delete(call);
    },
  };
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState<T>(() => store.get());
  useEffect(() => {
    const look = () => setValue(() => store.get());
    look();
    return store.subscribe(look);
  }, [store]);
  return value;
}
