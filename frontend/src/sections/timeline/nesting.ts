// What is around and inside of an event, as far as the tile that shows it knows: before the server is asked. Pure.
import { firstAfter, itemAt, stretchOf } from "./raster";
import type { Slices } from "./tile";

export interface Nesting {
  /** ns of the event directly around it; null: none, or merged with others */
  parent: number | null;
  /** ns outside of the events directly inside; null: not all of these are in the tile */
  own: number | null;
}

/** Nested events stand one lane below each other: what the lanes beside one say of item `k`. */
export function nestingOf(tile: Slices, lane: number, k: number): Nesting {
  const [start, end] = [tile.start[k]!, tile.end[k]!];
  const around = itemAt(tile, lane - 1, (start + end) / 2, 0);
  const holds = around >= 0 && tile.count[around] === 1 && tile.start[around]! <= start && tile.end[around]! >= end;
  const part = stretchOf(tile);
  const known = tile.complete && start >= part.start && end <= part.end;
  return { parent: holds ? tile.end[around]! - tile.start[around]! : null, own: known ? end - start - inside(tile, lane + 1, start, end) : null };
}

/** Time of the items of a lane between two times. */
function inside(tile: Slices, lane: number, from: number, to: number): number {
  if (lane >= tile.bounds.length - 1) return 0;
  let sum = 0;
  for (let k = firstAfter(tile, lane, from); k < tile.bounds[lane + 1]! && tile.start[k]! < to; k++) sum += Math.min(tile.end[k]!, to) - Math.max(tile.start[k]!, from);
  return sum;
}
