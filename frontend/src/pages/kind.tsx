// What sort of recording a span is: a profiler trace, a SOL capture, a trace with a SOL capture beside it, or memory alone.
import type { JSX } from "preact";
import type { Run, Span } from "../api/types";

export interface Kind {
  /** as a badge; "" for a plain trace, which needs none */
  badge: string;
  /** beside its name in a list */
  note: string;
  tip: string;
}

const MEMORY: Record<string, string> = { memory_snapshot: "allocator snapshot", memory_timeline: "memory timeline" };

/** Is it memory alone: a snapshot or a timeline? */
export const ofMemory = (span: Pick<Span, "kind">): boolean => !!span.kind && span.kind in MEMORY;

/** Of the other kind there is one in the address `companion`. */
export function kindOf(span: Pick<Span, "kind" | "companion">): Kind {
  if (span.kind === "sol_capture") {
    return {
      badge: "SOL capture", note: "SOL capture",
      tip: `A SOL capture: every iteration is timed, and the work of the sampled ones is counted. It holds no device events${span.companion ? "; the profiler trace of this worker does" : ""}.`,
    };
  }
  if (ofMemory(span)) {
    const name = MEMORY[span.kind!]!;
    return { badge: name, note: name, tip: `Memory over time alone${span.companion ? ": the recording of this worker shows it too, beside what ran" : ""}.` };
  }
  if (span.companion) {
    return {
      badge: "trace + SOL capture", note: "trace + SOL capture",
      tip: "A profiler trace, read together with the SOL capture of the same worker: times are the trace's, iterations and what it cannot name are the capture's.",
    };
  }
  return { badge: "", note: "trace", tip: "A trace of the PyTorch profiler." };
}

/** Does a run hold more than plain traces? Then each recording says what it is. */
export const mixed = (run: Run): boolean => run.workers.some((w) => w.spans.some((s) => kindOf(s).badge !== ""));

export const KindBadge = ({ span }: { span: Span }): JSX.Element | null => {
  const { badge } = kindOf(span);
  return badge ? <span class="badge kind">{badge}</span> : null;
};
