// The query fields of an analysis. Pure.
import type { FieldNow, QueryField } from "../api/types";

/** The value a field has on the page before it is changed; the default "None" of an optional field is the empty text. */
export function pageDefault(f: QueryField): string {
  const value = f.page ?? f.default ?? "";
  return value === "None" ? "" : f.type === "flag" ? value.toLowerCase() : value;
}

/** A field whose values are names from the logdir, shown as they are. */
export interface Named extends QueryField {
  named: true;
}

export const isNamed = (f: QueryField): boolean => f.type === "text" || (f as Partial<Named>).named === true;

/** Fields whose values are names inside another field's: they are cleared when that one changes. */
const WITHIN: Record<string, string[]> = { other_run: ["other_worker", "other_span"], other_worker: ["other_span"] };

/** The query with a field set; the value it has anyway is left out. */
export function withField(query: Record<string, string>, f: QueryField, value: string): Record<string, string> {
  const next = { ...query, [f.name]: value };
  if (value === pageDefault(f)) delete next[f.name];
  for (const name of WITHIN[f.name] ?? []) delete next[name];
  return next;
}

/** A row of a list: its fields that are set, as their controls show them. */
export type Row = Record<string, string>;

/** The rows of a list in the address; none of what is no list of rows. */
export function rowsOf(text: string | undefined): Row[] {
  try {
    const found: unknown = JSON.parse(text || "[]");
    if (!Array.isArray(found)) return [];
    return found.map((row) => Object.fromEntries(Object.entries((row ?? {}) as Record<string, unknown>).filter(([, v]) => v !== null && typeof v !== "object").map(([k, v]) => [k, String(v)])));
  } catch {
    return [];
  }
}

/** One text for rows, numbers and switches as JSON has them; what a field has anyway is left out. */
export function textOfRows(rows: readonly Row[], fields: readonly QueryField[]): string {
  if (!rows.length) return "";
  const typed = (f: QueryField | undefined, v: string): unknown => (f?.type === "flag" ? v === "true" : f?.type === "number" && v.trim() && Number.isFinite(Number(v)) ? Number(v) : v);
  const of = new Map(fields.map((f) => [f.name, f]));
  return JSON.stringify(rows.map((row) => Object.fromEntries(Object.entries(row).filter(([k, v]) => v !== "" && !(of.has(k) && v === pageDefault(of.get(k)!))).map(([k, v]) => [k, typed(of.get(k), v)]))));
}

/** A field with the values that the shown report lists for this recording, as a choice; null where there is nothing to choose. */
export function fieldOfReport(f: QueryField, now: FieldNow | undefined, asked: boolean): QueryField | null {
  const values = now?.values;
  if (!values?.length || (f.type !== "text" && f.type !== "choice")) return f;
  if (values.length === 1 && !asked) return null;
  const opens = f.type === "text" ? (now?.value ?? "") : pageDefault(f);
  return { ...f, type: "choice", choices: values, default: opens, page: opens, ...(f.type === "text" && { named: true }) };
}
