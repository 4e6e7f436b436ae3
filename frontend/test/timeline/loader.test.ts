import { describe, expect, test, vi } from "vitest";
import { AHEAD, Loader, MOST_IN_FLIGHT, plan, type Wanted } from "../../src/sections/timeline/loader";

/** An answer with summaries of some tracks, each without a bucket. */
const answerOf = (z = 0, tracks: readonly number[] = []): ArrayBuffer => {
  const text = JSON.stringify({ v: 1, z, blocks: tracks.map((track) => ({ i: 0, track, kind: "summary", shift: 0, items: 0, offset: 0, complete: true })) });
  const head = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 4) * 4));
  const out = new Uint8Array(8 + head.length);
  out.set(new TextEncoder().encode("SLT1"));
  new DataView(out.buffer).setUint32(4, head.length, true);
  out.set(head, 8);
  return out.buffer;
};

/** A loader whose requests are answered by hand. */
function made(): { loader: Loader; sent: { z: number; from: number; tracks: readonly number[]; signal: AbortSignal; answer: () => void }[]; have: Set<string> } {
  const have = new Set<string>();
  const sent: ReturnType<typeof made>["sent"] = [];
  const loader = new Loader({
    get: (z, from, _to, tracks, signal) => new Promise((done, failed) => {
      signal.addEventListener("abort", () => failed(new Error("aborted")));
      sent.push({ z, from, tracks, signal, answer: () => { for (const t of tracks) have.add(`${t}/${z}/${from}`); done(answerOf()); } });
    }),
    has: (t, z, i) => have.has(`${t}/${z}/${i}`), arrived: () => undefined, settled: () => undefined, failed: (error) => { throw error; },
  });
  return { loader, sent, have };
}
const soon = (): Promise<void> => new Promise((done) => setTimeout(done, 0));
const one = (z: number, i: number, rank: number, track = 1): Wanted => ({ z, from: i, to: i, tracks: [track], rank });

describe("requests for tiles", () => {
  test("GIVEN many rows and tiles WHEN planned THEN requests are small, in order of rank, without what is here", () => {
    const tracks = Array.from({ length: 50 }, (_, k) => k);
    const found = plan([{ z: 3, from: 0, to: 8, tracks, rank: 1 }, one(9, 0, 0)], (t, z, i) => !(z === 3 && i === 8 && t > 0));
    expect(found.map((w) => [w.z, w.from, w.to, w.tracks.length])).toEqual([[9, 0, 0, 1], [3, 0, 7, 24], [3, 0, 7, 24], [3, 0, 7, 2], [3, 8, 8, 1]]);
  });

  test("GIVEN a view at rest WHEN tiles are wanted THEN four requests fly, one while it moves, and what lies ahead waits for all of them", async () => {
    const { loader, sent } = made();
    const wanted = [0, 1, 2, 3, 4, 5].map((i) => one(3, i, 1));
    loader.want([...wanted, one(3, 9, AHEAD)], 3);
    expect(sent.map((s) => s.from)).toEqual([0, 1, 2, 3]);
    expect(sent.length).toBe(MOST_IN_FLIGHT);
    for (const s of [...sent]) s.answer();
    await soon();
    expect(sent.map((s) => s.from)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(loader.busy).toBe(true);
    for (const s of sent.slice(4)) s.answer();
    await soon();
    expect(sent.map((s) => s.from)).toEqual([0, 1, 2, 3, 4, 5, 9]);
    expect(loader.busy).toBe(false); // what is in view is here
    const moving = made();
    moving.loader.want(wanted, 3, true);
    expect(moving.sent.length).toBe(1);
  });

  test("GIVEN requests on their way WHEN the level changes THEN those of its neighbors are kept, others cancelled; what lies ahead gives way", async () => {
    const { loader, sent } = made();
    loader.want([one(3, 0, 1)], 3);
    loader.want([one(4, 0, 1)], 4);
    expect(sent.map((s) => s.signal.aborted)).toEqual([false, false]);
    loader.want([one(5, 0, 1)], 5);
    expect(sent.map((s) => s.signal.aborted)).toEqual([true, false, false]);
    for (const s of sent.slice(1)) s.answer();
    await soon();
    loader.want([one(5, 1, AHEAD)], 5);
    expect(sent.at(-1)!.signal.aborted).toBe(false);
    loader.want([one(5, 7, 1)], 5);
    expect(sent.map((s) => [s.from, s.signal.aborted]).slice(3)).toEqual([[1, true], [7, false]]);
  });

  test("GIVEN an answer that lacks a tile WHEN it is wanted again THEN it is not asked for again, until told so", async () => {
    const { loader, sent, have } = made();
    loader.want([one(3, 0, 1)], 3);
    sent[0]!.answer();
    have.clear(); // a saved page has no such tile
    await soon();
    loader.want([one(3, 0, 1)], 3);
    expect(sent.length).toBe(1);
    loader.forgive();
    loader.want([one(3, 0, 1)], 3);
    expect(sent.length).toBe(2);
  });

  test("GIVEN a long answer WHEN decoded THEN the page gets its turn every 4 ms, and no tile of an answer arrives once the timeline is left", async () => {
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
    const turns = vi.spyOn(globalThis, "setTimeout");
    const arrived: number[] = [];
    const tracks = [1, 2, 3, 4, 5, 6, 7, 8];
    const made = (arrives: (track: number) => void): Promise<Loader> => new Promise((settled) => {
      const loader: Loader = new Loader({ get: async (z, _from, _to, all) => answerOf(z, all), has: () => false, arrived: (tile) => arrives(tile.track), settled: () => settled(loader), failed: (error) => { throw error; } });
      loader.want([{ z: 3, from: 0, to: 0, tracks, rank: 1 }], 3);
    });
    await made((track) => { now += 1.5; arrived.push(track); }); // 1.5 ms of each tile: a turn after every third
    expect([arrived, turns.mock.calls.length]).toEqual([tracks, 2]);
    const left: number[] = [];
    const loader = new Loader({ get: async (z, _from, _to, all) => answerOf(z, all), has: () => false, arrived: (tile) => { now += 5; left.push(tile.track); }, settled: () => { throw new Error("of a timeline that is left"); }, failed: (error) => { throw error; } });
    loader.want([{ z: 3, from: 0, to: 0, tracks, rank: 1 }], 3);
    while (!left.length) await Promise.resolve();
    loader.stop();
    await soon();
    await soon();
    expect(left).toEqual([1]);
    clock.mockRestore();
    turns.mockRestore();
  });
});
