// Notices: short sentences about what has just been done, or could not be.

import { Failure } from "../api";
import { createStore, useStore } from "../store";

interface Notice {
  id: number;
  text: string;
  isBad: boolean;
}

const notices = createStore<Notice[]>([]);
const SHOWN_MS = 6_000;
let last = 0;

export function notify(text: string, isBad = false): void {
  last += 1;
  const notice = { id: last, text, isBad };
  notices.set([...notices.get().slice(-3), notice]);
  window.setTimeout(() => dismiss(notice.id), isBad ? SHOWN_MS * 2 : SHOWN_MS);
}

function dismiss(id: number): void {
  notices.set(notices.get().filter((each) => each.id !== id));
}

/** Do something, and say how it went. */
export async function attempt(what: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await what();
    if (done) notify(done);
    return true;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    notify(error instanceof Failure && error.status === 403 ? `Not permitted: ${text}` : text, true);
    return false;
  }
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {useStore(notices).map((notice) => (
        <div key={notice.id} class={notice.isBad ? "notice bad" : "notice"}>
          <span>{notice.text}</span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
