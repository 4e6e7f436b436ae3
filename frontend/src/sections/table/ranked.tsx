// A short table in a narrow card, read as a ranked list: name and number above one bar per row.
import type { JSX } from "preact";
import type { Column, TableSection } from "../../api/types";
import { plain } from "../../markup";
import { linkView } from "../../state/view";
import { inColumn } from "../../units";
import { ViewLink } from "../../ui/link";
import { Middle } from "../../ui/text";
import { PALE, paint } from "../../ui/theme";
import { Marked } from "../value";
import { layoutOf, shapeText } from "./columns";
import { cell, rowCount, textual, wholeText } from "./model";

const NARROW_CARD = 5;
const LONGEST = 20;

const barOf = (s: TableSection): Column | undefined => s.columns.find((c) => c.show === "bar");

/** Is this a list to read from the top: narrow, short, and of one bar per row? */
export const isRanked = (s: TableSection): boolean => (s.span ?? 12) <= NARROW_CARD && !s.tree && !s.total && rowCount(s) <= LONGEST && s.columns.filter((c) => c.show === "bar").length === 1;

/** `ms, with running share`: the unit of the numbers, then the subtitle of the section. */
export function rankedSubtitle(s: TableSection): string {
  const bar = barOf(s);
  return [bar && layoutOf(s).get(bar.name)!.scale.name, s.subtitle].filter(Boolean).join(", ");
}

export function RankedRow({ s, index }: { s: TableSection; index: number }): JSX.Element {
  const bar = barOf(s)!;
  const l = layoutOf(s).get(bar.name)!;
  const name = s.columns.find((c) => textual(c) && (c.rank ?? 1) < 3) ?? s.columns[0]!;
  const sizes = s.columns.find((c) => c.show === "shapes");
  const share = s.columns.find((c) => c.show === "share");
  const member = (c: Column): string => String((c.color_by && cell(s, c.color_by, index)) || c.color || "bar-ink");
  const value = cell(s, bar.name, index);
  const part = share ? cell(s, share.name, index) : null;
  const size = sizes ? shapeText(String(cell(s, sizes.name, index) ?? "")) : "";
  const color = member(bar);
  const link = s.cell_links?.[name.name]?.[String(index)];
  const text = <Middle text={String(cell(s, name.name, index) ?? "—")} tip={wholeText(s, name, index)} />;
  return (
    <div class="ranked">
      <span class="ranked-name mono">{link ? <ViewLink view={linkView(link)} class="link" tip={link.label ? plain(link.label) : undefined}>{text}</ViewLink> : text}{size && <span class="quiet ranked-size ellipsis" data-tip={size}>{size}</span>}</span>
      <span class="ranked-value" data-tip={bar.doc || undefined}><Marked mark={s.marks?.[bar.name]?.[String(index)]}>{typeof value === "number" ? inColumn(value, l.scale) : "—"}</Marked></span>
      {share && <span class="ranked-share" data-tip={share.doc || undefined}>{typeof part === "number" ? `${inColumn(part, layoutOf(s).get(share.name)!.scale)}\u202f%` : "—"}</span>}
      <span class="ranked-bar"><span class={PALE.has(color) ? "pale" : ""} style={{ width: typeof value === "number" && value > 0 && l.full > 0 ? `max(1.5px, ${(value / l.full) * 100}%)` : "0", background: paint(color) }} /></span>
    </div>
  );
}
