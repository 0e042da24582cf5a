import { useEffect } from "preact/hooks";
import { ask } from "../api";
import { connection, pulse } from "../feed";
import { useFetched } from "../hooks";
import { Age, Card, Empty, Fact, PageHead, Problem } from "../parts/basic";
import { useStore } from "../store";
import type { ClusterInfo, Member } from "../types";
import { bytes, exact } from "../words";

const DURABILITY: Record<string, string> = {
  fsync: "fsync: what is acknowledged is on the disk",
  interval: "interval: a crash of the machine can lose the last moment",
  memory: "memory: a restart loses everything",
};

const TONES: Record<string, string> = { healthy: "green", degraded: "amber", "no leader": "red" };

export function Cluster() {
  const now = useStore(pulse);
  const { data, failure, reload } = useFetched<ClusterInfo>((signal) => ask("cluster", { signal }), []);
  // A member that is lost moves nothing in the journal.
  useEffect(() => {
    const timer = window.setInterval(reload, 2_000);
    return () => window.clearInterval(timer);
  }, [reload]);
  if (!now) return <PageHead title="Cluster" note="Waiting for the broker…" />;
  const isStandby = data?.members.some((each) => each.role === "standby");
  const note = !data ? "" : isStandby
    ? `A copy of ${data.cluster}, which answers reads; \`jackalope promote\` lets it lead.`
    : data.members.length
    ? `${data.cluster}: ${data.leader ? `${data.leader} leads` : "no node leads"} in epoch ${exact(data.epoch)}`
    : "One node, and no followers: what it keeps is kept on this machine alone.";
  return (
    <>
      <PageHead title="Cluster" note={note}>
        {data && data.members.length > 0 && <span class={`ink-${TONES[data.condition]}`} role="status">{data.condition}</span>}
      </PageHead>
      <Problem failure={failure} />
      {data?.problems.map((each) => <p key={each} class="problem" role="alert">{each}</p>)}
      <div class="stack">
        {data && data.members.length > 0 && <Members info={data} />}
        <div class="grid cards">
          {data?.log && <Log info={data} />}
          {data && data.members.length > 0 && <Failovers info={data} />}
          <ThisNode isAlone={!data?.members.length} />
        </div>
      </div>
    </>
  );
}

function Members({ info }: { info: ClusterInfo }) {
  return (
    <div class="card scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th><th scope="col">Role</th><th scope="col" class="number">Applied</th>
            <th scope="col" class="number">Lag</th><th scope="col" class="number">Clock</th>
            <th scope="col">Version</th><th scope="col" class="number">Level</th><th scope="col">Heard</th>
          </tr>
        </thead>
        <tbody>{info.members.map((each) => <Row key={each.node} member={each} isLeader={each.node === info.leader} />)}</tbody>
      </table>
    </div>
  );
}

function Row({ member, isLeader }: { member: Member; isLeader: boolean }) {
  const isHere = member.role !== "unreachable";
  return (
    <tr>
      <th scope="row">{isLeader ? <strong>{member.node}</strong> : member.node}</th>
      <td>
        <span class={isHere ? "" : "ink-red"}>{member.role}</span>
        {member.why && <p class="error-line">{member.why}</p>}
      </td>
      <td class="number">{isHere ? exact(member.applied) : "-"}</td>
      <td class="number">{isHere ? exact(member.lag) : "-"}</td>
      <td class="number">{isHere ? `${member.clock_offset_s.toFixed(3)} s` : "-"}</td>
      <td>{member.version || "-"}</td>
      <td class="number">{member.level_max || "-"}</td>
      <td>{member.heard_s === null ? "never" : member.heard_s < 3 ? "now" : `${Math.round(member.heard_s)} s ago`}</td>
    </tr>
  );
}

function Log({ info }: { info: ClusterInfo }) {
  const log = info.log;
  if (!log) return null;
  return (
    <Card title="Log" aside={<span class="dim">{log.engine}</span>}>
      <dl class="facts">
        <Fact name="Level">{info.level || "-"}</Fact>
        <Fact name="Size">{bytes(log.size)}</Fact>
        {log.leader && <Fact name="Led by">{log.leader}</Fact>}
        {log.copies.map((each) => (
          <Fact key={each.node} name={`Copy at ${each.node}`}>
            <span class={each.is_current ? "ink-green" : "ink-red"}>{each.is_current ? "current" : `${exact(each.lag)} entries behind`}</span>
          </Fact>
        ))}
      </dl>
    </Card>
  );
}

function Failovers({ info }: { info: ClusterInfo }) {
  return (
    <Card title="Leaders" aside={<span class="dim">since this node started</span>}>
      {!info.failovers.length && <Empty>None has changed.</Empty>}
      <ul class="plain-list">
        {info.failovers.map((each) => (
          <li key={each.epoch} class="row spread"><span>{each.node} <span class="dim">epoch {exact(each.epoch)}</span></span><Age at={each.at} /></li>
        ))}
      </ul>
    </Card>
  );
}

function ThisNode({ isAlone }: { isAlone: boolean }) {
  const now = useStore(pulse);
  const state = useStore(connection);
  if (!now) return null;
  const { stats } = now;
  return (
    <Card title="This node" aside={<span class={now.trouble ? "ink-red" : "ink-green"}>{now.trouble ? "degraded" : "healthy"}</span>}>
      <dl class="facts">
        {isAlone && <Fact name="Role">leader, alone</Fact>}
        <Fact name="Journal">at {exact(now.sequence)}</Fact>
        <Fact name="Durability">{DURABILITY[stats.durability] ?? stats.durability}</Fact>
        <Fact name="Running since"><Age at={stats.started_at} /></Fact>
        <Fact name="Sessions">{exact(stats.sessions)}</Fact>
        <Fact name="Version">{stats.version}</Fact>
        <Fact name="This page">{state === "live" ? "connected" : "not connected"}</Fact>
        {now.trouble && <Fact name="Trouble">{now.trouble}</Fact>}
      </dl>
    </Card>
  );
}
