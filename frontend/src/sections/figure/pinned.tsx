// The selected row as a card at its point: its name, its first numbers, all of them on demand, and its links.
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Column, Link, TableSection } from "../../api/types";
import { scaleOf } from "../../units";
import { Icon, Mark as Shape } from "../../ui/icons";
import { ReportLink } from "../../ui/link";
import { Middle } from "../../ui/text";
import { markOf, paint } from "../../ui/theme";
import { shapeText } from "../table/columns";
import { cell, textual, wholeText } from "../table/model";
import { pagedOf } from "../table/pages";
import { timelineLink } from "../table/stretch";
import { Value } from "../value";

const FIRST = 8;
const GAP = 12;
const WORDS = 18;

/** Where the point is in its figure, px, and how far its ring reaches. */
export interface Spot {
  x: number;
  y: number;
  radius: number;
}

interface PinnedProps {
  table: TableSection;
  selected: string;
  spot: Spot | null;
  room: { width: number; height: number };
  onClose: () => void;
}

/** Columns of the card: by rank, known values first within it; the name, the sizes and the id of the row are shown elsewhere. */
export function cardColumns(table: TableSection, index: number, except: readonly (Column | undefined)[]): Column[] {
  const rest = table.columns.filter((c) => !except.includes(c) && c.name !== table.key && c.name !== table.tree?.id && c.name !== table.tree?.parent);
  const place = (c: Column): number => (c.rank ?? 1) + (cell(table, c.name, index) === null ? 10 : 0);
  return rest.map((c, i) => [c, place(c), i] as const).sort((a, b) => a[1] - b[1] || a[2] - b[2]).map(([c]) => c);
}

function linksOf(table: TableSection, index: number): Link[] {
  const all = [timelineLink(table, index), table.row_links?.[String(index)], ...Object.values(table.cell_links ?? {}).map((links) => links[String(index)])];
  const known = new Set<string>();
  return all.filter((link): link is Link => {
    if (!link) return false;
    const text = JSON.stringify([link.analysis, link.query]);
    return !known.has(text) && !!known.add(text);
  });
}

export function Pinned({ table, selected, spot, room, onClose }: PinnedProps): JSX.Element | null {
  const card = useRef<HTMLDivElement>(null);
  const [more, setMore] = useState(false);
  useLayoutEffect(() => {
    const el = card.current;
    if (!el) return;
    const { offsetWidth: w, offsetHeight: h } = el;
    const at = place(spot, room, w, h);
    el.style.left = `${at.left}px`;
    el.style.top = `${at.top}px`;
  }, [spot, room.width, room.height, selected, more, table]);

  void pagedOf(table)?.news.value; // the row may come later
  const index = table.data[table.key ?? ""]?.findIndex((k) => String(k) === selected) ?? -1;
  if (index < 0) return null;
  const name = table.columns.find((c) => textual(c) && (c.rank ?? 1) < 3) ?? table.columns[0];
  const sizes = table.columns.find((c) => c.show === "shapes");
  const columns = cardColumns(table, index, [name, sizes]);
  const shown = more ? columns : columns.filter((c) => cell(table, c.name, index) !== null && cell(table, c.name, index) !== "").slice(0, FIRST);
  const member = String((name?.color_by && cell(table, name.color_by, index)) || "");
  const links = linksOf(table, index);
  const text = String(name ? cell(table, name.name, index) : selected);
  const full = name ? wholeText(table, name, index) : text;
  return (
    <div class="pinned" ref={card} role="group" aria-label={`Selected: ${text}`} style={{ maxHeight: `${Math.max(140, room.height - 8)}px` }}>
      <div class="pinned-head">
        {markOf(member) && <Shape shape={markOf(member)!} color={paint(member)} />}
        <span class="mono"><Middle text={text} tip={full} /></span>
        <button type="button" class="ghost" aria-label="Clear the selection" data-tip="Esc" onClick={onClose}><Icon name="close" size={12} /></button>
      </div>
      {full !== text && <p class="pinned-full mono">{full}</p>}
      {sizes && cell(table, sizes.name, index) !== null && <div class="pinned-sizes mono"><Middle text={shapeText(String(cell(table, sizes.name, index)))} /></div>}
      <dl>
        {shown.map((c) => (
          <div>
            <dt>{c.label}</dt>
            <dd class={c.show === "code" ? "mono" : ""}><Value value={cell(table, c.name, index)} unit={unitOf(c)} mark={table.marks?.[c.name]?.[String(index)]} doc={c.doc} /></dd>
          </div>
        ))}
      </dl>
      <div class="pinned-foot">
        {links.map((link) => <ReportLink link={link} />)}
        {columns.length > shown.length || more ? <button type="button" class="text-button" aria-expanded={more} onClick={() => setMore(!more)}>{more ? "Less" : `${columns.length - shown.length} more`}</button> : null}
      </div>
    </div>
  );
}

/** The unit to show: not again where the label is the unit. */
function unitOf(c: Column): string {
  const unit = c.unit || (c.show === "share" || c.show === "efficiency" ? "ratio" : "");
  return unit === c.label && scaleOf(1e9, unit).name === unit ? "" : unit;
}

/** Below the point where there is room, else above it and its words, else at its side; inside the figure in any case. Without a point, lower right. */
function place(spot: Spot | null, room: { width: number; height: number }, w: number, h: number): { left: number; top: number } {
  const clamp = (v: number, most: number): number => Math.max(4, Math.min(v, most - 4));
  if (!spot) return { left: clamp(room.width - w - 10, room.width - w), top: clamp(room.height - h - 52, room.height - h) };
  const aside = spot.radius + GAP;
  const left = clamp(spot.x + GAP, room.width - w);
  if (spot.y + aside + h <= room.height - 4) return { left, top: spot.y + aside };
  if (spot.y - aside - WORDS - h >= 4) return { left, top: spot.y - aside - WORDS - h };
  const right = spot.x + aside + w <= room.width - 4;
  return { left: clamp(right ? spot.x + aside : spot.x - aside - w, room.width - w), top: clamp(room.height - h - 4, room.height - h) };
}
