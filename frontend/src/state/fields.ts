// The query fields of an analysis. Pure.
import type { QueryField } from "../api/types";

/** What a field opens with; one that may be left out says "None" as its default, which reads as empty. */
export function opensWith(f: QueryField): string {
  const value = f.page ?? f.default ?? "";
  return value === "None" ? "" : value;
}
