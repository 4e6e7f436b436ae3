import { expect, test } from "vitest";
import type { Flow, FlowEnd } from "../../src/api/timeline";
import { covers, drawPath, PATH_BAR, stretchesOf } from "../../src/sections/timeline/path";

const end = (track: number, start_ns: number, end_ns: number): FlowEnd => ({ event: track, track, lane: 0, start_ns, end_ns, name: "" });
const chain = (...ends: FlowEnd[]): Flow[] => ends.slice(1).map((target, i) => ({ kind: "", source: ends[i]!, target, latency_ns: 0 }));

test("what was asked for covers a view inside of it that is not far smaller", () => {
  expect(covers(null, { start: 0, end: 10 })).toBe(false);
  expect(covers({ start: 0, end: 300 }, { start: 100, end: 200 })).toBe(true);
  expect(covers({ start: 0, end: 300 }, { start: 250, end: 350 })).toBe(false);
  expect(covers({ start: 0, end: 300 }, { start: 100, end: 110 })).toBe(false);
});

test("a bar for each stretch that is shown, an arrow where the next begins at once on another row", () => {
  // GIVEN a thread until 40, a stream until 90, a row that is not shown until 95, and after a pause the thread again
  const flows = chain(end(1, 0, 40), end(2, 40, 90), end(3, 90, 95), end(1, 97, 100));
  expect(stretchesOf(flows).map((e) => e.track)).toEqual([1, 2, 3, 1]);
  const rects: number[][] = [];
  let tips = 0;
  const ctx = { fillStyle: "", fillRect: (...r: number[]) => rects.push(r), beginPath: () => { tips++; }, moveTo: () => {}, lineTo: () => {}, fill: () => {} } as unknown as CanvasRenderingContext2D;
  const tops: Record<number, number> = { 1: 10, 2: 60 };
  drawPath(ctx, flows, { x: (t) => t, y: (track) => tops[track] ?? null, width: 100, color: "c", halo: "h" });
  expect(tips).toBe(1);
  expect(rects).toContainEqual([40, 10, 1, 50 + PATH_BAR]); // from the thread down to the stream
  expect(rects.filter((r) => r[3] === PATH_BAR)).toEqual([[0, 10, 40, PATH_BAR], [40, 60, 50, PATH_BAR], [97, 10, 3, PATH_BAR]]);
});
