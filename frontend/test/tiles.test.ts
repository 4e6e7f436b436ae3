import { describe, expect, test } from "vitest";
import { savedTiles, tileParts } from "../src/api/tiles";
import { readTiles } from "../src/sections/timeline/tile";

/** An answer of the server with summaries of four buckets each. */
function answer(z: number, blocks: { track: number; i: number; busy: number }[]): Uint8Array {
  const entries = blocks.map(({ track, i }, k) => ({ i, track, kind: "summary", shift: 0, items: 4, complete: false, offset: 12 * k }));
  const text = JSON.stringify({ v: 1, z, blocks: entries });
  const head = new TextEncoder().encode(text + " ".repeat((4 - (text.length % 4)) % 4));
  const body = blocks.flatMap(({ busy }) => [0, 0, 0, 0, busy, busy, busy, busy, 1, 1, 1, 1]);
  const out = new Uint8Array(8 + head.length + body.length);
  out.set([...new TextEncoder().encode("SLT1")]);
  new DataView(out.buffer).setUint32(4, head.length, true);
  out.set(head, 8);
  out.set(body, 8 + head.length);
  return out;
}

function saved(...answers: Uint8Array[]): ArrayBuffer {
  const parts = answers.flatMap((one) => [...new Uint8Array(new Uint32Array([one.length]).buffer), ...one]);
  return new Uint8Array(parts).buffer;
}

describe("tiles of a saved page", () => {
  test("GIVEN tiles of two levels WHEN some are asked for THEN those that are there are sent as the server would", () => {
    const parts = tileParts(saved(answer(3, [{ track: 1, i: 0, busy: 9 }]), answer(2, [{ track: 1, i: 0, busy: 5 }, { track: 2, i: 1, busy: 6 }, { track: 1, i: 1, busy: 7 }])));
    const found = [...readTiles(savedTiles(parts, 2, 0, 1, [1, 2, 3]))].map((tile) => tile.kind === "summary" && [tile.track, tile.z, tile.i, tile.busy[3], tile.depth[0]]);
    expect(found).toEqual([[1, 2, 0, 5, 1], [1, 2, 1, 7, 1], [2, 2, 1, 6, 1]]);
    expect([...readTiles(savedTiles(parts, 9, 0, 0, [1]))]).toEqual([]);
    expect(tileParts(new ArrayBuffer(0)).size).toBe(0);
  });
});
