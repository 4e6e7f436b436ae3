import { describe, expect, test } from "vitest";
import type { TableSection } from "../src/api/types";
import { wordsOf } from "../src/sections/table/words";
import { columnsFor, fit, twoLines } from "../src/sections/table/columns";
import { csvField, csvOf, rowText } from "../src/sections/table/csv";
import { below, passingKeys, pathTo, shownRows, sortOf, valueCounts, withOpen } from "../src/sections/table/model";
import { emptyTable } from "../src/state/codec";

const flat = (): TableSection => ({
  kind: "table", id: "ops", title: "Operators", key: "name",
  columns: [
    { name: "name", label: "Operator", show: "symbol" },
    { name: "kind", label: "Kind", show: "badge" },
    { name: "time_ns", label: "Time", unit: "ns", show: "bar" },
  ],
  data: { name: ["mm", "add", "bmm", "outside"], kind: ["gemm", "elementwise", "gemm", null], time_ns: [30, 10, null, 99] },
  sort: { column: "time_ns" }, filters: ["kind"], last: ["outside"],
});

// model(100) > encoder(90) > layer0(40), layer1(50); head(10)
const tree = (): TableSection => ({
  kind: "table", id: "modules", title: "Modules", key: "id", tree: { id: "id", parent: "parent" },
  columns: [{ name: "name", label: "Module", show: "tree" }, { name: "time", label: "Time", unit: "ns" }],
  data: { id: [0, 1, 2, 3, 4], parent: [null, 0, 1, 1, 0], name: ["Model", "Encoder", "layer0", "layer1", "Head"], time: [100, 90, 40, 50, 10] },
  sort: { column: "time" },
});
const names = (s: TableSection, rows: { index: number }[]): unknown[] => rows.map((r) => s.data["name"]![r.index]);

describe("table model", () => {
  test("GIVEN the section's order WHEN shown THEN unknown stands behind the known and outside rows come last", () => {
    const s = flat();
    expect(names(s, shownRows(s, emptyTable(), "").rows)).toEqual(["mm", "add", "bmm", "outside"]);
    const up = { ...emptyTable(), sort: { column: "time_ns", descending: false } };
    expect(names(s, shownRows(s, up, "").rows)).toEqual(["add", "mm", "bmm", "outside"]);
    expect(sortOf(s, { ...emptyTable(), sort: { column: "gone", descending: true } })).toEqual({ column: "time_ns", descending: true });
  });

  test("GIVEN times of single calls next to sums WHEN laid out THEN all of them have one unit, however large the sums are", () => {
    const s = flat();
    s.columns.push({ name: "mean_ns", label: "Mean", unit: "ns", per: "call" }, { name: "max_ns", label: "Max", unit: "ns", per: "call" });
    Object.assign(s.data, { time_ns: [12e6, 3e6, 2e6, 1e6], mean_ns: [88_380, 29_040, 2_700, 2_000], max_ns: [223_000, 104_000, 3_000, 2_000] });
    const headings = columnsFor(s, emptyTable(), 2000).map((l) => l.heading);
    expect(headings.slice(2)).toEqual(["Time, ms", "Mean, µs", "Max, µs"]);
    Object.assign(s.data, { mean_ns: [12e6, 30e6, 40e6, 2_000], max_ns: [12e6, 30e6, 40e6, 2_000] });
    expect(columnsFor({ ...s }, emptyTable(), 2000).map((l) => l.heading).slice(2)).toEqual(["Time, ms", "Mean, ms", "Max, ms"]);
  });

  test("GIVEN a text and a kept value WHEN filtered THEN both hold and the count says so", () => {
    const s = flat();
    const shown = shownRows(s, { ...emptyTable(), keep: { kind: ["gemm"] } }, "BM");
    expect(names(s, shown.rows)).toEqual(["bmm"]);
    expect([shown.count, shown.of, shown.filtered]).toEqual([1, 4, true]);
    expect(valueCounts(s, "kind")).toEqual([["gemm", 2], ["elementwise", 1]]);
  });

  test("GIVEN bounds of a number WHEN filtered THEN those inside, never an unknown one; only rows selected in a chart pass", () => {
    const s = flat();
    const above = { ...emptyTable(), ranges: { time_ns: { above: 10, below: null } } };
    expect(names(s, shownRows(s, above, "").rows)).toEqual(["mm", "outside"]);
    expect(names(s, shownRows(s, { ...above, ranges: { time_ns: { above: 5, below: 30 } } }, "").rows)).toEqual(["add"]);
    expect(names(s, shownRows(s, { ...above, keep: { kind: ["gemm"] } }, "").rows)).toEqual(["mm"]);
    expect(names(s, shownRows(s, emptyTable(), "", new Set(["bmm", "add"])).rows)).toEqual(["add", "bmm"]);
    expect(passingKeys(s, above, "")).toEqual(new Set(["mm", "outside"]));
    expect(passingKeys(s, emptyTable(), "")).toBeNull();
  });

  test("GIVEN a row outside the sum WHEN values are counted THEN it does not count", () => {
    const s = flat();
    s.data["kind"] = ["gemm", "elementwise", "gemm", ""];
    expect(valueCounts(s, "kind")).toEqual([["gemm", 2], ["elementwise", 1]]);
  });

  test("GIVEN a tree WHEN opened THEN it starts with its heavy branches, sorts siblings and takes toggles", () => {
    const s = tree();
    const start = shownRows(s, emptyTable(), "");
    expect(names(s, start.rows)).toEqual(["Model", "Encoder", "layer1", "layer0", "Head"]);
    expect(start.rows.map((r) => r.depth)).toEqual([0, 1, 2, 2, 1]);
    const closed = { ...emptyTable(), opened: withOpen(s, emptyTable(), ["1"], false) };
    expect(closed.opened).toEqual({ base: "d", ids: ["1"] });
    expect(names(s, shownRows(s, closed, "").rows)).toEqual(["Model", "Encoder", "Head"]);
    expect(withOpen(s, closed, ["1"], true)).toEqual({ base: "d", ids: [] });
    expect(names(s, shownRows(s, { ...emptyTable(), opened: { base: "n", ids: [] } }, "").rows)).toEqual(["Model"]);
    expect(below(s, start, 0).sort()).toEqual(["0", "1"]);
    expect(pathTo(s, start, "3")).toEqual(["1", "0"]);
  });

  test("GIVEN a filter on a tree WHEN a leaf matches THEN its ancestors are shown", () => {
    const s = tree();
    expect(names(s, shownRows(s, { ...emptyTable(), opened: { base: "n", ids: [] } }, "layer0").rows)).toEqual(["Model", "Encoder", "layer0"]);
  });

  test("GIVEN a parent that is missing or a cycle WHEN shown THEN no row is lost", () => {
    const s = tree();
    s.data["parent"] = [77, 0, 3, 2, 4];
    expect(shownRows(s, { ...emptyTable(), opened: { base: "a", ids: [] } }, "").rows.length).toBe(5);
  });

  test("GIVEN 2000 rows WHEN filtered again THEN the rows of the new filter", () => {
    const n = 2000;
    const s = flat();
    s.last = [];
    s.data = { name: Array.from({ length: n }, (_, i) => `k${i}`), kind: Array.from({ length: n }, () => "gemm"), time_ns: Array.from({ length: n }, (_, i) => (i * 7919) % n) };
    shownRows(s, emptyTable(), "");
    expect(shownRows(s, emptyTable(), "k12").count).toBe(111);
  });
});

describe("csv", () => {
  test("GIVEN shown rows WHEN written THEN base units, unknown empty, quotes doubled", () => {
    const s = flat();
    s.data["name"]![0] = 'mm "a", b';
    const { rows } = shownRows(s, emptyTable(), "");
    expect(csvOf(s, s.columns, rows)).toBe('name,kind,time_ns\r\n"mm ""a"", b",gemm,30\r\nadd,elementwise,10\r\nbmm,gemm,\r\noutside,,99\r\n');
    expect(rowText(s, s.columns, 1)).toBe("name\tkind\ttime_ns\nadd\telementwise\t10");
  });

  test("GIVEN a name that a spreadsheet would run WHEN written THEN it is text; a negative number stays a number", () => {
    expect(csvField("=HYPERLINK(1)")).toBe("'=HYPERLINK(1)");
    expect(csvField("\uff1d1+1")).toBe("'\uff1d1+1");
    expect(csvField("\n=1")).toBe("\"'\n=1\"");
    expect(csvField(-5)).toBe("-5");
  });
});

describe("columns in their room", () => {
  const wide: TableSection = {
    kind: "table", id: "w", title: "W", columns: [
      { name: "op", label: "Operator", show: "symbol" }, ...Array.from({ length: 8 }, (_, i) => ({ name: `n${i}`, label: "Communication time", unit: "ns" })), { name: "bound", label: "Bound", show: "badge" as const },
    ],
    data: { op: ["aten::mm"], bound: ["compute"], ...Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`n${i}`, [1_000_000]])) },
  };

  test("GIVEN headings that need more than the room WHEN fitted THEN they take two lines and the last column is inside", () => {
    const columns = columnsFor(wide, emptyTable(), 1200);
    expect(columns.length).toBe(10);
    const { widths, tall } = fit(columns, 1200);
    expect(tall).toBe(true);
    expect(widths.reduce((a, b) => a + b, 0)).toBeLessThanOrEqual(1200);
    expect(twoLines("Communication time, ms")).toBe("Communication".length);
  });

  test("GIVEN short texts and badges beside a long name WHEN the room is small THEN they stay whole and the name gives way", () => {
    const s: TableSection = {
      kind: "table", id: "k", title: "K", columns: [
        { name: "held", label: "Blocked by", show: "badge" }, { name: "kinds", label: "Memory" }, { name: "line", label: "Python line", show: "code" },
        ...Array.from({ length: 6 }, (_, i) => ({ name: `n${i}`, label: "Host blocked", unit: "ns" })),
      ],
      data: { held: ["Pageable memory"], kinds: ["Pageable → Device"], line: ["transformers/pipelines/base.py:1173 _ensure_tensor_on_device"], ...Object.fromEntries(Array.from({ length: 6 }, (_, i) => [`n${i}`, [1_000_000]])) },
    };
    const columns = columnsFor(s, emptyTable(), 800);
    const { widths } = fit(columns, 800);
    expect(widths.slice(0, 2)).toEqual(columns.slice(0, 2).map((c) => Math.floor(c.width)));
    expect(widths[2]!).toBeLessThan(columns[2]!.width);
  });

  test("GIVEN a table that does not fit however narrow its columns are THEN names at its begin can be told apart, and it scrolls beside them", () => {
    const numbers = Array.from({ length: 6 }, (_, i) => `n${i}`);
    const s: TableSection = {
      kind: "table", id: "m", title: "M", columns: [{ name: "metric", label: "Metric", show: "text" }, ...numbers.map((name) => ({ name, label: "Change", unit: "ns" }))],
      data: { metric: ["Exposed communication"], ...Object.fromEntries(numbers.map((n) => [n, [1_000_000]])) },
    };
    const columns = columnsFor(s, emptyTable(), 360);
    const { widths } = fit(columns, 360);
    expect(widths[0]!).toBe(170);
    expect(widths.reduce((a, b) => a + b, 0)).toBeGreaterThan(360);
  });

  test("GIVEN a column that is sorted, and one at the edge WHEN laid out THEN their headings have room for the arrow and the edge", () => {
    const s: TableSection = { ...wide, columns: [{ name: "n0", label: "Reserved at most" }, { name: "n1", label: "Reserved at most" }, { name: "n2", label: "Reserved at most" }, { name: "n3", label: "Reserved at most" }] };
    const of = (sort: string): number[] => columnsFor({ ...s, sort: { column: sort } }, emptyTable(), 2000).map((l) => Math.round(l.width));
    const [edge, plain] = [of("none")[0]!, of("none")[1]!];
    expect(edge).toBeGreaterThan(plain);
    expect(of("n1")).toEqual([edge, plain + 15, plain, edge]);
    expect(of("n3")).toEqual([edge, plain, plain, edge + 15]);
  });

  test("GIVEN room enough WHEN fitted THEN headings stay on one line and the room is filled", () => {
    const { widths, tall } = fit(columnsFor(wide, emptyTable(), 2400), 2400);
    expect(tall).toBe(false);
    expect(widths.reduce((a, b) => a + b, 0)).toBeCloseTo(2400);
  });
});

describe("the words of a selected row", () => {
  const s: TableSection = {
    kind: "table", id: "kernels", title: "Kernels", key: "id",
    columns: [
      { name: "short", label: "Kernel", show: "symbol", full: "name" }, { name: "name", label: "Full name", show: "code", rank: 3 },
      { name: "line", label: "Python line", show: "code" }, { name: "rule", label: "Rule", show: "code", rank: 3 }, { name: "id", label: "Id" },
    ],
    data: { short: ["fill<F> · int", "mm"], name: [`void fill<${"x".repeat(3000)}>()`, "mm"], line: [`train.py:${"1".repeat(40)} step`, "a.py:1"], rule: ["r".repeat(90), ""], id: ["0", "1"] },
  };
  test("GIVEN a short name with a full one WHEN selected THEN both are whole, and so is what a cell may cut of the columns shown", () => {
    const words = wordsOf(s, 0)!;
    expect([words.title, words.full]).toEqual(["fill<F> · int", s.data["name"]![0]]);
    expect(words.rest.map(([c, text]) => [c.name, text])).toEqual([["line", s.data["line"]![0]]]);
  });
  test("GIVEN a row that its cells show whole WHEN selected THEN there is nothing to add", () => expect(wordsOf(s, 1)).toBeNull());
});
