// Decoded tiles, least recently used first out, under a cap of bytes; those that show a whole track stay. Pure.
import type { Tile } from "./tile";

export const MOST_BYTES = 64 * 2 ** 20;

const key = (track: number, z: number, i: number): string => `${track}/${z}/${i}`;

/** What to draw of a track in one place: the tile itself, one above it, or some below it until the right one comes. */
export interface Covering {
  /** the tile that holds the place at its own level, or a complete or coarser one around it */
  tile: Tile | null;
  /** finer tiles inside the place, drawn over a coarser one */
  finer: Tile[];
  /** nothing better is to be requested */
  sharp: boolean;
}

export class TileCache {
  private readonly tiles = new Map<string, Tile>();
  private readonly pinned = new Map<string, Tile>();
  bytes = 0;
  pinnedBytes = 0;

  /** top: level at which one tile holds the whole recording; tiles of it stay. */
  constructor(readonly top: number, private readonly most = MOST_BYTES) {}

  get size(): number {
    return this.tiles.size + this.pinned.size;
  }

  put(tile: Tile): void {
    const at = key(tile.track, tile.z, tile.i);
    if (tile.z >= this.top) {
      this.pinnedBytes += tile.bytes - (this.pinned.get(at)?.bytes ?? 0);
      this.pinned.set(at, tile);
      return;
    }
    this.bytes += tile.bytes - (this.tiles.get(at)?.bytes ?? 0);
    this.tiles.delete(at);
    this.tiles.set(at, tile);
    for (const [old, one] of this.tiles) {
      if (this.bytes + this.pinnedBytes <= this.most) break;
      this.tiles.delete(old);
      this.bytes -= one.bytes;
    }
  }

  /** A tile, now the one used last; null when it is not here. */
  get(track: number, z: number, i: number): Tile | null {
    const at = key(track, z, i);
    if (z >= this.top) return this.pinned.get(at) ?? null;
    const found = this.tiles.get(at);
    if (!found) return null;
    this.tiles.delete(at);
    this.tiles.set(at, found);
    return found;
  }

  has(track: number, z: number, i: number): boolean {
    return this.pinned.has(key(track, z, i)) || this.tiles.has(key(track, z, i));
  }

  covering(track: number, z: number, i: number): Covering {
    const own = this.get(track, z, i);
    if (own) return { tile: own, finer: [], sharp: true };
    let coarse: Tile | null = null;
    for (let level = z + 1, at = Math.floor(i / 2); level <= this.top; level++, at = Math.floor(at / 2)) {
      const found = this.get(track, level, at);
      if (found?.complete) return { tile: found, finer: [], sharp: true };
      coarse ??= found;
    }
    const finer: Tile[] = [];
    if (!coarse || coarse.z > z + 1) {
      for (let down = 1; down <= 2 && z - down >= 0 && !finer.length; down++) {
        const many = 2 ** down;
        for (let k = 0; k < many; k++) {
          const found = this.get(track, z - down, i * many + k);
          if (found) finer.push(found);
        }
      }
    }
    return { tile: coarse, finer, sharp: false };
  }

  clear(): void {
    this.tiles.clear();
    this.pinned.clear();
    this.bytes = this.pinnedBytes = 0;
  }
}
