import { useState } from "preact/hooks";
import { signIn } from "../api";
import { Problem } from "../parts/basic";

export function SignIn() {
  const [failure, setFailure] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget as HTMLFormElement).get("token"));
    setBusy(true);
    await signIn(token).catch(setFailure);
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form class="card stack" onSubmit={submit}>
        <h1>Jackalope</h1>
        <p class="dim">This broker asks for a key. <code>jackalope keys create</code> makes one.</p>
        <Problem failure={failure} />
        <label class="field"><span>Token of an API key</span><input name="token" type="password" autocomplete="current-password" required autofocus /></label>
        <button type="submit" class="primary" disabled={isBusy}>Sign in</button>
      </form>
    </main>
  );
}
