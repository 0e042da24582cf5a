// The small parts that every page is made of.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { pulse } from "../feed";
import { toHash } from "../route";
import { useStore } from "../store";
import type { State, Task } from "../types";
import { clock, ago, count, exact, shortId, taskName, workerName } from "../words";
import { useNow } from "../hooks";

export function Badge({ state }: { state: State | string }) {
  return <span class={`badge state-${state}`}>{state}</span>;
}

export function Card(props: { title?: string; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  return (
    <section class={`card ${props.class ?? ""}`} aria-label={props.title}>
      {(props.title || props.aside) && (
        <header class="card-head">
          <h2>{props.title}</h2>
          {props.aside && <div class="row">{props.aside}</div>}
        </header>
      )}
      {props.children}
    </section>
  );
}

export function PageHead({ title, note, children }: { title: ComponentChildren; note?: string; children?: ComponentChildren }) {
  return (
    <div class="page-head">
      <div>
        <h1>{title}</h1>
        {note && <p class="dim">{note}</p>}
      </div>
      <div class="row">{children}</div>
    </div>
  );
}

export function Tile(props: { label: string; value: number | string; note?: ComponentChildren; href?: string; tone?: string }) {
  const shown = typeof props.value === "number" ? count(props.value) : props.value;
  const title = typeof props.value === "number" ? exact(props.value) : undefined;
  const body = (
    <>
      <span class="tile-label">{props.label}</span>
      <span class="tile-value" title={title}>{shown}</span>
      <span class="tile-note">{props.note ?? "\u00a0"}</span>
    </>
  );
  const tone = `tile ${props.tone ? `tone-${props.tone}` : ""}`;
  return props.href ? <a class={tone} href={props.href}>{body}</a> : <div class={tone}>{body}</div>;
}

/** A bar of parts, each with its share of the whole and a colour of its own. */
export function Bar(props: { parts: { value: number; tone: string }[]; whole: number; label: string }) {
  const whole = props.whole > 0 ? props.whole : 1;
  const value = props.parts.reduce((sum, part) => sum + part.value, 0);
  return (
    <div
      class="bar" role="progressbar" aria-label={props.label}
      aria-valuenow={Math.round((100 * value) / whole)} aria-valuemin={0} aria-valuemax={100} title={props.label}
    >
      {props.parts.map((part) => (
        <span key={part.tone} class={`fill-${part.tone}`} style={{ width: `${Math.min(100, (100 * part.value) / whole)}%` }} />
      ))}
    </div>
  );
}

/** How much of something is used: its name, a bar, and the numbers. Without a whole there is no bar. */
export function Meter(props: { name: string; used: number; whole: number | null; text: string; tone?: string }) {
  const { name, used, whole, text } = props;
  return (
    <div class="meter">
      <span class="dim cut" title={name}>{name}</span>
      {whole === null ? <span /> : <Bar parts={[{ value: used, tone: props.tone ?? fullness(used, whole) }]} whole={whole} label={`${name}: ${text}`} />}
      <span class="number">{text}</span>
    </div>
  );
}

/** The colour of something that is better not full. */
export function fullness(used: number, whole: number): string {
  return used > 0.9 * whole ? "red" : used > 0.7 * whole ? "amber" : "teal";
}

/** A time as its age; the exact time on pointing at it. */
export function Age({ at }: { at: string | null }) {
  const now = useNow();
  if (!at) return <span class="dim">-</span>;
  return <time dateTime={at} title={new Date(at).toLocaleString("en-GB")}>{ago(at, now)}</time>;
}

export function Clock({ at }: { at: string | null }) {
  const now = useNow(60_000);
  return at ? <time dateTime={at} title={at}>{clock(at, now)}</time> : <span class="dim">-</span>;
}

export function TaskLink({ task }: { task: Pick<Task, "id" | "name" | "alias"> }) {
  return (
    <a href={toHash("task", task.id)} class="task-link">
      {taskName(task) ? <span>{taskName(task)}</span> : <code>{task.id}</code>}{" "}
      {task.name && task.alias && <><span class="dim">{task.alias}</span>{" "}</>}
      {taskName(task) && <code class="dim">{shortId(task.id)}</code>}
    </a>
  );
}

/** A worker by its id, under the name that it gave itself. */
export function WorkerName({ id }: { id: string }) {
  const worker = useStore(pulse)?.workers.find((each) => each.worker === id);
  const name = worker && workerName(worker);
  return name && name !== id ? <span title={id}>{name}</span> : <>{id}</>;
}

export function QueueLink({ queue }: { queue: string }) {
  return <a href={toHash("queues", queue)}>{queue}</a>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Problem({ failure }: { failure: Error | null }) {
  return failure ? <p class="problem" role="alert">{failure.message}</p> : null;
}

/** A dialog that holds the focus, and closes with Escape. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      element.current?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onCancel={(event) => { event.preventDefault(); props.onClose(); }}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** Ask before something is done that cannot be undone. */
export function Confirm(props: { title: string; action: string; disabled?: boolean; onConfirm: () => void; onClose: () => void; children: ComponentChildren }) {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.children}
      <div class="row end">
        <button type="button" onClick={props.onClose}>Cancel</button>
        <button type="button" class="danger" disabled={props.disabled ?? false} onClick={props.onConfirm}>{props.action}</button>
      </div>
    </Dialog>
  );
}

/** Something to fill in. The help is told after the name, not as part of it. */
export function Field(props: {
  label: string;
  help?: string;
  class?: string;
  children: (tied: { id: string; "aria-describedby"?: string }) => ComponentChildren;
}) {
  const id = useId();
  const tied = props.help ? { id, "aria-describedby": `${id}-help` } : { id };
  return (
    <div class={`field ${props.class ?? ""}`}>
      <label htmlFor={id}>{props.label}</label>
      {props.children(tied)}
      {props.help && <small id={`${id}-help`} class="dim">{props.help}</small>}
    </div>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
