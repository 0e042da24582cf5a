import { connection, pulse } from "../feed";
import { Age, Card, Fact, PageHead } from "../parts/basic";
import { useStore } from "../store";
import { exact } from "../words";

const DURABILITY: Record<string, string> = {
  fsync: "fsync: what is acknowledged is on the disk",
  interval: "interval: a crash of the machine can lose the last moment",
  memory: "memory: a restart loses everything",
};

export function Cluster() {
  const now = useStore(pulse);
  const state = useStore(connection);
  if (!now) return <PageHead title="Cluster" note="Waiting for the broker…" />;
  const { stats } = now;
  return (
    <>
      <PageHead title="Cluster" note="One node, and no followers: what it keeps is kept on this machine alone." />
      <div class="grid cards">
        <Card title="This node" aside={<span class={now.trouble ? "ink-red" : "ink-green"}>{now.trouble ? "degraded" : "healthy"}</span>}>
          <dl class="facts">
            <Fact name="Role">leader, alone</Fact>
            <Fact name="Followers">none</Fact>
            <Fact name="Journal">at {exact(now.sequence)}</Fact>
            <Fact name="Durability">{DURABILITY[stats.durability] ?? stats.durability}</Fact>
            <Fact name="Running since"><Age at={stats.started_at} /></Fact>
            <Fact name="Sessions">{exact(stats.session_count)}</Fact>
            <Fact name="Version">{stats.version}</Fact>
            <Fact name="This page">{state === "live" ? "connected" : "not connected"}</Fact>
            {now.trouble && <Fact name="Trouble">{now.trouble}</Fact>}
          </dl>
        </Card>
      </div>
    </>
  );
}
