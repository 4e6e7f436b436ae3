// Requests for tiles: gathered once a frame, at most four in flight, one while the view moves; what is visible first, then what is beside it.
import type { Tile } from "./tile";
import { readTiles } from "./tile";

export const MOST_IN_FLIGHT = 4;
/** While the view moves: the server then works on what is wanted now, not on what was passed. */
export const MOST_MOVING = 1;
const MOST_TRACKS = 24;
const MOST_TILES = 8;
/** ms of decoding until the page may do something else. */
const SLICE = 4;

/** From this rank on tiles are not for what is in view: they wait for all others. */
export const AHEAD = 2;
/** Requests of such tiles at one time, when all others are here. */
const MOST_AHEAD = 2;

/** Tiles of some tracks: `from` to `to` of level z. rank: lower is fetched sooner. */
export interface Wanted {
  z: number;
  from: number;
  to: number;
  tracks: number[];
  rank: number;
}

export interface Source {
  get: (z: number, from: number, to: number, tracks: readonly number[], signal: AbortSignal) => Promise<ArrayBuffer>;
  has: (track: number, z: number, i: number) => boolean;
  arrived: (tile: Tile) => void;
  /** all tiles of an answer are in */
  settled: () => void;
  failed: (error: unknown) => void;
}

interface Flight {
  z: number;
  rank: number;
  keys: Set<string>;
  stop: AbortController;
}

const keyOf = (track: number, z: number, i: number): string => `${track}/${z}/${i}`;

/** Requests of at most 24 tracks and eight tiles each that bring what is missing, in order of rank. */
export function plan(wanted: readonly Wanted[], missing: (track: number, z: number, i: number) => boolean): Wanted[] {
  const out: Wanted[] = [];
  for (const one of [...wanted].sort((a, b) => a.rank - b.rank)) {
    for (let from = one.from; from <= one.to; from += MOST_TILES) {
      const to = Math.min(one.to, from + MOST_TILES - 1);
      const lacking = one.tracks.filter((t) => { for (let i = from; i <= to; i++) if (missing(t, one.z, i)) return true; return false; });
      for (let k = 0; k < lacking.length; k += MOST_TRACKS) out.push({ ...one, from, to, tracks: lacking.slice(k, k + MOST_TRACKS) });
    }
  }
  return out;
}

export class Loader {
  private readonly flights = new Set<Flight>();
  private queue: Wanted[] = [];
  /** tiles that the server could not make, or a saved page does not have: not asked for again */
  private readonly broken = new Set<string>();
  private stopped = false;
  private most = MOST_IN_FLIGHT;

  constructor(private readonly source: Source) {}

  /** Whether tiles of what is in view are on their way. */
  get busy(): boolean {
    return this.queue.some((w) => w.rank < AHEAD) || [...this.flights].some((f) => f.rank < AHEAD && !f.stop.signal.aborted);
  }

  /** Replaces what is wanted. level: of the view; tiles on their way of this one and its neighbors are still of use, others are cancelled. */
  want(wanted: readonly Wanted[], level: number, moving = false): void {
    if (this.stopped) return;
    this.most = moving ? MOST_MOVING : MOST_IN_FLIGHT;
    const levels = new Set(wanted.map((w) => w.z));
    for (const flight of this.flights) if (!levels.has(flight.z) && Math.abs(flight.z - level) > 1) flight.stop.abort();
    const flying = (key: string): boolean => [...this.flights].some((f) => !f.stop.signal.aborted && f.keys.has(key));
    this.queue = plan(wanted, (t, z, i) => !this.source.has(t, z, i) && !flying(keyOf(t, z, i)) && !this.broken.has(keyOf(t, z, i)));
    if (this.queue[0] && this.queue[0].rank < AHEAD) for (const flight of this.flights) if (flight.rank >= AHEAD) flight.stop.abort();
    this.next();
  }

  stop(): void {
    this.stopped = true;
    this.queue = [];
    for (const flight of this.flights) flight.stop.abort();
  }

  private next(): void {
    for (;;) {
      const flying = [...this.flights].filter((f) => !f.stop.signal.aborted);
      const first = this.queue[0];
      if (!first || flying.length >= this.most) return;
      if (first.rank >= AHEAD && (flying.length >= MOST_AHEAD || flying.some((f) => f.rank < AHEAD))) return;
      void this.send(this.queue.shift()!);
    }
  }

  private async send({ z, from, to, tracks, rank }: Wanted): Promise<void> {
    const keys = new Set<string>();
    for (let i = from; i <= to; i++) for (const t of tracks) keys.add(keyOf(t, z, i));
    const flight: Flight = { z, rank, keys, stop: new AbortController() };
    this.flights.add(flight);
    try {
      const buffer = await this.source.get(z, from, to, tracks, flight.stop.signal);
      let began = performance.now();
      for (const tile of readTiles(buffer)) {
        if (flight.stop.signal.aborted) return; // cancelled while the page did something else
        this.source.arrived(tile);
        keys.delete(keyOf(tile.track, tile.z, tile.i));
        if (performance.now() - began > SLICE) {
          await new Promise((done) => setTimeout(done, 0));
          began = performance.now();
        }
      }
      for (let i = from; i <= to; i++) for (const t of tracks) if (keys.has(keyOf(t, z, i)) && !this.source.has(t, z, i)) this.broken.add(keyOf(t, z, i));
    } catch (error) {
      if (!flight.stop.signal.aborted) {
        for (const key of keys) this.broken.add(key);
        this.source.failed(error);
      }
    } finally {
      this.flights.delete(flight);
      if (!this.stopped) {
        this.source.settled();
        this.next();
      }
    }
  }

  /** Tiles that failed may be asked for again. */
  forgive(): void {
    this.broken.clear();
  }
}
