import { describe, expect, test } from "vitest";
import { bandEdges } from "../../src/sections/timeline/draw";
import { nestingOf } from "../../src/sections/timeline/nesting";
import type { Slices } from "../../src/sections/timeline/tile";

type Item = [start: number, end: number, count: number];
const tile = (lanes: Item[][], complete = true): Slices => {
  const items = lanes.flat();
  let at = 0;
  return {
    kind: "slices", track: 0, z: 0, i: 0, bounds: Uint32Array.from([0, ...lanes.map((l) => (at += l.length))]), start: Float64Array.from(items, (x) => x[0]), end: Float64Array.from(items, (x) => x[1]),
    event: Uint32Array.from(items, (_, k) => k), name: new Uint32Array(items.length), count: Uint16Array.from(items, (x) => x[2]), busy: new Uint8Array(items.length), complete, bytes: 1,
  };
};

describe("what is around and inside of an event", () => {
  const lanes: Item[][] = [[[0, 100, 1], [200, 300, 3]], [[10, 50, 1], [60, 90, 1], [210, 220, 1]], [[12, 20, 1], [30, 45, 1], [62, 70, 1]]];

  test("GIVEN a tile with every event WHEN one in the middle is looked at THEN its parent and its own time are those of the lanes beside it", () => {
    expect(nestingOf(tile(lanes), 1, 2)).toEqual({ parent: 100, own: 40 - 8 - 15 });
    expect(nestingOf(tile(lanes), 1, 3)).toEqual({ parent: 100, own: 30 - 8 });
    expect(nestingOf(tile(lanes), 0, 0)).toEqual({ parent: null, own: 100 - 40 - 30 });
    expect(nestingOf(tile(lanes), 2, 5)).toEqual({ parent: 40, own: 8 });
  });

  test("GIVEN merged events, or one that reaches out of the tile THEN what is not known is null", () => {
    expect(nestingOf(tile(lanes), 1, 4)).toEqual({ parent: null, own: 10 }); // inside of three that are merged
    expect(nestingOf(tile(lanes, false), 1, 2)).toEqual({ parent: 100, own: null });
    expect(nestingOf(tile([[[-5, 100, 1]], [[0, 10, 1]]]), 0, 0).own).toBeNull();
    expect(nestingOf(tile([[[0, 40, 1]], [[30, 60, 1]]]), 1, 1).parent).toBeNull(); // not all of it lies inside
  });
});

describe("lines of bands", () => {
  test("GIVEN steps beside each other THEN each edge in view is one line, and of too many there is none", () => {
    const steps = [{ start_ns: -10, end_ns: 20 }, { start_ns: 20, end_ns: 60 }, { start_ns: 60, end_ns: 140 }];
    expect(bandEdges(steps, { start: 0, end: 100 }, 200)).toEqual([40, 120]);
    const many = Array.from({ length: 400 }, (_, k) => ({ start_ns: k, end_ns: k + 1 }));
    expect(bandEdges(many, { start: 0, end: 400 }, 4000)).toEqual([]);
    expect(bandEdges(many, { start: 0, end: 100 }, 1000)).toHaveLength(101);
  });
});
