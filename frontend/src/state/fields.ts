// The query fields of an analysis. Pure.
import type { FieldNow, QueryField } from "../api/types";

/** What a field opens with; one that may be left out says "None" as its default, which reads as empty. */
export function opensWith(f: QueryField): string {
  const value = f.page ?? f.default ?? "";
  return value === "None" ? "" : value;
}

/** A field whose values are names out of the logdir: they are shown as they are. */
export interface Named extends QueryField {
  named: true;
}

export const isNamed = (f: QueryField): boolean => f.type === "text" || (f as Partial<Named>).named === true;

/** Fields that hold names within another one: they are open again when that one changes. */
const WITHIN: Record<string, string[]> = { other_run: ["other_worker", "other_span"], other_worker: ["other_span"] };

/** The query with a field set; a value that it opens with is left out. */
export function withField(query: Record<string, string>, f: QueryField, value: string): Record<string, string> {
  const next = { ...query, [f.name]: value };
  if (value === opensWith(f)) delete next[f.name];
  for (const name of WITHIN[f.name] ?? []) delete next[name];
  return next;
}

/** A field as the report that is shown tells of it: a choice of the values that this recording has; null where there is nothing to choose. */
export function fitted(f: QueryField, now: FieldNow | undefined, asked: boolean): QueryField | null {
  const values = now?.values;
  if (!values?.length || (f.type !== "text" && f.type !== "choice")) return f;
  if (values.length === 1 && !asked) return null;
  const opens = f.type === "text" ? (now?.value ?? "") : opensWith(f);
  return { ...f, type: "choice", choices: values, default: opens, page: opens, ...(f.type === "text" && { named: true }) };
}
