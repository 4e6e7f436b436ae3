import { describe, expect, test } from "vitest";
import type { AnalysisInfo, Found, Hit, RunSummary } from "../src/api/types";
import { dateText, foundGroups, localGroups, moved, ordered, summaryText } from "../src/state/search";

const page = (name: string, title: string, more: Partial<AnalysisInfo> = {}) => ({ name, title, question: "", group: "", order: 0, available: true, fields: [], ...more }) as unknown as AnalysisInfo;
const PAGES = [page("kernels", "Kernels", { question: "Which kernels take the time?" }), page("modules", "Modules"), page("memory", "Memory", { available: false }), page("steps", "Steps", { question: "How long are kernels of a step?" })];
const hit = (kind: string, name: string, ns: number | null): Hit => ({ kind, name, ns, note: "sum over its calls", link: { analysis: "kernels", query: { "t.kernels.c.name": name } } });
const found = (query: string, hits: Hit[], counts: Record<string, number> = {}): Found => ({ query, hits, counts });

describe("search", () => {
  test("GIVEN pages and runs WHEN words are typed THEN those whose names hold every word, titles before questions, none that cannot be opened, not the run shown", () => {
    const groups = localGroups("kern", PAGES, ["here/kernel", "a100/kernels", "dlrm"], "here/kernel");
    expect(groups.map((g) => [g.title, g.results.map((r) => r.text)])).toEqual([["Pages", ["Kernels", "Steps"]], ["Runs", ["a100/kernels"]]]);
    expect(groups[1]!.results[0]!.go).toEqual({ analysis: "", query: { run: "a100/kernels" } });
    expect(localGroups("mem", PAGES, [], "")).toEqual([]);
  });

  test("GIVEN what the server found WHEN shown THEN by kind with their times, the rest counted; an unknown time is no zero", () => {
    const groups = foundGroups(found("g", [hit("kernel", "gemm", 1_500_000), hit("finding", "Gaps", null)], { kernel: 12, finding: 1, module: 0 }), "g");
    expect(groups.map((g) => [g.title, g.more])).toEqual([["Findings", 0], ["Kernels", 11]]);
    expect(groups[1]!.results[0]).toMatchObject({ text: "gemm", note: "1.50\u202fms", go: { analysis: "kernels" } });
    expect(groups[0]!.results[0]!.note).toBe("");
  });

  test("GIVEN the answer to an earlier text WHEN more was typed THEN only what still matches is offered", () => {
    const early = found("g", [hit("kernel", "gemm", 1), hit("kernel", "gelu", 1)], { kernel: 40 });
    const groups = foundGroups(early, "gem");
    expect(groups.map((g) => [g.title, g.more, g.results.map((r) => r.text)])).toEqual([["Kernels", 0, ["gemm"]]]);
    expect(foundGroups(early, "xyz")).toEqual([]);
    expect(foundGroups(null, "")).toEqual([]);
  });

  test("GIVEN nothing typed WHEN ordered THEN pages and runs first; with words pages, what was found, runs", () => {
    const [pages, runs] = [{ title: "Pages", results: [], more: 0 }, { title: "Runs", results: [], more: 0 }];
    const kernels = { title: "Kernels", results: [], more: 0 };
    expect(ordered("", [pages, runs], [kernels]).map((g) => g.title)).toEqual(["Pages", "Runs", "Kernels"]);
    expect(ordered("x", [pages, runs], [kernels]).map((g) => g.title)).toEqual(["Pages", "Kernels", "Runs"]);
  });

  test("GIVEN a list WHEN keys move in it THEN around its ends, by eights within them, nowhere in an empty one", () => {
    expect([moved(0, "ArrowUp", 5), moved(4, "ArrowDown", 5), moved(1, "PageDown", 5), moved(3, "PageUp", 5), moved(2, "a", 5), moved(0, "ArrowDown", 0)]).toEqual([4, 0, 4, 0, 2, -1]);
  });
});

describe("what is known of a run", () => {
  const run = (more: Partial<RunSummary>): RunSummary => ({ run: "r", mtime: 1_700_000_000, ...more });

  test("GIVEN all of it WHEN told THEN date, device, step and ratio", () => {
    expect(summaryText(run({ recorded: 1_700_000_100, device: "H100", step_ns: 17_170_000, ratio: 0.412 }))).toBe(`${dateText(1_700_000_100)} · H100 · step 17.17\u202fms · 41.2\u202f% of the speed of light`);
  });

  test("GIVEN a run that was never opened WHEN told THEN the date of its file, and that the rest is unknown; never a zero", () => {
    expect(summaryText(run({ step_ns: null, ratio: null, device: "" }))).toBe(`file of ${dateText(1_700_000_000)} · device, step and speed of light unknown`);
    expect(summaryText(undefined)).toBe("");
  });

  test("GIVEN an estimate, or a recording without steps WHEN told THEN it is marked", () => {
    const text = summaryText(run({ device: "H100", step_ns: 1000, whole: true, ratio: 0.5, estimated: true }));
    expect(text).toContain("recording 1.00\u202fµs");
    expect(text).toContain("≈ 50.0\u202f%");
    expect(text).not.toContain("unknown");
  });
});
