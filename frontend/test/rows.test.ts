import { readFileSync } from "node:fs";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Report, TablePage, TableSection } from "../src/api/types";
import { additiveOf, columnValues, ensureRows, partialKeys, passingKeys, placeOf, rowCount, shownRows, valueCounts } from "../src/sections/table/model";
import { pagedOf, startPages } from "../src/sections/table/pages";
import { emptyTable, type Range, type TableState } from "../src/state/codec";

interface Case {
  sort: [string, boolean] | null;
  find?: string;
  keep?: Record<string, string[]>;
  ranges?: Record<string, [number | null, number | null]>;
  picked?: string[];
  rows: number[];
  sums: Record<string, number | null>;
}
const golden = JSON.parse(readFileSync(new URL("../../tests/golden/rows.json", import.meta.url), "utf8")) as { table: Record<string, unknown>; cases: Case[] };
const section = (): TableSection => {
  const [column, descending] = golden.table["sort"] as [string, boolean];
  return { ...(structuredClone(golden.table) as object), kind: "table", id: "t", title: "T", sort: { column, descending } } as TableSection;
};
const stateOf = (c: Case): TableState => ({
  ...emptyTable(), sort: c.sort && { column: c.sort[0], descending: c.sort[1] }, keep: c.keep ?? {},
  ranges: Object.fromEntries(Object.entries(c.ranges ?? {}).map(([name, [above, below]]): [string, Range] => [name, { above, below }])),
});

describe("rows", () => {
  test("GIVEN the cases that the server is held to WHEN shown here THEN rows, order and sums are the same", () => {
    const s = section();
    expect(golden.cases.length).toBeGreaterThan(200);
    for (const c of golden.cases) {
      const shown = shownRows(s, stateOf(c), c.find ?? "", c.picked ? new Set(c.picked) : null);
      expect(shown.rows.map((r) => r.index), JSON.stringify(c)).toEqual(c.rows);
      if (!shown.filtered) continue;
      expect(Object.keys(shown.sums).sort()).toEqual(Object.keys(c.sums).sort());
      for (const [name, sum] of Object.entries(c.sums)) {
        if (sum === null) expect(shown.sums[name]).toBeNull();
        else expect(shown.sums[name]).toBeCloseTo(sum, 9);
      }
    }
    expect(additiveOf(s)).toEqual(["time_ns", "share", "all_ns", "rounded"]);
  });
});

test("GIVEN a tree and the cases that the server is held to WHEN shown here THEN rows, depths and open branches are the same", () => {
  const trees = JSON.parse(readFileSync(new URL("../../tests/golden/tree_rows.json", import.meta.url), "utf8")) as {
    table: Record<string, unknown>; cases: (Case & { opened: ["d" | "a" | "n", string[]]; depth: number[]; branch: number[]; count: number })[];
  };
  const [column, descending] = trees.table["sort"] as [string, boolean];
  const s = { ...trees.table, kind: "table", id: "t", title: "T", sort: { column, descending } } as unknown as TableSection;
  expect(trees.cases.length).toBeGreaterThan(60);
  for (const c of trees.cases) {
    const shown = shownRows(s, { ...stateOf(c), opened: { base: c.opened[0], ids: c.opened[1] } }, c.find ?? "");
    const found = [shown.rows.map((r) => r.index), shown.rows.map((r) => r.depth), shown.rows.map((r) => (r.branch ? (r.open ? 2 : 1) : 0)), shown.count];
    expect(found, JSON.stringify(c.opened)).toEqual([c.rows, c.depth, c.branch, c.count]);
  }
});

test("GIVEN a table without a total that names what adds up WHEN rows are chosen THEN that is summed, but not what some rows lack", () => {
  const s = {
    kind: "table", id: "t", title: "T", key: "id", adds: ["ns", "size"], last: ["c"],
    columns: [{ name: "id", label: "Id", show: "code" }, { name: "ns", label: "Time", unit: "ns" }, { name: "size", label: "Size", unit: "B" }],
    data: { id: ["a", "b", "c"], ns: [5, 7, 11], size: [1, null, 2] },
  } as TableSection;
  expect(additiveOf(s)).toEqual(["ns"]);
  expect(shownRows(s, { ...emptyTable(), keep: { id: ["b", "c"] } }, "").sums).toEqual({ ns: 7 });
});

const COUNT = 1000;

/** A table of a thousand rows on a server that sorts by time, and what it was asked for. */
function paged(): { s: TableSection; asked: URL[]; answer: (page: Partial<TablePage>) => void; refuse: () => void } {
  const asked: URL[] = [];
  const waiting: { done: (r: Response) => void; fail: (e: Error) => void; url: URL }[] = [];
  const page = (from: number, length: number): TablePage => {
    const rows = Array.from({ length }, (_, i) => COUNT - 1 - from - i);
    return { table: "t", version: "v", offset: from, length, count: COUNT, of: COUNT, rows, data: { name: rows.map((r) => `k${r}`), time: rows } };
  };
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => new Promise<Response>((done, fail) => {
    const at = new URL(url, "http://x/");
    asked.push(at);
    waiting.push({ done, fail, url: at });
    init.signal?.addEventListener("abort", () => fail(new Error("aborted")));
  }));
  const s = {
    kind: "table", id: "t", title: "T", key: "name", sort: { column: "time" }, data: {}, total: { time: 499_500 },
    columns: [{ name: "name", label: "Name", show: "code" }, { name: "time", label: "Time", unit: "ns", show: "bar" }],
    pages: { rows: COUNT, version: "v", page: page(0, 100), profile: { name: ["k999"], time: [1, 500, 999] }, additive: ["time"], values: { name: [["k1", 1]] }, partial: ["k3"] },
  } as unknown as TableSection;
  startPages({ sections: [s] } as unknown as Report, { name: "kernels", where: { run: "r" }, query: { step: "1" } });
  return {
    s, asked,
    answer: (more) => {
      const { done, url } = waiting.shift()!;
      const from = Number(url.searchParams.get("offset") ?? 0);
      done(new Response(JSON.stringify({ ...page(from, Math.min(Number(url.searchParams.get("limit")), COUNT - from)), ...more })));
    },
    refuse: () => waiting.shift()!.done(new Response(JSON.stringify({ error: { code: "changed", message: "changed" } }), { status: 409 })),
  };
}
const settled = async (): Promise<void> => { for (let i = 0; i < 12; i++) await Promise.resolve(); };
const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 20));

describe("rows in pages", () => {
  afterEach(() => { vi.unstubAllGlobals(); });

  test("GIVEN a first page WHEN shown THEN all rows have a place, those that came have values, and scales stand for all", () => {
    const { s, asked } = paged();
    const shown = shownRows(s, emptyTable(), "");
    expect([shown.rows.length, shown.count, shown.of, shown.filtered, rowCount(s)]).toEqual([1000, 1000, 1000, false, 1000]);
    expect([shown.rows[0]!.key, shown.rows[99]!.key, shown.rows[100]]).toEqual(["k999", "k900", undefined]);
    expect([columnValues(s, "time"), valueCounts(s, "name"), additiveOf(s), [...partialKeys(s)]]).toEqual([[1, 500, 999], [["k1", 1]], ["time"], ["k3"]]);
    expect(asked).toEqual([]);
  });

  test("GIVEN rows that have not come WHEN scrolled to THEN their block is requested once, with the report's own query, and shown when it comes", async () => {
    const { s, asked, answer } = paged();
    ensureRows(s, shownRows(s, emptyTable(), ""), 520, 540);
    ensureRows(s, shownRows(s, emptyTable(), ""), 520, 540);
    expect(asked.map((u) => u.pathname + "?" + ["run", "step", "section", "version", "offset", "limit"].map((n) => u.searchParams.get(n)).join(" "))).toEqual(["/api/v1/table/kernels?r 1 t v 500 100"]);
    answer({ length: 40, rows: Array.from({ length: 40 }, (_, i) => 499 - i) }); // rows so long that fewer came: the others are requested
    await settle();
    expect(asked[1]!.searchParams.get("offset")).toBe("540");
    answer({});
    await settle();
    const rows = shownRows(s, emptyTable(), "").rows;
    expect([rows[500]!.key, rows[599]!.key, rows[600]]).toEqual(["k499", "k400", undefined]);
  });

  test("GIVEN two choices in a row WHEN the answers come THEN the last one is shown, the one before stays until then", async () => {
    const { s, asked, answer } = paged();
    const sorted = { ...emptyTable(), sort: { column: "name", descending: false }, keep: { name: ["a,b", "c"] }, ranges: { time: { above: 5, below: null } } };
    const first = shownRows(s, emptyTable(), "k1");
    expect([first.waiting?.choice.needle, first.filtered, first.rows.length]).toEqual(["k1", false, 1000]);
    const second = shownRows(s, sorted, "k12");
    expect(second.rows[0]!.key).toBe("k999");
    expect([asked[1]!.searchParams.get("sort"), asked[1]!.searchParams.get("find"), asked[1]!.searchParams.get("keep"), asked[1]!.searchParams.get("range")]).toEqual(["name", "k12", "name:a\\,b,c", "time:5~"]);
    answer({});
    answer({ count: 2, length: 2, rows: [120, 12], data: { name: ["k120", "k12"], time: [120, 12] }, sums: { time: 132 } });
    await settle();
    const shown = shownRows(s, sorted, "k12");
    expect([shown.rows.map((r) => r.key), shown.count, shown.filtered, shown.sums, shown.waiting]).toEqual([["k120", "k12"], 2, true, { time: 132 }, null]);
  });

  test("GIVEN a row chosen by its key WHEN it has not come THEN its place is asked for; GIVEN points of a figure THEN the server says which pass", async () => {
    const { s, asked, answer } = paged();
    const shown = shownRows(s, emptyTable(), "");
    expect([placeOf(s, shown, "k950"), placeOf(s, shown, "k7")]).toEqual([49, -1]);
    expect(asked.map((u) => u.searchParams.get("key"))).toEqual(["k7"]);
    answer({ offset: 942, length: 58, at: 992, rows: Array.from({ length: 58 }, (_, i) => 57 - i), data: { name: Array.from({ length: 58 }, (_, i) => `k${57 - i}`), time: [] } });
    await settle();
    expect(placeOf(s, shownRows(s, emptyTable(), ""), "k7")).toBe(992);
    expect(passingKeys(s, emptyTable(), "k1")).toBeNull();
    answer({ passing: { f: ["k1", "k10"] } });
    await settle();
    expect(passingKeys(s, emptyTable(), "k1")).toEqual(new Set(["k1", "k10"]));
  });

  test("GIVEN a recording that changed WHEN rows are requested THEN the reason is kept and they are not asked for again and again", async () => {
    const { s, asked, refuse } = paged();
    ensureRows(s, shownRows(s, emptyTable(), ""), 300, 310);
    refuse();
    await settle();
    const shown = shownRows(s, emptyTable(), "");
    expect([...shown.order!.failed.values()].map((e) => e.body.code)).toEqual(["changed"]);
    pagedOf(s)!.retry(shown.order!);
    await settled();
    expect(asked.map((u) => u.searchParams.get("offset"))).toEqual(["300", "300"]);
  });
});
