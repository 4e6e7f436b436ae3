import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Track, TrackKind } from "../../src/api/timeline";
import { plan } from "../../src/sections/timeline/loader";
import { trackOf } from "../../src/sections/timeline/place";
import { laneAt, laneTop, ofWorker, rangesOf, rowAt, rowsOf, visible, withBelow, type Arrangement } from "../../src/sections/timeline/rows";

const track = (n: number, parent: number, kind: TrackKind, label: string, more: Partial<Track> = {}, path = label): Track => ({
  track: n, parent, path, kind, label, detail: "", worker: 0, pid: "", tid: "", device: -1, stream: -1, lanes: ["thread", "stream"].includes(kind) ? 3 : 0, events: 5, first_ns: 0, last_ns: 1,
  min_value: null, max_value: null, unit: "", open: true, launches: 0, category: -1, ...more,
});
const tracks = [
  track(0, -1, "worker", "rank0"), track(1, 0, "device", "GPU 0", {}, "rank0/GPU 0"), track(2, 1, "stream", "stream 7", { lanes: 1 }, "rank0/GPU 0/stream 7"), track(3, 0, "process", "python", {}, "rank0/python"),
  track(4, 3, "thread", "main", {}, "rank0/python/main"), track(5, 3, "thread", "idle", { open: false }, "rank0/python/idle"),
];
const plain: Arrangement = { pinned: [], hidden: [], toggled: [], find: "", layout: "" };
const labels = (how: Partial<Arrangement>): string[] => rowsOf(tracks, { ...plain, ...how }).rows.map((r) => r.track.label);

describe("rows", () => {
  test("GIVEN one worker WHEN laid out THEN it has no row of its own, and closed rows keep one line", () => {
    const { rows, height } = rowsOf(tracks, plain);
    expect(rows.map((r) => [r.track.label, r.level, r.open])).toEqual([["GPU 0", 0, true], ["stream 7", 1, true], ["python", 0, true], ["main", 1, true], ["idle", 1, false]]);
    expect(height).toBe(rows.reduce((sum, r) => sum + r.height, 0));
    expect(rows[3]!.lanes).toBe(3);
    expect(rows[4]!.lanes).toBe(1);
  });

  test("GIVEN pins, hidden and toggled rows and a filter WHEN laid out THEN each does what it says", () => {
    expect(labels({ hidden: ["rank0/GPU 0"] })).toEqual(["python", "main", "idle"]);
    expect(labels({ toggled: ["rank0/python"] })).toEqual(["GPU 0", "stream 7", "python"]);
    expect(labels({ find: "idle" })).toEqual(["python", "idle"]);
    expect(labels({ find: "GPU" })).toEqual(["GPU 0", "stream 7"]);
    const { pinned, rows, pinnedHeight } = rowsOf(tracks, { ...plain, pinned: ["rank0/GPU 0", "rank0/GPU 0/stream 7"] });
    expect(pinned.map((r) => r.track.label)).toEqual(["GPU 0", "stream 7"]);
    expect(rows.map((r) => r.track.label)).toEqual(["python", "main", "idle"]);
    expect(pinnedHeight).toBe(52 + 5);
  });

  test("GIVEN a path of another worker WHEN one worker is shown THEN it is the same row of this one", () => {
    expect(trackOf(tracks, "rank0/GPU 0/stream 7")?.track).toBe(2);
    expect(trackOf(tracks, "rank5/GPU 0/stream 7")?.track).toBe(2);
    expect(trackOf(tracks, "rank5/GPU 1/stream 7")).toBeNull();
    expect(trackOf([...tracks, track(6, -1, "worker", "rank1")], "rank5/GPU 0/stream 7")).toBeNull();
  });

  test("GIVEN nine workers WHEN laid out THEN they open as summaries", () => {
    const many = Array.from({ length: 9 }, (_, k) => track(k, -1, "worker", `rank${k}`));
    expect(rowsOf([...many, track(9, 0, "device", "GPU 0")], plain).rows.map((r) => [r.track.label, r.open])).toEqual(many.map((t) => [t.label, false]));
  });

  test("GIVEN ten thousand rows WHEN a height is looked up THEN its row and lane hold it", () => {
    const many = [tracks[0]!, ...Array.from({ length: 10_000 }, (_, k) => track(k + 1, 0, "thread", `t${k}`, { lanes: 1 + (k % 4) }))];
    const shown = rowsOf(many, plain);
    fc.assert(fc.property(fc.integer({ min: 0, max: shown.height - 1 }), (y) => {
      const row = rowAt(shown.rows, y)!;
      expect(row.y <= y && y < row.y + row.height).toBe(true);
      const lane = laneAt(row, y);
      if (lane >= 0) expect(Math.abs(laneTop(row, lane) + row.lane / 2 - y)).toBeLessThanOrEqual(row.lane / 2 + 1);
      const [from, to] = visible(shown.rows, y, y + 500);
      expect(shown.rows.slice(from, to).includes(row)).toBe(true);
      expect(to - from).toBeLessThan(30);
    }));
    expect(rowAt(shown.rows, shown.height + 5)).toBeNull();
  });

  test("GIVEN rows of two workers WHEN taken of one THEN numbered as if it were alone", () => {
    const both = [...tracks, ...tracks.map((t) => ({ ...t, track: t.track + tracks.length, parent: t.parent < 0 ? -1 : t.parent + tracks.length, worker: 1 }))];
    expect(ofWorker([1, tracks.length, tracks.length + 3], both, 1)).toEqual([0, 3]);
    expect(ofWorker([1, tracks.length + 3], both, 0)).toEqual([1]);
  });

  test("GIVEN chosen rows WHEN taken with those below THEN written as ranges", () => {
    expect(withBelow([1], tracks)).toEqual([1, 2]);
    expect(rangesOf(withBelow([0], tracks))).toBe("0-5");
    expect(rangesOf([0, 1, 4, 6, 7, 8])).toBe("0-1,4,6-8");
  });
});

describe("requests of tiles", () => {
  test("GIVEN many rows and tiles WHEN planned THEN each missing one is asked for once, in order of rank, within the limits", () => {
    const wanted = [{ z: 4, from: 0, to: 20, tracks: Array.from({ length: 60 }, (_, k) => k), rank: 1 }, { z: 9, from: 0, to: 0, tracks: [1, 2], rank: 0 }];
    const requests = plan(wanted, (t, z) => z === 9 || t % 2 === 0);
    expect(requests[0]).toMatchObject({ z: 9, tracks: [1, 2] });
    expect(requests.every((r) => r.tracks.length <= 24 && r.to - r.from < 8)).toBe(true);
    const asked = requests.slice(1).flatMap((r) => r.tracks.flatMap((t) => Array.from({ length: r.to - r.from + 1 }, (_, k) => `${t}/${r.from + k}`)));
    expect(new Set(asked).size).toBe(asked.length);
    expect(asked.length).toBe(30 * 21);
  });
});
