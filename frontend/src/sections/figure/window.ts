// Figures whose x axis is time: a drag chooses a window, a click a moment, as text of the page's query. Pure.
import type { FigureSection, Stretch, Zoom } from "../../api/types";

const UNITS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
/** A window is written with so many digits of its own length: finer than a pixel. */
const PARTS = 1e5;

function unitOf(ns: number): [number, string] {
  return UNITS.find(([size]) => Math.abs(ns) >= size) ?? [1, "ns"];
}

/** `12.345ms`: whole nanoseconds at the finest, no finer than `fine` ns asks for. */
function said(ns: number, unit: [number, string], fine: number): string {
  const [size, name] = unit;
  const decimals = Math.max(0, Math.min(Math.round(Math.log10(size)), Math.ceil(Math.log10(size / Math.max(fine, 1)))));
  return `${Number((ns / size).toFixed(decimals))}${name}`;
}

/** The window between two places of the axis; null where it has no length. */
export function windowText(ends: readonly [number, number], zoom: Zoom): string | null {
  const [a, b] = ends.map((x) => Math.round(x * (zoom.scale ?? 1))).sort((x, y) => x - y) as [number, number];
  if (!Number.isFinite(a) || !Number.isFinite(b) || b - a < 1) return null;
  const unit = unitOf(Math.max(Math.abs(a), Math.abs(b)));
  const fine = (b - a) / PARTS;
  return `${said(a, unit, fine)}-${said(b, unit, fine)}`;
}

/** A moment of the axis; `width` is the length of the axis, so that the text is as fine as a pixel is. */
export function momentText(x: number, width: number, zoom: Zoom): string | null {
  const scale = zoom.scale ?? 1;
  const ns = Math.round(x * scale);
  return Number.isFinite(ns) ? said(ns, unitOf(ns), (Math.abs(width) * scale) / PARTS) : null;
}

/** The x range that a finished drag asks for; null where it asks for something else. */
export function draggedRange(changes: Record<string, unknown>): [number, number] | null {
  const ends = changes["xaxis.range"] ?? [changes["xaxis.range[0]"], changes["xaxis.range[1]"]];
  if (!Array.isArray(ends) || ends.length !== 2 || !ends.every((e) => typeof e === "number" && Number.isFinite(e))) return null;
  return ends as [number, number];
}

/** The first stretch whose row is selected in its table. */
export function coveredBy(stretches: Record<string, Record<string, Stretch>> | undefined, rowOf: (table: string) => string): Stretch | null {
  for (const [table, rows] of Object.entries(stretches ?? {})) {
    const row = rowOf(table);
    if (row && Object.hasOwn(rows, row)) return rows[row]!;
  }
  return null;
}

/** The section's own words, and what dragging and clicking do where they ask for more than the figure. */
export function figureSubtitle(s: FigureSection): string {
  const acts = s.zoom ? `drag to look at a part${s.zoom.at ? ", click at a moment" : ""}: the page follows` : "";
  return [s.subtitle, acts].filter(Boolean).join("; ");
}
