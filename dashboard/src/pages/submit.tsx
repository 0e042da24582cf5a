import { useEffect, useState } from "preact/hooks";
import { ask, fetchBytes } from "../api";
import { asText, SHOWN_BYTES_MAX, toBase64 } from "../body";
import { pulse } from "../feed";
import { Card, Field, PageHead, Problem } from "../parts/basic";
import { notify } from "../parts/notices";
import { type Route, toHash } from "../route";
import { useStore } from "../store";
import { askedFor, callOf, type Contract, helpFor, type Parameter } from "../contract";
import { type Draft, EMPTY_DRAFT, fromTask, problemsOf, toTask } from "../draft";
import type { Task } from "../types";

export function Submit({ route }: { route: Route }) {
  const from = route.query.get("from") ?? "";
  const queues = useStore(pulse)?.queues ?? [];
  const [draft, setDraft] = useState<Draft>({ ...EMPTY_DRAFT, queue: route.query.get("queue") ?? "" });
  const [file, setFile] = useState<Blob | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [contracts, setContracts] = useState<Contract[]>([]);
  const [given, setGiven] = useState<Record<string, string>>({});
  const [isByHand, setByHand] = useState(Boolean(from));
  useEffect(() => {
    const control = new AbortController();
    void ask<{ contracts: Contract[] }>("contracts", { signal: control.signal }).then((found) => setContracts(found.contracts), () => undefined);
    return () => control.abort();
  }, []);
  const known = contracts.find((each) => each.queue === draft.queue.trim() && each.name === draft.name.trim());
  const contract = known && known.content !== "bytes" ? known : undefined;
  const isForm = contract !== undefined && !isByHand && !file;
  useEffect(() => {
    const control = new AbortController();
    if (from) void prefill(from, control.signal).then(([found, body]) => { setDraft(found); setFile(body); }, setFailure);
    return () => control.abort();
  }, [from]);
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const call = isForm ? callOf(contract, given) : { payload: draft.payload, problems: [] };
    const problem = problemsOf(draft) || call.problems.join("; ");
    if (problem) return setFailure(new Error(problem));
    setBusy(true);
    setFailure(null);
    try {
      const id = await send({ ...draft, payload: call.payload }, file);
      notify("Submitted.");
      location.hash = toHash("task", id);
    } catch (error) {
      setFailure(error as Error);
      setBusy(false);
    }
  };
  const text = (name: keyof Draft, label: string, help = "", more: Record<string, unknown> = {}) => (
    <Field label={label} help={help}>
      {(tied) => <input {...tied} value={String(draft[name])} onInput={(event) => set({ [name]: event.currentTarget.value })} {...more} />}
    </Field>
  );
  return (
    <>
      <PageHead title="Submit a task" {...(from ? { note: `With what task ${from} had. It is a new task: the other one stays as it is.` } : {})} />
      <Card>
        <form onSubmit={submit} class="stack">
          <Problem failure={failure} />
          <div class="form-grid">
            {text("queue", "Queue", "", { list: "queues", required: true, maxLength: 255 })}
            <datalist id="queues">{queues.map((queue) => <option key={queue.queue} value={queue.queue} />)}</datalist>
            {text("name", "Name", "What is to be run", { list: "names", required: true, maxLength: 255 })}
            <datalist id="names">{contracts.filter((each) => !draft.queue || each.queue === draft.queue).map((each) => <option key={`${each.queue} ${each.name}`} value={each.name} />)}</datalist>
            {text("priority", "Priority", "0 to 255; 200 and up is high", { type: "number", min: 0, max: 255 })}
            {text("key", "Key", "Only workers that serve it")}
            {text("tags", "Tags", "With commas between them")}
            {text("alias", "Alias", "A name of its own")}
            {text("retries", "Retries", "Empty: as the queue says", { type: "number", min: 0 })}
            {text("timeout", "Time limit, seconds", "Empty: as the queue says", { type: "number", min: 0, step: "any" })}
            {!file && text("at", "Not before", "Empty: at once", { type: "datetime-local", step: 1 })}
            {!file && text("dependencies", "Waits for", "Ids of tasks, with commas")}
            <label class="field check"><input type="checkbox" checked={draft.held} onChange={(event) => set({ held: event.currentTarget.checked })} /> <span>Held until somebody plays it</span></label>
          </div>
          {contract && !file && (
            <div class="row">
              <code class="signature">{contract.signature}</code>
              <button type="button" class="small" onClick={() => setByHand(!isByHand)}>{isByHand ? "Fill in the arguments" : "Write the payload by hand"}</button>
            </div>
          )}
          {isForm ? (
            <Arguments contract={contract} given={given} set={(name, value) => setGiven({ ...given, [name]: value })} />
          ) : file ? (
            <p>The payload is a file of {file.size} bytes. <button type="button" class="small" onClick={() => setFile(null)}>Write text instead</button></p>
          ) : (
            <Field label="Payload" help="Sent as it stands. JSON is marked as such; workers in Python take it as arguments: [[1, 2], {}].">
              {(tied) => <textarea {...tied} rows={8} spellcheck={false} value={draft.payload} onInput={(event) => set({ payload: event.currentTarget.value })} />}
            </Field>
          )}
          <label class="field"><span>Or a file</span><input type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} /></label>
          <div class="row end"><button type="submit" class="primary" disabled={isBusy}>{isBusy ? "Submitting…" : "Submit"}</button></div>
        </form>
      </Card>
    </>
  );
}

function Arguments({ contract, given, set }: { contract: Contract; given: Record<string, string>; set: (name: string, value: string) => void }) {
  return (
    <fieldset class="arguments">
      <legend>Arguments</legend>
      {contract.doc && <p class="dim doc">{contract.doc}</p>}
      {contract.parameters.length === 0 && <p class="dim">It takes none.</p>}
      <div class="form-grid">
        {contract.parameters.map((each) => <Argument key={each.name} parameter={each} value={given[each.name] ?? ""} set={(value) => set(each.name, value)} />)}
      </div>
    </fieldset>
  );
}

function Argument({ parameter, value, set }: { parameter: Parameter; value: string; set: (value: string) => void }) {
  const asked = askedFor(parameter);
  const isNeeded = Boolean(parameter.required) && asked.how !== "text";
  const onInput = (event: { currentTarget: { value: string } }) => set(event.currentTarget.value);
  const label = parameter.required ? `${parameter.name} *` : parameter.name;
  return (
    <Field label={label} help={helpFor(parameter)}>
      {(tied) => asked.how === "choice" ? (
        <select {...tied} value={value} required={isNeeded} onChange={onInput}>
          <option value="" />
          {asked.choices.map((each) => <option key={String(each)} value={JSON.stringify(each)}>{String(each)}</option>)}
        </select>
      ) : asked.how === "json" ? (
        <textarea {...tied} rows={2} spellcheck={false} required={isNeeded} value={value} onInput={onInput} />
      ) : (
        <input {...tied} value={value} required={isNeeded} onInput={onInput} {...(asked.how === "number" ? { type: "number", step: "any" } : {})} />
      )}
    </Field>
  );
}

async function prefill(id: string, signal: AbortSignal): Promise<[Draft, Blob | null]> {
  const task = await ask<Task>(`tasks/${id}`, { signal });
  const bytes = await fetchBytes(`tasks/${id}/payload`, Number.MAX_SAFE_INTEGER, signal);
  const text = bytes.length <= SHOWN_BYTES_MAX ? asText(bytes, true) : null;
  return [fromTask(task, text ?? ""), text === null ? new Blob([bytes as BlobPart]) : null];
}

async function send(draft: Draft, file: Blob | null): Promise<string> {
  if (file === null) {
    const body = toTask(draft, toBase64(draft.payload));
    return (await ask<{ id: string }>("tasks", { method: "POST", body })).id;
  }
  const { tags, payload: _, headers: __, ...rest } = toTask(draft, "");
  const query = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, String(value)]));
  const found = await ask<{ id: string }>("tasks/raw", { method: "POST", raw: file, query: { ...query, tag: tags ?? [] } });
  return found.id;
}
