import { useState } from "preact/hooks";
import { ask, may } from "../api";
import { useFetched } from "../hooks";
import { Age, Confirm, Empty, PageHead, Problem, QueueLink } from "../parts/basic";
import { attempt } from "../parts/notices";
import { toHash } from "../route";
import type { Answer } from "../types";
import { bytes, exact, plural } from "../words";

const SHOWN = 200;

export function Cache() {
  const { data, failure, reload } = useFetched<{ answers: Answer[] }>((signal) => ask("cache", { signal, query: { limit: SHOWN } }), []);
  const [isPurging, setPurging] = useState(false);
  const answers = data?.answers ?? [];
  const act = async (what: "pin" | "unpin" | "purge", body: object, done: string) => {
    if (await attempt(() => ask(`cache/${what}`, { method: "POST", body }), done)) reload();
  };
  return (
    <>
      <PageHead title="Cache" note="Answers that are given again to who asks for the same.">
        {may("cancel_tasks") && answers.length > 0 && <button type="button" class="danger" onClick={() => setPurging(true)}>Purge all</button>}
      </PageHead>
      <Problem failure={failure} />
      <div class="card scroll">
        <table>
          <thead><tr><th scope="col">Task</th><th scope="col" class="less">Queue</th><th scope="col" class="less">Version</th><th scope="col" class="less">Made</th><th scope="col">Good until</th>
            <th scope="col" class="number">Uses</th><th scope="col" class="number less">Size</th><th /></tr></thead>
          <tbody>
            {answers.map((answer) => (
              <tr key={answer.identity}>
                <td class="wide"><a href={toHash("task", answer.task)}>{answer.name || "without a name"}</a>{" "}
                  <code class="dim" title={answer.identity}>{answer.identity.slice(0, 12)}</code></td>
                <td class="less"><QueueLink queue={answer.queue} /></td>
                <td class="less">{answer.version || <span class="dim">-</span>}</td>
                <td class="less"><Age at={answer.made_at} /></td>
                <td>{answer.pinned_by ? <span title={`by ${answer.pinned_by}`}>pinned</span> : <Age at={answer.until_at} />}</td>
                <td class="number">{exact(answer.uses)}</td>
                <td class="number less">{bytes(answer.size)}</td>
                <td class="end">
                  {may("cancel_tasks") && (
                    <span class="row nowrap">
                      {answer.pinned_by
                        ? <button type="button" class="small" onClick={() => act("unpin", { identities: [answer.identity] }, "The answer is kept as long as any other.")}>Unpin</button>
                        : <button type="button" class="small" onClick={() => act("pin", { identities: [answer.identity] }, "The answer is kept.")}>Pin</button>}
                      <button type="button" class="small danger" onClick={() => act("purge", { identities: [answer.identity] }, "The answer is gone.")}>Purge</button>
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data && !answers.length && <Empty>No answer is kept.</Empty>}
      </div>
      {answers.length >= SHOWN && <p class="dim">These are {exact(SHOWN)}; the command line lists more.</p>}
      {isPurging && (
        <Confirm title="Purge the cache" action="Purge all" onClose={() => setPurging(false)}
          onConfirm={() => { setPurging(false); void act("purge", {}, "The cache is empty."); }}>
          <p>All answers of this namespace, {plural(answers.length, "answer")}{answers.length >= SHOWN ? " or more" : ""}, are forgotten. The tasks stay.</p>
        </Confirm>
      )}
    </>
  );
}
