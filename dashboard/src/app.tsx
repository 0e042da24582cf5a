// The frame around every page: where one can go, who is here, and whether the broker is.

import { useEffect, useRef, useState } from "preact/hooks";
import icon from "./icon.svg";
import { may, namespace, refreshVisitor, signOut, visitor } from "./api";
import { connection, pulse, startFeed } from "./feed";
import { useRoute } from "./hooks";
import { Audit } from "./pages/audit";
import { Batches } from "./pages/batches";
import { Cache } from "./pages/cache";
import { Cluster } from "./pages/cluster";
import { DeadLetters } from "./pages/dead";
import { FlowPage, Flows } from "./pages/flows";
import { Keys, MadeKey } from "./pages/keys";
import { Limits } from "./pages/limits";
import { Namespaces } from "./pages/namespaces";
import { Overview } from "./pages/overview";
import { Pools } from "./pages/pools";
import { QueuePage, Queues } from "./pages/queues";
import { Schedules } from "./pages/schedules";
import { SignIn } from "./pages/sign_in";
import { Submit } from "./pages/submit";
import { TaskPage } from "./pages/task";
import { Tasks } from "./pages/tasks";
import { Workers } from "./pages/workers";
import { Dialog, Empty, Fact, PageHead } from "./parts/basic";
import { attempt, Notices } from "./parts/notices";
import { ThemeButton } from "./parts/theme";
import { type Route, toHash } from "./route";
import { useStore } from "./store";
import type { Visitor } from "./types";
import { count, tally } from "./words";

const PAGES: { page: string; label: string; also?: string[] }[] = [
  { page: "overview", label: "Overview" },
  { page: "tasks", label: "Tasks", also: ["task"] },
  { page: "queues", label: "Queues" },
  { page: "batches", label: "Batches" },
  { page: "limits", label: "Limits" },
  { page: "workers", label: "Workers" },
  { page: "schedules", label: "Schedules" },
  { page: "flows", label: "Flows" },
  { page: "pools", label: "Pools" },
  { page: "cache", label: "Cache" },
  { page: "dead", label: "Dead letters" },
  { page: "namespaces", label: "Namespaces" },
  { page: "keys", label: "Keys" },
  { page: "audit", label: "Audit" },
  { page: "cluster", label: "Cluster" },
  { page: "submit", label: "Submit" },
];

export function App() {
  const who = useStore(visitor);
  useEffect(() => {
    let timer = 0;
    const look = () => void refreshVisitor().catch(() => { timer = window.setTimeout(look, 2_000); });
    look();
    return () => window.clearTimeout(timer);
  }, []);
  if (who === null) return <main class="sign-in"><p class="dim">Looking for the broker…</p></main>;
  return <>{who.needs_key ? <SignIn /> : <Frame who={who} />}<MadeKey /></>;
}

function Frame({ who }: { who: Visitor }) {
  const route = useRoute();
  const here = useStore(namespace);
  const main = useRef<HTMLElement>(null);
  const mayRead = who.permissions.includes("read_tasks");
  useEffect(() => (mayRead ? startFeed() : undefined), [here, mayRead, who.name]);
  useEffect(() => {
    document.title = `${PAGES.find((each) => isAt(each, route))?.label ?? "Jackalope"} · Jackalope`;
    main.current?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, [route.page, route.name]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>To the content</a>
      <Rail route={route} who={who} />
      <div class="content">
        {mayRead && <ConnectionBanner />}
        <main id="main" ref={main} tabIndex={-1}>
          {mayRead || route.page === "submit" ? <Page route={route} /> : (
            <><PageHead title="Nothing to see" /><Empty>This key lacks the permission read_tasks.</Empty></>
          )}
        </main>
      </div>
      <Notices />
      <Shortcuts />
    </div>
  );
}

function isAt(entry: (typeof PAGES)[number], route: Route): boolean {
  return entry.page === route.page || (entry.also?.includes(route.page) ?? false);
}

function Page({ route }: { route: Route }) {
  switch (route.page) {
    case "overview": return <Overview />;
    case "tasks": return <Tasks route={route} />;
    case "task": return <TaskPage id={route.name} />;
    case "queues": return route.name ? <QueuePage key={route.name} name={route.name} /> : <Queues />;
    case "batches": return <Batches name={route.name} />;
    case "limits": return <Limits />;
    case "workers": return <Workers />;
    case "schedules": return <Schedules />;
    case "flows": return route.name ? <FlowPage key={route.name} id={route.name} /> : <Flows />;
    case "pools": return <Pools />;
    case "cache": return <Cache />;
    case "namespaces": return <Namespaces />;
    case "keys": return <Keys />;
    case "audit": return <Audit route={route} />;
    case "dead": return <DeadLetters />;
    case "cluster": return <Cluster />;
    case "submit": return <Submit key={route.query.toString()} route={route} />;
    default: return <><PageHead title="No such page" /><Empty>Nothing is at #/{route.page}.</Empty></>;
  }
}

function Rail({ route, who }: { route: Route; who: Visitor }) {
  const here = useStore(namespace);
  const stats = useStore(pulse)?.stats;
  const isAdmin = may("admin", "namespace");
  const hidden: Record<string, boolean> = {
    namespaces: !may("read_tasks", "namespace"), keys: !isAdmin, audit: !isAdmin, submit: !may("submit_tasks"), cluster: !who.is_cluster,
  };
  const offered = PAGES.filter((each) => !hidden[each.page] || isAt(each, route));
  const [isOpen, setOpen] = useState(false);
  const badge: Record<string, number | undefined> = { tasks: stats && tally(stats.counts, "pending") + tally(stats.counts, "leased"), workers: stats?.workers };
  return (
    <header class="rail">
      <div class="row spread">
        <a class="brand" href={toHash("overview")}><img src={icon} alt="" width="26" height="26" /> Jackalope</a>
        <button type="button" class="plain menu" aria-expanded={isOpen} aria-controls="pages" onClick={() => setOpen(!isOpen)}>Menu</button>
      </div>
      <nav id="pages" class={isOpen ? "open" : ""} aria-label="Pages">
        {offered.map((each) => (
          <a key={each.page} href={toHash(each.page)} aria-current={isAt(each, route) ? "page" : undefined} onClick={() => setOpen(false)}>
            <span>{each.label}</span>{badge[each.page] ? <span class="nav-count">{count(badge[each.page] as number)}</span> : null}
          </a>
        ))}
      </nav>
      <div class={`rail-foot ${isOpen ? "open" : ""}`}>
        <ConnectionDot />
        {who.namespaces.length > 1 && (
          <label class="field"><span>Namespace</span>
            <select value={here} onChange={(event) => namespace.set(event.currentTarget.value)}>
              {who.namespaces.map((each) => <option key={each}>{each}</option>)}
            </select>
          </label>
        )}
        <div class="row spread">
          {who.name ? <span class="dim cut" title={who.permissions.join(", ")}>{who.name}</span> : <span class="dim">{who.version}</span>}
          <span class="row">
            {who.name && <button type="button" class="plain" onClick={() => attempt(signOut)}>Sign out</button>}
            <ThemeButton />
          </span>
        </div>
      </div>
    </header>
  );
}

const CONNECTION_WORDS = { connecting: "connecting…", live: "live", lost: "connection lost" };

function ConnectionDot() {
  const state = useStore(connection);
  return <span class="connection"><span class={`dot connection-${state}`} /> {CONNECTION_WORDS[state]}</span>;
}

function ConnectionBanner() {
  const state = useStore(connection);
  return (
    <div role="alert" class={state === "lost" ? "banner" : ""}>
      {state === "lost" && "The connection to the broker is lost. What is shown is from before; the page goes on by itself as soon as it is back."}
    </div>
  );
}

/** `g` and a letter goes to a page. */
const LETTERS: Record<string, string> = {
  o: "overview", t: "tasks", q: "queues", b: "batches", l: "limits", w: "workers", e: "schedules", f: "flows", p: "pools", a: "cache", d: "dead", n: "namespaces", k: "keys", u: "audit", c: "cluster", s: "submit",
};

const KEYS: [string, string][] = [
  ["/", "search the table of tasks"], ["j, k", "the next, the previous row"], ["Enter", "open the task of the row"], ["x", "choose the task of the row"],
  ...Object.entries(LETTERS).map(([letter, page]): [string, string] => [`g ${letter}`, PAGES.find((each) => each.page === page)?.label ?? page]),
];

function Shortcuts() {
  const [isHelp, setHelp] = useState(false);
  useEffect(() => {
    let isGoing = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = LETTERS[event.key];
      if (isGoing && page) location.hash = toHash(page);
      if (event.key === "?") setHelp(true);
      isGoing = event.key === "g";
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  if (!isHelp) return null;
  return (
    <Dialog title="Keys of the keyboard" onClose={() => setHelp(false)}>
      <dl class="facts">{KEYS.map(([key, does]) => <Fact key={key} name={does}><kbd>{key}</kbd></Fact>)}</dl>
      <div class="row end"><button type="button" onClick={() => setHelp(false)}>Close</button></div>
    </Dialog>
  );
}
