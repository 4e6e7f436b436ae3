// The query fields of an analysis. Pure.
import type { FieldNow, QueryField } from "../api/types";

/** The value a field has on the page before it is changed; the default "None" of an optional field is the empty text. */
export function pageDefault(f: QueryField): string {
  const value = f.page ?? f.default ?? "";
  return value === "None" ? "" : value;
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

/** A field with the values that the shown report lists for this recording, as a choice; null where there is nothing to choose. */
export function fieldOfReport(f: QueryField, now: FieldNow | undefined, asked: boolean): QueryField | null {
  const values = now?.values;
  if (!values?.length || (f.type !== "text" && f.type !== "choice")) return f;
  if (values.length === 1 && !asked) return null;
  const opens = f.type === "text" ? (now?.value ?? "") : pageDefault(f);
  return { ...f, type: "choice", choices: values, default: opens, page: opens, ...(f.type === "text" && { named: true }) };
}
