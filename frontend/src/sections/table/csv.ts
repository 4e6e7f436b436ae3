// The shown rows and columns as CSV in base units: the same numbers as on the page, every digit, no unit scaling.
import type { Column, Scalar, TableSection } from "../../api/types";
import { cell, wholeText, type Row } from "./model";

/** RFC 4180. A text that a spreadsheet would take for a formula gets a leading apostrophe; full-width signs are read as plain ones. */
export function csvField(value: Scalar): string {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  const text = /^[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

export function csvOf(s: TableSection, columns: readonly Column[], rows: readonly Row[]): string {
  const lines = [columns.map((c) => csvField(c.name)).join(",")];
  for (const row of rows) lines.push(columns.map((c) => csvField(cell(s, c.name, row.index))).join(","));
  return lines.join("\r\n") + "\r\n";
}

/** One row for the clipboard: names and values in base units, tab separated, two lines; no name is abbreviated. */
export function rowText(s: TableSection, columns: readonly Column[], index: number): string {
  const clean = (value: Scalar): string => String(value ?? "").replace(/[\t\n\r]+/g, " ");
  return columns.map((c) => c.name).join("\t") + "\n" + columns.map((c) => clean(c.full ? wholeText(s, c, index) : cell(s, c.name, index))).join("\t");
}
