import { useState } from "preact/hooks";
import { ask, may, namespace, refreshVisitor } from "../api";
import { useFetched } from "../hooks";
import { Age, Card, Confirm, Empty, Meter, PageHead, Problem } from "../parts/basic";
import { attempt } from "../parts/notices";
import { SettingsEditor } from "../parts/settings";
import { DESCRIPTION, NO_QUOTAS, QUOTAS, usesOf } from "../quotas";
import { useStore } from "../store";
import type { NamespaceInfo, PolicyValue } from "../types";
import { plural } from "../words";

const path = (name: string) => `namespaces/${encodeURIComponent(name)}`;

async function declare(name: string, settings: Record<string, PolicyValue>): Promise<boolean> {
  return attempt(() => ask(path(name), { method: "PUT", body: { settings } }), `Namespace ${name} is set.`);
}

export function Namespaces() {
  const { data, failure, reload } = useFetched<{ namespaces: NamespaceInfo[] }>((signal) => ask("namespaces", { signal }), []);
  const [isNew, setNew] = useState(false);
  const found = data?.namespaces ?? [];
  // The menu lists the namespaces as well.
  const changed = () => { reload(); void refreshVisitor(); };
  const create = async (settings: Record<string, PolicyValue>, name: string) => {
    const isDone = await declare(name, settings);
    if (isDone) changed();
    return isDone;
  };
  return (
    <>
      <PageHead title="Namespaces" note="Each has queues, workers, schedules, limits and keys of its own.">
        {may("admin", "broker") && <button type="button" onClick={() => setNew(true)}>New namespace</button>}
      </PageHead>
      <Problem failure={failure} />
      {data && !found.length && <div class="card"><Empty>There is no namespace yet. The first task or worker makes one.</Empty></div>}
      <div class="grid cards">
        {found.map((each) => <NamespaceCard key={each.name} info={each} onChange={changed} />)}
      </div>
      {isNew && <SettingsEditor title="New namespace" isNew sections={[DESCRIPTION, QUOTAS]} settings={NO_QUOTAS} onSave={create} onClose={() => setNew(false)} />}
    </>
  );
}

function NamespaceCard({ info, onChange }: { info: NamespaceInfo; onChange: () => void }) {
  const here = useStore(namespace);
  const [asked, setAsked] = useState<"change" | "delete" | null>(null);
  const { name, settings } = info;
  const close = () => setAsked(null);
  const save = async (changes: Record<string, PolicyValue>) => {
    const isDone = await declare(name, changes);
    if (isDone) onChange();
    return isDone;
  };
  const aside = (
    <>
      {name === here ? <span class="dim">shown here</span> : <button type="button" class="small" onClick={() => namespace.set(name)}>Show it</button>}
      {may("admin", "namespace") && <button type="button" class="small" onClick={() => setAsked("change")}>Change</button>}
      {may("admin", "broker") && <button type="button" class="small danger" onClick={() => setAsked("delete")}>Delete</button>}
    </>
  );
  return (
    <Card title={name} aside={aside}>
      {settings["description"] && <p>{settings["description"]}</p>}
      <p class="dim">
        {plural(info.queues, "queue")} · {info.is_declared ? <>created <Age at={info.created_at} />{info.by && ` by ${info.by}`}</> : "made by its first use"}
      </p>
      <div class="meters">
        {usesOf(info).map((use) => <Meter key={use.name} name={use.name} used={use.used} whole={use.limit} text={use.text} />)}
      </div>
      {asked === "change" && (
        <SettingsEditor title={`Namespace ${name}`} sections={may("admin", "broker") ? [DESCRIPTION, QUOTAS] : [DESCRIPTION]}
          settings={{ ...NO_QUOTAS, ...settings }} onSave={save} onClose={close} />
      )}
      {asked === "delete" && <Deletion info={info} onClose={close} onDone={onChange} />}
    </Card>
  );
}

/** Asks for the name of what goes: all that is in the namespace goes with it. */
function Deletion({ info: { name, queues, used }, onClose, onDone }: { info: NamespaceInfo; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  const waiting = used["tasks_queued"] ?? 0;
  const running = used["concurrent_attempts"] ?? 0;
  const workers = used["workers"] ?? 0;
  const isUsed = waiting + running + workers > 0;
  const remove = async () => {
    const query = isUsed ? { force: "true" } : {};
    if (await attempt(() => ask(path(name), { method: "DELETE", query }), `Namespace ${name} is deleted.`)) {
      if (namespace.get() === name) namespace.set("default");
      onClose();
      onDone();
    }
  };
  return (
    <Confirm title={`Delete namespace ${name}`} action={isUsed ? "Kill its tasks and delete it" : "Delete it"} disabled={typed !== name} onConfirm={remove} onClose={onClose}>
      <p>With it go:</p>
      <ul class="causes">
        <li>{plural(queues, "queue")}, with the results and the history of their tasks</li>
        <li>its schedules, limits and pools, and {plural(used["api_keys"] ?? 0, "API key")}</li>
        {isUsed && <li class="ink-red">{plural(waiting, "task")} that wait and {plural(running, "task")} that run are killed; {plural(workers, "worker")} are sent away</li>}
      </ul>
      <label class="field spaced"><span>Its name, to show that this is meant</span><input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
    </Confirm>
  );
}
