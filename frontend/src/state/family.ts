// Analyses that are further views of another one are tabs of its page. Pure.
import type { AnalysisInfo } from "../api/types";

/** The analysis whose page an analysis is on: itself, or the one it is a further view of (one level; an unknown name, or its own, counts as none). */
export function headOf(all: readonly AnalysisInfo[], name: string): AnalysisInfo | null {
  const own = all.find((a) => a.name === name) ?? null;
  if (!own?.under || own.under === own.name) return own;
  const head = all.find((a) => a.name === own.under);
  return head && !isView(all, head) ? head : own;
}

/** Whether it is a further view of a known analysis that is not a further view itself. */
export const isView = (all: readonly AnalysisInfo[], a: AnalysisInfo): boolean =>
  !!a.under && a.under !== a.name && all.some((head) => head.name === a.under && (!head.under || head.under === head.name));

/** What the page list names: all but the further views. */
export const entriesOf = (all: readonly AnalysisInfo[]): AnalysisInfo[] => all.filter((a) => !isView(all, a));

/** The tabs of a page: the analysis and its further views in their order, one alone where it has none. */
export function familyOf(all: readonly AnalysisInfo[], name: string): AnalysisInfo[] {
  const head = headOf(all, name);
  if (!head) return [];
  return [head, ...all.filter((a) => isView(all, a) && a.under === head.name)];
}
