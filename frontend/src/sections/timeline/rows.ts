// The rows of the timeline: which tracks are shown, opened, pinned, and where each row and lane stands. Pure.
import type { Track } from "../../api/timeline";

export const LANE = 19;
export const STREAM = 26;
export const GROUP = 26;
export const COUNTER = 44;
export const CLOSED = 22;
const GAP = 5;

/** What a person has changed of the rows: paths of tracks. */
export interface Arrangement {
  pinned: readonly string[];
  hidden: readonly string[];
  /** open or closed unlike they were at first */
  toggled: readonly string[];
  /** words that the path of a track or of one below it must hold */
  find: string;
  layout: Layout;
}

/** "": by worker and process; worker: the rows of one device of all workers under each other; compact: the streams of a device in a few lanes. */
export type Layout = "" | "worker" | "compact";

export interface Row {
  track: Track;
  y: number;
  height: number;
  /** 0 of a group, of a counter, and of a closed row */
  lanes: number;
  lane: number;
  /** depth in the tree */
  level: number;
  open: boolean;
  /** what a group holds; what is drawn of a closed one is its summary */
  group: boolean;
  pinned: boolean;
}

const GROUPS = new Set(["worker", "process", "device"]);
export const isGroup = (t: Track): boolean => GROUPS.has(t.kind);
/** Lines of a track from which on it is closed at first. */
const MOST_OPEN_LANES = 60;
const MOST_WORKERS = 8;

/** Tracks by parent, in their order. */
export function childrenOf(tracks: readonly Track[]): Map<number, Track[]> {
  const out = new Map<number, Track[]>();
  for (const t of tracks) {
    const list = out.get(t.parent);
    if (list) list.push(t);
    else out.set(t.parent, [t]);
  }
  return out;
}

/** How many workers there are. */
export const workersOf = (tracks: readonly Track[]): number => tracks.filter((t) => t.parent < 0).length;

/** A track and all it stands in, from itself up. */
export function chainOf(track: Track, tracks: readonly Track[]): Track[] {
  const out: Track[] = [];
  for (let at: Track | null = track; at; at = at.parent >= 0 ? tracks[at.parent]! : null) out.push(at);
  return out;
}

/** Whether a track is open before anyone touched it. More than eight workers open as summaries. */
export function openAtFirst(t: Track, workers: number): boolean {
  if (isGroup(t) && workers > MOST_WORKERS) return false;
  if (t.kind === "worker") return true;
  return t.open && t.lanes <= MOST_OPEN_LANES;
}

export const isOpen = (t: Track, workers: number, toggled: ReadonlySet<string>): boolean => openAtFirst(t, workers) !== toggled.has(t.path);

const laneHeight = (t: Track): number => (t.kind === "stream" && t.lanes === 1 ? STREAM : LANE);

function heightOf(t: Track, open: boolean): [height: number, lanes: number, lane: number] {
  if (isGroup(t)) return [GROUP, 0, 0];
  if (t.kind === "counter") return [open ? COUNTER : CLOSED, 0, 0];
  if (!open) return [CLOSED, Math.min(t.lanes, 1), CLOSED - GAP];
  const lane = laneHeight(t);
  return [t.lanes * lane + GAP, t.lanes, lane];
}

export interface Shown {
  /** above the scroll area */
  pinned: Row[];
  rows: Row[];
  pinnedHeight: number;
  height: number;
  /** tracks that the person hid */
  hidden: number;
}

/** The rows of some tracks. Only the one worker of a recording has no row of its own. */
export function rowsOf(tracks: readonly Track[], how: Arrangement): Shown {
  const children = childrenOf(tracks);
  const workers = workersOf(tracks);
  const [pinned, hidden, toggled] = [new Set(how.pinned), new Set(how.hidden), new Set(how.toggled)];
  const words = how.find.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = words.length ? matching(tracks, words) : null;
  const out: Row[] = [];
  const top: Row[] = [];
  const add = (t: Track, level: number, list: Row[], inPin: boolean): void => {
    if (!inPin && (hidden.has(t.path) || (kept && !kept.has(t.track)))) return;
    const below = children.get(t.track) ?? [];
    const open = (kept && !inPin && isGroup(t)) || isOpen(t, workers, toggled);
    const alone = t.kind === "worker" && workers === 1;
    if (!alone) {
      const [height, lanes, lane] = heightOf(t, open);
      list.push({ track: t, y: 0, height, lanes, lane, level, open, group: isGroup(t), pinned: pinned.has(t.path) });
    }
    if (open || alone) for (const one of below) if (inPin || !pinned.has(one.path)) add(one, alone ? level : level + 1, list, inPin);
  };
  const roots = how.layout === "worker" ? acrossWorkers(children) : (children.get(-1) ?? []);
  for (const t of tracks) if (pinned.has(t.path) && !above(t, tracks, pinned)) add(t, 0, top, true);
  for (const t of roots) if (!pinned.has(t.path)) add(t, 0, out, false);
  return { pinned: top, rows: out, pinnedHeight: place(top), height: place(out), hidden: tracks.filter((t) => hidden.has(t.path)).length };
}

const above = (t: Track, tracks: readonly Track[], among: ReadonlySet<string>): boolean => chainOf(t, tracks).some((one) => one !== t && among.has(one.path));

/** Devices of all workers under each other, then their processes: one row of each worker beside the others. */
function acrossWorkers(children: ReadonlyMap<number, Track[]>): Track[] {
  const roots = children.get(-1) ?? [];
  const seconds = roots.map((r) => children.get(r.track) ?? []);
  const most = Math.max(0, ...seconds.map((s) => s.length));
  const out: Track[] = [];
  for (let k = 0; k < most; k++) for (const list of seconds) if (list[k]) out.push(list[k]!);
  return roots.length > 1 ? out : roots;
}

function matching(tracks: readonly Track[], words: readonly string[]): Set<number> {
  const out = new Set<number>();
  const direct = (t: Track): boolean => words.every((w) => `${t.path} ${t.label} ${t.detail} ${t.kind}`.toLowerCase().includes(w));
  for (const t of tracks) {
    const parent = t.parent >= 0 ? tracks[t.parent]! : null;
    if (!direct(t) && !(parent && out.has(parent.track) && direct(parent))) continue;
    for (let at: Track | null = t; at && !out.has(at.track); at = at.parent >= 0 ? tracks[at.parent]! : null) out.add(at.track);
  }
  return out;
}

function place(rows: Row[]): number {
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height;
  }
  return y;
}

/** Rows between two heights: the first and one past the last. */
export function visible(rows: readonly Row[], from: number, to: number): [number, number] {
  return [lowest(rows, (r) => r.y + r.height > from), lowest(rows, (r) => r.y >= to)];
}

/** The row at a height; null between the ends. */
export function rowAt(rows: readonly Row[], y: number): Row | null {
  const row = rows[lowest(rows, (r) => r.y + r.height > y)];
  return row && row.y <= y ? row : null;
}

function lowest(rows: readonly Row[], passes: (row: Row) => boolean): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passes(rows[middle]!)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The lane of a row at a height inside it, -1 where there is none. */
export function laneAt(row: Row, y: number): number {
  if (!row.lanes) return -1;
  const lane = Math.floor((y - row.y - GAP / 2) / row.lane);
  return lane >= 0 && lane < row.lanes ? lane : -1;
}

export const laneTop = (row: Row, lane: number): number => row.y + Math.floor(GAP / 2) + lane * row.lane;

/** All tracks below some, with themselves. */
export function withBelow(chosen: Iterable<number>, tracks: readonly Track[]): number[] {
  const wanted = new Set(chosen);
  for (const t of tracks) if (t.parent >= 0 && wanted.has(t.parent)) wanted.add(t.track);
  return [...wanted].sort((a, b) => a - b);
}

/** Of some tracks those of a worker, by the numbers that they have where it is alone. */
export function ofWorker(chosen: readonly number[], tracks: readonly Track[], worker: number): number[] {
  const root = tracks.find((t) => t.worker === worker && t.parent < 0)?.track ?? 0;
  return chosen.filter((t) => tracks[t]!.worker === worker).map((t) => t - root);
}

/** Numbers as ranges: 0-3,7. */
export function rangesOf(numbers: readonly number[]): string {
  const out: string[] = [];
  for (let k = 0; k < numbers.length; k++) {
    const from = numbers[k]!;
    while (numbers[k + 1] === numbers[k]! + 1) k++;
    out.push(numbers[k] === from ? `${from}` : `${from}-${numbers[k]}`);
  }
  return out.join(",");
}

export interface Placed {
  row: Row;
  /** on the canvas */
  y: number;
}

/** Rows that can be seen, pinned ones first, each with its place on the canvas. */
export function placed(shown: Shown, scroll: number, height: number): Placed[] {
  const top = shown.pinnedHeight;
  const pinned = shown.pinned.filter((r) => r.y < height).map((row) => ({ row, y: row.y }));
  const [from, to] = visible(shown.rows, scroll, scroll + Math.max(0, height - top));
  return [...pinned, ...shown.rows.slice(from, to).map((row) => ({ row, y: row.y - scroll + top }))];
}
