// Figures whose x axis is time: dragging chooses a window, clicking a moment, as values of query fields. Pure.
import type { FigureSection, Stretch, Zoom } from "../../api/types";

const UNITS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
/** A window is written to this part of its length: finer than a pixel. */
const PARTS = 1e5;

function unitOf(ns: number): [number, string] {
  return UNITS.find(([size]) => Math.abs(ns) >= size) ?? [1, "ns"];
}

/** `12.345ms`: in steps of about `fine` ns, whole nanoseconds at the finest. */
function timeText(ns: number, unit: [number, string], fine: number): string {
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
  return `${timeText(a, unit, fine)}-${timeText(b, unit, fine)}`;
}

/** A moment of the axis; `width` is the length of the axis, so that the text is as fine as a pixel is. */
export function momentText(x: number, width: number, zoom: Zoom): string | null {
  const scale = zoom.scale ?? 1;
  const ns = Math.round(x * scale);
  return Number.isFinite(ns) ? timeText(ns, unitOf(ns), (Math.abs(width) * scale) / PARTS) : null;
}

/** The x range of a finished drag; null for other changes of the layout. */
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

/** The subtitle of a figure, and what dragging and clicking do where they change the page. */
export function figureSubtitle(s: FigureSection): string {
  const acts = s.zoom ? `drag to select a window${s.zoom.at ? ", click to select a moment" : ""}: the whole page follows` : "";
  return [s.subtitle, acts].filter(Boolean).join("; ");
}
