import { useState } from "preact/hooks";
import { ask, may } from "../api";
import { useFetched } from "../hooks";
import { Age, Badge, Card, Clock, Confirm, Empty, PageHead, Problem, QueueLink } from "../parts/basic";
import { attempt } from "../parts/notices";
import { toHash } from "../route";
import type { Schedule } from "../types";
import { exact } from "../words";

const SHOWN = 200;

const path = (name: string) => `schedules/${encodeURIComponent(name)}`;

function when(schedule: Schedule): string {
  const { cron, zone, every, times } = schedule.settings;
  if (cron) return zone === "UTC" ? cron : `${cron} ${zone}`;
  return times.length ? `${times.length} moments` : `every ${every}`;
}

export function Schedules() {
  const { data, failure, reload } = useFetched<{ schedules: Schedule[]; cursor: string | null }>(
    (signal) => ask("schedules", { signal, query: { limit: SHOWN } }),
    [],
  );
  const schedules = data?.schedules ?? [];
  return (
    <>
      <PageHead title="Schedules" note="Tasks that the broker submits by itself." />
      <Problem failure={failure} />
      {data && !schedules.length && <div class="card"><Empty>There are no schedules.</Empty></div>}
      <div class="stack">
        {schedules.map((schedule) => <ScheduleCard key={schedule.name} schedule={schedule} onChange={reload} />)}
      </div>
      {data?.cursor && <p class="dim">These are the first {SHOWN}; the command line lists all of them.</p>}
    </>
  );
}

function ScheduleCard({ schedule, onChange }: { schedule: Schedule; onChange: () => void }) {
  const [isOpen, setOpen] = useState(false);
  const [isDeleting, setDeleting] = useState(false);
  const name = schedule.name;
  const remove = async () => {
    setDeleting(false);
    if (await attempt(() => ask(path(name), { method: "DELETE" }), `Schedule ${name} is deleted.`)) onChange();
  };
  const act = async (what: string, done: string) => {
    const body = what === "trigger" ? { body: {} } : {};
    if (await attempt(() => ask(`${path(name)}/${what}`, { method: "POST", ...body }), `Schedule ${name} ${done}.`)) onChange();
  };
  const aside = (
    <>
      <Badge state={schedule.state} />
      {schedule.orphaned_at && <Badge state="orphaned" />}
      <button type="button" class="small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>Slots and tasks</button>
      {may("submit_tasks") && <button type="button" class="small" onClick={() => act("trigger", "is triggered")}>Trigger</button>}
      {may("cancel_tasks") && schedule.state === "paused" && <button type="button" class="small" onClick={() => act("resume", "is resumed")}>Resume</button>}
      {may("cancel_tasks") && schedule.state === "active" && <button type="button" class="small" onClick={() => act("pause", "is paused")}>Pause</button>}
      {may("cancel_tasks") && <button type="button" class="small danger" onClick={() => setDeleting(true)}>Delete</button>}
    </>
  );
  return (
    <Card title={name} aside={aside}>
      <p class="dim">
        <span class="mono">{when(schedule)}</span>; next {schedule.next_at ? <Clock at={schedule.next_at} /> : "never"};{" "}
        {exact(schedule.fired)} fired, {exact(schedule.missed)} missed; task {schedule.settings.task || "without a name"} in queue{" "}
        <QueueLink queue={schedule.settings.queue} />{schedule.app && <>; declared by {schedule.app}</>}
      </p>
      {schedule.trouble && <p class="problem">{schedule.trouble}</p>}
      {schedule.why_missed && <p class="dim">last missed <Age at={schedule.missed_at} />: {schedule.why_missed}</p>}
      {isOpen && <Runs name={name} />}
      {isDeleting && (
        <Confirm title={`Delete ${name}`} action="Delete" onConfirm={remove} onClose={() => setDeleting(false)}>
          <p>It submits nothing any more. Its tasks stay.{schedule.app && ` Workers of ${schedule.app} declare it again when they start.`}</p>
        </Confirm>
      )}
    </Card>
  );
}

function Runs({ name }: { name: string }) {
  const { data, failure } = useFetched<Schedule>((signal) => ask(path(name), { signal }), [name]);
  return (
    <>
      <Problem failure={failure} />
      <h3>Next slots</h3>
      {data && !data.upcoming.length && <Empty>None is left.</Empty>}
      <ul class="plain-list">{data?.upcoming.map((slot) => <li key={slot}><Clock at={slot} /></li>)}</ul>
      <h3>Last tasks</h3>
      {data && !data.runs.length && <Empty>It has submitted none.</Empty>}
      <ul class="plain-list">
        {data?.runs.map((run) => (
          <li key={run.task} class="row spread">
            <a class="mono" href={toHash("task", run.task)}>{run.task}</a>
            <span class="row"><span class="dim">{run.how}, <Clock at={run.slot_at} /></span><Badge state={run.state ?? "forgotten"} /></span>
          </li>
        ))}
      </ul>
    </>
  );
}
