// Which recording the view means: the one it names, or the first there is. A name that is not there is reported, never replaced.
import type { Run, Runs, Span, Worker } from "../api/types";
import type { View } from "./codec";

export interface Chosen {
  run: Run;
  worker: Worker;
  span: Span;
}

export type Choice =
  | { state: "none" }
  | { state: "chosen"; chosen: Chosen }
  | { state: "absent"; what: "run" | "worker" | "span"; name: string; near: string[]; within: string };

export function choose(runs: Runs, view: Pick<View, "run" | "worker" | "span">): Choice {
  if (!view.run && !runs.runs.length) return { state: "none" };
  const run = view.run ? runs.runs.find((r) => r.name === view.run) : runs.runs[0];
  if (!run) return { state: "absent", what: "run", name: view.run, near: nearest(view.run, runs.runs.map((r) => r.name)), within: "" };
  const worker = view.worker ? run.workers.find((w) => w.name === view.worker) : (run.workers.find((w) => !isJoined(w)) ?? run.workers[0]);
  if (!worker) return { state: "absent", what: "worker", name: view.worker, near: nearest(view.worker, run.workers.map((w) => w.name)), within: run.name };
  const span = view.span ? worker.spans.find((s) => s.name === view.span) : worker.spans.at(-1);
  if (!span) return { state: "absent", what: "span", name: view.span, near: nearest(view.span, worker.spans.map((s) => s.name)), within: run.name };
  return { state: "chosen", chosen: { run, worker, span } };
}

/** Whether all recordings of a worker are shown together with another one: a SOL capture with its trace, memory with either. */
export const isJoined = (w: Worker): boolean => w.spans.length > 0 && w.spans.every((s) => JOINED_KINDS.includes(s.kind ?? "") && !!s.companion);
const JOINED_KINDS = ["sol_capture", "memory_snapshot", "memory_timeline"];

/** At most eight of `names`, the likest first: fewest edits for their length, shared beginnings and parts preferred. */
export function nearest(name: string, names: readonly string[]): string[] {
  const low = name.toLowerCase();
  const last = low.split("/").at(-1)!;
  const score = (other: string): number => {
    const o = other.toLowerCase();
    const inside = o.includes(last) || low.includes(o.split("/").at(-1)!) ? 0.4 : 0;
    return edits(low.slice(0, 120), o.slice(0, 120)) / Math.max(low.length, o.length, 1) - inside;
  };
  return names.map((n) => [score(n), n] as const).sort((a, b) => a[0] - b[0]).slice(0, 8).map(([, n]) => n);
}

function edits(a: string, b: string): number {
  let before = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) row.push(Math.min(before[j]! + 1, row[j - 1]! + 1, before[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    before = row;
  }
  return before[b.length]!;
}

/** Steps named in the address: "" all, "12" one, "12-15" a range. */
export function parseSteps(text: string): { from: number; to: number } | null {
  const match = /^(\d+)(?:-(\d+))?$/.exec(text);
  if (!match) return null;
  const from = Number(match[1]);
  return { from, to: match[2] === undefined ? from : Number(match[2]) };
}

/** In place of a recording of graph captures: nothing names what graphs replay. */
export const NO_CAPTURE = "none";

interface Offer {
  value: string;
  text: string;
  note: string;
}

/** What can be chosen for a trace: recordings of graph captures, then other traces, whose eager iterations may hold the same kernels. */
export function captureOptions({ runs, captures = [] }: Pick<Runs, "runs" | "captures">, shown: string | undefined): Offer[] {
  const files = new Set(captures);
  const traces = runs.flatMap((r) => r.workers.flatMap((w) => w.spans.filter((s) => s.kind === "kineto" && s.file && s.file !== shown && !files.has(s.file)).map((s) => s.file!)));
  return [
    { value: "", text: "Beside the trace", note: "as found" }, { value: NO_CAPTURE, text: "None", note: "kernels stay without operators" },
    ...captures.map((file) => ({ value: file, text: file, note: "graph capture" })), ...traces.map((file) => ({ value: file, text: file, note: "an eager run" })),
  ];
}
