// The query fields of an analysis. Pure.
import type { FieldNow, QueryField } from "../api/types";

/** What a field opens with; one that may be left out says "None" as its default, which reads as empty. */
export function opensWith(f: QueryField): string {
  const value = f.page ?? f.default ?? "";
  return value === "None" ? "" : value;
}

/** A field as the report that is shown tells of it: a choice of the values that this recording has; null where there is nothing to choose. */
export function fitted(f: QueryField, now: FieldNow | undefined, asked: boolean): QueryField | null {
  const values = now?.values;
  if (!values?.length || (f.type !== "text" && f.type !== "choice")) return f;
  if (values.length === 1 && !asked) return null;
  const opens = f.type === "text" ? (now?.value ?? "") : opensWith(f);
  return { ...f, type: "choice", choices: values, default: opens, page: opens };
}
