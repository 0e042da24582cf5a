import { useState } from "preact/hooks";
import { ask, visitor } from "../api";
import { useFetched } from "../hooks";
import { Age, Card, Confirm, Dialog, Empty, PageHead, Problem } from "../parts/basic";
import { attempt } from "../parts/notices";
import { createStore, useStore } from "../store";
import { type ApiKey, PERMISSIONS, ROLES } from "../types";

/** The key that was just made. From the first one on the page must sign in: its token stays in sight. */
const made = createStore<{ name: string; token: string } | null>(null);

export function MadeKey() {
  const key = useStore(made);
  if (!key) return null;
  return (
    <Dialog title={`The token of ${key.name}`} onClose={() => made.set(null)}>
      <p>Keep it now: it is not shown again.</p>
      <pre class="body token">{key.token}</pre>
      <div class="row end"><button type="button" class="primary" onClick={() => made.set(null)}>Done</button></div>
    </Dialog>
  );
}

export function Keys() {
  const { data, failure, reload } = useFetched<{ keys: ApiKey[] }>((signal) => ask("keys", { signal }), [], false);
  const [asked, setAsked] = useState<ApiKey | null>(null);
  const [role, setRole] = useState("");
  const own = visitor.get()?.namespace ?? "";
  const keys = data?.keys ?? [];
  const make = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const values = new FormData(form);
    const list = (name: string) => String(values.get(name) ?? "").split(/[\s,]+/).filter((each) => each);
    const expires = String(values.get("expires_at") ?? "");
    const body = {
      name: String(values.get("name")).trim(), ...(role ? { role } : { permissions: values.getAll("permissions") }), queues: list("queues"),
      namespace: String(values.get("namespace") ?? "").trim(), ...(expires && { expires_at: new Date(expires).toISOString() }),
    };
    const done = await attempt(async () => made.set(await ask<{ name: string; token: string }>("keys", { method: "POST", body })));
    if (done) { form.reset(); setRole(""); reload(); }
  };
  const revoke = async (key: ApiKey) => {
    setAsked(null);
    if (await attempt(() => ask(`keys/${encodeURIComponent(key.id)}`, { method: "DELETE" }), `Key ${key.name} is revoked.`)) reload();
  };
  return (
    <>
      <PageHead title="Keys" note="Who may do what. From the first key on everybody needs one." />
      <Problem failure={failure} />
      <div class="stack">
        <div class="card scroll">
          <table class="folds">
            <thead><tr><th scope="col">Name</th><th scope="col">Permissions</th><th scope="col">Queues</th><th scope="col">Namespace</th><th scope="col">Created</th><th scope="col">Expires</th><th /></tr></thead>
            <tbody>
              {keys.map((key) => (
                <tr key={key.id}>
                  <td>{key.name} <code class="dim">{key.id}</code></td>
                  <td class="wide">{key.role ? <>{key.role} <span class="dim">{key.permissions.join(", ")}</span></> : key.permissions.join(", ")}</td>
                  <td>{key.queues.join(", ") || "all"}</td>
                  <td>{key.namespace || "all"}</td>
                  <td><Age at={key.created_at} /></td>
                  <td>{key.expires_at ? <Age at={key.expires_at} /> : "never"}</td>
                  <td class="end">{key.configured
                    ? <span class="dim" title="Remove it from auth.keys in the configuration">configured</span>
                    : <button type="button" class="small danger" onClick={() => setAsked(key)}>Revoke</button>}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {data && !keys.length && <Empty>There are no keys: everybody who reaches the broker may do everything.</Empty>}
        </div>
        <Card title="Make a key">
          <form onSubmit={make}>
            <div class="form-grid">
              <label class="field"><span>Name</span><input name="name" required /></label>
              <label class="field"><span>Role</span>
                <select name="role" value={role} onChange={(event) => setRole(event.currentTarget.value)}>
                  <option value="">none: the permissions below</option>
                  {ROLES.map((each) => <option key={each}>{each}</option>)}
                </select>
              </label>
              <label class="field"><span>Queues, all if empty</span><input name="queues" placeholder="images, reports" /></label>
              <label class="field"><span>{own ? "Namespace" : "Namespace, all if empty"}</span><input name="namespace" defaultValue={own} readOnly={own !== ""} /></label>
              <label class="field"><span>Expires</span><input name="expires_at" type="datetime-local" /></label>
            </div>
            {!role && <fieldset>
              <legend>Permissions</legend>
              <div class="row">
                {PERMISSIONS.map((name) => <label key={name} class="row check"><input type="checkbox" name="permissions" value={name} /> {name}</label>)}
              </div>
            </fieldset>}
            <button type="submit" class="primary spaced">Make</button>
          </form>
        </Card>
      </div>
      {asked && (
        <Confirm title={`Revoke ${asked.name}`} action="Revoke" onConfirm={() => revoke(asked)} onClose={() => setAsked(null)}>
          <p>Who uses it is let in no more.</p>
        </Confirm>
      )}
    </>
  );
}
