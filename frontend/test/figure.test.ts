import { describe, expect, test } from "vitest";
import type { FigureSection } from "../src/api/types";
import { areasOf, areasOfRange, brushable, keysInside, withAreas } from "../src/sections/figure/area";
import { capBars, edgeHatched, fitTitle, fitWords, NARROW_FROM, roomForTexts } from "../src/sections/figure/bars";
import { ALL, boxScale, oneRoot, ownParts } from "../src/sections/figure/boxes";
import { relabeled } from "../src/sections/figure/ticks";
import { legendOf, pointKey, ready, recolor, zoomText, type Look } from "../src/sections/figure/template";

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
const look = (part: Partial<Look> = {}): Look => ({ themed: (hex) => (hex === "#0E67C1" ? "#53A7F5" : hex), token: (name) => `<${name}>`, width: 600, height: 0, selected: "", keep: null, zoom: "", areas: [], inside: null, drag: "zoom", paint: "given", partial: new Set(), ...part });

describe("figure", () => {
  test("GIVEN light colors WHEN themed THEN each palette color is its partner; keys of rows are untouched", () => {
    expect(recolor("#0E67C126", look().themed)).toBe(`${look().themed("#0E67C1")}26`); // with the part of it that is seen
    expect(recolor("#0E67C1267", look().themed)).toBe("#0E67C1267");
    expect(recolor({ marker: { color: ["#0E67C1", "#123456"] }, customdata: ["#0E67C1"], text: "<b style='color:#0E67C1'>x</b>" }, look().themed)).toEqual({
      marker: { color: ["#53A7F5", "#123456"] }, customdata: ["#0E67C1"], text: "<b style='color:#53A7F5'>x</b>",
    });
  });

  test("GIVEN a selected row WHEN drawn THEN its point has a ring larger than itself and its bar stands out", () => {
    const { data } = ready(figure(), look({ selected: "b" }));
    expect(data.length).toBe(3);
    expect(data[2]).toMatchObject({ x: [2], y: [20], marker: { size: [21], color: "<accent>" } });
    expect(ready(figure(), look({ selected: "a" })).data[1]).toMatchObject({ selectedpoints: [0] });
  });

  test("GIVEN text in a pale bar WHEN drawn THEN it reads on what the card leaves of the bar's color", () => {
    const pale = (opacity: number, surface: string): unknown => {
      const s = { kind: "figure", id: "p", title: "P", figure: { data: [{ type: "bar", x: [1], y: ["a"], text: ["a"], textposition: "inside", marker: { color: "#ABA5FF", opacity } }], layout: {} } } as unknown as Parameters<typeof ready>[0];
      const inside = ready(s, { ...look(), token: (name: string) => (name === "surface" ? surface : "#ABA5FF") }).data[0]!["insidetextfont"];
      return (inside as { color: string }).color;
    };
    expect([pale(1, "#161A20"), pale(0.3, "#161A20"), pale(0.3, "#FFFFFF")]).toEqual(["#111418", "#FFFFFF", "#111418"]);
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
    expect(legendOf(figure())).toEqual([{ name: "gemm", color: "#0E67C1", symbol: "circle", hatched: false, opacity: 1 }]);
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

describe("boxes", () => {
  const icicle = (): FigureSection => ({
    kind: "figure", id: "icicle", title: "Modules",
    figure: { data: [{ type: "icicle", ids: ["a", "b", "c"], parents: ["", "a", "a"], values: [10, 6, 3], branchvalues: "total", marker: { colors: ["#E08E4F", "#B8471A", "#E2E6EA"] } }] },
  });

  test("GIVEN totals in boxes WHEN asked for the self part THEN what no child holds: 10-6-3, 6 and 3", () => {
    expect(ownParts(icicle().figure.data![0]!)).toEqual([1, 6, 3]);
    expect(ownParts({ ...icicle().figure.data![0]!, branchvalues: "remainder" })).toBeNull();
  });

  test("GIVEN a box without a model WHEN drawn THEN only it is hatched, and the legend explains it", () => {
    expect(boxScale(icicle().figure.data!)).toEqual({ efficiency: true, unknown: true, self: true });
    const drawn = ready(icicle(), look({ token: (name) => (name === "idle" ? "#E2E6EA" : `<${name}>`) })).data[0]!;
    expect(drawn["marker"]).toMatchObject({ pattern: { shape: ["", "", "/"] } });
  });

  test("GIVEN a row that is modeled in part WHEN drawn THEN its box keeps its color below a hatch", () => {
    const s = icicle();
    s.figure.data![0]!["customdata"] = ["ka", "kb", "kc"];
    const drawn = ready(s, look({ partial: new Set(["kb"]) })).data[0]!;
    expect(drawn["marker"]).toMatchObject({ colors: ["#E08E4F", "#B8471A", "#E2E6EA"], pattern: { shape: ["", "/", ""] } });
  });

  test("GIVEN color by self WHEN drawn THEN the largest self part has the full color and no hatch", () => {
    const token = (name: string): string => ({ compute: "#0000FF", sunken: "#FFFFFF", idle: "#E2E6EA" })[name] ?? `<${name}>`;
    const marker = ready(icicle(), look({ paint: "own", token })).data[0]!["marker"] as Record<string, unknown>;
    expect((marker["colors"] as string[])[1]).toBe("#0000ff");
    expect(marker["pattern"]).toBeUndefined();
  });
});

describe("areas", () => {
  test("GIVEN areas WHEN written and read THEN the same, also next to a zoom; an open end stays open", () => {
    const areas = [{ axes: "", x: [0.5, 1.5] as [number, number], y: [null, 15] as [null, number] }, { axes: "2", x: [1e9, 3e12] as [number, number], y: [0, 1] as [number, number] }];
    const text = withAreas("x:1~2;b:9~9~9~9", areas);
    expect(text).toBe("x:1~2;b:0.5~1.5~~15;b2:1000000000~3000000000000~0~1");
    expect(areasOf(text)).toEqual(areas);
    expect(withAreas(text, [])).toBe("x:1~2");
    expect(areasOf("b:1~2~3;b:a~1~2~3;b:~~~;b2:1~Infinity~0~1")).toEqual([]);
  });

  test("GIVEN a chart of two points WHEN an area holds one THEN its key alone is inside; a bar is no place to choose from", () => {
    expect(keysInside(figure(), "b:0~1.5~0~15")).toEqual(new Set(["a"]));
    expect(keysInside(figure(), "b:1.5~~~")).toEqual(new Set(["b"]));
    expect(keysInside(figure(), "b2:0~9~0~99")).toEqual(new Set());
    expect(keysInside(figure(), "x:1~2")).toBeNull();
    expect(brushable({ ...figure(), table: "" })).toBe(false);
  });

  test("GIVEN Plotly's range of a box, drawn from right to left WHEN read THEN ordered ends on its axes", () => {
    expect(areasOfRange({ x: [5, 1], y: [2, 3] })).toEqual([{ axes: "", x: [1, 5], y: [2, 3] }]);
    expect(areasOfRange({ x2: [1, 5], y2: [2, 3] })).toEqual([{ axes: "2", x: [1, 5], y: [2, 3] }]);
    expect(areasOfRange(undefined)).toEqual([]);
  });

  test("GIVEN an area WHEN drawn THEN the points outside it step back in their place, and a box shows it", () => {
    const { data, layout } = ready(figure(), look({ areas: areasOf("b:0~1.5~0~15"), inside: new Set(["a"]) }));
    expect(data[0]).toMatchObject({ y: [10, 20], selectedpoints: [0] });
    expect(layout["shapes"]).toMatchObject([{ type: "rect", x0: 0, x1: 1.5, y0: 0, y1: 15 }]);
  });
});

describe("notes", () => {
  const noted = (): FigureSection => {
    const s = figure();
    s.figure.layout = { xaxis: { type: "log", range: [0, 1] }, yaxis: { type: "log", range: [0, 3] } };
    return { ...s, notes: { b: { x: 2, y: 20, limit: 200, text: "10.0× below its <limit>" }, c: { x: 2, y: 20 } } };
  };

  test("GIVEN a selected row with a note WHEN drawn THEN a dotted line to its limit, and the words escaped, on axes of powers of ten", () => {
    const { data, layout, point } = ready(noted(), look({ selected: "b" }));
    expect(data[2]).toMatchObject({ mode: "lines", x: [2, 2], y: [20, 200] });
    const [note] = layout["annotations"] as Record<string, unknown>[];
    expect(note).toMatchObject({ text: "<b>10.0× below its &lt;limit&gt;</b>" });
    expect(note!["x"]).toBeCloseTo(Math.log10(2));
    expect(note!["y"]).toBeCloseTo(Math.log10(63.2456), 4);
    expect(point).toEqual({ axes: "", x: 2, y: 20, radius: 10.5 });
  });

  test("GIVEN no note for the row, or none selected WHEN drawn THEN no line and no words", () => {
    expect(ready(noted(), look({ selected: "a" })).layout["annotations"]).toBeUndefined();
    expect(ready(noted(), look()).data.length).toBe(2);
  });
});

describe("figures in their room", () => {
  const bar = (more: Record<string, unknown> = {}): Record<string, unknown> => ({ type: "bar", orientation: "h", y: ["a"], x: [1], ...more });

  test("GIVEN one category in a figure of 500 px WHEN capped THEN the bar is 44 px thick, with or without another one", () => {
    const layout: Record<string, unknown> = { yaxis: { type: "category" }, height: 556, margin: { t: 10, b: 46 }, bargap: 0.3 };
    capBars([bar()], layout);
    expect(500 * (1 - Number(layout["bargap"]))).toBeCloseTo(44);
    layout["bargap"] = 0.3;
    capBars([bar({ offsetgroup: "1" }), bar({ offsetgroup: "2" })], layout);
    expect(500 * (1 - Number(layout["bargap"]))).toBeCloseTo(88);
  });

  test("GIVEN lying bars with texts beside them WHEN the figure is narrow THEN names have what they need and every text ends inside; a wide one stays", () => {
    const trace = { type: "bar", orientation: "h", textposition: "outside", x: [262, 230, 4], y: ["aten::_softmax", "aten::bmm", "aten::mul"], text: ["262.5 ms", "229.7 ms", "<b>4.10 ms</b>"] };
    const layout = (width: number): Record<string, unknown> => ({ width, xaxis: { range: [0, 299] }, margin: { l: 240, r: 14, t: 10, b: 46 } });
    const narrow = layout(380);
    roomForTexts([trace], narrow);
    const { l, r } = narrow["margin"] as { l: number; r: number };
    const most = ((narrow["xaxis"] as { range: number[] }).range)[1]!;
    expect(l).toBeGreaterThan(14 * 7);
    expect(l).toBeLessThan(130);
    trace.x.forEach((x, i) => expect((x / most) * (380 - l - r) + trace.text[i]!.replace(/<[^>]*>/g, "").length * 6.6).toBeLessThan(380 - l - r));
    for (const [data, width] of [[[trace], NARROW_FROM], [[{ ...trace, base: [0, 1, 2] }], 380], [[{ ...trace, textposition: "inside" }], 380]] as const) {
      const kept = layout(width);
      roomForTexts(data, kept);
      expect(kept).toEqual(layout(width));
    }
  });

  test("GIVEN words beside bars and in gaps WHEN the figure is narrow THEN those over the names are shortened, those wider than their gap go", () => {
    const words = [{ x: 590, y: "input", text: "<b>−618.3</b>  51.0 %", xanchor: "right" }, { x: 300, y: "gaps", text: "<b>−14.5</b>  1.2 %", xanchor: "left" }, { x: 160, y: "limit", text: "<b>159.9</b> ms  16.12 compute", xanchor: "left" }, ...[64, 305, 543].map((x) => ({ x, y: 50, text: "122.1 ms" }))];
    const layout = (width: number): Record<string, unknown> => ({ width, xaxis: { range: [0, 1270] }, margin: { l: 190, r: 14 }, annotations: words });
    const narrow = layout(360);
    fitWords(narrow);
    expect(narrow["annotations"]).toEqual([{ ...words[0], text: "<b>−618.3</b>" }, words[1], { ...words[2], text: "<b>159.9</b> ms" }]);
    const wide = layout(900);
    fitWords(wide);
    expect(wide["annotations"]).toEqual(words);
  });

  test("GIVEN a title below a figure WHEN it is wider than its room THEN it goes on in further ones, its unit with the word before", () => {
    const layout = (width: number): Record<string, unknown> => ({ width, xaxis: { title: { text: "device time launched directly, ms", standoff: 8 } }, margin: { l: 240, r: 14 } });
    const titleAt = (width: number): unknown => {
      const made = layout(width);
      fitTitle(made);
      return (made["xaxis"] as { title: unknown }).title;
    };
    expect(titleAt(380)).toEqual({ text: "device time<br>launched<br>directly,\u00a0ms", standoff: 8 });
    expect(titleAt(480)).toEqual({ text: "device time launched directly, ms", standoff: 8 });
  });

  test("GIVEN bars at numbers WHEN capped THEN their widths stay", () => {
    const layout: Record<string, unknown> = { xaxis: {}, width: 900, bargap: 0 };
    const trace = { type: "bar", x: [1, 2], y: [1, 2], width: 0.9 };
    capBars([trace], layout);
    expect([layout["bargap"], trace.width]).toEqual([0, 0.9]);
  });

  test("GIVEN a hatched bar WHEN edged THEN it has a line, and a plain one keeps its own", () => {
    const [hatched, plain] = [bar({ marker: { pattern: { shape: "/" }, line: { width: 0 } } }), bar({ marker: { line: { width: 0.8 } } })];
    for (const t of [hatched, plain]) edgeHatched(t, "#B4BECA");
    expect(hatched["marker"]).toMatchObject({ line: { color: "#B4BECA", width: 1 } });
    expect(plain["marker"]).toEqual({ line: { width: 0.8 } });
  });

  test("GIVEN several roots WHEN stood in one box THEN it holds their sum and every list grew by one; one root stays", () => {
    const trace: Record<string, unknown> = { ids: ["a", "b", "c"], labels: ["a", "b", "c"], parents: ["", "", "a"], values: [5, 2, 3], customdata: ["a", "b", "c"], maxdepth: 4, marker: { colors: ["#111111", "#222222", "#333333"] } };
    oneRoot(trace, "#F1F3F6");
    expect(trace).toMatchObject({ ids: [ALL, "a", "b", "c"], parents: ["", ALL, ALL, "a"], values: [7, 5, 2, 3], customdata: ["", "a", "b", "c"], maxdepth: 5, marker: { colors: ["#F1F3F6", "#111111", "#222222", "#333333"] } });
    const single = { ids: ["a"], parents: [""], values: [1] };
    oneRoot(single, "#F1F3F6");
    expect(single).toEqual({ ids: ["a"], parents: [""], values: [1] });
    expect(zoomText({ level: ALL }, "l:a")).toBe("");
  });

  test("GIVEN a logarithmic axis zoomed into a decade WHEN labeled again THEN steps inside it carry the unit; a wide one keeps its labels", () => {
    const axis = { type: "log", tickvals: [1e11, 1e12, 1e13], ticktext: ["100\u202fGB/s", "1\u202fTB/s", "10\u202fTB/s"] };
    const near = relabeled({ ...axis, range: [11.1, 11.9] });
    expect(near["ticktext"]).toEqual([150, 250, 400, 600].map((v) => `${v}\u202fGB/s`));
    expect(relabeled({ ...axis, range: [10.9, 13.1] })["tickvals"]).toEqual(axis.tickvals);
    const sizes = relabeled({ type: "log", tickvals: [512, 4096], ticktext: ["512\u202fB", "4\u202fKiB"], range: [Math.log10(1000), Math.log10(5000)] });
    expect(sizes["ticktext"]).toEqual(["1\u202fKiB", "2\u202fKiB", "4\u202fKiB"]);
  });
});
