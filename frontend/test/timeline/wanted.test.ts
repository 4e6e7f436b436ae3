import { describe, expect, test } from "vitest";
import type { Track } from "../../src/api/timeline";
import { TileCache } from "../../src/sections/timeline/cache";
import type { Row } from "../../src/sections/timeline/rows";
import type { Tile } from "../../src/sections/timeline/tile";
import { ahead, lacking, levelIn, type Seen } from "../../src/sections/timeline/wanted";

const tile = (track: number, z: number, i: number, complete = false): Tile => ({ kind: "summary", track, z, i, category: new Uint8Array(1), busy: new Uint8Array(1), depth: new Uint8Array(1), complete, bytes: 1 });
const row = (track: number, kind: Track["kind"], lanes: number, y: number): Row => ({ track: { track, kind } as Track, y, height: 100, lanes, lane: 20, level: 0, open: true, group: kind === "process", pinned: false });

/** Four rows of 100 px, of which 250 px are in view; 1,000 px of time at level 4: tiles of 16,384 ns. */
const seen = (): Seen => ({
  view: { start: 20_000, end: 40_000 }, span: 100_000, scroll: 0, width: 1_000, height: 250, cache: new TileCache(7),
  shown: { pinned: [], rows: [row(1, "process", 0, 0), row(2, "thread", 5, 100), row(3, "annotations", 0, 200), row(4, "thread", 5, 300)], pinnedHeight: 0, height: 400, hidden: 0 },
});

describe("tiles that are wanted", () => {
  test("GIVEN nothing WHEN a view is shown THEN tiles of the whole of each row in view come first, then those of its level; a closed row has none", () => {
    const s = seen();
    expect(levelIn(s)).toBe(4);
    expect(lacking(s)).toEqual([{ z: 7, from: 0, to: 0, tracks: [1, 2], rank: 0 }, { z: 4, from: 1, to: 2, tracks: [1, 2], rank: 1 }]);
  });

  test("GIVEN some tiles WHEN asked THEN only what is not sharp is lacking, and nothing where all is", () => {
    const s = seen();
    for (const t of [1, 2]) s.cache.put(tile(t, 7, 0));
    s.cache.put(tile(1, 4, 1));
    s.cache.put(tile(2, 5, 0, true)); // complete: holds place 1 of level 4, too
    expect(lacking(s)).toEqual([{ z: 4, from: 2, to: 2, tracks: [1, 2], rank: 1 }]);
    for (const t of [1, 2]) s.cache.put(tile(t, 4, 2));
    expect(lacking(s)).toEqual([]);
  });

  test("GIVEN a view at rest WHEN asked what may come next THEN tiles on each side, rows below it and nearer tiles at the pointer, none past the end", () => {
    expect(ahead(seen(), 30_000)).toEqual([
      { z: 4, from: 0, to: 0, tracks: [1, 2], rank: 2 }, { z: 4, from: 3, to: 3, tracks: [1, 2], rank: 2 }, { z: 7, from: 0, to: 0, tracks: [4], rank: 2 },
      { z: 4, from: 1, to: 2, tracks: [4], rank: 2 }, { z: 3, from: 3, to: 3, tracks: [1, 2], rank: 3 },
    ]);
    expect(ahead({ ...seen(), view: { start: 80_000, end: 100_000 } }, 99_999).some((one) => one.z === 4 && one.from > 6)).toBe(false);
  });
});
