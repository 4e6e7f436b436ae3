// What a counter or a group shows at a time, in words, from the tiles that are here. Pure.
import type { Category, Track } from "../../api/timeline";
import { human } from "../../units";
import type { Covering } from "./cache";
import type { Counter, Summary } from "./tile";

const NONE = 255;

/** Rows of a card: of a counter its value, of a worker, process or device how busy it is; null where nothing is known. */
export function readingOf(track: Track, covering: Covering, time: number, categories: readonly Category[]): [string, string][] | null {
  const tile = covering.finer.find((one) => Math.floor(time / 2 ** (one.z + 10)) === one.i) ?? covering.tile;
  if (tile?.kind === "counter") return valueAt(tile, time, track.unit);
  return tile?.kind === "summary" ? useAt(tile, time, categories) : null;
}

function valueAt(tile: Counter, time: number, unit: string): [string, string][] | null {
  let [low, high] = [0, tile.time.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.time[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  const k = low - 1;
  const value = k < 0 ? tile.before : tile.last[k]!;
  if (value === null) return null;
  const spread = k >= 0 && time < tile.time[k]! + 2 ** tile.z && tile.low[k]! < tile.high[k]!; // several samples in one bucket
  return [["Value", human(value, unit)], ...(spread ? [["Within a pixel", `${human(tile.low[k]!, unit)} to ${human(tile.high[k]!, unit)}`] as [string, string]] : [])];
}

function useAt(tile: Summary, time: number, categories: readonly Category[]): [string, string][] | null {
  const k = Math.floor(time / 2 ** tile.z) - tile.i * tile.category.length;
  if (!(k >= 0 && k < tile.category.length)) return null;
  const kind = tile.category[k] === NONE ? undefined : categories[tile.category[k]!];
  return [["Busy", human(tile.busy[k]! / 255, "ratio")], ...(kind ? [["Mostly", kind.label.toLowerCase()] as [string, string]] : []), ...(tile.depth[k]! > 1 ? [["Deepest", human(tile.depth[k]!, "count")] as [string, string]] : [])];
}
