// What the search shows: pages and runs by their names here, kernels, operators, modules and findings from the server. Pure.
import type { AnalysisInfo, Found, Hit, Link, RunSummary } from "../api/types";
import { human } from "../units";

/** One line of the search. go: where it leads, as a report's link does. */
export interface Result {
  text: string;
  note: string;
  tip: string;
  /** the table that the link filters */
  table?: string;
  go: Link;
}

export interface Group {
  title: string;
  results: Result[];
  /** how many there are beyond those listed */
  more: number;
}

const MOST = 8;
const KINDS: [string, string][] = [["finding", "Findings"], ["kernel", "Kernels"], ["operator", "Operators"], ["module", "Modules"]];

const words = (text: string): string[] => text.toLowerCase().split(/\s+/).filter(Boolean);
const matches = (text: string, query: string): boolean => words(query).every((w) => text.toLowerCase().includes(w));

/** Pages and runs whose names hold every word. A page that the recording cannot fill is left out. */
export function localGroups(query: string, analyses: readonly AnalysisInfo[], runs: readonly string[], here: string): Group[] {
  const pages = analyses.filter((a) => a.available !== false && matches(`${a.title} ${a.question ?? ""}`, query));
  const byTitle = [...pages].sort((a, b) => Number(matches(b.title, query)) - Number(matches(a.title, query)));
  const named = runs.filter((r) => r !== here && matches(r || ".", query));
  return [
    group("Pages", byTitle.map((a) => ({ text: a.title, note: "", tip: a.question ?? "", go: { analysis: a.name, query: {} } }))),
    group("Runs", named.map((run) => ({ text: run || ".", note: "", tip: "", go: { analysis: "", query: { run } } }))),
  ].filter((g) => g.results.length > 0);
}

const group = (title: string, results: Result[]): Group => ({ title, results: results.slice(0, MOST), more: Math.max(0, results.length - MOST) });

/** What the server found, by kind. Of an answer to another text only what also matches this one: the answer to it follows. */
export function foundGroups(found: Found | null, query: string): Group[] {
  if (!found) return [];
  if (found.query !== query.trim()) return foundGroups({ query: query.trim(), hits: found.hits.filter((h) => matches(h.name, query)), counts: {} }, query);
  return KINDS.map(([kind, title]) => {
    const hits = found.hits.filter((h) => h.kind === kind);
    return { title, results: hits.map(resultOf), more: Math.max(0, (found.counts[kind] ?? hits.length) - hits.length) };
  }).filter((g) => g.results.length > 0);
}

function resultOf(h: Hit): Result {
  const time = typeof h.ns === "number" ? human(h.ns, "ns") : "";
  const table = Object.keys(h.link.query ?? {}).flatMap((key) => /^t\.([^.]+)\./.exec(key)?.[1] ?? [])[0];
  return { text: h.name, note: time, tip: [h.name, time && `${time}, ${h.note}`].filter(Boolean).join("\n"), go: h.link, ...(table && { table }) };
}

/** Findings and named things first, once something is typed; else pages and runs. */
export const ordered = (query: string, local: Group[], found: Group[]): Group[] => (words(query).length ? [...local.slice(0, 1), ...found, ...local.slice(1)] : [...local, ...found]);

/** The place after a key in a list of `count`, around its ends. */
export function moved(at: number, key: string, count: number): number {
  if (!count) return -1;
  if (key === "ArrowDown") return (at + 1) % count;
  if (key === "ArrowUp") return (at + count - 1) % count;
  if (key === "PageDown") return Math.min(at + 8, count - 1);
  if (key === "PageUp") return Math.max(at - 8, 0);
  return at;
}

// -- the menu of runs -------------------------------------------------------------------------------------------------------

const two = (n: number): string => String(n).padStart(2, "0");

/** `2026-11-23 00:49` in the reader's own time. */
export function dateText(seconds: number): string {
  const d = new Date(seconds * 1000);
  return Number.isFinite(d.getTime()) ? `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}` : "";
}

/** What is known of a run: date, device, step, ratio. What is not known is said to be unknown. */
export function summaryText(s: RunSummary | undefined): string {
  if (!s) return "";
  const date = typeof s.recorded === "number" ? dateText(s.recorded) : s.mtime > 0 ? `file of ${dateText(s.mtime)}` : "date unknown";
  const step = typeof s.step_ns === "number" ? `${s.whole ? "recording" : "step"} ${human(s.step_ns, "ns")}` : "";
  const ratio = typeof s.ratio === "number" ? `${s.estimated ? "≈ " : ""}${human(s.ratio, "ratio")} of the speed of light` : "";
  const known = [s.device, step, ratio];
  const unknown = ["device", "step", "speed of light"].filter((_, i) => !known[i]);
  const last = unknown.length ? `${unknown.length > 1 ? `${unknown.slice(0, -1).join(", ")} and ${unknown.at(-1)!}` : unknown[0]!} unknown` : "";
  return [date, ...known, last].filter(Boolean).join(" · ");
}
