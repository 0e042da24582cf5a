import { beforeEach, describe, expect, it } from "vitest";
import { type Connection, Live, SILENCE_MS, type Wire, waitMs } from "../src/live";

class World {
  now = 0;
  wires: (Wire & { isClosed: boolean })[] = [];
  timers: { at: number; call: () => void; id: number }[] = [];
  states: Connection[] = [];
  pulses: number[] = [];
  private last = 0;

  live = new Live(
    {
      open: () => {
        const wire = { onmessage: null, onclose: null, isClosed: false, close() { wire.isClosed = true; } } as Wire & { isClosed: boolean };
        this.wires.push(wire);
        return wire;
      },
      later: (call, ms) => {
        this.last += 1;
        this.timers.push({ at: this.now + ms, call, id: this.last });
        return this.last;
      },
      forget: (id) => { this.timers = this.timers.filter((timer) => timer.id !== id); },
      chance: () => 1,
    },
    {
      connection: (state) => { if (this.states.at(-1) !== state) this.states.push(state); },
      pulse: (pulse) => this.pulses.push(pulse.sequence),
    },
  );

  get wire() { return this.wires.at(-1) as Wire & { isClosed: boolean }; }

  say(message: object) { this.wire.onmessage?.({ data: JSON.stringify(message) }); }

  pass(ms: number) {
    this.now += ms;
    for (const timer of this.timers.filter((each) => each.at <= this.now)) {
      this.timers = this.timers.filter((each) => each !== timer);
      timer.call();
    }
  }
}

let world: World;
beforeEach(() => {
  world = new World();
  world.live.start();
});

describe("the live connection", () => {
  it("is live once something is heard", () => {
    expect(world.states).toEqual(["connecting"]);
    world.say({ type: "pulse", sequence: 7 });
    expect([world.states.at(-1), world.pulses]).toEqual(["live", [7]]);
  });

  it("comes back by itself after a loss", () => {
    world.say({ type: "pulse", sequence: 1 });
    world.wire.onclose?.();
    expect(world.states.at(-1)).toBe("lost");
    world.pass(500);
    expect(world.wires).toHaveLength(2);
    world.say({ type: "pulse", sequence: 2 });
    expect(world.states).toEqual(["connecting", "live", "lost", "live"]);
  });

  it("takes silence for a loss, and closes what was silent", () => {
    world.say({ type: "quiet" });
    world.pass(SILENCE_MS - 1);
    expect(world.states.at(-1)).toBe("live");
    const silent = world.wire;
    world.pass(1);
    expect([world.states.at(-1), silent.isClosed]).toEqual(["lost", true]);
  });

  it("is kept alive by words that say nothing", () => {
    for (let turn = 0; turn < 5; turn += 1) {
      world.say({ type: "quiet" });
      world.pass(SILENCE_MS - 1);
    }
    expect(world.states).toEqual(["connecting", "live"]);
  });

  it("waits longer each time, and not for ever", () => {
    expect([0, 1, 2, 10].map((tries) => waitMs(tries, 1))).toEqual([500, 1000, 2000, 10_000]);
    expect(waitMs(0, 0)).toBe(250);
  });

  it("hurries when asked, but opens no second connection", () => {
    world.live.hurry();
    expect(world.wires).toHaveLength(1);
    world.wire.onclose?.();
    world.live.hurry();
    expect(world.wires).toHaveLength(2);
    world.pass(500);
    expect(world.wires).toHaveLength(2);
  });

  it("ends for good", () => {
    world.live.stop();
    expect([world.wire.isClosed, world.timers]).toEqual([true, []]);
    world.live.hurry();
    expect(world.wires).toHaveLength(1);
  });
});
