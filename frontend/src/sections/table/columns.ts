// The layout of a table's columns: which are shown, one unit and one count of decimals each, the room they need.
import type { Column, TableSection } from "../../api/types";
import type { TableState } from "../../state/codec";
import { callScale, columnScale, columnUnit, inColumn, type ColumnScale, type Scale } from "../../units";
import { cell, columnValues, rowCount, sortOf, textual } from "./model";

export interface ColumnLayout {
  column: Column;
  scale: ColumnScale;
  heading: string;
  numeric: boolean;
  /** the value at which an in-cell bar is full */
  full: number;
  width: number;
  /** px needed by the heading on one line */
  head: number;
  /** px needed with the heading on two lines */
  tight: number;
}

const BAR: Record<string, number> = { bar: 78, stack: 78, efficiency: 64 };
const FLOOR: Record<string, number> = { tree: 240, symbol: 210, code: 210, shapes: 130, text: 120 };
/** px that the first column of names gets before further columns are shown. */
const READABLE = 280;
const LEAST_BAR = 30;
/** px that names in the first column keep in a table that does not fit however narrow they are: it scrolls beside them. */
const BESIDE = 170;
/** part of a name's floor that is left where even headings on two lines do not fit */
const SQUEEZED = 0.7;
const SAMPLE = 400;
const MONO = 7.25;
const SANS = 7.1;

/** px up to which a text, such as a kind of memory, is never cut. */
const SHORT = 150;
const isShort = (l: ColumnLayout): boolean => !l.numeric && (l.column.show ?? "text") === "text" && l.width <= SHORT;
/** Whether a column is shown whole or not at all: badges and short texts. */
const isWhole = (l: ColumnLayout): boolean => isShort(l) || !((l.column.show ?? "text") in FLOOR);
/** px that a column of names keeps when others need room. */
const floorOf = (l: ColumnLayout): number => (isShort(l) ? l.width : (FLOOR[l.column.show ?? "text"] ?? l.width));
export const hasBar = (c: Column): boolean => (c.show ?? "number") in BAR;

/** The columns to draw in `room` px: the first rank and what the reader chose, then as many of the second rank as fit. */
export function columnsFor(s: TableSection, state: TableState, room: number): ColumnLayout[] {
  const all = layoutOf(s);
  const lead = s.columns.find((c) => (c.rank ?? 1) < 3) ?? s.columns[0];
  const least = (c: Column): number => {
    const l = all.get(c.name)!;
    return l.numeric ? l.width : Math.min(l.width, c === lead ? Math.max(READABLE, floorOf(l)) : floorOf(l));
  };
  const sure = s.columns.filter((c) => c === lead || (state.columns[c.name] ?? (c.rank ?? 1) === 1));
  let used = sure.reduce((sum, c) => sum + least(c), 2 * AT_EDGE + (sortOf(s, state) ? ARROW : 0));
  const more = s.columns.filter((c) => {
    if (sure.includes(c) || state.columns[c.name] === false || (c.rank ?? 1) !== 2) return false;
    const fits = used + least(c) <= room;
    if (fits) used += least(c);
    return fits;
  });
  const sorted = sortOf(s, state)?.column;
  return s.columns.filter((c) => sure.includes(c) || more.includes(c)).map((c, i, shown) => inPlace(all.get(c.name)!, i === 0 || i === shown.length - 1, c.name === sorted));
}

/** px that the first and the last column have at the edge of the card, beyond the others. */
const AT_EDGE = 8;
/** px of the arrow in the heading of the column that is sorted. */
const ARROW = 15;

/** A column with the room that its place and its arrow need. */
function inPlace(l: ColumnLayout, edge: boolean, sorted: boolean): ColumnLayout {
  const more = edge ? AT_EDGE : 0;
  const arrow = sorted ? ARROW : 0;
  if (!more && !arrow) return l;
  const head = l.head + more + arrow;
  return { ...l, head, width: Math.max(l.width + more, Math.min(head, l.numeric ? head : 160 + more)), tight: Math.max(l.tight + more, headRoom(twoLines(l.heading)) - 6 + more + arrow) };
}

const cache = new WeakMap<TableSection, Map<string, ColumnLayout>>();

/** The layout of a section's columns; computed once per section. */
export function layoutOf(s: TableSection): Map<string, ColumnLayout> {
  const known = cache.get(s);
  if (known) return known;
  const widest: Record<string, Scale> = {};
  const apart = unscaledRows(s);
  for (const c of s.columns) {
    if ((c.unit !== "ns" && c.unit !== "B") || c.per) continue;
    const scale = columnUnit(columnValues(s, c.name).reduce<number>((top, v, i) => (!apart.has(i) && typeof v === "number" && Math.abs(v) > top ? Math.abs(v) : top), 0), c.unit);
    if (!widest[c.unit] || scale.factor > widest[c.unit]!.factor) widest[c.unit] = scale;
  }
  const single = s.columns.filter((c) => c.per === "call" && c.unit === "ns");
  const calls = callScale(single.flatMap((c) => columnValues(s, c.name).filter((v): v is number => typeof v === "number")));
  const out = new Map(s.columns.map((c) => [c.name, layoutColumn(s, c, widest[c.unit ?? ""], apart, single.includes(c) ? calls : undefined)]));
  cache.set(s, out);
  return out;
}

/** Indices of the rows that do not count for the scale of a column. */
function unscaledRows(s: TableSection): ReadonlySet<number> {
  const keys = new Set(s.apart ?? []);
  if (!keys.size || !s.key || s.pages) return new Set(); // what stands for rows in pages leaves them out
  return new Set((s.data[s.key] ?? []).flatMap((k, i) => (keys.has(String(k)) ? [i] : [])));
}

function layoutColumn(s: TableSection, c: Column, neighbor: Scale | undefined, apart: ReadonlySet<number>, fixed: Scale | undefined): ColumnLayout {
  const values = columnValues(s, c.name);
  const show = c.show ?? "number";
  const unit = c.unit ?? (show === "share" || show === "efficiency" ? "ratio" : "");
  const numbers = values.filter((v, i): v is number => typeof v === "number" && !apart.has(i));
  const numeric = !textual(c) && (numbers.length > 0 || values.every((v) => v === null) || unit !== "");
  const total = s.total?.[c.name];
  const scale = columnScale(typeof total === "number" ? [...numbers, total] : numbers, unit, neighbor, !s.total, fixed);
  let full = 0;
  for (const v of numbers) if (v > full) full = v;
  if (s.pages) full = Math.max(full, s.pages.full?.[c.name] ?? 0);
  else if (show === "stack" && c.parts?.length) {
    for (let i = 0; i < rowCount(s); i++) {
      if (apart.has(i)) continue;
      const sum = c.parts.reduce((a, p) => a + (Number(cell(s, p, i)) || 0), 0);
      if (sum > full) full = sum;
    }
  }
  const heading = !scale.name || !numeric ? c.label : c.label === unit ? scale.name : `${c.label}, ${scale.name}`;
  const head = headRoom(heading.length);
  return { column: c, scale, heading, numeric, full, head, width: widthOf(s, c, scale, numeric, head), tight: widthOf(s, c, scale, numeric, headRoom(twoLines(heading)) - 6) };
}

const headRoom = (letters: number): number => letters * 6.7 + 26;

/** Letters of the longer line where a heading breaks best into two. */
export function twoLines(heading: string): number {
  let best = heading.length;
  for (let i = heading.indexOf(" "); i > 0; i = heading.indexOf(" ", i + 1)) best = Math.min(best, Math.max(i, heading.length - i - 1));
  return best;
}

/** Pixels that hold the heading and nearly every value; names are cut in the middle beyond their limit. */
function widthOf(s: TableSection, c: Column, scale: ColumnScale, numeric: boolean, head: number): number {
  const values = columnValues(s, c.name);
  const show = c.show ?? "number";
  const mono = ["code", "symbol", "tree", "shapes"].includes(show);
  const stride = Math.max(1, Math.floor(values.length / SAMPLE));
  const lengths: number[] = [];
  for (let i = 0; i < values.length; i += stride) {
    const v = values[i];
    if (v === null || v === undefined) lengths.push(1);
    else if (typeof v === "number" && numeric) lengths.push(inColumn(v, scale).length);
    else lengths.push(show === "shapes" ? shapeText(String(v)).length : String(v).length);
  }
  const total = s.total?.[c.name];
  if (typeof total === "number" && numeric) lengths.push(inColumn(total, scale).length + 1);
  const label = typeof total === "string" ? total.length * SANS + 28 : 0;
  lengths.sort((a, b) => a - b);
  const typical = lengths[show === "badge" ? lengths.length - 1 : Math.ceil((lengths.length - 1) * 0.97)] ?? 1; // a badge is never cut
  if (numeric) return Math.max(head, typical * SANS + 20 + (BAR[show] ?? 0) + (BAR[show] ? 10 : 0));
  const extra = show === "tree" ? 110 : show === "symbol" ? 26 : show === "badge" ? 26 : 0;
  const most = show === "tree" || show === "code" || show === "symbol" ? 430 : show === "shapes" ? 280 : 320;
  return Math.max(Math.min(typical * (mono ? MONO : SANS) + 26 + extra, most), Math.min(head, 160), Math.min(label, 200), 56);
}

/**
 * Pixel widths that fill `room`: names and bars give way down to their floors, then headings take two lines (`tall`) and names
 * go somewhat below their floors; what is left over goes to names and bars. Where all of that is not enough the table
 * scrolls beside its first column, which is then wide enough to tell names apart.
 */
export function fit(columns: readonly ColumnLayout[], room: number): { widths: number[]; tall: boolean } {
  const widths = columns.map((c) => c.width);
  const spare = room - widths.reduce((a, b) => a + b, 0);
  if (spare < 0) {
    const bars = (c: ColumnLayout): number => Math.max(0, Math.min((BAR[c.column.show ?? "number"] ?? 0) - LEAST_BAR, c.width - c.head));
    const give = columns.map((c, i) => (c.numeric ? bars(c) : Math.max(0, widths[i]! - floorOf(c))));
    const most = give.reduce((a, b) => a + b, 0);
    const part = most > 0 ? Math.min(1, -spare / most) : 0;
    const given = widths.map((w, i) => w - give[i]! * part);
    const over = given.reduce((a, b) => a + b, 0) - room;
    if (over <= 0) return { widths: given.map(Math.floor), tall: false };
    const heads = columns.map((c, i) => (c.numeric ? Math.max(0, given[i]! - Math.max(56, c.tight - bars(c))) : 0));
    const all = heads.reduce((a, b) => a + b, 0);
    const names = columns.map((c, i) => (c.numeric ? 0 : Math.max(0, given[i]! - (isWhole(c) ? given[i]! : SQUEEZED * floorOf(c)))));
    const rest = names.reduce((a, b) => a + b, 0);
    const least = (i: number): number => (over > all + rest && i === 0 && !columns[0]!.numeric ? Math.min(widths[0]!, BESIDE) : 0);
    const [head, name] = [all > 0 ? Math.min(1, over / all) : 0, rest > 0 ? Math.min(1, Math.max(0, over - all) / rest) : 0];
    return { widths: given.map((w, i) => Math.floor(Math.max(w - heads[i]! * head - names[i]! * name, least(i)))), tall: all > 0 };
  }
  const want = columns.map((c, i) => (i === 0 ? 3 : hasBar(c.column) ? 2 : c.numeric ? 1 : 1.5) * widths[i]!);
  const sum = want.reduce((a, b) => a + b, 0) || 1;
  return { widths: widths.map((w, i) => w + (spare * want[i]!) / sum), tall: false };
}

/** `[[16, 5185, 64], [8]]` as `16×5185×64 8`; any other text stays. */
export function shapeText(text: string): string {
  const trimmed = text.trim();
  if (!/^[[(]/.test(trimmed)) return text;
  const inner = /^\[\s*[[(]/.test(trimmed) || /^\(\s*[[(]/.test(trimmed) ? trimmed.slice(1, -1) : trimmed;
  const groups = [...inner.matchAll(/[[(]([\d\s,]*)[\])]/g)].map((m) => m[1]!.split(",").map((d) => d.trim()).filter(Boolean).join("×")).filter(Boolean);
  return groups.length ? groups.join(" ") : text.replace(/[[\]]/g, "").trim() || "—";
}
