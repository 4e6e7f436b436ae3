// The selected row of a table: its short name as the title, its full name and other long texts whole below it, to read, select and copy.
import type { JSX } from "preact";
import type { Column, TableSection } from "../../api/types";
import { Copy } from "../../ui/copy";
import { Icon } from "../../ui/icons";
import { shapeText } from "./columns";
import { cell, placeOf, textual, wholeText, type Shown } from "./model";

/** Letters from which on a text may be cut in its cell. */
const LONG = 24;

/** Words of a row: the name as the table shows it, the whole of it where that is another, and the other texts that a cell may cut. */
export interface Words {
  title: string;
  full: string;
  rest: [Column, string][];
}

/** The words of a row that stand cut or abbreviated in its cells; null for a row without any. */
export function wordsOf(s: TableSection, index: number): Words | null {
  const texts = s.columns.filter((c) => textual(c) && c.show !== "badge" && cell(s, c.name, index) !== null && c.name !== s.key);
  const named = texts.find((c) => (c.rank ?? 1) < 3);
  if (!named) return null;
  const title = String(cell(s, named.name, index));
  const whole = wholeText(s, named, index);
  const full = whole === title ? "" : whole;
  const rest = texts.filter((c) => c !== named && c.name !== named.full).map((c): [Column, string] => [c, wholeText(s, c, index)]).filter(([c, text]) => text.length > LONG && (c.rank ?? 1) < 3 && (c.show === "code" || c.show === "symbol" || c.show === "shapes"));
  return full || title.length > LONG || rest.length ? { title, full, rest } : null;
}

/** The place in the data of the selected row; -1 for one that is not there, or has not come. */
export function indexOf(s: TableSection, shown: Shown, key: string): number {
  if (!key) return -1;
  const place = placeOf(s, shown, key);
  return shown.rows[place]?.index ?? -1;
}

export function RowCard({ s, shown, selected, onClose }: { s: TableSection; shown: Shown; selected: string; onClose: () => void }): JSX.Element | null {
  const index = indexOf(s, shown, selected);
  const words = index < 0 ? null : wordsOf(s, index);
  if (!words) return null;
  return (
    <div class="row-card" role="group" aria-label={`Selected: ${words.title}`}>
      <div class="row-card-head">
        <h3 class="mono">{words.title}</h3>
        <Copy class="text-button" what="the name" label="Copy the full name" text={() => words.full || words.title}>Copy name</Copy>
        <button type="button" class="ghost" aria-label="Clear the selection" data-tip="Esc" onClick={onClose}><Icon name="close" size={12} /></button>
      </div>
      {words.full && <p class="whole mono">{words.full}</p>}
      {words.rest.map(([c, text]) => <p class="whole"><span class="quiet">{c.label}</span> <span class="mono">{c.show === "shapes" ? shapeText(text) : text}</span></p>)}
    </div>
  );
}
