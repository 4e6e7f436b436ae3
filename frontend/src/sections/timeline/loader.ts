// Requests for tiles: gathered once a frame, at most four in flight, what is visible first; what is no longer wanted is cancelled.
import type { Tile } from "./tile";
import { readTiles } from "./tile";

export const MOST_IN_FLIGHT = 4;
const MOST_TRACKS = 24;
const MOST_TILES = 8;
/** ms of decoding until the page may do something else. */
const SLICE = 4;

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
  from: number;
  to: number;
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
  /** tiles that the server could not make: not asked for again */
  private readonly broken = new Set<string>();
  private stopped = false;

  constructor(private readonly source: Source) {}

  get busy(): boolean {
    return this.flights.size > 0 || this.queue.length > 0;
  }

  /** Replaces what is wanted. */
  want(wanted: readonly Wanted[]): void {
    if (this.stopped) return;
    const levels = new Set(wanted.map((w) => w.z));
    for (const flight of this.flights) if (!levels.has(flight.z)) flight.stop.abort();
    const flying = (key: string): boolean => [...this.flights].some((f) => !f.stop.signal.aborted && f.keys.has(key));
    this.queue = plan(wanted, (t, z, i) => !this.source.has(t, z, i) && !flying(keyOf(t, z, i)) && !this.broken.has(keyOf(t, z, i)));
    this.next();
  }

  stop(): void {
    this.stopped = true;
    this.queue = [];
    for (const flight of this.flights) flight.stop.abort();
  }

  private next(): void {
    while (this.flights.size < MOST_IN_FLIGHT && this.queue.length) void this.send(this.queue.shift()!);
  }

  private async send({ z, from, to, tracks }: Wanted): Promise<void> {
    const keys = new Set<string>();
    for (let i = from; i <= to; i++) for (const t of tracks) keys.add(keyOf(t, z, i));
    const flight: Flight = { z, from, to, keys, stop: new AbortController() };
    this.flights.add(flight);
    try {
      const buffer = await this.source.get(z, from, to, tracks, flight.stop.signal);
      let began = performance.now();
      for (const tile of readTiles(buffer)) {
        this.source.arrived(tile);
        if (performance.now() - began > SLICE) {
          await new Promise((done) => setTimeout(done, 0));
          began = performance.now();
        }
      }
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
