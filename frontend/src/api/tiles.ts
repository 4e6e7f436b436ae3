// Tiles of the timeline in a saved page: answers of the server, one a level, each behind its length; and answers made of parts of them. Pure.

interface Block {
  i: number;
  track: number;
  offset: number;
}

/** A tile of one track: its entry in the header of an answer, and where its bytes are. */
export interface TilePart {
  block: Block;
  body: Uint8Array;
}

const MAGIC = "SLT1";
const keyOf = (track: number, z: number, i: number): string => `${track}/${z}/${i}`;

/** All tiles by track, level and place. */
export function tileParts(all: ArrayBuffer): Map<string, TilePart> {
  const out = new Map<string, TilePart>();
  const view = new DataView(all);
  for (let at = 0; at < all.byteLength; ) {
    const end = at + 4 + view.getUint32(at, true);
    const head = at + 12;
    const base = head + view.getUint32(at + 8, true);
    const { z, blocks } = JSON.parse(new TextDecoder().decode(new Uint8Array(all, head, base - head))) as { z: number; blocks: Block[] };
    blocks.forEach((block, k) => {
      const to = k + 1 < blocks.length ? base + blocks[k + 1]!.offset : end;
      out.set(keyOf(block.track, z, block.i), { block, body: new Uint8Array(all, base + block.offset, to - base - block.offset) });
    });
    at = end;
  }
  return out;
}

/** An answer of the server with those of the tiles that are here. */
export function savedTiles(parts: ReadonlyMap<string, TilePart>, z: number, from: number, to: number, tracks: readonly number[]): ArrayBuffer {
  const found: TilePart[] = [];
  for (let i = from; i <= to; i++) for (const track of tracks) {
    const part = parts.get(keyOf(track, z, i));
    if (part) found.push(part);
  }
  let offset = 0;
  const blocks = found.map(({ block, body }) => {
    const moved = { ...block, offset };
    offset += body.length;
    return moved;
  });
  const text = JSON.stringify({ v: 1, z, blocks });
  const header = new TextEncoder().encode(text + " ".repeat((4 - (new TextEncoder().encode(text).length % 4)) % 4));
  const out = new Uint8Array(8 + header.length + offset);
  out.set(new TextEncoder().encode(MAGIC));
  new DataView(out.buffer).setUint32(4, header.length, true);
  out.set(header, 8);
  found.forEach(({ body }, k) => out.set(body, 8 + header.length + blocks[k]!.offset));
  return out.buffer;
}
