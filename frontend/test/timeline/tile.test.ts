import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TileCache } from "../../src/sections/timeline/cache";
import { readTiles, type Slices, type Tile } from "../../src/sections/timeline/tile";

interface Item { start: number; end: number; event: number; name: number; count: number; busy: number }

const plane = (values: number[], width: number): number[] => {
  const out: number[] = [];
  for (let byte = 0; byte < width; byte++) for (const v of values) out.push(Math.floor((v < 0 ? v + 2 ** 32 : v) / 2 ** (8 * byte)) & 255);
  while (out.length % 4) out.push(0);
  return out;
};

/** A slow writer of the format, from its description: one block with one or more lanes. */
function written(z: number, i: number, lanes: Item[][], shift = 0): ArrayBuffer {
  const items = lanes.flat();
  const names = [...new Set(items.map((x) => x.name))].sort((a, b) => a - b);
  const diff = (values: number[]): number[] => values.map((v, k) => v - (k ? values[k - 1]! : 0));
  const body = [
    ...plane(diff(items.map((x) => x.start)), 4), ...plane(items.map((x) => x.end - x.start), 4), ...plane(diff(items.map((x) => x.event)), 4),
    ...plane(items.map((x) => names.indexOf(x.name)), 2), ...plane(items.map((x) => x.count), 2), ...plane(items.map((x) => x.busy), 1),
  ];
  let header = JSON.stringify({ v: 1, z, blocks: [{ i, track: 3, kind: "slices", shift, items: items.length, lanes: lanes.map((l) => l.length), names, name_bytes: 2, complete: false, offset: 0 }] });
  while (header.length % 4) header += " ";
  const head = new TextEncoder().encode(header);
  const out = new Uint8Array(8 + head.length + body.length);
  out.set(new TextEncoder().encode("SLT1"));
  new DataView(out.buffer).setUint32(4, head.length, true);
  out.set(head, 8);
  out.set(body, 8 + head.length);
  return out.buffer;
}

const item = fc.record({ gap: fc.nat(500), length: fc.integer({ min: 1, max: 900 }), event: fc.nat(2 ** 31), name: fc.nat(70_000), count: fc.integer({ min: 1, max: 65_535 }), busy: fc.nat(255) });
const lane = fc.array(item, { maxLength: 12 }).map((items) => {
  let at = -1000;
  return items.map(({ gap, length, ...rest }) => {
    const start = at + gap;
    at = start + length;
    return { ...rest, start, end: at };
  });
});

describe("tiles", () => {
  test("GIVEN any lanes written by the description WHEN read THEN every item is back", () => {
    fc.assert(fc.property(fc.array(lane, { maxLength: 5 }), fc.nat(1000), fc.constantFrom(0, 3, 11), (lanes, i, shift) => {
      const [tile] = [...readTiles(written(12, i, lanes, shift))] as [Slices];
      const origin = i * 2 ** 22;
      const got = lanes.map((_, l) => Array.from({ length: tile.bounds[l + 1]! - tile.bounds[l]! }, (_, k) => {
        const at = tile.bounds[l]! + k;
        return { event: tile.event[at]!, name: tile.name[at]!, count: tile.count[at]!, busy: tile.busy[at]!, start: (tile.start[at]! - origin) / 2 ** shift, end: (tile.end[at]! - origin) / 2 ** shift };
      }));
      expect(got).toEqual(lanes);
    }));
  });

  test("GIVEN bytes cut anywhere or changed WHEN read THEN an error or items, never a hang", () => {
    const whole = new Uint8Array(written(5, 0, [[{ start: 0, end: 9, event: 1, name: 2, count: 1, busy: 255 }]]));
    fc.assert(fc.property(fc.nat(whole.length), fc.nat(whole.length - 1), fc.nat(255), (cut, at, value) => {
      const bytes = whole.slice();
      bytes[at] = value;
      try {
        for (const tile of readTiles(bytes.slice(0, cut).buffer)) expect(tile.bytes).toBeGreaterThan(0);
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
      }
    }), { numRuns: 500 });
    expect(() => [...readTiles(new ArrayBuffer(3))]).toThrow("no tiles");
  });
});

const tile = (track: number, z: number, i: number, more: Partial<Tile> = {}): Tile => ({ kind: "summary", track, z, i, category: new Uint8Array(1), busy: new Uint8Array(1), depth: new Uint8Array(1), complete: false, bytes: 100, ...more } as Tile);

describe("cache of tiles", () => {
  test("GIVEN more tiles than fit WHEN put THEN the least recently used go, those of the whole stay, and bytes stay below the cap", () => {
    const cache = new TileCache(10, 500);
    cache.put(tile(1, 10, 0));
    for (let i = 0; i < 4; i++) cache.put(tile(1, 3, i));
    expect(cache.get(1, 3, 0)).not.toBeNull(); // used last now
    cache.put(tile(1, 3, 9));
    expect(cache.has(1, 3, 1)).toBe(false);
    expect([cache.has(1, 3, 0), cache.has(1, 10, 0), cache.bytes + cache.pinnedBytes]).toEqual([true, true, 500]);
  });

  test("GIVEN a place without its tile WHEN asked what covers it THEN a complete one around it is sharp, else a coarser one or finer ones stand in", () => {
    const cache = new TileCache(10);
    expect(cache.covering(1, 4, 5)).toEqual({ tile: null, finer: [], sharp: false });
    cache.put(tile(1, 10, 0));
    expect(cache.covering(1, 4, 5)).toMatchObject({ tile: { z: 10 }, sharp: false });
    cache.put(tile(1, 3, 10));
    expect(cache.covering(1, 4, 5).finer.map((t) => t.i)).toEqual([10]);
    cache.put(tile(1, 5, 2));
    expect(cache.covering(1, 4, 5)).toMatchObject({ tile: { z: 5 }, finer: [], sharp: false });
    cache.put(tile(1, 6, 1, { complete: true }));
    expect(cache.covering(1, 4, 5)).toMatchObject({ tile: { z: 6 }, sharp: true });
    cache.put(tile(1, 4, 5));
    expect(cache.covering(1, 4, 5)).toMatchObject({ tile: { z: 4 }, finer: [], sharp: true });
  });
});
