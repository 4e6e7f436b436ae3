// Figures over time: what a drag and a click write into the query, and what a selected row covers.
import { describe, expect, it } from "vitest";
import type { FigureSection } from "../src/api/types";
import { brushable } from "../src/sections/figure/area";
import { ready, type Look } from "../src/sections/figure/template";
import { coveredBy, draggedRange, figureSubtitle, momentText, windowText } from "../src/sections/figure/window";

const ms = { window: "window", at: "at", scale: 1e6 };

describe("a window", () => {
  it("is written in the unit of its later end, as fine as a pixel", () => {
    expect(windowText([12.5, 40], ms)).toBe("12.5ms-40ms");
    expect(windowText([40, 12.5], ms)).toBe("12.5ms-40ms"); // dragged to the left
    expect(windowText([46.5270531, 46.5270587], ms)).toBe("46.527053ms-46.527059ms"); // 6 ns
    expect(windowText([0.0021, 0.0032], ms)).toBe("2.1us-3.2us");
    expect(windowText([1.23456789, 3.5], { window: "window", scale: 1e9 })).toBe("1.23457s-3.5s");
    expect(windowText([-3, 9], ms)).toBe("-3ms-9ms");
  });

  it("needs a length", () => {
    expect(windowText([5, 5], ms)).toBeNull();
    expect(windowText([NaN, 5], ms)).toBeNull();
  });

  it("comes from a drag along x only", () => {
    expect(draggedRange({ "xaxis.range[0]": 1, "xaxis.range[1]": 2 })).toEqual([1, 2]);
    expect(draggedRange({ "xaxis.range": [1, 2] })).toEqual([1, 2]);
    expect(draggedRange({ "yaxis.range[0]": 1, "yaxis.range[1]": 2 })).toBeNull();
    expect(draggedRange({ "xaxis.autorange": true })).toBeNull();
  });
});

describe("a moment", () => {
  it("is as fine as the axis is drawn", () => {
    expect(momentText(46.527053, 50, ms)).toBe("46.5271ms");
    expect(momentText(46.527053, 0.001, ms)).toBe("46.527053ms");
    expect(momentText(0, 50, ms)).toBe("0ns");
    expect(momentText(NaN, 50, ms)).toBeNull();
  });
});

describe("a selected row", () => {
  const stretches = { allocations: { "7": { start: 2, end: 5, text: "8 MB" }, "8": { end: 3 } }, steps: { "1": { start: 0, end: 9 } } };
  const look = (covered: Look["covered"]): Look => ({
    themed: (h) => h, token: () => "#112233", width: 600, height: 0, selected: "", keep: null, zoom: "", areas: [], inside: null, drag: "zoom",
    paint: "given", partial: new Set(), covered,
  });
  const s = {
    kind: "figure", id: "f", title: "", table: "t", zoom: ms, stretches,
    figure: { data: [{ type: "scatter", x: [0, 10], y: [1, 2], customdata: ["a", "b"] }], layout: { xaxis: { range: [0, 10] } } },
  } as unknown as FigureSection;

  it("is found by its table and key", () => {
    expect(coveredBy(stretches, (t) => (t === "allocations" ? "7" : ""))).toEqual({ start: 2, end: 5, text: "8 MB" });
    expect(coveredBy(stretches, (t) => (t === "steps" ? "2" : ""))).toBeNull();
    expect(coveredBy(undefined, () => "7")).toBeNull();
  });

  it("tints its stretch, to the edge where an end is open, and nothing outside of the axis", () => {
    const rect = (covered: Look["covered"]): Record<string, unknown> | undefined => (ready(s, look(covered)).layout["shapes"] as Record<string, unknown>[] | undefined)?.[0];
    expect(rect(stretches.allocations["7"])).toMatchObject({ x0: 2, x1: 5, yref: "paper" });
    expect(rect(stretches.allocations["8"])).toMatchObject({ x0: 0, x1: 3 });
    expect(rect({ start: 8, end: null })).toMatchObject({ x0: 8, x1: 10 });
    expect(rect({ start: 11, end: 12 })).toBeUndefined();
    expect(rect(null)).toBeUndefined();
  });

  it("has a subtitle that names what dragging and clicking do", () => {
    expect(figureSubtitle({ ...s, subtitle: "of 80 GB" })).toBe("of 80 GB; drag to select a window, click to select a moment: the whole page follows");
    expect(figureSubtitle({ ...s, zoom: { window: "window" } })).toBe("drag to select a window: the whole page follows");
    expect(figureSubtitle({ ...s, zoom: null, subtitle: "as it is" })).toBe("as it is");
  });

  it("has its text escaped", () => {
    const { layout } = ready(s, look({ start: 1, end: 2, text: "<b>x" }));
    expect((layout["annotations"] as { text: string }[])[0]!.text).toBe("<b>&lt;b&gt;x</b>");
  });

  it("is no selection of points: dragging chooses a window", () => {
    expect(brushable(s)).toBe(false);
    expect(brushable({ ...s, zoom: null })).toBe(true);
  });
});
