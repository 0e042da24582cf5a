// Dark or light: as the machine is, until somebody chooses.

import { createStore, useStore } from "../store";

const KEPT = "jackalope.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): "dark" | "light" {
  const kept = localStorage.getItem(KEPT);
  return kept === "dark" || kept === "light" ? kept : dark.matches ? "dark" : "light";
}

export const theme = createStore<"dark" | "light">(chosen());

function show(): void {
  document.documentElement.dataset["theme"] = theme.get();
}

show();
theme.subscribe(show);
dark.addEventListener("change", () => theme.set(chosen()));

export function ThemeButton() {
  const now = useStore(theme);
  const next = now === "dark" ? "light" : "dark";
  const choose = () => {
    localStorage.setItem(KEPT, next);
    theme.set(next);
  };
  return (
    <button type="button" class="plain" onClick={choose} aria-label={`Use the ${next} theme`} title={`Use the ${next} theme`}>
      {now === "dark" ? "☀" : "☾"}
    </button>
  );
}
