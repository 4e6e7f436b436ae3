// What figures and tables of one report share: the selected row, and the rows inside an area selected in a figure.
import type { FigureSection, Report, TableSection } from "../api/types";
import { change, changeFigure, tableOf, view } from "../state/view";
import { requestOf } from "../state/data";
import { pointKey } from "./figure/template";
import { brushable, keysInside, withAreas } from "./figure/area";
import { startPages } from "./table/pages";

const figures = new WeakMap<TableSection, FigureSection[]>();
const seen = new WeakSet<Report>();
const inside = new WeakMap<FigureSection, { text: string; keys: Set<string> | null }>();

/** Remembers which figures show the rows of which tables. Called before a section is drawn; cheap the second time. */
export function linkReport(report: Report): void {
  if (seen.has(report)) return;
  seen.add(report);
  startPages(report, requestOf(report));
  for (const s of report.sections) if (s.kind === "table") figures.set(s, report.sections.filter((f): f is FigureSection => f.kind === "figure" && f.table === s.id && brushable(f)));
}

/** Whether a chart shows the rows of this table as points: then the filters of the table are also its legend. */
export const hasChart = (s: TableSection): boolean => (figures.get(s)?.length ?? 0) > 0;

/** Keys inside the areas selected in one figure; null when there is none. */
export function insideOf(s: FigureSection): ReadonlySet<string> | null {
  const text = view.value.figures[s.id] ?? "";
  const known = inside.get(s);
  if (known?.text === text) return known.keys;
  const keys = keysInside(s, text);
  inside.set(s, { text, keys });
  return keys;
}

/** Keys that pass every figure's selected area; null when no area is selected. */
export function pickedOf(s: TableSection): ReadonlySet<string> | null {
  const sets = (figures.get(s) ?? []).map(insideOf).filter((keys) => keys !== null);
  if (sets.length < 2) return sets[0] ?? null;
  return new Set([...sets[0]!].filter((key) => sets.every((keys) => keys.has(key))));
}

/** Whether several points of a chart belong to one row: then an area selects whole rows, not only the points inside. */
export function sharesRows(s: TableSection): boolean {
  return (figures.get(s) ?? []).some((f) => (f.figure.data ?? []).some((t) => {
    const custom = t["customdata"];
    return Array.isArray(custom) && new Set(custom.map(pointKey)).size < custom.length;
  }));
}

export function clearPicked(s: TableSection): void {
  for (const f of figures.get(s) ?? []) changeFigure(f.id, withAreas(view.peek().figures[f.id] ?? "", []), "quiet");
}

/** The other tables of a report whose rows have the same keys: what is selected in one is selected in them. */
export const linkedTables = (table: TableSection, report: Report): TableSection[] =>
  report.sections.filter((s): s is TableSection => s.kind === "table" && s !== table && !!table.key && s.key === table.key);

/** Selects a row in every table that has one of that key; "" clears the selection. The first is where it was chosen. */
export function selectRow(tables: readonly TableSection[], key: string): void {
  const next = { ...view.peek().tables };
  for (const t of tables) if (key === "" || t === tables[0] || t.pages || t.data[t.key ?? ""]?.some((k) => String(k) === key)) next[t.id] = { ...tableOf(t.id), row: key };
  change({ tables: next }, "quiet");
}

/** One step back: the selected row, else the level of an icicle, else the selected area. False when there is nothing to leave. */
export function stepOut(): boolean {
  const { tables, figures: texts } = view.peek();
  if (Object.values(tables).some((t) => t.row)) {
    change({ tables: Object.fromEntries(Object.entries(tables).map(([id, t]) => [id, { ...t, row: "" }])) }, "quiet");
    return true;
  }
  for (const part of [/^l:/, /^b\d*:/]) {
    const next = Object.fromEntries(Object.entries(texts).map(([id, text]) => [id, text.split(";").filter((p) => !part.test(p)).join(";")]));
    if (JSON.stringify(next) !== JSON.stringify(texts)) {
      change({ figures: next }, "quiet");
      return true;
    }
  }
  return false;
}
