// Actions on tasks: how many that are, whether that is meant, and what came of it.

import { useEffect, useState } from "preact/hooks";
import { ask } from "../api";
import { actOn, type Ask, countTasks, type Target, toTerms } from "../bulk";
import type { Action } from "../types";
import { ACTION_WORDS, plural } from "../words";
import { Dialog, Problem } from "./basic";
import { notify } from "./notices";

const askBroker: Ask = (body) => ask("tasks/actions", { method: "POST", body });

const TERMS = [
  { name: "retries", label: "Retries", max: 1_000_000_000 },
  { name: "timeout_seconds", label: "Time limit, seconds", max: undefined },
  { name: "priority", label: "Priority", max: 255 },
] as const;

/** Counts first, asks, then acts. */
export function ConfirmAction(props: { action: Action; target: Target; onDone: () => void; onClose: () => void }) {
  const { action, target } = props;
  const [found, setFound] = useState<{ tasks: number; isMore: boolean } | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [terms, setTerms] = useState({ retries: "", timeout_seconds: "", priority: "" });
  const { label, does } = ACTION_WORDS[action];
  useEffect(() => {
    countTasks(action, target, askBroker).then(
      (result) => setFound({ tasks: result.changed + result.requested, isMore: result.more }),
      setFailure,
    );
  }, []);
  const go = async () => {
    setBusy(true);
    try {
      const { changed, requested, refused } = await actOn(action, target, askBroker, toTerms(terms));
      const parts = [`${label}: ${plural(changed, "task")} changed`];
      if (requested) parts.push(`${requested} asked of their workers`);
      if (refused.length) parts.push(`${refused.length} refused: ${refused[0]?.error.error}`);
      notify(parts.join(", "), refused.length > 0 && changed + requested === 0);
      props.onDone();
    } catch (error) {
      setFailure(error as Error);
      setBusy(false);
    }
  };
  const number = found && `${found.isMore ? "more than " : ""}${plural(found.tasks, "task")}`;
  return (
    <Dialog title={`${label}: ${does}`} onClose={props.onClose}>
      <Problem failure={failure} />
      {!failure && (
        <p aria-live="polite">
          {found === null ? "Counting…" : found.tasks === 0 ? "None of these tasks can be changed so." : `This concerns ${number}.`}
        </p>
      )}
      {action === "retry" && (
        <details>
          <summary>With other limits</summary>
          <div class="form-grid">
            {TERMS.map(({ name, label, max }) => (
              <label class="field" key={name}>
                <span>{label}</span>
                <input type="number" min={0} max={max} step={name === "timeout_seconds" ? "any" : 1} placeholder="as before" value={terms[name]}
                  onInput={(event) => setTerms({ ...terms, [name]: event.currentTarget.value })} />
              </label>
            ))}
          </div>
        </details>
      )}
      <div class="row end">
        <button type="button" onClick={props.onClose}>Cancel</button>
        <button type="button" class={action === "kill" || action === "purge" ? "danger" : "primary"} disabled={!found?.tasks || isBusy} onClick={go}>
          {isBusy ? "Working…" : `${label}${found?.tasks ? ` ${number}` : ""}`}
        </button>
      </div>
    </Dialog>
  );
}
