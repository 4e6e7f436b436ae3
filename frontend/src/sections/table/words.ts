// The words of a row that its cells cut or abbreviate. Pure.
import type { Column, TableSection } from "../../api/types";
import { cell, placeOf, textual, wholeText, type Shown } from "./model";

/** Letters from which on a text may be cut in its cell. */
const LONG = 24;

/** Words of a row: the name as the table shows it, the whole of it where that is another, and the other texts that a cell may cut. */
export interface Words {
  title: string;
  full: string;
  rest: [Column, string][];
}

/** The words of a row that stand cut or abbreviated in its cells; null for a row without any, unless there is more to show than words. */
export function wordsOf(s: TableSection, index: number, always = false): Words | null {
  const texts = s.columns.filter((c) => textual(c) && c.show !== "badge" && cell(s, c.name, index) !== null && c.name !== s.key);
  const named = texts.find((c) => (c.rank ?? 1) < 3);
  if (!named) return null;
  const title = String(cell(s, named.name, index));
  const whole = wholeText(s, named, index);
  const full = whole === title ? "" : whole;
  const rest = texts.filter((c) => c !== named && c.name !== named.full).map((c): [Column, string] => [c, wholeText(s, c, index)]).filter(([c, text]) => text.length > LONG && (c.rank ?? 1) < 3 && (c.show === "code" || c.show === "symbol" || c.show === "shapes"));
  return always || full || title.length > LONG || rest.length ? { title, full, rest } : null;
}

/** The place in the data of the selected row; -1 for one that is not there, or has not come. */
export function indexOf(s: TableSection, shown: Shown, key: string): number {
  if (!key) return -1;
  const place = placeOf(s, shown, key);
  return shown.rows[place]?.index ?? -1;
}
