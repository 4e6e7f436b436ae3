// Items of lanes as runs of pixels, one row of pixels per lane: the picture is scaled up to the heights of the lanes when it is drawn. Pure.
import { type Paint, shadeOf } from "./colors";
import type { Slices, Summary, Tile } from "./tile";
import { lengthOf, type Span } from "./viewport";

/** A buffer of pixels, `width` per row. */
export interface Raster {
  pixels: Uint32Array;
  width: number;
}

export interface Emphasis {
  /** names that are brightened, or null */
  same: number;
  /** names that a search found; others fade */
  found: ReadonlySet<number> | null;
}

export const PLAIN: Emphasis = { same: -1, found: null };

/** Pixels from which on an item has a lighter one at its right end. */
const EDGED = 4;

/** First item of a lane that ends after a time. Items of a lane are in order and do not overlap. */
export function firstAfter(tile: Slices, lane: number, time: number): number {
  let [low, high] = [tile.bounds[lane]!, tile.bounds[lane + 1]!];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.end[middle]! > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Draws the items of one lane into one row of a raster, between `from` and `to` (ns) only. categories: place of each name's category.
 * Returns how many items were drawn.
 */
export function drawLane(raster: Raster, row: number, tile: Slices, lane: number, view: Span, from: number, to: number, categories: Uint8Array, paint: Paint, how: Emphasis): number {
  if (lane >= tile.bounds.length - 1) return 0;
  const { width, pixels } = raster;
  const scale = width / lengthOf(view);
  const base = row * width;
  const [low, high] = [Math.max(0, Math.floor((from - view.start) * scale)), Math.min(width, Math.ceil((to - view.start) * scale))];
  let drawn = 0;
  const last = tile.bounds[lane + 1]!;
  for (let k = firstAfter(tile, lane, Math.max(from, view.start)); k < last; k++) {
    const start = tile.start[k]!;
    if (start >= to || start >= view.end) break;
    const x0 = Math.max(low, Math.floor((start - view.start) * scale));
    let x1 = Math.min(high, Math.round((tile.end[k]! - view.start) * scale));
    if (x1 <= x0) x1 = x0 + 1;
    if (x0 >= high) continue;
    drawn++;
    const name = tile.name[k]!;
    const category = categories[name] ?? 0;
    const color = how.same === name ? paint.bright[category]! : how.found && !how.found.has(name) ? paint.faded[category]! : tile.count[k]! > 1 ? shadeOf(paint, category, tile.busy[k]!) : shadeOf(paint, category, 255);
    if (x1 - x0 < EDGED) for (let x = x0; x < x1; x++) pixels[base + x] = color;
    else {
      pixels.fill(color, base + x0, base + x1 - 1);
      pixels[base + x1 - 1] = paint.edge[category]!;
    }
  }
  return drawn;
}

/** Clears a stretch of one row. */
export function clearStretch(raster: Raster, row: number, view: Span, from: number, to: number): void {
  const scale = raster.width / lengthOf(view);
  const x0 = Math.max(0, Math.floor((from - view.start) * scale));
  const x1 = Math.min(raster.width, Math.ceil((to - view.start) * scale));
  if (x1 > x0) raster.pixels.fill(0, row * raster.width + x0, row * raster.width + x1);
}

/** Draws a summary into `rows` rows of pixels from `row` on: as high as the busy share of each bucket, in the color of most of its time. */
export function drawSummary(raster: Raster, row: number, rows: number, tile: Summary, view: Span, from: number, to: number, paint: Paint): void {
  const { width, pixels } = raster;
  const bucket = 2 ** tile.z;
  const origin = tile.i * bucket * tile.busy.length;
  const step = lengthOf(view) / width;
  const [low, high] = [Math.max(0, Math.floor((from - view.start) / step)), Math.min(width, Math.ceil((to - view.start) / step))];
  for (let x = low; x < high; x++) {
    const left = view.start + x * step;
    const a = Math.max(0, Math.floor((left - origin) / bucket));
    const b = Math.min(tile.busy.length - 1, Math.max(a, Math.ceil((left + step - origin) / bucket) - 1));
    let [busy, most, sum] = [0, -1, 0];
    for (let k = a; k <= b; k++) {
      const value = tile.busy[k]!;
      sum += value;
      if (tile.category[k]! !== 255 && value >= most) [most, busy] = [value, tile.category[k]!];
    }
    if (most < 0) continue;
    const share = sum / (b - a + 1) / 255;
    const tall = Math.max(1, Math.round(share * rows));
    const color = shadeOf(paint, busy, 255);
    for (let y = rows - tall; y < rows; y++) pixels[(row + y) * width + x] = color;
  }
}

/** The stretch of time that a tile is about. */
export const stretchOf = (tile: Tile): Span => {
  const width = 2 ** (tile.z + 10);
  return { start: tile.i * width, end: (tile.i + 1) * width };
};

/** An item at a place: its index, or -1. near: ns that a hit may miss by. */
export function itemAt(tile: Slices, lane: number, time: number, near: number): number {
  if (lane < 0 || lane >= tile.bounds.length - 1) return -1;
  const [low, high] = [tile.bounds[lane]!, tile.bounds[lane + 1]!];
  const k = firstAfter(tile, lane, time);
  if (k < high && tile.start[k]! <= time) return k;
  const after = k < high ? tile.start[k]! - time : Infinity;
  const before = k > low ? time - tile.end[k - 1]! : Infinity;
  if (Math.min(after, before) > near) return -1;
  return after <= before ? k : k - 1;
}
