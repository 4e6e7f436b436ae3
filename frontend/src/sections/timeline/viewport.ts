// The visible stretch of time: moving it, zooming it, and the tiles and ticks it needs. Pure; times are ns after the origin.
import { TILE } from "./tile";

export interface Span {
  start: number;
  end: number;
}

/** The shortest stretch that can be shown. */
export const SHORTEST = 20;
/** How far past the recording's ends the view may go, as a part of its own length. */
const BEYOND = 0.02;

export const lengthOf = (s: Span): number => s.end - s.start;

/** A stretch moved and cut so that it stays on the recording, with a little room at its ends. */
export function inside(view: Span, all: Span): Span {
  const room = Math.max(lengthOf(all), 1);
  const length = Math.min(Math.max(lengthOf(view), SHORTEST), room * (1 + 2 * BEYOND));
  const beyond = Math.min(length, room) * BEYOND;
  const middle = (view.start + view.end) / 2;
  const start = Math.min(Math.max(middle - length / 2, all.start - beyond), all.end + beyond - length);
  return { start, end: start + length };
}

/** Shorter by `factor` below 1, longer above; the time at `at` stays where it is. */
export function zoomed(view: Span, factor: number, at: number, all: Span): Span {
  const length = Math.min(Math.max(lengthOf(view) * factor, SHORTEST), lengthOf(all) * (1 + 2 * BEYOND));
  const scale = length / lengthOf(view);
  const start = at - (at - view.start) * scale;
  return inside({ start, end: start + length }, all);
}

export const moved = (view: Span, by: number, all: Span): Span => inside({ start: view.start + by, end: view.end + by }, all);

/** A stretch with room around it; one without length gets a little. */
export function around(part: Span, all: Span, room = 0.08): Span {
  const length = Math.max(lengthOf(part), SHORTEST);
  return inside({ start: part.start - length * room, end: part.start + length * (1 + room) }, all);
}

/** Level of tiles whose buckets are half a CSS pixel to one. */
export const levelOf = (view: Span, width: number): number => Math.max(0, Math.floor(Math.log2(lengthOf(view) / Math.max(width, 1))));

/** Level at which one tile holds the whole recording. */
export function topOf(span: number): number {
  let z = 0;
  while (2 ** (z + TILE) < span + 1) z++;
  return z;
}

/** First and last tile of a level that a stretch touches, within the recording. */
export function tilesOf(view: Span, z: number, span: number): [number, number] {
  const width = 2 ** (z + TILE);
  const last = Math.max(0, Math.floor(span / width));
  const clamp = (i: number): number => Math.min(Math.max(i, 0), last);
  return [clamp(Math.floor(view.start / width)), clamp(Math.ceil(view.end / width) - 1)];
}

export interface Tick {
  time: number;
  text: string;
}

const STEPS = [1, 2, 5];
const UNITS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** px of a letter of a tick, at most, and between two ticks. */
const LETTER = 6.4;
const BETWEEN = 28;

/** Ticks at round times, at least `apart` px from each other and as far as their texts need; the first names the unit. */
export function ticksOf(view: Span, width: number, apart = 84): Tick[] {
  const least = (lengthOf(view) / Math.max(width, 1)) * apart;
  let step = 1;
  for (let power = 0; power < 20 && step < least; power++) for (const s of STEPS) if ((step = s * 10 ** power) >= least) break;
  const first = Math.ceil(view.start / step);
  const last = Math.floor(view.end / step);
  const [factor, unit] = UNITS.find(([f]) => step >= f) ?? UNITS.at(-1)!;
  const needed = (group((first * step) / factor).length + unit.length) * LETTER + BETWEEN;
  if (apart < needed) return ticksOf(view, width, needed);
  const out: Tick[] = [];
  for (let k = first; k <= last && out.length < 60; k++) {
    const value = (k * step) / factor;
    out.push({ time: k * step, text: `${group(value)}${out.length ? "" : `\u202f${unit}`}` });
  }
  return out;
}

function group(value: number): string {
  const text = String(Math.abs(Math.round(value * 1e6) / 1e6)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  return (value < 0 ? "\u2212" : "") + text;
}

/** Where a time stands, in px. */
export const xOf = (time: number, view: Span, width: number): number => ((time - view.start) / lengthOf(view)) * width;
export const timeOf = (x: number, view: Span, width: number): number => view.start + (x / Math.max(width, 1)) * lengthOf(view);

/** The zoom history: places to go back and forward to. */
export class Places {
  private back: Span[] = [];
  private ahead: Span[] = [];

  leave(view: Span): void {
    const last = this.back.at(-1);
    if (!last || last.start !== view.start || last.end !== view.end) this.back.push(view);
    if (this.back.length > 100) this.back.shift();
    this.ahead = [];
  }

  step(direction: -1 | 1, now: Span): Span | null {
    const [from, to] = direction < 0 ? [this.back, this.ahead] : [this.ahead, this.back];
    const found = from.pop();
    if (!found) return null;
    to.push(now);
    return found;
  }
}
