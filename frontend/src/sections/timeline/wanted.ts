// Which tiles a view lacks, and which are likely to be wanted next. Pure.
import type { TileCache } from "./cache";
import { AHEAD, type Wanted } from "./loader";
import { placed, type Row, type Shown, visible } from "./rows";
import { TILE } from "./tile";
import { levelOf, type Span, tilesOf } from "./viewport";

/** What is in view. span: ns of everything; px of the plot. */
export interface Seen {
  view: Span;
  span: number;
  shown: Shown;
  scroll: number;
  width: number;
  height: number;
  cache: TileCache;
}

/** Level of the tiles of a view. */
export const levelIn = (s: Pick<Seen, "view" | "width" | "cache">): number => Math.min(levelOf(s.view, s.width), s.cache.top);

/** Tracks of rows that have something to draw. */
const tracksIn = (rows: readonly Row[]): number[] => rows.filter((row) => row.lanes || row.group || row.track.kind === "counter").map((row) => row.track.track);

/** Tiles that a view lacks: those that show all of a row, then those of its own level. */
export function lacking(s: Seen): Wanted[] {
  const z = levelIn(s);
  const [first, last] = tilesOf(s.view, z, s.span);
  const seen = tracksIn(placed(s.shown, s.scroll, s.height).map(({ row }) => row));
  const overview = seen.filter((track) => !s.cache.has(track, s.cache.top, 0));
  const out: Wanted[] = overview.length ? [{ z: s.cache.top, from: 0, to: 0, tracks: overview, rank: 0 }] : [];
  const tracks = new Set<number>();
  let [from, to] = [last, first];
  for (const track of seen) {
    for (let i = first; i <= last; i++) {
      if (s.cache.covering(track, z, i).sharp) continue;
      tracks.add(track);
      [from, to] = [Math.min(from, i), Math.max(to, i)];
    }
  }
  if (tracks.size) out.push({ z, from, to, tracks: [...tracks].sort((a, b) => a - b), rank: 1 });
  return out;
}

/** Tiles that are likely to be wanted next: one on each side, those of the rows a screen above and below, and nearer ones at the pointer. */
export function ahead(s: Seen, pointer: number): Wanted[] {
  const z = levelIn(s);
  const [first, last] = tilesOf(s.view, z, s.span);
  const most = Math.floor(s.span / 2 ** (z + TILE));
  const seen = tracksIn(placed(s.shown, s.scroll, s.height).map(({ row }) => row));
  const [from, to] = visible(s.shown.rows, s.scroll - s.height, s.scroll + 2 * s.height);
  const near = tracksIn(s.shown.rows.slice(from, to)).filter((t) => !seen.includes(t));
  const out: Wanted[] = [];
  for (const i of [first - 1, last + 1]) if (i >= 0 && i <= most) out.push({ z, from: i, to: i, tracks: seen, rank: AHEAD });
  if (near.length) out.push({ z: s.cache.top, from: 0, to: 0, tracks: near, rank: AHEAD }, { z, from: first, to: last, tracks: near, rank: AHEAD });
  const i = Math.floor(pointer / 2 ** (z - 1 + TILE));
  if (z > 0 && i >= 0 && i * 2 ** (z - 1 + TILE) <= s.span) out.push({ z: z - 1, from: i, to: i, tracks: seen, rank: AHEAD + 1 });
  return out.filter((one) => one.tracks.length);
}
