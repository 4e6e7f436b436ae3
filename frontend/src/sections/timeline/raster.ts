// Items of lanes as runs of pixels, one row of pixels per lane: the picture is scaled up to the heights of the lanes when it is drawn. Pure.
import { channels, type Paint, shadeOf, type Stripes, stripesOf } from "./colors";
import type { Counter, Slices, Summary, Tile } from "./tile";
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
  /** categories are striped, too */
  striped: boolean;
}

export const PLAIN: Emphasis = { same: -1, found: null, striped: false };

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
      if (how.striped) stripe(pixels, base, x0, x1 - 1, paint.stripe[category]!, stripesOf(category));
      pixels[base + x1 - 1] = paint.edge[category]!;
    }
  }
  return drawn;
}

/** Draws the stripes of a category over a run of pixels; they stand at the same places of the screen in every run. */
function stripe(pixels: Uint32Array, base: number, x0: number, x1: number, color: number, { period, at }: Stripes): void {
  for (const offset of at) for (let x = x0 + ((((offset - x0) % period) + period) % period); x < x1; x += period) pixels[base + x] = color;
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
  const [first, last] = [Math.max(from, origin), Math.min(to, origin + bucket * tile.busy.length)]; // outside of its buckets nothing is known
  const [low, high] = [Math.max(0, Math.floor((first - view.start) / step)), Math.min(width, Math.ceil((last - view.start) / step))];
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

/** The lowest and highest value of a counter in each column of pixels; NaN where it is not known. It keeps its value from point to point. */
export class Level {
  readonly low: Float64Array;
  readonly high: Float64Array;
  private value: number | null = null;
  /** column from which on nothing is known yet */
  private at = 0;

  constructor(private readonly view: Span, private readonly width: number) {
    this.low = new Float64Array(width).fill(NaN);
    this.high = new Float64Array(width).fill(NaN);
  }

  private column(time: number): number {
    return Math.max(0, Math.min(this.width, Math.floor(((time - this.view.start) / lengthOf(this.view)) * this.width)));
  }

  private extend(x: number, low: number, high: number): void {
    if (x >= this.width) return;
    if (!(this.low[x]! <= low)) this.low[x] = low;
    if (!(this.high[x]! >= high)) this.high[x] = high;
  }

  /** The last value holds until a time. */
  until(time: number): void {
    const end = this.column(time);
    if (this.value !== null) for (let x = this.at; x < end; x++) this.extend(x, this.value, this.value);
    this.at = Math.max(this.at, end);
  }

  /** Points of a tile between two times, after those before it. */
  add(tile: Counter, from: number, to: number): void {
    if (this.value === null && tile.before !== null) {
      this.until(from);
      this.value = tile.before;
    }
    for (let k = 0; k < tile.time.length; k++) {
      const time = tile.time[k]!;
      if (time >= to) break;
      if (time >= from && time >= this.view.start && time <= this.view.end) {
        this.until(time);
        const x = this.column(time);
        if (this.value !== null) this.extend(x, this.value, this.value);
        this.extend(x, tile.low[k]!, tile.high[k]!);
      }
      this.value = tile.last[k]!;
    }
  }
}

/** Part of a counter's color that fills the room below its line. */
const AREA = 0.16;

/** Draws a counter into `rows` rows of pixels from `row` on, between two values. ratio: device pixels of a CSS pixel, of the line. */
export function drawLevel(raster: Raster, row: number, rows: number, level: Level, least: number, most: number, color: string, ratio: number): void {
  const { width, pixels } = raster;
  const [r, g, b] = channels(color);
  const line = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const area = ((Math.round(255 * AREA) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const thick = Math.max(1, Math.round(ratio));
  const scale = (rows - thick) / Math.max(most - least, 1e-30);
  const yOf = (value: number): number => Math.max(0, Math.min(rows - thick, Math.round((most - value) * scale)));
  for (let x = 0; x < width; x++) {
    const [low, high] = [level.low[x]!, level.high[x]!];
    if (!(high >= low)) continue;
    const [top, bottom] = [yOf(high), yOf(low) + thick];
    for (let y = top; y < bottom; y++) pixels[(row + y) * width + x] = line;
    for (let y = bottom; y < rows; y++) pixels[(row + y) * width + x] = area;
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
