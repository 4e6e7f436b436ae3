import { describe, expect, test } from "vitest";
import type { Runs } from "../src/api/types";
import { captureOptions, choose, nearest, parseSteps } from "../src/state/select";

const span = (name: string) => ({ name });
const runs: Runs = {
  scan: { state: "done" },
  runs: [
    { name: "h100/owlv2", workers: [{ name: "rank0", rank: 0, spans: [span("1"), span("2")] }, { name: "rank1", rank: 1, spans: [span("1")] }] },
    { name: "a100/dlrm", workers: [{ name: "w", spans: [span("default")] }] },
  ],
};
const pick = (run: string, worker = "", s = "") => choose(runs, { run, worker, span: s });

describe("selection", () => {
  test("GIVEN captures and traces WHEN offered for a trace THEN captures come before other traces, and the trace itself is left out", () => {
    const trace = (file: string) => ({ name: file, kind: "kineto", file });
    const list = { captures: ["a/capture_traces/g.json"], runs: [{ name: "a", workers: [{ name: "w", spans: [trace("a/x.json"), trace("a/y.json"), { name: "s", kind: "sol_capture", file: "a/s.jsonl" }] }] }] };
    expect(captureOptions(list, "a/x.json").map((o) => o.value)).toEqual(["", "none", "a/capture_traces/g.json", "a/y.json"]);
  });

  test("GIVEN nothing named WHEN chosen THEN the first run and worker, and its newest span", () => {
    expect(pick("")).toMatchObject({ state: "chosen", chosen: { run: { name: "h100/owlv2" }, worker: { name: "rank0" }, span: { name: "2" } } });
    expect(choose({ ...runs, runs: [] }, { run: "", worker: "", span: "" })).toEqual({ state: "none" });
  });

  test("GIVEN a trace and the SOL capture of the same worker WHEN none is named THEN the trace, which is joined with the capture; the capture where there is no trace", () => {
    const capture = { name: "a_rank0", spans: [{ name: "1", kind: "sol_capture", companion: { worker: "b_12", span: "1" } }] };
    const trace = { name: "b_12", spans: [{ name: "1", kind: "kineto", companion: { worker: "a_rank0", span: "1" } }] };
    const only = (workers: object[]) => choose({ scan: { state: "done" }, runs: [{ name: "r", workers }] } as Runs, { run: "r", worker: "", span: "" });
    expect(only([capture, trace])).toMatchObject({ chosen: { worker: { name: "b_12" } } });
    expect(only([capture])).toMatchObject({ chosen: { worker: { name: "a_rank0" } } });
    expect(choose({ scan: { state: "done" }, runs: [{ name: "r", workers: [capture, trace] }] } as Runs, { run: "r", worker: "a_rank0", span: "" })).toMatchObject({ chosen: { worker: { name: "a_rank0" } } });
  });

  test("GIVEN a name that is absent WHEN chosen THEN it is reported, with similar names, and nothing else is chosen", () => {
    expect(pick("h100/owlv")).toEqual({ state: "absent", what: "run", name: "h100/owlv", near: ["h100/owlv2", "a100/dlrm"], within: "" });
    expect(pick("h100/owlv2", "rank7")).toMatchObject({ state: "absent", what: "worker", near: ["rank0", "rank1"], within: "h100/owlv2" });
    expect(pick("h100/owlv2", "rank1", "9")).toMatchObject({ state: "absent", what: "span" });
    expect(choose({ ...runs, runs: [] }, { run: "gone", worker: "", span: "" })).toMatchObject({ state: "absent", near: [] });
  });

  test("GIVEN many names WHEN the nearest are asked for THEN at most eight, those with the same last part first", () => {
    const names = ["x/train", "b/owlv2", ...Array.from({ length: 20 }, (_, i) => `other/run${i}`)];
    expect(nearest("old/owlv2", names)[0]).toBe("b/owlv2");
    expect(nearest("old/owlv2", names).length).toBe(8);
  });

  test("GIVEN steps in the address WHEN read THEN one, a range, or none", () => {
    expect([parseSteps("12"), parseSteps("12-15"), parseSteps(""), parseSteps("x")]).toEqual([{ from: 12, to: 12 }, { from: 12, to: 15 }, null, null]);
  });
});
