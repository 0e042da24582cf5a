// Filters of a list: free text, and a time.

import { useEffect, useState } from "preact/hooks";

/** Within a span that ends now, or between two times; what is empty does not count. */
export interface Moments {
  within: string;
  newer_than: string;
  older_than: string;
}

const SPANS = { "15m": "last 15 minutes", "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days" };

export function MomentFilter(props: { label: string; value: Moments; onChange: (part: Partial<Moments>) => void }) {
  const { value: moments, onChange } = props;
  const isBetween = moments.newer_than !== "" || moments.older_than !== "";
  const [isOpen, setOpen] = useState(isBetween);
  const choose = (value: string) => {
    setOpen(value === "between");
    if (value !== "between") onChange({ within: value, newer_than: "", older_than: "" });
  };
  const moment = (name: "newer_than" | "older_than", label: string) => (
    <label class="field moment"><span>{label}</span>
      <input type="datetime-local" step="1" value={toLocal(moments[name])} onChange={(event) => {
        const { value } = event.currentTarget;
        onChange({ within: "", [name]: value ? new Date(value).toISOString() : "" });
      }} />
    </label>
  );
  return (
    <>
      <label class="field">
        <span>{props.label}</span>
        <select value={isOpen || isBetween ? "between" : moments.within} onChange={(event) => choose(event.currentTarget.value)}>
          <option value="">any time</option>
          {Object.entries(SPANS).map(([value, label]) => <option key={value} value={value}>{label}</option>)}
          <option value="between">between…</option>
        </select>
      </label>
      {(isOpen || isBetween) && <>{moment("newer_than", "From")}{moment("older_than", "To")}</>}
    </>
  );
}

/** A time as the field for one has it: in the time zone of the browser, without naming it. */
function toLocal(at: string): string {
  if (!at || Number.isNaN(Date.parse(at))) return "";
  const time = new Date(at);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** A filter of free text. What is typed stays while the list below moves, and counts when it is done. */
export function TextFilter(props: { label: string; value: string; class?: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(props.value);
  useEffect(() => setDraft(props.value), [props.value]);
  return (
    <label class={`field ${props.class ?? ""}`}>
      <span>{props.label}</span>
      <input value={draft} onInput={(event) => setDraft(event.currentTarget.value)} onChange={(event) => props.onChange(event.currentTarget.value.trim())} />
    </label>
  );
}
