// Words on items: only where there is room, the widest first, cut to the room there is. Pure but for the measuring of letters.
import { human } from "../../units";
import { categoryOf } from "./names";
import { firstAfter } from "./raster";
import type { Slices } from "./tile";
import { lengthOf, type Span } from "./viewport";

/** px of an item from which on it can carry words. */
export const LEAST = 24;
export const MOST = 500;
const PAD = 4;

export interface Label {
  x: number;
  y: number;
  width: number;
  height: number;
  name: number;
  category: number;
  event: number;
  /** of a row above the scroll area */
  pinned: boolean;
}

/** Candidates of one lane. y, height: of the lane in px; width: of the view. */
export function collect(out: Label[], tile: Slices, lane: number, view: Span, width: number, y: number, height: number, from: number, to: number, categories: Uint8Array, pinned = false): void {
  if (lane >= tile.bounds.length - 1) return;
  const scale = width / lengthOf(view);
  const least = LEAST / scale;
  const last = tile.bounds[lane + 1]!;
  for (let k = firstAfter(tile, lane, Math.max(from, view.start)); k < last; k++) {
    const start = tile.start[k]!;
    if (start >= to || start >= view.end) break;
    const end = tile.end[k]!;
    if (end - start < least || tile.count[k]! > 1) continue;
    const x0 = Math.max(0, (Math.max(start, from) - view.start) * scale);
    const x1 = Math.min(width, (Math.min(end, to) - view.start) * scale);
    if (x1 - x0 >= LEAST) out.push({ x: x0, y, width: x1 - x0, height, name: tile.name[k]!, category: categoryOf(categories, tile.name[k]!), event: tile.event[k]!, pinned });
  }
}

/** The widest ones; parts of one event that several tiles gave are joined. */
export function chosen(all: Label[]): Label[] {
  const joined: Label[] = [];
  const ends = new Map<string, Label>();
  for (const one of all) {
    const key = `${one.y}/${one.event}`;
    const before = ends.get(key);
    if (before && Math.abs(before.x + before.width - one.x) < 1.5) before.width = one.x + one.width - before.x;
    else {
      joined.push(one);
      ends.set(key, one);
    }
  }
  return joined.length <= MOST ? joined : joined.sort((a, b) => b.width - a.width).slice(0, MOST);
}

/** Cuts texts to widths, by measured widths of whole texts and of single letters. */
export class Cutter {
  private readonly widths = new Map<string, number>();

  constructor(private readonly measure: (text: string) => number) {}

  widthOf(text: string): number {
    let found = this.widths.get(text);
    if (found === undefined) {
      if (this.widths.size > 20_000) this.widths.clear();
      found = this.measure(text);
      this.widths.set(text, found);
    }
    return found;
  }

  fits(text: string, width: number): boolean {
    return this.widthOf(text) <= width - 2 * PAD;
  }

  /** A text that fits into `width` px less a little room, "" where not even a few letters do. */
  cut(text: string, width: number): string {
    const room = width - 2 * PAD;
    if (room < 12) return "";
    const short = text.length > 200 ? text.slice(0, 200) : text;
    if (this.widthOf(short) <= room) return short;
    let left = room - this.widthOf("…");
    let letters = 0;
    for (const letter of short) {
      left -= this.widthOf(letter);
      if (left < 0) break;
      letters += letter.length;
    }
    return letters < 2 ? "" : `${short.slice(0, letters)}…`;
  }
}

export { PAD };

/** How long there is nothing between two events, or how far they overlap. */
export function gapText(a: Span, b: Span): string {
  const gap = Math.max(a.start, b.start) - (a.start <= b.start ? a.end : b.end);
  return gap >= 0 ? `gap ${human(gap, "ns")}` : `overlap ${human(-gap, "ns")}`;
}
