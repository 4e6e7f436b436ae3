import { describe, expect, test } from "vitest";
import type { FigureSection } from "../src/api/types";
import { legendOf, pointKey, ready, recolour, zoomText, type Look } from "../src/sections/figure/template";

const figure = (): FigureSection => ({
  kind: "figure", id: "roof", title: "Roofline", table: "ops",
  figure: {
    data: [
      { type: "scatter", mode: "markers", name: "gemm", x: [1, 2], y: [10, 20], customdata: ["a", "b"], marker: { size: [8, 12], color: "#0E67C1", symbol: "circle" } },
      { type: "bar", x: ["p"], y: [3], customdata: ["a"], marker: { color: "#0E67C1" }, textposition: "inside", textfont: { color: "#48525F", size: 12 } },
    ],
    layout: { showlegend: true, xaxis: { type: "log", title: { text: "FLOP per byte" } } },
  },
});
const look = (part: Partial<Look> = {}): Look => ({ themed: (hex) => (hex === "#0E67C1" ? "#53A7F5" : hex), token: (name) => `<${name}>`, width: 600, height: 0, selected: "", keep: null, zoom: "", areas: [], inside: null, drag: "zoom", ...part });

describe("figure", () => {
  test("GIVEN light colours WHEN themed THEN each palette colour is its partner; keys of rows are untouched", () => {
    expect(recolour({ marker: { color: ["#0E67C1", "#123456"] }, customdata: ["#0E67C1"], text: "<b style='color:#0E67C1'>x</b>" }, look().themed)).toEqual({
      marker: { color: ["#53A7F5", "#123456"] }, customdata: ["#0E67C1"], text: "<b style='color:#53A7F5'>x</b>",
    });
  });

  test("GIVEN a selected row WHEN drawn THEN its point has a ring larger than itself and its bar stands out", () => {
    const { data } = ready(figure(), look({ selected: "b" }));
    expect(data.length).toBe(3);
    expect(data[2]).toMatchObject({ x: [2], y: [20], marker: { size: [21], color: "<accent>" } });
    expect(ready(figure(), look({ selected: "a" })).data[1]).toMatchObject({ selectedpoints: [0] });
  });

  test("GIVEN a filtered table WHEN drawn THEN points of hidden rows are gaps, not zeros", () => {
    const { data } = ready(figure(), look({ keep: new Set(["b"]) }));
    expect(data[0]!["y"]).toEqual([null, 20]);
    expect(data[1]!["y"]).toEqual([null]);
  });

  test("GIVEN text in a bar WHEN drawn THEN black or white by contrast, and the legend is the chips'", () => {
    const { data, layout } = ready(figure(), look());
    expect(data[1]).toMatchObject({ insidetextfont: { color: "#111418" }, outsidetextfont: { color: "#48525F" } });
    expect(layout["showlegend"]).toBe(false);
    expect(layout["xaxis"]).toMatchObject({ type: "log", dtick: 1, title: { text: "FLOP per byte" } });
    expect(legendOf(figure())).toEqual([{ name: "gemm", color: "#0E67C1", symbol: "circle", hatched: false }]);
  });

  test("GIVEN a zoom WHEN written and drawn THEN the axes have its range; autorange takes it away", () => {
    const zoom = zoomText({ "xaxis.range[0]": -1.5, "xaxis.range[1]": 2 }, "");
    expect(zoom).toBe("x:-1.5~2");
    expect(ready(figure(), look({ zoom })).layout["xaxis"]).toMatchObject({ range: [-1.5, 2], autorange: false });
    expect(zoomText({ "xaxis.autorange": true }, zoom)).toBe("");
    const level = zoomText({ level: "a;b/100%" }, "x:1~2");
    const icicle: FigureSection = { ...figure(), figure: { data: [{ type: "icicle", ids: ["a;b/100%"], parents: [""] }] } };
    expect(ready(icicle, look({ zoom: level })).data[0]!["level"]).toBe("a;b/100%");
    expect(zoomText({ level: "" }, level)).toBe("x:1~2");
  });

  test("GIVEN a point's customdata WHEN read THEN the row key, or none", () => {
    expect([pointKey("a"), pointKey([7, "x"]), pointKey({ key: "k" }), pointKey(null), pointKey("")]).toEqual(["a", "7", "k", null, null]);
  });
});
