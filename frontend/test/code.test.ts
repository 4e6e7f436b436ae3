import { describe, expect, it } from "vitest";
import { argumentSnippet, captureSnippet } from "../src/pages/code";
import { kindOf, hasSeveralKinds } from "../src/pages/kind";

describe("snippets that show how to record", () => {
  it("puts an argument of the profiler into a call of the profiler, also for a SOL capture", () => {
    for (const capture of [false, true]) {
      const found = argumentSnippet("profile_memory=True", capture)!;
      expect(found.code).toContain("torch.profiler.profile(");
      expect(found.code).toContain(found.mark);
    }
  });

  it("puts an argument of a SOL capture into a call of sol.capture", () => {
    expect(argumentSnippet("profile=True", true)!.code).toContain("with sol.capture(logdir, model=model, profile=True) as tracker:");
    expect(argumentSnippet("every_n_steps", true)!).toMatchObject({ mark: "every_n_steps=100" });
    for (const argument of ["profile=True", "every_n_steps", "model=model", "tracker.step()", "sol.capture(logdir, model=model)"]) {
      const found = argumentSnippet(argument, true)!;
      expect(found.code).toContain(found.mark);
      expect(found.code).not.toContain("profiler");
    }
  });

  it("puts an argument that the call has already in place of it, as Python takes each once", () => {
    const handler = 'on_trace_ready=torch.profiler.tensorboard_trace_handler(logdir, worker_name=f"rank{rank}")';
    for (const argument of [handler, "activities=[ProfilerActivity.CUDA]"]) {
      const found = argumentSnippet(argument)!;
      expect(found.code).toContain(`    ${found.mark},`);
      expect(found.code.match(/on_trace_ready=/g)).toHaveLength(1);
      expect(found.code.match(/activities=/g)).toHaveLength(1);
    }
  });

  it("names the scanned logdir", () => {
    expect(captureSnippet("runs/a").code).toContain('sol.capture("runs/a", model=model)');
  });
});

describe("the kind of a recording", () => {
  const worker = (...spans: object[]): never => ({ name: "w", spans }) as never;

  it("is a trace, a SOL capture, or both joined", () => {
    expect(kindOf({}).badge).toBe("");
    expect(kindOf({ kind: "sol_capture" }).badge).toBe("SOL capture");
    expect(kindOf({ kind: "kineto", companion: { worker: "a", span: "1" } }).badge).toBe("trace + SOL capture");
    expect(kindOf({ kind: "memory_snapshot" }).badge).toBe("allocator snapshot");
    expect(kindOf({ kind: "memory_timeline", companion: { worker: "a", span: "1" } }).badge).toBe("memory timeline");
    expect(kindOf({ kind: "sol_capture", companion: { worker: "a", span: "1" } }).tip).toContain("the profiler trace of this worker does");
  });

  it("is shown in lists only where a run has more than traces", () => {
    expect(hasSeveralKinds({ name: "r", workers: [worker({ name: "1" })] })).toBe(false);
    expect(hasSeveralKinds({ name: "r", workers: [worker({ name: "1" }), worker({ name: "1", kind: "sol_capture" })] })).toBe(true);
  });
});
