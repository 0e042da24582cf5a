import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Failure, may, socketAddress } from "../api";
import { type Attempt, attemptsOf } from "../attempts";
import { useFetched, useNow } from "../hooks";
import { Age, Badge, Bar, Card, Clock, Empty, Fact, PageHead, Problem, QueueLink, WorkerName } from "../parts/basic";
import { Body } from "../parts/body";
import { Gantt, type GanttRow } from "../parts/gantt";
import { LogsCard } from "../parts/logs";
import { attempt, notify } from "../parts/notices";
import { RelativesCard } from "../parts/relatives";
import { toHash } from "../route";
import type { Action, AnswerOf, CallbackOf, Explanation, Happening, Task } from "../types";
import { ACTION_WORDS, actionsFor, bytes, isEnded, milliseconds, needTexts, paceText, plural, ran, runSeconds, span, taskName, toSeconds } from "../words";

interface Whole {
  task: Task;
  history: Happening[];
  explanation: Explanation;
}

const TOGETHER_MS = 100;
const AGAIN_MS = 2_000;
const PROGRESS_MS = 1_000;

async function load(id: string, signal: AbortSignal): Promise<Whole> {
  const about = `tasks/${encodeURIComponent(id)}`;
  const [task, { history }, explanation] = await Promise.all([
    ask<Task>(about, { signal }),
    ask<{ history: Happening[] }>(`${about}/history`, { signal }),
    ask<Explanation>(`${about}/explain`, { signal }),
  ]);
  return { task, history, explanation };
}

export function TaskPage({ id }: { id: string }) {
  const happened = useEvents(id);
  const { data, failure, isLoading, reload } = useFetched((signal) => load(id, signal), [id], false);
  const seen = useRef(0);
  useEffect(() => {
    // What is being loaded is shown first: while much happens, nothing ever would be otherwise.
    if (isLoading || seen.current === happened) return;
    seen.current = happened;
    reload();
  }, [happened, isLoading]);
  // Progress is no event: it is looked at while a worker has the task.
  const isAtWorker = data?.task.state === "running" || data?.task.state === "assigned";
  useEffect(() => {
    if (!isAtWorker) return undefined;
    const timer = window.setInterval(reload, PROGRESS_MS);
    return () => window.clearInterval(timer);
  }, [isAtWorker, id]);
  if (failure instanceof Failure && failure.status === 404) {
    return <><PageHead title="Task" /><Empty>There is no task {id}. It may have been deleted, or its time to be kept is over.</Empty></>;
  }
  if (!data || data.task.id !== id) return <><PageHead title="Task" /><Problem failure={failure} /></>;
  const { task } = data;
  const about = `tasks/${task.id}`;
  const content = task.headers["content"];
  const version = `${task.state}${task.attempts}`;
  return (
    <>
      <PageHead title={<>{taskName(task) || task.id} <Badge state={task.state} /></>} note={task.id}>
        <TaskActions task={task} onDone={reload} />
      </PageHead>
      <Problem failure={failure} />
      <div class="grid halves">
        <div class="stack">
          <Why data={data} />
          {task.error && <ErrorCard error={task.error} />}
          <LogsCard key={task.id} task={task} />
          <Steps task={task} />
          <Attempts attempts={attemptsOf(data.history)} created={task.created_at} />
          <History history={data.history} />
        </div>
        <div class="stack">
          <Facts task={task} />
          {task.how && <AnswerCard how={task.how} answer={task.answer} />}
          <RelativesCard key={task.id} task={task} />
          {task.payload_size > 0 && <Body title="Payload" path={`${about}/payload`} length={task.payload_size} content={content} version="" />}
          {task.state === "succeeded" && task.result_size > 0 && (
            <Body title="Result" path={`${about}/result`} length={task.result_size} content={content} version={version} />
          )}
        </div>
      </div>
    </>
  );
}

/** A number that changes whenever something happens to the task. */
function useEvents(id: string): number {
  const [number, setNumber] = useState(0);
  useEffect(() => {
    let socket: WebSocket | null = null;
    let timer = 0;
    let isOver = false;
    let isTold = false;
    // Several things often happen at once; they are looked at together, and soon.
    const bump = () => {
      if (isTold) return;
      isTold = true;
      window.setTimeout(() => {
        isTold = false;
        if (!isOver) setNumber((before) => before + 1);
      }, TOGETHER_MS);
    };
    const connect = () => {
      socket = new WebSocket(socketAddress("events", { task: id, names: "jackalope" }));
      socket.onopen = bump;
      socket.onmessage = bump;
      socket.onclose = () => { if (!isOver) timer = window.setTimeout(connect, AGAIN_MS); };
    };
    connect();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
      if (socket) socket.onclose = null;
      socket?.close();
    };
  }, [id]);
  return number;
}

function TaskActions({ task, onDone }: { task: Task; onDone: () => void }) {
  const act = async (action: Action) => {
    const path = `tasks/${task.id}/${action}`;
    const done = await attempt(async () => {
      const { outcome } = await ask<{ outcome: string }>(path, { method: "POST" });
      notify(`${ACTION_WORDS[action].label}: ${outcome === "requested" ? "the worker is asked" : "done"}.`);
    });
    if (done) {
      if (action === "purge") location.hash = toHash("tasks");
      else onDone();
    }
  };
  return (
    <>
      {may("cancel_tasks") && actionsFor(task.state).map((action) => (
        <button key={action} type="button" title={ACTION_WORDS[action].does} class={action === "kill" || action === "purge" ? "danger" : ""} onClick={() => act(action)}>
          {ACTION_WORDS[action].label}
        </button>
      ))}
      {may("submit_tasks") && <a class="button" href={toHash("submit", "", { from: task.id })} title="Submit it once more, with changes">Submit again…</a>}
    </>
  );
}

function Why({ data: { task, explanation } }: { data: Whole }) {
  const { progress, request: signal } = task;
  return (
    <Card title="Why">
      <ul class="causes">
        {explanation.causes.map((cause) => (
          <li key={cause.text}>
            {cause.text} <CauseLink cause={cause} isEnded={isEnded(task.state)} />
          </li>
        ))}
      </ul>
      {progress && !isEnded(task.state) && (
        <div class="progress">
          <Bar parts={[{ value: progress.percent ?? 0, tone: "teal" }]} whole={100} label={`Progress: ${progress.percent ?? "?"} %`} />
          <span>{progress.percent === null ? "" : `${Math.round(progress.percent)} %`} {progress.note}</span>
        </div>
      )}
      {signal && <p class="dim">{signal.signal} by {signal.by || "somebody"}: {signal.stage} <Age at={signal.at} /></p>}
    </Card>
  );
}

/** Where to look for what holds a task up. */
function CauseLink({ cause: { facts }, isEnded }: { cause: Explanation["causes"][number]; isEnded: boolean }) {
  if (facts["dependency"]) return <a href={toHash("task", String(facts["dependency"]))}>Show that task</a>;
  if (isEnded) return null;
  if (facts["limit"]) return <a href={toHash("limits")}>Show the limits</a>;
  return facts["worker"] ? <a href={toHash("workers")}>Show the workers</a> : null;
}

const HOW_WORDS: Record<string, string> = {
  miss: "nobody had asked for the same",
  refresh: "it wanted a new answer",
  bypass: "it wanted a run of its own",
};

/** A task that is a request: how it came to run, and who had use of what it returned. */
function AnswerCard({ how, answer }: { how: string; answer: AnswerOf | null }) {
  return (
    <Card title="Request">
      <dl class="facts">
        <Fact name="Served">{how} <span class="dim">{HOW_WORDS[how]}</span></Fact>
        {answer && !answer.made_at && <Fact name="Awaited">by {plural(answer.uses + 1, "request")}</Fact>}
        {answer?.made_at && (
          <>
            <Fact name="Made"><Age at={answer.made_at} />{answer.worker && ` by ${answer.worker}`}</Fact>
            <Fact name="Used">{plural(answer.uses, "time")}{answer.used_at && <>, last <Age at={answer.used_at} /></>}{answer.used_by && ` by ${answer.used_by}`}</Fact>
            {answer.pinned_by ? <Fact name="Pinned">by {answer.pinned_by}</Fact> : <Fact name="Good until"><Age at={answer.until_at} /></Fact>}
          </>
        )}
        {answer?.version && <Fact name="Version"><code>{answer.version}</code></Fact>}
        {answer && <Fact name="Identity"><code class="whole">{answer.identity}</code></Fact>}
        {!answer && how !== "bypass" && <Fact name="Answer">not kept, or not any more</Fact>}
      </dl>
    </Card>
  );
}

function ErrorCard({ error }: { error: NonNullable<Task["error"]> }) {
  return (
    <Card title="Error">
      <p class="error-line whole"><strong>{error.type}</strong>{error.message && `: ${error.message}`}</p>
      {error.trace && <pre class="body trace" tabIndex={0}>{error.trace}</pre>}
    </Card>
  );
}

/** What the task does once: the steps that are done, the event that it waits for, and those it was sent. */
function Steps({ task }: { task: Task }) {
  const { steps, waits_for, events } = task;
  if (!steps.length && !waits_for && !events.length) return null;
  const until = task.due_at && <>until <Clock at={task.due_at} /></>;
  return (
    <Card title="Steps" aside={<span class="dim">{plural(steps.length, "step")} done</span>}>
      <div class="scroll">
        <table>
          <thead><tr><th>#</th><th>Step</th><th>At</th><th>Took</th><th>Result</th></tr></thead>
          <tbody>
            {steps.map((each, index) => (
              <tr key={index}>
                <td class="number">{index + 1}</td>
                <td>{each.name} {each.is_late && <span class="ink-amber">not in time</span>}</td>
                <td><Clock at={each.at} /></td>
                <td>{each.took_seconds ? ran(each.took_seconds) : "-"}</td>
                <td class="number">{each.size > 0 ? bytes(each.size) : "-"}</td>
              </tr>
            ))}
            {waits_for && !isEnded(task.state) && (
              <tr>
                <td class="number">{steps.length + 1}</td>
                <td colSpan={4}><span class="ink-amber">waits for {waits_for}</span> <span class="dim">{until || "without end"}</span></td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      {events.length > 0 && (
        <>
          <p class="dim">Events {isEnded(task.state) ? "that were not asked for" : "not asked for yet"}</p>
          <ul class="causes">
            {events.map((each, index) => (
              <li key={index}><strong>{each.event}</strong> <span class="dim">{each.by && `by ${each.by} `}<Age at={each.at} />{each.size > 0 && `, ${bytes(each.size)}`}</span></li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}

const END_TONES: Record<string, string> = { finish: "green", fail: "red", lose: "red", release: "amber", stop: "amber", suspend: "teal" };

/** A row for each attempt: how long it waited to begin, and how long it ran. */
export function barsOf(attempts: Attempt[], created: string): GanttRow[] {
  let since = created;
  return attempts.map((each, index) => {
    const began = each.started ?? each.assigned ?? since;
    const run = { from: began, to: each.ended, tone: each.end ? (END_TONES[each.end] ?? "grey") : "teal", title: each.end ? `ran, then ${each.end}` : "runs" };
    const waited = { from: since, to: began, tone: "waiting", title: "waited" };
    const seconds = each.ended ? toSeconds(each.ended) - toSeconds(began) : null;
    since = each.ended ?? began;
    return { key: String(index), label: `${index + 1} ${each.worker}`, spans: [waited, run], note: seconds === null ? "" : milliseconds(seconds) };
  });
}

function Attempts({ attempts, created }: { attempts: Attempt[]; created: string }) {
  const now = useNow();
  if (!attempts.length) return null;
  return (
    <Card title="Attempts" aside={<span class="dim">{plural(attempts.length, "attempt")}</span>}>
      <Gantt rows={barsOf(attempts, created)} nowMs={now} label="When each attempt waited and ran" />
      <div class="scroll">
        <table>
          <thead><tr><th>#</th><th>Worker</th><th>Began</th><th>Ran</th><th>End</th></tr></thead>
          <tbody>
            {attempts.map((each, index) => {
              const seconds = runSeconds({ started_at: each.started, ended_at: each.ended }, now);
              return (
                <tr key={each.assigned}>
                  <td class="number">{index + 1}</td>
                  <td class="cut">{each.worker || "-"}</td>
                  <td><Clock at={each.started ?? each.assigned} /></td>
                  <td>{seconds === null ? "-" : ran(seconds)}</td>
                  <td class="wide">{each.end ? <><span class={`ink-${END_TONES[each.end]}`}>{each.end}</span> <span class="dim">{each.detail}</span></> : "under way"}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function History({ history }: { history: Happening[] }) {
  return (
    <Card title="History">
      <ol class="timeline">
        {history.map((each, index) => (
          <li key={index}>
            <Clock at={each.at} /> <strong>{each.what}</strong>
            {each.by && <span class="dim"> by {each.by}</span>}
            {each.detail && <div class="dim">{each.detail}</div>}
          </li>
        ))}
      </ol>
    </Card>
  );
}

/** A URL that is told of the end, and the task that tells it once there is one. */
function CallbackLine({ callback }: { callback: CallbackOf }) {
  return (
    <div>
      <code class="whole">{callback.url}</code>
      {callback.on.length > 0 && <span class="dim"> on {callback.on.join(", ")}</span>}
      {callback.task && <> <a href={toHash("task", callback.task)}>Show its delivery</a></>}
    </div>
  );
}

function Chips({ name, texts }: { name: string; texts: string[] }) {
  return texts.length ? <Fact name={name}>{texts.map((text) => <span key={text} class="chip">{text}</span>)}</Fact> : null;
}

function Facts({ task }: { task: Task }) {
  const now = useNow();
  const seconds = runSeconds(task, now);
  const limit = (value: number | null) => (value === null ? "as the queue says" : span(value));
  return (
    <Card title="Facts">
      <dl class="facts">
        <Fact name="Queue"><QueueLink queue={task.queue} /></Fact>
        <Fact name="Priority">{task.priority}</Fact>
        <Fact name="Submitted"><Age at={task.created_at} />{task.by && ` by ${task.by}`}</Fact>
        {task.due_at && !isEnded(task.state) && <Fact name="Not before"><Age at={task.due_at} /></Fact>}
        {task.started_at && <Fact name="Began"><Age at={task.started_at} /></Fact>}
        {seconds !== null && <Fact name="Ran">{ran(seconds)}</Fact>}
        {task.ended_at && <Fact name="Ended"><Age at={task.ended_at} /></Fact>}
        {task.worker && <Fact name="Worker"><a href={toHash("workers")}><WorkerName id={task.worker} /></a></Fact>}
        <Fact name="Tries">{plural(task.attempts, "attempt")}, {plural(task.failures, "failure")}, {task.crashes} crashes, {task.interruptions} interruptions</Fact>
        <Fact name="Retries">{task.retries ?? "as the queue says"}</Fact>
        <Fact name="Time limit">{limit(task.timeout_seconds)}</Fact>
        {task.key && <Fact name="Key"><code>{task.key}</code></Fact>}
        {task.alias && <Fact name="Alias"><code>{task.alias}</code></Fact>}
        {task.tags.length > 0 && <Fact name="Tags">{task.tags.map((tag) => <a key={tag} class="chip" href={toHash("tasks", "", { tag })}>{tag}</a>)}</Fact>}
        <Chips name="Needs" texts={needTexts(task.needs)} />
        <Chips name="Prefers workers" texts={needTexts(task.prefer)} />
        <Chips name="Avoids workers" texts={needTexts(task.avoid)} />
        {task.sticky && <Fact name="Same worker as"><code>{task.sticky}</code></Fact>}
        {task.batch > 0 && <Fact name="Batch"><a href={toHash("tasks", "", { queue: task.queue, batch: task.batch })}>{task.batch}</a></Fact>}
        {task.pace && <Fact name="Pace">{paceText(task.pace)}{task.pace.key && <> <span class="dim">key</span> <code>{task.pace.key}</code></>}</Fact>}
        {task.callbacks.length > 0 && <Fact name="Callbacks">{task.callbacks.map((each) => <CallbackLine key={each.url} callback={each} />)}</Fact>}
        {task.expires_at && !isEnded(task.state) && <Fact name="Expires"><Age at={task.expires_at} /></Fact>}
        {task.forget_at && <Fact name="Kept until"><Age at={task.forget_at} /></Fact>}
        {Object.keys(task.headers).length > 0 && <Fact name="Headers"><pre class="inline">{JSON.stringify(task.headers, null, 1)}</pre></Fact>}
      </dl>
    </Card>
  );
}
