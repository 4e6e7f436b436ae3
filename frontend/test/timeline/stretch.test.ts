import { describe, expect, test } from "vitest";
import type { TableSection } from "../../src/api/types";
import { stretchOf, timelineLink, timelineOf } from "../../src/sections/table/stretch";

const table = (timeline: TableSection["timeline"]): TableSection => ({
  kind: "table", id: "t", title: "T", columns: [], data: { at: [10_000, 500, null], took: [4_000, 0, 5] }, timeline: timeline ?? null,
});

describe("rows on the timeline", () => {
  test("GIVEN rows with a start and a duration WHEN linked THEN the stretch is chosen, with room around it", () => {
    // 4 us take 6 us of room on both sides; the begin of the timeline is 1 us before that of the table
    const s = table({ column: "took", start: "at", duration: "took", offset_ns: 1_000 });
    expect(stretchOf(s, 0)).toEqual({ start: 11_000, end: 15_000, from: 5_000, to: 21_000 });
    expect(timelineLink(s, 0)).toEqual({ analysis: "timeline", query: { t: "5000-21000", area: "11000-15000" }, label: "Show in timeline" });
    expect(timelineOf(s, 0)).toMatchObject({ kind: "timeline", start_ns: 5_000, end_ns: 21_000, highlight: [[11_000, 15_000, ""]] });
  });

  test("GIVEN an event without length at the very begin WHEN linked THEN the window does not begin before the recording", () => {
    expect(stretchOf(table({ column: "took", start: "at", duration: "took" }), 1)).toEqual({ start: 500, end: 501, from: 0, to: 2_501 });
  });

  test("GIVEN a row of many calls WHEN linked THEN it says which of them is shown; a row without a time leads nowhere", () => {
    const s = table({ column: "took", start: "at", duration: "took", what: "its longest call" });
    expect(timelineLink(s, 0)?.label).toBe("Show its longest call in the timeline");
    expect(timelineLink(s, 2)).toBeUndefined();
    expect(timelineOf(table(null), 0)).toBeNull();
  });
});
