import { describe, expect, test, vi } from "vitest";
import type { Hits, TimelineEvent } from "../../src/api/timeline";
import { NameTable } from "../../src/sections/timeline/names";

const asked: Record<string, string | number>[] = [];
let answers: Hits[] = [];
vi.mock("../../src/api/client", () => ({ ApiError: Error, getHits: async (_: unknown, query: Record<string, string | number>) => { asked.push(query); return answers.shift(); } }));
const { Finder } = await import("../../src/sections/timeline/find");

const hits = (...starts: number[]): Hits => ({ total: 3, tracks: [], histogram: [], hits: starts.map((start_ns) => ({ start_ns }) as TimelineEvent) });
const finder = (names: string[], gone: number[] = []): InstanceType<typeof Finder> => {
  asked.length = 0;
  return new Finder({ places: () => ({ run: "", workers: [], spans: [] }), names: () => new NameTable({ names, categories: names.map(() => 0) }), from: () => ({ after: 50, selected: false }), end: () => 900, go: (event) => gone.push(event.start_ns), write: () => undefined });
};

describe("search", () => {
  test("GIVEN few names WHEN an expression is looked for THEN ids of the names that match are sent; no expression ever is", async () => {
    const one = finder(["aten::mm", "aten::add", "gemm"]);
    answers = [hits()];
    await one.find("/^aten::[am]/");
    expect(asked).toEqual([{ names: "0,1", limit: 1 }]);
    expect([...one.state.value.found!]).toEqual([0, 1]);
    await one.find("/nothing/");
    expect(asked.length).toBe(1);
    expect(one.state.value.hits!.total).toBe(0);
  });

  test("GIVEN more than 200,000 names WHEN looked for THEN plain text goes to the server, an expression is refused with what to do", async () => {
    const one = finder(Array.from({ length: 200_001 }, () => "x"));
    answers = [hits()];
    await one.find("x");
    expect(asked).toEqual([{ text: "x", limit: 1 }]);
    await one.find("/x/");
    expect(asked.length).toBe(1);
    expect(one.state.value.wrong).toContain("search for plain text");
  });

  test("GIVEN hits WHEN stepped through THEN from the view on, after the last one, and from the begin again past the end", async () => {
    const gone: number[] = [];
    const one = finder(["gemm"], gone);
    answers = [hits(), hits(60), hits(70), hits(), hits(10), hits(10), hits(), hits(70)];
    await one.find("gemm");
    for (const direction of [1, 1, 1, 1, -1] as const) await one.step(direction);
    expect(gone).toEqual([60, 70, 10, 10, 70]);
    expect(asked.slice(1).map((query) => [query["direction"], query["after_ns"]])).toEqual([["next", 50], ["next", 61], ["next", 71], ["next", 0], ["next", 11], ["previous", 10], ["previous", 901]]);
  });
});
