// A tile: items of one track in 1,024 buckets of 2^z ns, read from the bytes of the server. Pure.

/** Buckets of a tile, as a power of two. */
export const TILE = 10;
const MAGIC = 0x31544c53; // "SLT1"

/** Items of a track by lane, then start; positions are ns after the origin. */
export interface Slices {
  kind: "slices";
  track: number;
  z: number;
  i: number;
  /** item of each lane's begin, and the end of the last */
  bounds: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  event: Uint32Array;
  name: Uint32Array;
  /** events merged in an item; 65,535 = or more */
  count: Uint16Array;
  /** 255 = busy all of its length */
  busy: Uint8Array;
  /** nothing is merged and every position exact: finer tiles hold nothing more */
  complete: boolean;
  bytes: number;
}

export interface Counter {
  kind: "counter";
  track: number;
  z: number;
  i: number;
  time: Float64Array;
  low: Float64Array;
  high: Float64Array;
  last: Float64Array;
  /** the value at the begin of the tile, null unknown */
  before: number | null;
  complete: boolean;
  bytes: number;
}

/** Per bucket of a worker, process or device: the category with most time (255: none), busy share, depth. */
export interface Summary {
  kind: "summary";
  track: number;
  z: number;
  i: number;
  category: Uint8Array;
  busy: Uint8Array;
  depth: Uint8Array;
  complete: boolean;
  bytes: number;
}

export type Tile = Slices | Counter | Summary;

interface Header {
  v: number;
  z: number;
  blocks: {
    i: number; track: number; kind: Tile["kind"]; shift: number; items: number; offset: number; complete: boolean;
    lanes?: number[]; names?: number[]; name_bytes?: 2 | 4; before?: number | null;
  }[];
}

const padded = (n: number): number => (n + 3) & ~3;

/** Values whose lowest bytes stand first, then all second ones, and so on. */
function planes2(bytes: Uint8Array, at: number, n: number, out: Uint16Array | Uint32Array): void {
  for (let k = 0; k < n; k++) out[k] = bytes[at + k]! | (bytes[at + n + k]! << 8);
}

function planes4(bytes: Uint8Array, at: number, n: number, out: Uint32Array | Int32Array): void {
  for (let k = 0; k < n; k++) out[k] = bytes[at + k]! | (bytes[at + n + k]! << 8) | (bytes[at + 2 * n + k]! << 16) | (bytes[at + 3 * n + k]! << 24);
}

/** Reads the tiles of an answer one by one, so that a caller can pause between them. Error for bytes that are no tiles. */
export function* readTiles(buffer: ArrayBuffer): Generator<Tile> {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("The server sent no tiles of a timeline.");
  const length = view.getUint32(4, true);
  if (8 + length > buffer.byteLength) throw new Error("The server sent a part of a tile.");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Header;
  if (header.v !== 1) throw new Error(`Tiles of version ${header.v}; this page reads version 1. Reload the page.`);
  const base = 8 + length;
  for (const block of header.blocks) {
    const at = { ...block, z: header.z, from: base + block.offset };
    yield block.kind === "slices" ? slices(buffer, at) : block.kind === "counter" ? counter(buffer, at) : summary(buffer, at);
  }
}

type At = Header["blocks"][number] & { z: number; from: number };

function slices(buffer: ArrayBuffer, b: At): Slices {
  const { items: n, z, i } = b;
  const bytes = new Uint8Array(buffer);
  const wide = b.name_bytes ?? 2;
  let from = b.from;
  const column = (size: number): number => {
    const at = from;
    from += padded(n * size);
    if (from > buffer.byteLength) throw new Error("The server sent a part of a tile.");
    return at;
  };
  const delta = new Int32Array(n);
  const extent = new Uint32Array(n);
  const event = new Uint32Array(n);
  const place = wide === 2 ? new Uint16Array(n) : new Uint32Array(n);
  const count = new Uint16Array(n);
  planes4(bytes, column(4), n, delta);
  planes4(bytes, column(4), n, extent);
  planes4(bytes, column(4), n, event);
  if (wide === 2) planes2(bytes, column(2), n, place);
  else planes4(bytes, column(4), n, place as Uint32Array);
  planes2(bytes, column(2), n, count);
  const busyAt = column(1);
  const busy = bytes.slice(busyAt, busyAt + n);
  const [start, end, name] = [new Float64Array(n), new Float64Array(n), new Uint32Array(n)];
  const unit = 2 ** b.shift;
  const origin = i * 2 ** (z + TILE);
  const names = b.names ?? [];
  for (let k = 0, t = 0, e = 0; k < n; k++) {
    t += delta[k]!;
    e = (e + event[k]!) >>> 0;
    start[k] = origin + t * unit;
    end[k] = origin + (t + extent[k]!) * unit;
    event[k] = e;
    name[k] = names[place[k]!] ?? 0;
  }
  const lanes = b.lanes ?? [];
  const bounds = new Uint32Array(lanes.length + 1);
  for (let k = 0; k < lanes.length; k++) bounds[k + 1] = bounds[k]! + lanes[k]!;
  return { kind: "slices", track: b.track, z, i, bounds, start, end, event, name, count, busy, complete: b.complete, bytes: 27 * n + 4 * bounds.length + 200 };
}

function counter(buffer: ArrayBuffer, b: At): Counter {
  const { items: n, z, i } = b;
  if (b.from + n * 28 > buffer.byteLength) throw new Error("The server sent a part of a tile.");
  const at = (k: number): number => b.from + 4 * n + 8 * n * k;
  const column = (k: number): Float64Array => new Float64Array(buffer.slice(at(k), at(k + 1))); // numbers of the machine are little endian, as its pixels
  const [low, high, last] = [column(0), column(1), column(2)];
  const origin = i * 2 ** (z + TILE);
  const unit = 2 ** b.shift;
  const time = Float64Array.from(new Uint32Array(buffer.slice(b.from, b.from + 4 * n)), (t) => origin + t * unit);
  return { kind: "counter", track: b.track, z, i, time, low, high, last, before: b.before ?? null, complete: b.complete, bytes: 32 * n + 200 };
}

function summary(buffer: ArrayBuffer, b: At): Summary {
  const bytes = new Uint8Array(buffer);
  const step = padded(b.items);
  const part = (k: number): Uint8Array => bytes.slice(b.from + k * step, b.from + k * step + b.items);
  return { kind: "summary", track: b.track, z: b.z, i: b.i, category: part(0), busy: part(1), depth: part(2), complete: b.complete, bytes: 3 * b.items + 200 };
}
