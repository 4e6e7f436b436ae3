// Which part of a name tells it from the names that begin alike: that part stays on the screen when the name is cut. Pure.

/** Letters of a name that stay in every cell: names that differ in them need no more. */
const HEAD = 14;
/** Letters that are kept of a part, at most. */
const MOST = 36;
/** Letters by which a part grows to the beginning and the end of a word. */
const WORD = 12;
/** Letters before a part, at least: a part that begins earlier is on the screen anyway. */
const LEAST = 6;
/** Letters up to which a part begins where the names around it branch: the tile before the alignment. */
const USUAL = 30;
/** Names on each side that are looked at for that. */
const AROUND = 48;
/** Letters of a part that has to tell a name from several others. */
const WIDEST = 64;
/** Letters that stay at the end of a name without a part. */
const TAIL = 12;
/** Times that parts are widened. */
const ROUNDS = 4;
/** Distinct names up to which they are compared. */
const COMPARED = 20_000;

const inWord = (text: string, at: number): boolean => /[A-Za-z0-9]/.test(text[at] ?? "");

function common(a: string, b: string): { head: number; tail: number } {
  const least = Math.min(a.length, b.length);
  let head = 0;
  while (head < least && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < least - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return { head, tail };
}

type Part = [number, number];

/** A part in whole words, as far as the letters before it allow. */
function inWords(name: string, from: number, to: number): Part {
  let [a, b] = [from, to];
  for (let n = 0; n < WORD && a > 0 && inWord(name, a - 1); n++) a--;
  for (let n = 0; n < WORD && b < name.length && inWord(name, b); n++) b++;
  return [a >= LEAST ? a : from, b];
}

/**
 * [from, to) of the part of each name in which it differs from those that look like it, in whole words; none for a name that its first
 * `shown` letters tell apart.
 */
export function distinctParts(names: Iterable<string>, shown = HEAD): Map<string, Part> {
  const sorted = [...new Set(names)].sort();
  const out = new Map<string, Part>();
  if (sorted.length > COMPARED) return out;
  const pairs = sorted.slice(1).map((name, i) => common(sorted[i]!, name));
  sorted.forEach((name, i) => {
    const alike = [pairs[i - 1], pairs[i]].filter((p) => p !== undefined && p.head >= shown) as { head: number; tail: number }[];
    if (!alike.length) return;
    const from = Math.min(...alike.map((p) => p.head), name.length - 1);
    const to = Math.max(...alike.map((p) => name.length - p.tail), from + 1);
    const [a, b] = inWords(name, branches(pairs, i, shown).find((h) => h < from && to - h <= USUAL) ?? from, to);
    if (a >= LEAST) out.set(name, [a, Math.min(b, a + MOST)]);
  });
  for (let n = 0; n < ROUNDS && apart(sorted, out); n++);
  return out;
}

/** Lengths of what a name has in common with those around it, the shortest first: where the family that it is of branches. */
function branches(pairs: readonly { head: number }[], at: number, least: number): number[] {
  const out = new Set<number>();
  for (const step of [-1, 1]) {
    let head = Infinity;
    for (let n = 0, i = step < 0 ? at - 1 : at; n < AROUND && pairs[i]; n++, i += step) {
      head = Math.min(head, pairs[i]!.head);
      if (head < least) break;
      out.add(head);
    }
  }
  return [...out].sort((a, b) => a - b);
}

/** What stays of a name in the narrowest cell. */
export const shortest = (name: string, part: Part | undefined): string =>
  name.length <= 2 * TAIL ? name : part ? `${name.slice(0, HEAD)}…${name.slice(...part)}` : `${name.slice(0, HEAD)}…${name.slice(-TAIL)}`;

/** Widens the parts of names of which the same stays, to where they differ from each other; false where no two are alike. */
function apart(sorted: readonly string[], out: Map<string, Part>): boolean {
  const groups = new Map<string, string[]>();
  for (const name of sorted) {
    const text = shortest(name, out.get(name));
    groups.set(text, [...(groups.get(text) ?? []), name]);
  }
  let changed = false;
  for (const alike of groups.values()) {
    if (alike.length < 2) continue;
    const pairs = alike.slice(1).map((name, i) => common(alike[i]!, name));
    const head = Math.min(...pairs.map((p) => p.head));
    const tail = Math.min(...pairs.map((p) => p.tail));
    for (const name of alike) {
      const now = out.get(name);
      const [from, to] = inWords(name, Math.min(head, name.length - 1), Math.max(name.length - tail, head + 1));
      const wide = Math.max(LEAST, Math.min(from, now?.[0] ?? from));
      const a = to - wide > WIDEST ? Math.max(LEAST, from) : wide; // what differs is too far away: that alone
      const b = Math.min(name.length, Math.max(to, now?.[1] ?? to), a + WIDEST);
      if (b > a && (now?.[0] !== a || now?.[1] !== b)) changed = !!out.set(name, [a, b]);
    }
  }
  return changed;
}

const cache = new WeakMap<readonly unknown[], Map<string, Part>>();

/** The parts of the names of a column; computed once per column. */
export function partsOf(values: readonly unknown[]): Map<string, Part> {
  let found = cache.get(values);
  if (!found) cache.set(values, (found = distinctParts(values.filter((v): v is string => typeof v === "string"))));
  return found;
}
