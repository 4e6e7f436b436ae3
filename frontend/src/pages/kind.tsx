// Which kind of recording a span is: a profiler trace, a SOL capture, both joined, or memory only.
import type { JSX } from "preact";
import type { Run, Span } from "../api/types";

export interface Kind {
  /** as a badge; "" for a plain trace, which needs none */
  badge: string;
  /** after its name in a list */
  note: string;
  tip: string;
}

const MEMORY: Record<string, string> = { memory_snapshot: "allocator snapshot", memory_timeline: "memory timeline" };

/** Whether it holds memory only: an allocator snapshot or a memory timeline. */
export const isMemoryOnly = (span: Pick<Span, "kind">): boolean => !!span.kind && span.kind in MEMORY;

/** The badge, note and tooltip of a recording; `companion` is the other recording of its worker. */
export function kindOf(span: Pick<Span, "kind" | "companion">): Kind {
  if (span.kind === "sol_capture") {
    return {
      badge: "SOL capture", note: "SOL capture",
      tip: `A SOL capture: every iteration is timed, and the work of the sampled ones is counted. It holds no device events${span.companion ? "; the profiler trace of this worker does" : ""}.`,
    };
  }
  if (isMemoryOnly(span)) {
    const name = MEMORY[span.kind!]!;
    return { badge: name, note: name, tip: `Memory over time only${span.companion ? "; the other recording of this worker shows it together with what ran" : ""}.` };
  }
  if (span.companion) {
    return {
      badge: "trace + SOL capture", note: "trace + SOL capture",
      tip: "A profiler trace joined with the SOL capture of the same worker: times come from the trace, iterations and whatever the trace cannot name from the capture.",
    };
  }
  return { badge: "", note: "trace", tip: "A trace of the PyTorch profiler." };
}

/** Whether a run has more than plain traces: then lists show the kind of every recording. */
export const hasSeveralKinds = (run: Run): boolean => run.workers.some((w) => w.spans.some((s) => kindOf(s).badge !== ""));

export const KindBadge = ({ span }: { span: Span }): JSX.Element | null => {
  const { badge } = kindOf(span);
  return badge ? <span class="badge kind">{badge}</span> : null;
};
